/* Request heads against tables, and every prefix of each. */
#include "negotiate.h"
#include "request.h"
#include "scan.h"
#include "target.h"
#include "unit.h"
#include <stdio.h>

static const struct request_limits limits = {200, 600};

/* What a whole head is refused with, or 0; -1 when it is not whole. */
static int status_of(const char *p, size_t n, struct request *r)
{
    size_t scanned = 0;
    long end = request_parse(guarded(p, n), n, &scanned, &limits, r);
    return end > 0 ? r->refusal : end < 0 ? (int)-end : -1;
}

static void every_prefix(const char *p, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i <= n; i++) {
        struct request r;
        struct request other;
        size_t scanned = 0;
        const char *g = guarded(p, i);
        long whole = request_parse(g, i, &scanned, &limits, &r);
        long stepwise = request_parse(g, i, &kept, &limits, &other);
        check(whole == stepwise, "the head is found alike at once and in pieces", p);
        if (whole)
            break;
    }
}

static void test_requests(void)
{
#define H "Host: a\r\n"
    static const struct {
        int status;
        const char *text;
    } rows[] = {
        {0, "GET / HTTP/1.1\r\n" H "\r\n"},
        {0, "\r\nGET / HTTP/1.1\r\n" H "\r\n"},
        {0, "GET / HTTP/1.0\r\n\r\n"},
        {0, "GET / HTTP/1.7\r\n" H "\r\n"},
        {0, "GET http://a.b:80/x?y HTTP/1.1\r\nHost: a.b\r\n\r\n"},
        {0, "GET http://a.b HTTP/1.1\r\nHost: a.b\r\n\r\n"},
        {0, "OPTIONS * HTTP/1.1\r\n" H "\r\n"},
        {0, "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n"},
        {0, "GET / HTTP/1.1\r\nhOsT:a\t \r\nX: \x80\xff \t y\r\n\r\n"},
        {0, "GET / HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n"},
        {0, "GET / HTTP/1.1\r\n" H "Transfer-Encoding: CHUNKED\r\n\r\n"},
        {0, "GET /[a]|{b}^~ HTTP/1.1\r\n" H "\r\n"},
        {400, "GET / HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H H "\r\n"},
        {400, "GET / HTTP/1.0\r\n" H H "\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a:1x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: []\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: [::1]]\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: [1:2]\r\n\r\n"},
        {0, "GET / HTTP/1.1\r\nHost: [::ffff:1.2.3.4]\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a%2\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"},
        {400, "GET / HTTP/1.1\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\n\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "X: \r \r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "X: a\r\n b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n X: a\r\n" H "\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "X : a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H ": a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "X\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "X: \x01\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "X: \x7f\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "X\x80: a\r\n\r\n"},
        {400, "GET  / HTTP/1.1\r\n" H "\r\n"},
        {400, "GET /  HTTP/1.1\r\n" H "\r\n"},
        {400, "GET / HTTP/1.1 \r\n" H "\r\n"},
        {400, " GET / HTTP/1.1\r\n" H "\r\n"},
        {0, "\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n"},
        {400, "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n"},
        {400, "GET / HTTP/1.1\r\nHost:\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: :80\r\n\r\n"},
        {400, "CONNECT a HTTP/1.1\r\n" H "\r\n"},
        {501, "CONNECT a:80 HTTP/1.1\r\n" H "\r\n"},
        {501, "CONNECT [::1]:80 HTTP/1.1\r\n" H "\r\n"},
        {0, "GET / HTTP/1.1\r\n" H "Expect: , 100-continue\r\n\r\n"},
        {400, "GET /\r\n\r\n"},
        {400, "GET / http/1.1\r\n" H "\r\n"},
        {400, "GET / HTTP/1\r\n" H "\r\n"},
        {400, "GET / HTTP/1.10\r\n" H "\r\n"},
        {400, "GET /a#b HTTP/1.1\r\n" H "\r\n"},
        {400, "GET /\x80 HTTP/1.1\r\n" H "\r\n"},
        {400, "GET /a\\b HTTP/1.1\r\n" H "\r\n"},
        {400, "GET a HTTP/1.1\r\n" H "\r\n"},
        {400, "GET * HTTP/1.1\r\n" H "\r\n"},
        {400, "GET http:///x HTTP/1.1\r\n" H "\r\n"},
        {400, "GET http://u@a/x HTTP/1.1\r\n" H "\r\n"},
        {400, "GET ftp://a/x HTTP/1.1\r\n" H "\r\n"},
        {400, "G@T / HTTP/1.1\r\n" H "\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Content-Length: 1, 1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Content-Length: +1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Content-Length: 0x1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Content-Length: 1 1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Content-Length: 99999999999999999999999\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, chunked\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, gzip\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n\r\n"},
        {400, "GET / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n"},
        {501, "GET / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n"},
        {417, "GET / HTTP/1.1\r\n" H "Expect: tea\r\n\r\n"},
        {505, "GET / HTTP/2.0\r\n" H "\r\n"},
        {505, "PRI * HTTP/2.0\r\n\r\n"},
        {505, "GET / HTTP/0.9\r\n\r\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct request r;
        size_t n = strlen(rows[i].text);
        check(status_of(rows[i].text, n, &r) == rows[i].status, "status of request", rows[i].text);
        every_prefix(rows[i].text, n);
    }
    static const char nul[] = "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n";
    struct request r;
    check(status_of(nul, sizeof nul - 1, &r) == 400, "NUL in a value", nul);
}

static void test_limits(void)
{
    char text[1024];
    struct request r;
    memset(text, 'a', sizeof text);
    memcpy(text, "GET /", 5);
    check(status_of(text, 200, &r) == -1, "a long line is waited for", "");
    check(status_of(text, 201, &r) == 414, "a line without end", "");
    memset(text, 'A', 201);
    check(status_of(text, 201, &r) == 501, "a method without end", "");
    memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
    check(status_of(text, 600, &r) == -1, "a long head is waited for", "");
    check(status_of(text, 601, &r) == 431, "a head without end", "");
    size_t n = (size_t)sprintf(text, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < REQUEST_FIELDS_MAX; i++)
        n += (size_t)sprintf(text + n, "a:\r\n");
    check(status_of(text, n - 2, &r) == -1, "a hundred fields are read on", "");
    check(status_of(text, n, &r) == 431, "one more is refused at once", "");
    n += (size_t)sprintf(text + n, "\r\n");
    check(status_of(text, n, &r) == 431, "too many fields", "");
}

static void test_request_parts(void)
{
    struct request r;
    static const char text[] =
        "GET http://h/p%20q?a=?b HTTP/1.0\r\nConnection: x, Keep-Alive\r\n"
        "Referer:  r \r\nAccept-Encoding: gzip\r\naccept-encoding: br\r\n\r\n";
    check(status_of(text, sizeof text - 1, &r) == 0, "request", text);
    check(str_eq(r.path, STR("/p%20q")) && str_eq(r.query, STR("?a=?b")), "target", text);
    check(r.http_1_0 && r.keep_alive && r.method == METHOD_GET, "version", text);
    check(str_eq(r.fields->value[FIELD_REFERER], STR("r")), "trimmed value", text);
    check(r.fields->repeated == 1U << FIELD_ACCEPT_ENCODING, "repeated field", text);
    check(negotiate(&r, 1U << ENCODING_BR | 1U << ENCODING_GZIP) == ENCODING_BR, "both lines",
          text);
}

/* A head like a browser's: each line is remembered, and values are found by any case of the name.
 */
static void test_lines(void)
{
    static const struct {
        const char *name;
        const char *value;
        enum field field;
    } rows[] = {
        {"hOST", "a.b:80", FIELD_HOST},
        {"Connection", "keep-alive", FIELD_CONNECTION},
        {"sec-ch-ua-platform", "\"Linux\"", FIELD_OTHER},
        {"Upgrade-Insecure-Requests", "1", FIELD_OTHER},
        {"USER-AGENT", "Mozilla/5.0 (X11; Linux x86_64)\tAppleWebKit/537.36", FIELD_USER_AGENT},
        {"X-0_1.2", "", FIELD_OTHER},
        {"Sec-Fetch-Mode", "navigate", FIELD_OTHER},
        {"Range", "bytes=0-1", FIELD_RANGE},
        {"accept-encodinG", "gzip, br", FIELD_ACCEPT_ENCODING},
        {"if-unmodified-sincE", "x", FIELD_IF_UNMODIFIED_SINCE},
        {"If-None-Match", "\"\xe4\"", FIELD_IF_NONE_MATCH},
        {"Accept-Encoding", "zstd", FIELD_ACCEPT_ENCODING},
    };
    char text[1024] = "GET /a HTTP/1.1\r\n";
    size_t n = strlen(text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        n += (size_t)sprintf(text + n, "%s: \t%s \r\n", rows[i].name, rows[i].value);
    n += (size_t)sprintf(text + n, "\r\n");
    struct request r;
    check(status_of(text, n, &r) == 0 && r.fields->count == sizeof rows / sizeof *rows, "lines",
          text);
    for (size_t i = 0; i < r.fields->count; i++)
        check(str_eq(request_name(&r, i), str_of(rows[i].name)) &&
                  str_eq(request_value(&r, i), str_of(rows[i].value)) &&
                  r.fields->lines[i].field == rows[i].field,
              "line", rows[i].name);
    size_t at = 0;
    struct str value;
    check(request_each(&r, FIELD_ACCEPT_ENCODING, &at, &value) && str_eq(value, STR("gzip, br")) &&
              request_each(&r, FIELD_ACCEPT_ENCODING, &at, &value) && str_eq(value, STR("zstd")) &&
              !request_each(&r, FIELD_ACCEPT_ENCODING, &at, &value),
          "each value of a repeated field", text);
    at = 0;
    check(!request_each(&r, FIELD_EXPECT, &at, &value), "no value of a field that is not there",
          "");
}

/* Each octet at each place of a text, whose end is the guard page. */
static void test_scanning(void)
{
    for (size_t n = 1; n < 40; n++)
        for (size_t at = 0; at < n; at++)
            for (unsigned octet = 0; octet < 256; octet++) {
                const char *end = guard;
                char *p = guard - n;
                memset(p, 'a', n);
                p[at] = (char)octet;
                p[n - 1] = n % 2 ? p[n - 1] : (char)(octet ^ 0x80);
                const char *control = p;
                while (control < end && (unsigned char)*control >= ' ' && *control != 0x7f)
                    control++;
                const char *text = p;
                while (text < end &&
                       (*text == '\t' || ((unsigned char)*text >= ' ' && *text != 0x7f)))
                    text++;
                const char *plain = p;
                while (plain < end && *plain >= ' ' && *plain < 0x7f && *plain != '"' &&
                       *plain != '\\')
                    plain++;
                check(scan_quotable(p, end) == plain, "what is escaped in the log", "");
                check(scan_control_8(p, end) == control, "control octet, eight at a time", "");
                check(scan_text(p, end) == text, "end of a text", "");
                for (const char *q = scan_word(p, end, '-'); q-- > p;)
                    check(ascii_lower(*q) >= 'a' ? ascii_lower(*q) <= 'z' : *q == '-', "word", "");
            }
}

static void test_negotiation(void)
{
    static const struct {
        const char *value;
        enum encoding chosen;
    } rows[] = {
        {"gzip", ENCODING_GZIP},
        {"gzip, br", ENCODING_BR},
        {"br;q=0.5, gzip", ENCODING_GZIP},
        {"GZIP;q=1.000", ENCODING_GZIP},
        {"gzip;q=0", ENCODING_NONE},
        {"*", ENCODING_BR},
        {"*;q=0.1, br;q=0", ENCODING_ZSTD},
        {"identity, gzip;q=0.5", ENCODING_NONE},
        {"identity;q=0.5, gzip;q=0.5", ENCODING_GZIP},
        {"gzip;q=2", ENCODING_NONE},
        {"gzip;q=x", ENCODING_NONE},
        {"deflate", ENCODING_NONE},
        {"", ENCODING_NONE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        struct request r;
        int n = sprintf(text, "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: %s\r\n\r\n",
                        rows[i].value);
        status_of(text, (size_t)n, &r);
        check(negotiate(&r, 14) == rows[i].chosen, "negotiation", rows[i].value);
    }
}

/* A copy that outlives the next request. */
struct kept {
    struct request r;
    struct fields fields;
    struct line lines[REQUEST_FIELDS_MAX];
};

static void keep_fields(struct kept *k)
{
    k->fields = *k->r.fields;
    memcpy(k->lines, k->fields.lines, k->fields.count * sizeof *k->lines);
    k->fields.lines = k->lines;
    k->r.fields = &k->fields;
}

static bool same_fields(const struct request *r, const struct request *s)
{
    const struct fields *a = r->fields;
    const struct fields *b = s->fields;
    bool alike = a->count == b->count && a->seen == b->seen && a->repeated == b->repeated &&
                 r->length == s->length && r->chunked == s->chunked;
    for (size_t i = 0; alike && i < a->count; i++)
        alike = str_eq(request_name(r, i), request_name(s, i)) &&
                str_eq(request_value(r, i), request_value(s, i)) &&
                a->lines[i].field == b->lines[i].field;
    for (enum field f = 0; alike && f < FIELD_OTHER; f++)
        alike = !request_has(r, f) || str_eq(a->value[f], b->value[f]);
    return alike;
}

/* The fields of `text` as they are read, and as they are remembered behind another line. */
static void remembered(const char *line, const char *fields, const char *other_line, bool is)
{
    static char text[2][1024];
    static struct kept k[2];
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        n = (size_t)snprintf(text[i], sizeof text[i], "%s\r\n%s\r\n", i ? other_line : line,
                             fields);
        long end = request_parse(text[i], n, &(size_t){0}, &limits, &k[i].r);
        check(end == (long)n, "the length of a head", text[i]);
        keep_fields(&k[i]);
    }
    check((k[1].fields.text != text[1]) == is, "whether it is remembered", text[1]);
    if (k[0].r.refusal || k[1].r.refusal)
        return;
    check(same_fields(&k[0].r, &k[1].r), "what is remembered is what was read", text[1]);
    check(str_eq(k[1].r.line, (struct str){text[1], strlen(other_line)}), "its own line", text[1]);
}

/* What is read by the shortcut for plain requests is what is read step by step. */
static void test_plain_requests(void)
{
    static const struct {
        const char *target;
        bool plain;
    } rows[] = {{"/", true},          {"/a/b-c.html", true}, {"/(a)_~;b=[1]!/x:@", true},
                {"/a%20b", false},    {"/a?b", false},       {"//a", false},
                {"/a/../b", false},   {"/.a", false},        {"*", false},
                {"http://a/b", false}};
    static const char fields[] = "Host: plain\r\nReferer: x\r\n\r\n";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[2][256];
        char decoded[TARGET_PATH_MAX];
        struct kept k[2];
        for (int j = 0; j < 2; j++) {
            /* An empty line before it: the shortcut takes none. */
            int n = sprintf(text[j], "%sGET %s HTTP/1.1\r\n%s", j ? "" : "\r\n", rows[i].target,
                            fields);
            const char *p = guarded(text[j], (size_t)n);
            long end = request_parse(p, (size_t)n, &(size_t){0}, &limits, &k[j].r);
            check(end == n, "the length of a head", text[j]);
            memcpy(text[j], p, (size_t)n);
            keep_fields(&k[j]);
        }
        const struct request *r = &k[0].r;
        const struct request *s = &k[1].r;
        size_t n = 0;
        check(!r->plain && s->plain == rows[i].plain, "whether it is plain", rows[i].target);
        check(r->refusal == s->refusal && r->method == s->method && r->http_1_0 == s->http_1_0 &&
                  r->keep_alive == s->keep_alive && r->line.n == s->line.n &&
                  r->name.n == s->name.n && r->target.n == s->target.n && r->path.n == s->path.n &&
                  r->query.n == s->query.n && same_fields(r, s),
              "as step by step", rows[i].target);
        if (s->plain)
            check(str_eq(s->path, str_of(rows[i].target)) &&
                      target_decode(s->path, decoded, &n) == 0 &&
                      str_eq(s->path, (struct str){decoded, n}),
                  "decoded already", rows[i].target);
    }
}

static void test_remembered_fields(void)
{
    const char *fields = "Host: m\r\nX: a\r\nRange: bytes=0-1\r\nRange: x\r\nReferer:\r\n";
    remembered("GET / HTTP/1.1", fields, "HEAD /other?x HTTP/1.1", true);
    remembered("GET / HTTP/1.1", fields, "GET / HTTP/1.0", false);
    remembered("GET / HTTP/1.0", "Host: m0\r\n", "GET / HTTP/1.1", false);
    remembered("GET / HTTP/1.0", "X: m0\r\n", "GET / HTTP/1.1", false); /* it lacks a host */
    remembered("GET / HTTP/1.1", "Host: m1\r\nConnection: close\r\n", "GET /a HTTP/1.1", true);
    remembered("POST / HTTP/1.1", "Host: m2\r\nContent-Length: 0\r\n", "GET / HTTP/1.1", false);
    remembered("GET / HTTP/1.1", "Host: m3\r\nTransfer-Encoding: chunked\r\n", "GET / HTTP/1.1",
               false);
    remembered("GET / HTTP/1.1", "Host: m4\r\nExpect: 100-continue\r\n", "GET / HTTP/1.1", false);
    char text[700] = "GET / HTTP/1.1\r\n";
    struct request r;
    char *end = stpcpy(text + strlen(text), fields);
    size_t n = (size_t)(stpcpy(end, "\r\n") - text);
    check(request_parse(guarded(text, n), n, &(size_t){0}, &limits, &r) == (long)n &&
              r.fields->count == 5,
          "a head right before the guard page", text);
    struct request_limits less = {200, n - 1};
    check(request_parse(text, n, &(size_t){0}, &less, &r) == -431, "its limit stays", text);
    check(request_parse(guarded(text, n - 1), n - 1, &(size_t){0}, &limits, &r) == 0,
          "it must be whole", text);
    for (int i = 0; i < 3; i++) /* others behind it */
        n = (size_t)(stpcpy(text + n, "GET / HTTP/1.1\r\nHost: m\r\n\r\n") - text);
    check(request_parse(text, n, &(size_t){0}, &limits, &r) == end + 2 - text &&
              r.fields->text != text,
          "with others behind it", text);
}

/* The shortcut for plain paths takes none that needs a look, wherever that is. */
static void test_plain_paths(void)
{
    static const char *const odd[] = {"%41", "//", "/.", "/..", "/./", "/.a"};
    char path[80];
    char text[80];
    for (size_t n = 1; n < 40; n++) {
        memset(path, 'a', sizeof path);
        path[0] = '/';
        check(scan_plain_path(path, n), "a plain path", "");
        for (size_t at = 0; at < n; at++)
            for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
                size_t length = strlen(odd[i]);
                memcpy(text, path, sizeof text);
                memcpy(text + at, odd[i], length);
                check(at + length > n || !scan_plain_path(text, n), "a path that is not plain",
                      odd[i]);
            }
        memcpy(text, path, sizeof text);
        memcpy(text + n - 1, "/./", 3);
        check(n < 3 || scan_plain_path(text, n), "what is behind does not count", "");
    }
}

void test_request_heads(void)
{
    test_remembered_fields();
    test_plain_requests();
    test_plain_paths();
    test_requests();
    test_limits();
    test_request_parts();
    test_lines();
    test_scanning();
    test_negotiation();
}
