#include "request.h"
#include <arpa/inet.h>

enum { TCHAR = 1, VALUE = 2, TARGET = 4, HOST = 8 };
enum { EMPTY_LINES_MAX = 4, VERSION_LENGTH = 10 /* " HTTP/1.1" and a CR */ };

static unsigned char classes[256]; /* a bit per class that the octet is in */

static void add(unsigned char class, const char *octets)
{
    for (; *octets; octets++)
        classes[(unsigned char)*octets] |= class;
}

/* Before main(), and never written again. */
__attribute__((constructor)) static void fill_classes(void)
{
    for (unsigned c = 0; c < 256; c++)
        classes[c] = c == '\t' || (c >= ' ' && c != 0x7f) ? VALUE : 0; /* with obs-text */
    add(TCHAR | TARGET | HOST,
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!$%&'*+-._~");
    add(TCHAR, "#^`|");
    add(TARGET, "()*,/:;=?@[]^{|}");
    add(HOST, "(),;=");
}

static bool is(char c, unsigned class)
{
    return (classes[(unsigned char)c] & class) != 0;
}

bool is_tchar(char c)
{
    return is(c, TCHAR);
}

static size_t span(struct str s, unsigned class)
{
    size_t n = 0;
    while (n < s.n && is(s.p[n], class))
        n++;
    return n;
}

/* Cuts the octets of `class` before `end` off `s`, and `end`; false when another one follows. (Not
 * inlined it makes parsing a third slower.) */
__attribute__((always_inline)) static inline bool take(struct str *s, unsigned class, char end,
                                                       struct str *taken)
{
    size_t n = span(*s, class);
    if (n == s->n || s->p[n] != end)
        return false;
    *taken = (struct str){s->p, n};
    *s = str_from(*s, n + 1);
    return true;
}

size_t request_empty_lines(const char *p, size_t n)
{
    size_t at = 0;
    while (at + 2 <= n && at < 2 * (size_t)EMPTY_LINES_MAX && memcmp(p + at, "\r\n", 2) == 0)
        at += 2;
    return at;
}

/* The line from `start` to `end` ends what has come of a head whose request line is at `first`. */
static int too_long(const char *p, size_t start, size_t end, size_t first,
                    const struct request_limits *limits)
{
    if (start == first && end - first > limits->line)
        return memchr(p + first, ' ', limits->line) ? 414 : 501; /* no method is so long */
    return end > limits->head ? 431 : 0;
}

long request_end(const char *p, size_t n, size_t *scanned, const struct request_limits *limits)
{
    size_t first = request_empty_lines(p, n);
    if (n == first || (n == first + 1 && p[first] == '\r'))
        return 0;
    if (!is(p[first], TCHAR))
        return -400;
    size_t at = *scanned > first ? *scanned : first;
    for (;;) {
        const char *lf = at < n ? memchr(p + at, '\n', n - at) : NULL;
        if (lf == NULL)
            break;
        size_t end = (size_t)(lf - p) + 1; /* `at` is where this line starts */
        if (end - at < 2 || lf[-1] != '\r')
            return -400;
        int status = too_long(p, at, end, first, limits);
        if (status)
            return -status;
        /* The rest of what is no request may never come. */
        if (at == first &&
            (end - at <= VERSION_LENGTH || memcmp(lf - VERSION_LENGTH, " HTTP/", 6) != 0))
            return -400;
        if (end - at == 2)
            return (long)end;
        at = end;
    }
    const char *cr = at < n ? memchr(p + at, '\r', n - at) : NULL;
    if (cr && cr + 1 < p + n)
        return -400; /* it would not wait for a line that never ends */
    *scanned = at;
    return -too_long(p, at, n, first, limits);
}

static enum method method_of(struct str s)
{
    static const struct {
        struct str name;
        enum method method;
    } methods[] = {{STR_INIT("GET"), METHOD_GET},       {STR_INIT("HEAD"), METHOD_HEAD},
                   {STR_INIT("POST"), METHOD_REFUSED},  {STR_INIT("PUT"), METHOD_REFUSED},
                   {STR_INIT("PATCH"), METHOD_REFUSED}, {STR_INIT("DELETE"), METHOD_REFUSED},
                   {STR_INIT("TRACE"), METHOD_REFUSED}, {STR_INIT("OPTIONS"), METHOD_OPTIONS}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (str_eq(s, methods[i].name))
            return methods[i].method;
    return METHOD_UNKNOWN;
}

static bool pct_valid(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '%' && str_escape(s, i) < 0)
            return false;
    return true;
}

/* The length of "[" IPv6address "]" at the start of `s`; 0 when it is none. */
static size_t literal(struct str s)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct in6_addr address;
    struct str inside = str_before(str_from(s, 1), ']');
    if (inside.n + 1 == s.n || inside.n >= sizeof text || memchr(inside.p, '\0', inside.n))
        return 0;
    memcpy(text, inside.p, inside.n);
    return inet_pton(AF_INET6, text, &address) == 1 ? inside.n + 2 : 0;
}

/* uri-host [ ":" [ port ] ], no user. An http URI has a host, which Host repeats (9110 4.2.1, 7.2).
 */
static bool host_valid(struct str s)
{
    uint64_t number = 0;
    bool six = s.n && s.p[0] == '[';
    size_t n = six ? literal(s) : span(s, HOST);
    struct str port = str_from(s, n);
    if (n == 0 || !pct_valid((struct str){s.p, n}) || (port.n && port.p[0] != ':'))
        return false;
    return port.n < 2 || (str_number(str_from(port, 1), &number) && number < 65536);
}

/* The part of an absolute-form target after the authority; false when it is not one. */
static bool absolute_form(struct str target, struct str *rest)
{
    bool http = str_starts(target, STR("http://"));
    if (!http && !str_starts(target, STR("https://")))
        return false;
    *rest = str_from(target, http ? 7 : 8);
    struct str host = str_before(str_before(*rest, '/'), '?');
    *rest = str_from(*rest, host.n);
    return host_valid(host);
}

static int parse_target(struct request *r)
{
    struct str s = r->target;
    r->path = r->query = (struct str){s.p, 0};
    if (str_eq(r->name, STR("CONNECT"))) /* refused for good: what follows is for a tunnel */
        return host_valid(s) && memchr(s.p, ':', s.n) && is_digit(s.p[s.n - 1]) ? 501 : 400;
    if (str_eq(s, STR("*")))
        return r->method == METHOD_OPTIONS ? 0 : 400;
    bool absolute = s.p[0] != '/';
    if (absolute && !absolute_form(s, &s))
        return 400;
    if (absolute && str_starts(r->target, STR("https:")))
        return 421; /* nothing is secured here (RFC 9110, 7.4) */
    r->path = str_before(s, '?');
    r->query = str_from(s, r->path.n);
    if (absolute && r->path.n == 0 && r->method != METHOD_OPTIONS)
        r->path = STR("/");
    return 0;
}

static int parse_version(struct request *r, struct str v)
{
    if (v.n != 8 || memcmp(v.p, "HTTP/", 5) != 0 || !is_digit(v.p[5]) || v.p[6] != '.' ||
        !is_digit(v.p[7]))
        return 400;
    if (v.p[5] != '1')
        return 505;
    r->http_1_0 = v.p[7] == '0';
    return 0;
}

/* method SP request-target SP HTTP-version */
static int parse_line(struct request *r)
{
    struct str rest = r->line;
    if (!take(&rest, TCHAR, ' ', &r->name) || r->name.n == 0)
        return 400;
    r->method = method_of(r->name);
    if (!take(&rest, TARGET, ' ', &r->target) || r->target.n == 0)
        return 400;
    int status = parse_version(r, rest);
    return status ? status : parse_target(r);
}

/* The names are in order of length: most of a request's are compared once or not at all. */
static enum field field_of(struct str s)
{
    static const struct str names[FIELD_OTHER] = {STR_INIT("host"),
                                                  STR_INIT("range"),
                                                  STR_INIT("expect"),
                                                  STR_INIT("referer"),
                                                  STR_INIT("if-match"),
                                                  STR_INIT("if-range"),
                                                  STR_INIT("connection"),
                                                  STR_INIT("user-agent"),
                                                  STR_INIT("if-none-match"),
                                                  STR_INIT("content-length"),
                                                  STR_INIT("accept-encoding"),
                                                  STR_INIT("if-modified-since"),
                                                  STR_INIT("transfer-encoding"),
                                                  STR_INIT("if-unmodified-since")};
    for (enum field f = 0; f < FIELD_OTHER && names[f].n <= s.n; f++)
        if (names[f].n == s.n && str_ieq(s, names[f]))
            return f;
    return FIELD_OTHER;
}

bool request_line(struct str *rest, struct str *name, struct str *value)
{
    struct str s = *rest;
    if (!take(&s, TCHAR, ':', name) || name->n == 0 || !take(&s, VALUE, '\r', value) || s.n == 0 ||
        s.p[0] != '\n')
        return false;
    *value = str_trim(*value);
    *rest = str_from(s, 1);
    return true;
}

bool request_each(struct str *rest, enum field f, struct str *value)
{
    struct str name;
    while (request_line(rest, &name, value))
        if (field_of(name) == f)
            return true;
    return false;
}

/* How long the body is must be beyond doubt: whatever two parsers could read differently is
 * refused (RFC 9112, 6.3 and 11.2). */
static int parse_framing(struct request *r)
{
    const unsigned lengths = 1U << FIELD_CONTENT_LENGTH | 1U << FIELD_TRANSFER_ENCODING;
    if ((r->repeated & lengths) || (r->seen & lengths) == lengths)
        return 400;
    if (request_has(r, FIELD_CONTENT_LENGTH) &&
        !str_number(r->value[FIELD_CONTENT_LENGTH], &r->length))
        return 400;
    if (r->length == UINT64_MAX)
        return 400;
    if (!request_has(r, FIELD_TRANSFER_ENCODING))
        return 0;
    struct str value = r->value[FIELD_TRANSFER_ENCODING];
    r->chunked = str_ieq(value, STR("chunked"));
    if (r->http_1_0 || r->chunked)
        return r->http_1_0 ? 400 : 0;
    struct str item = {NULL, 0};
    for (size_t n = 0; str_item(&value, ',', &item); n++)
        if (value.p && str_ieq(item, STR("chunked")))
            return 400;
    return str_ieq(item, STR("chunked")) ? 501 : 400;
}

static void parse_connection(struct request *r)
{
    bool close = false;
    bool keep = false;
    struct str rest = r->fields;
    struct str value;
    struct str item;
    while (request_each(&rest, FIELD_CONNECTION, &value))
        while (str_item(&value, ',', &item)) {
            close = close || str_ieq(item, STR("close"));
            keep = keep || str_ieq(item, STR("keep-alive"));
        }
    r->keep_alive = !close && (keep || !r->http_1_0);
}

static int parse_fields(struct request *r)
{
    struct str name;
    struct str value;
    size_t count = 0;
    struct str rest = r->fields;
    while (request_line(&rest, &name, &value)) {
        enum field f = field_of(name);
        if (++count > REQUEST_FIELDS_MAX)
            return 431;
        if (f == FIELD_OTHER)
            continue;
        if (!request_has(r, f))
            r->value[f] = value;
        r->repeated |= r->seen & 1U << f;
        r->seen |= 1U << f;
    }
    return rest.n ? 400 : 0;
}

static int parse_expect(struct request *r)
{
    struct str rest = r->fields;
    struct str value;
    struct str item;
    while (request_each(&rest, FIELD_EXPECT, &value))
        while (str_item(&value, ',', &item)) {
            if (item.n && !str_ieq(item, STR("100-continue")))
                return 417;
            r->expects_continue = r->expects_continue || item.n;
        }
    return 0;
}

static int check_fields(struct request *r)
{
    bool host = request_has(r, FIELD_HOST);
    if (host ? request_repeats(r, FIELD_HOST) || !host_valid(r->value[FIELD_HOST]) : !r->http_1_0)
        return 400;
    int status = parse_framing(r);
    if (status)
        return status;
    r->keep_alive = !r->http_1_0;
    if (request_has(r, FIELD_CONNECTION))
        parse_connection(r);
    return request_has(r, FIELD_EXPECT) && !r->http_1_0 ? parse_expect(r) : 0;
}

int request_parse(const char *p, size_t n, struct request *r)
{
    r->http_1_0 = r->keep_alive = r->expects_continue = r->chunked = false;
    r->length = 0;
    r->seen = r->repeated = 0;
    r->method = METHOD_UNKNOWN;
    r->line = r->name = r->target = (struct str){p, 0};
    struct str head = str_from((struct str){p, n}, request_empty_lines(p, n));
    struct str line = str_before(head, '\r');
    if (line.n + 4 > head.n || line.p[line.n + 1] != '\n')
        return 400;
    r->line = line;
    int status = parse_line(r);
    if (status)
        return status;
    r->fields = (struct str){line.p + line.n + 2, head.n - line.n - 4};
    status = parse_fields(r);
    return status ? status : check_fields(r);
}
