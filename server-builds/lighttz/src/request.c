#include "request.h"
#include "host.h"
#include "scan.h"

enum { TCHAR = 1, TARGET = 2, PATH = 4 /* without escapes */ };
enum { EMPTY_LINES_MAX = 4, NAME_MAX_LENGTH = 19, VERSION_LENGTH = 10 /* " HTTP/1.1" and a CR */ };

static unsigned char classes[256]; /* a bit per class that the octet is in */

static void add(unsigned char class, const char *octets)
{
    for (; *octets; octets++)
        classes[(unsigned char)*octets] |= class;
}

/* Before main(), and never written again. */
__attribute__((constructor)) static void fill_classes(void)
{
    add(TCHAR | TARGET | PATH,
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!$&'*+-._~");
    add(TCHAR | TARGET, "%");
    add(TCHAR, "#^`|");
    add(TARGET | PATH, "()*,/:;=@[]^{|}");
    add(TARGET, "?");
}

static bool in_class(char c, unsigned class)
{
    return (classes[(unsigned char)c] & class) != 0;
}

bool is_tchar(char c)
{
    return in_class(c, TCHAR);
}

/* How many octets at the start of `s` are of `class`, which has all letters and what lies from '-'
 * to `last`. */
static inline size_t span(struct str s, unsigned class, char last)
{
    const char *end = s.p + s.n;
    const char *p = scan_word(s.p, end, last);
    while (p < end && in_class(*p, class))
        p++;
    return (size_t)(p - s.p);
}

/* Cuts `n` octets off `s`, which must not be none, and the `end` behind them. */
static inline bool cut(struct str *s, size_t n, char end, struct str *piece)
{
    if (n == 0 || n == s->n || s->p[n] != end)
        return false;
    *piece = (struct str){s->p, n};
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

static enum method method_of(struct str s)
{
    static const struct {
        struct str name;
        enum method method;
    } methods[] = {{STR_INIT("GET"), METHOD_GET},       {STR_INIT("HEAD"), METHOD_HEAD},
                   {STR_INIT("POST"), METHOD_REFUSED},  {STR_INIT("PUT"), METHOD_REFUSED},
                   {STR_INIT("PATCH"), METHOD_REFUSED}, {STR_INIT("DELETE"), METHOD_REFUSED},
                   {STR_INIT("TRACE"), METHOD_REFUSED}, {STR_INIT("OPTIONS"), METHOD_OPTIONS}};
    if (s.n == 3 && memcmp(s.p, "GET", 3) == 0)
        return METHOD_GET;
    for (size_t i = 1; i < sizeof methods / sizeof *methods; i++)
        if (str_eq(s, methods[i].name))
            return methods[i].method;
    return METHOD_UNKNOWN;
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
    if (!cut(&rest, span(rest, TCHAR, '-'), ' ', &r->name))
        return 400;
    r->method = method_of(r->name);
    if (!cut(&rest, span(rest, TARGET, '9'), ' ', &r->target))
        return 400;
    int status = parse_version(r, rest);
    return status ? status : parse_target(r);
}

/* In order of length. */
static const struct str field_names[FIELD_OTHER] = {STR_INIT("host"),
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

/* By length, where the names of that length begin; elsewhere FIELD_HOST, which is of another. */
static enum field first_of_length[NAME_MAX_LENGTH + 1];

__attribute__((constructor)) static void fill_lengths(void)
{
    for (enum field f = FIELD_OTHER; f-- > 0;)
        first_of_length[field_names[f].n] = f;
}

/* Equality of `n` octets of tokens, at most eight, but for the case of letters. With the bit of
 * lower case set only a letter becomes a letter, and nothing in a token becomes '-' but itself. */
static inline bool same_word(const char *p, const char *q, size_t n)
{
    uint64_t a = 0;
    uint64_t b = 0;
    memcpy(&a, p, n);
    memcpy(&b, q, n);
    return ((a ^ b) & ~(uint64_t)0x2020202020202020) == 0;
}

/* Whether the token at `p` is `name`; both have `n` octets, at least four. */
static bool same_name(const char *p, const char *name, size_t n)
{
    if (n < 8)
        return same_word(p, name, 4) && same_word(p + n - 4, name + n - 4, 4);
    for (size_t i = 0; i + 8 < n; i += 8)
        if (!same_word(p + i, name + i, 8))
            return false;
    return same_word(p + n - 8, name + n - 8, 8);
}

static enum field field_of(struct str s)
{
    enum field f = s.n <= NAME_MAX_LENGTH ? first_of_length[s.n] : FIELD_OTHER;
    for (; f < FIELD_OTHER && field_names[f].n == s.n; f++)
        if (same_name(s.p, field_names[f].p, s.n))
            return f;
    return FIELD_OTHER;
}

bool request_each(const struct request *r, enum field f, size_t *at, struct str *value)
{
    const struct fields *fields = r->fields;
    while (*at < fields->count && fields->lines[*at].field != f)
        ++*at;
    if (*at == fields->count)
        return false;
    *value = request_value(r, (*at)++);
    return true;
}

/* How long the body is must be beyond doubt: whatever two parsers could read differently is
 * refused (RFC 9112, 6.3 and 11.2). */
static int parse_framing(struct request *r)
{
    const unsigned lengths = 1U << FIELD_CONTENT_LENGTH | 1U << FIELD_TRANSFER_ENCODING;
    if ((r->fields->repeated & lengths) || (r->fields->seen & lengths) == lengths)
        return 400;
    if (request_has(r, FIELD_CONTENT_LENGTH) &&
        !str_number(r->fields->value[FIELD_CONTENT_LENGTH], &r->length))
        return 400;
    if (r->length == UINT64_MAX)
        return 400;
    if (!request_has(r, FIELD_TRANSFER_ENCODING))
        return 0;
    struct str value = r->fields->value[FIELD_TRANSFER_ENCODING];
    r->chunked = str_ieq(value, STR("chunked"));
    if (r->http_1_0 || r->chunked)
        return r->http_1_0 ? 400 : 0;
    struct str item = {NULL, 0};
    while (str_item(&value, ',', &item))
        if (value.p && str_ieq(item, STR("chunked")))
            return 400;
    return str_ieq(item, STR("chunked")) ? 501 : 400;
}

static void parse_connection(struct request *r)
{
    bool close = false;
    bool keep = false;
    size_t at = 0;
    struct str value;
    struct str item;
    while (request_each(r, FIELD_CONNECTION, &at, &value))
        while (str_item(&value, ',', &item)) {
            close = close || str_ieq(item, STR("close"));
            keep = keep || str_ieq(item, STR("keep-alive"));
        }
    r->keep_alive = !close && (keep || !r->http_1_0);
}

static int parse_expect(struct request *r)
{
    size_t at = 0;
    struct str value;
    struct str item;
    while (request_each(r, FIELD_EXPECT, &at, &value))
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
    if (host ? request_repeats(r, FIELD_HOST) || !host_valid(r->fields->value[FIELD_HOST])
             : !r->http_1_0)
        return 400;
    int status = parse_framing(r);
    if (status)
        return status;
    r->keep_alive = !r->http_1_0;
    if (request_has(r, FIELD_CONNECTION))
        parse_connection(r);
    return request_has(r, FIELD_EXPECT) && !r->http_1_0 ? parse_expect(r) : 0;
}

/* The fields of the head that was read last, unless they were remembered. */
static struct line own_lines[REQUEST_FIELDS_MAX];
static struct fields own = {.lines = own_lines};

/* One field line without its end; 0, or the status to refuse it with. */
static int parse_field(struct str s)
{
    struct str name;
    struct str value = s;
    if (!cut(&value, span(s, TCHAR, '-'), ':', &name))
        return 400;
    value = str_trim(value);
    if (own.count == REQUEST_FIELDS_MAX)
        return 431;
    enum field f = field_of(name);
    own_lines[own.count++] = (struct line){.name = (uint16_t)(name.p - own.text),
                                           .name_length = (uint16_t)name.n,
                                           .value = (uint16_t)(value.p - own.text),
                                           .value_length = (uint16_t)value.n,
                                           .field = (unsigned char)f};
    if (f == FIELD_OTHER)
        return 0;
    if ((own.seen >> f & 1U) == 0)
        own.value[f] = value;
    own.repeated |= own.seen & 1U << f;
    own.seen |= 1U << f;
    return 0;
}

/* The line from `start` to `end` ends what has come of a head whose request line is at `first`. */
static int too_long(const char *p, size_t start, size_t end, size_t first,
                    const struct request_limits *limits)
{
    if (start == first && end - first > limits->line)
        return memchr(p + first, ' ', limits->line) ? 414 : 501; /* no method is so long */
    return end > limits->head ? 431 : 0;
}

/* Of the line that has not come whole yet, which starts at `at`. */
static long incomplete(const char *p, size_t n, size_t at, size_t first,
                       const struct request_limits *limits)
{
    const char *cr = at < n ? memchr(p + at, '\r', n - at) : NULL;
    if (cr && cr + 1 < p + n)
        return -400; /* it would not wait for a line that never ends */
    return -too_long(p, at, n, first, limits);
}

static void clear(struct request *r, const char *p)
{
    r->http_1_0 = r->keep_alive = r->expects_continue = r->chunked = r->plain = false;
    r->refusal = 0;
    r->length = 0;
    r->method = METHOD_UNKNOWN;
    r->line = r->name = r->target = (struct str){p, 0};
    r->fields = &own;
    own.seen = own.repeated = 0;
    own.count = 0;
    own.text = p;
}

/* Fields that came lately, each with the empty line behind them: clients send the same ones with
 * many requests. The same octets mean the same again, so they are compared instead of read. Only
 * those of a request of HTTP/1.1 without body that is not refused. */
enum { MEMOS = 8, MEMO_SIZE = 1024, MEMO_LINES = 24, PLAIN_MAX = 1024 };

static struct memo {
    size_t n; /* 0: none */
    bool keep_alive;
    struct fields fields;
    struct line lines[MEMO_LINES];
    char text[MEMO_SIZE];
} memos[MEMOS];

static struct memo *latest_memo = memos;

static bool begins_with(struct str s, const struct memo *m)
{
    return m->n && s.n >= m->n && memcmp(s.p, m->text, m->n) == 0;
}

/* What `s` begins with: most often all that has come, or else what was found before it in a
 * pipeline. NULL: neither. */
static const struct memo *find_memo(struct str s)
{
    struct memo *m = &memos[s.n % MEMOS];
    if (m->n == s.n && begins_with(s, m))
        return latest_memo = m;
    return begins_with(s, latest_memo) ? latest_memo : NULL;
}

static void recall(struct request *r, const struct memo *m)
{
    r->keep_alive = m->keep_alive;
    r->fields = &m->fields;
}

/* `s` are the fields of `r`. */
static void remember(const struct request *r, struct str s, size_t come)
{
    bool body = r->chunked || request_has(r, FIELD_CONTENT_LENGTH);
    if (r->refusal || r->http_1_0 || body || r->expects_continue || s.n > MEMO_SIZE ||
        own.count > MEMO_LINES)
        return;
    struct memo *m = latest_memo = &memos[come % MEMOS];
    ptrdiff_t offset = s.p - own.text;
    m->n = s.n;
    m->keep_alive = r->keep_alive;
    m->fields = own;
    m->fields.text = m->text;
    m->fields.lines = m->lines;
    memcpy(m->text, s.p, s.n);
    for (enum field f = 0; f < FIELD_OTHER; f++)
        if (request_has(r, f))
            m->fields.value[f].p = m->text + (own.value[f].p - s.p);
    for (size_t i = 0; i < own.count; i++) {
        m->lines[i] = own_lines[i];
        m->lines[i].name = (uint16_t)(m->lines[i].name - offset);
        m->lines[i].value = (uint16_t)(m->lines[i].value - offset);
    }
}

/* The end of the line at `p`, behind its LF, or NULL when it has not come. `*good` says whether
 * there is nothing in it but text and one CR before the LF. */
static const char *line_end(const char *p, const char *end, bool *good)
{
    const char *control = scan_text(p, end);
    *good = end - control >= 2 && control[0] == '\r' && control[1] == '\n';
    if (*good)
        return control + 2;
    const char *lf = control < end ? memchr(control, '\n', (size_t)(end - control)) : NULL;
    return lf ? lf + 1 : NULL;
}

/* What most requests are, read without a look at each part: GET of a plain path by HTTP/1.1, and
 * fields that are known. The length of the head, or 0 for any other request. */
static size_t parse_plain(const char *p, size_t n, const struct request_limits *limits,
                          struct request *r)
{
    static const char method[] = "GET ";
    static const char version[] = " HTTP/1.1\r\n";
    const size_t method_length = sizeof method - 1;
    const size_t version_length = sizeof version - 1;
    if (n < method_length || memcmp(p, method, method_length) != 0)
        return 0;
    struct str path = {p + method_length, n - method_length};
    path.n = span(path, PATH, '9');
    size_t line = method_length + path.n + version_length;
    if (path.n == 0 || path.p[0] != '/' || path.n > PLAIN_MAX || line > limits->line ||
        n - method_length - path.n < SCANNED_BEHIND ||
        memcmp(path.p + path.n, version, 8) != 0 || /* two words that overlap */
        memcmp(path.p + path.n + 3, version + 3, 8) != 0 || !scan_plain_path(path.p, path.n))
        return 0;
    const struct memo *m = find_memo((struct str){p + line, n - line});
    if (m == NULL || line + m->n > limits->head)
        return 0;
    clear(r, p);
    r->plain = true;
    r->method = METHOD_GET;
    r->line.n = line - 2;
    r->name.n = method_length - 1;
    r->target = r->path = path;
    r->query = (struct str){path.p + path.n, 0};
    recall(r, m);
    return line + m->n;
}

long request_parse(const char *p, size_t n, size_t *scanned, const struct request_limits *limits,
                   struct request *r)
{
    size_t plain = parse_plain(p, n, limits, r);
    if (plain)
        return (long)plain;
    size_t first = request_empty_lines(p, n);
    clear(r, p);
    if (n == first || (n == first + 1 && p[first] == '\r'))
        return 0;
    if (!in_class(p[first], TCHAR))
        return -400;
    size_t at = *scanned > first ? *scanned : first;
    if (at > first && memchr(p + at, '\n', n - at) == NULL)
        return incomplete(p, n, at, first, limits);
    bool good;
    const char *next;
    struct str fields = {NULL, 0}; /* and what has come behind them */
    for (at = first; (next = line_end(p + at, p + n, &good)) != NULL; at = (size_t)(next - p)) {
        struct str line = {p + at, (size_t)(next - p) - at};
        if (line.n < 2 || next[-2] != '\r')
            return -400;
        int status = too_long(p, at, at + line.n, first, limits);
        if (status)
            return -status;
        /* The rest of an invalid request may never come. */
        if (at == first && (line.n <= VERSION_LENGTH || memcmp(next - 11, " HTTP/", 6) != 0))
            return -400;
        line.n -= 2;
        if (line.n == 0) {
            r->refusal = r->refusal ? r->refusal : check_fields(r);
            if (fields.p)
                remember(r, (struct str){fields.p, (size_t)(next - fields.p)}, fields.n);
            return next - p;
        }
        if (at == first)
            r->line = line;
        if (r->refusal == 0)
            r->refusal = at == first ? parse_line(r) : good ? parse_field(line) : 400;
        if (at == first && r->refusal == 0 && !r->http_1_0) {
            fields = (struct str){next, (size_t)(p + n - next)};
            const struct memo *m = find_memo(fields);
            if (m && (size_t)(next - p) + m->n <= limits->head) {
                recall(r, m);
                return next - p + (long)m->n;
            }
        }
        if (r->refusal == 431) /* what else comes would be read again with each line */
            return -431;
    }
    *scanned = at;
    return incomplete(p, n, at, first, limits);
}
