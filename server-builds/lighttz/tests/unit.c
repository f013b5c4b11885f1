/* The parsers against tables. Every input ends at a guard page, and every prefix of a request is
 * tried too: one octet read too far is a crash, not a guess. */
#include "body.h"
#include "condition.h"
#include "conn.h"
#include "httpdate.h"
#include "mime.h"
#include "negotiate.h"
#include "range.h"
#include "target.h"
#include "text.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, ROOM = 8 * PAGE };

static char *guard; /* the first octet that must not be read */
static int failures;

static void check(bool ok, const char *what, const char *detail)
{
    if (ok)
        return;
    failures++;
    printf("FAILED %s: %.300s\n", what, detail);
}

static const char *guarded(const char *p, size_t n)
{
    return memcpy(guard - n, p, n);
}

static const struct request_limits limits = {200, 600};

/* What a whole head is refused with, or 0. */
static int status_of(const char *p, size_t n, struct request *r)
{
    size_t scanned = 0;
    const char *g = guarded(p, n);
    long end = request_end(g, n, &scanned, &limits);
    if (end <= 0)
        return end < 0 ? (int)-end : -1;
    return request_parse(g, (size_t)end, r);
}

static void every_prefix(const char *p, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i <= n; i++) {
        struct request r;
        size_t scanned = 0;
        const char *g = guarded(p, i);
        long whole = request_end(g, i, &scanned, &limits);
        long stepwise = request_end(g, i, &kept, &limits);
        check(whole == stepwise, "the head is found alike at once and in pieces", p);
        request_parse(g, i, &r); /* must stand anything, also what request_end() would refuse */
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
    check(str_eq(r.value[FIELD_REFERER], STR("r")), "trimmed value", text);
    check(r.repeated == 1U << FIELD_ACCEPT_ENCODING, "repeated field", text);
    check(negotiate(&r, 1U << ENCODING_BR | 1U << ENCODING_GZIP) == ENCODING_BR, "both lines",
          text);
}

static void test_targets(void)
{
    static const struct {
        int status;
        const char *path;
        const char *decoded;
    } rows[] = {
        {0, "/", "/"},
        {0, "/a/b", "/a/b"},
        {0, "//a///b//", "/a/b/"},
        {0, "/./a/.", "/a/"},
        {0, "/a/../b", "/b"},
        {0, "/a/b/..", "/a/"},
        {0, "/a/..", "/"},
        {0, "/%61%2E%2e", "/a.."},
        {0, "/a/%2e%2E/b", "/b"},
        {0, "/...", "/..."},
        {0, "/%ff%20", "/\xff "},
        {0, "/%252e%252e/", "/%2e%2e/"},
        {400, "/..", NULL},
        {400, "/a/../../b", NULL},
        {400, "/%2e%2e/", NULL},
        {400, "/%", NULL},
        {400, "/%4", NULL},
        {400, "/%4g", NULL},
        {400, "/a%00b", NULL},
        {400, "a", NULL},
        {404, "/a%2fb", NULL},
        {400, "/..%2fetc", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[TARGET_PATH_MAX];
        size_t n = 0;
        struct str path = {rows[i].path, strlen(rows[i].path)};
        path.p = guarded(path.p, path.n);
        int status = target_decode(path, out, &n);
        check(status == rows[i].status, "status of path", rows[i].path);
        if (rows[i].decoded)
            check(str_eq((struct str){out, n},
                         (struct str){rows[i].decoded, strlen(rows[i].decoded)}),
                  "decoded path", rows[i].path);
    }
    char out[64];
    size_t n = target_encode(STR("/a b%\r\n\xff?#"), out);
    check(str_eq((struct str){out, n}, STR("/a%20b%25%0D%0A%FF%3F%23")), "encoded path", "");
}

static void test_ranges(void)
{
    static const struct {
        const char *value;
        int status;
        unsigned count;
        int64_t from;
        int64_t to;
    } rows[] = {
        {"bytes=0-0", 206, 1, 0, 1},       {"bytes=0-", 206, 1, 0, 100},
        {"bytes=-1", 206, 1, 99, 100},     {"bytes=-200", 206, 1, 0, 100},
        {"BYTES=5-9", 206, 1, 5, 10},      {"bytes=90-999999999999999999999", 206, 1, 90, 100},
        {"bytes=0-1, 5-6", 206, 2, 0, 2},  {"bytes= 0-1 ,, 5-6 ", 206, 2, 0, 2},
        {"bytes=500-, 1-2", 206, 1, 1, 3}, {"bytes=100-", 416, 0, 0, 0},
        {"bytes=-0", 416, 0, 0, 0},        {"bytes=5-4", 200, 0, 0, 0},
        {"bytes=a-b", 200, 0, 0, 0},       {"bytes=", 200, 0, 0, 0},
        {"bytes=-", 200, 0, 0, 0},         {"bytes=1", 200, 0, 0, 0},
        {"bytes=1-2-3", 200, 0, 0, 0},     {"lines=0-1", 200, 0, 0, 0},
        {"bytes=0-,0-,0-", 200, 0, 0, 0},  {"bytes 0-1", 200, 0, 0, 0},
        {"bytes=--1", 200, 0, 0, 0},       {"bytes=0 - 1", 200, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ranges r;
        struct str value = {rows[i].value, strlen(rows[i].value)};
        value.p = guarded(value.p, value.n);
        int status = range_parse(value, 100, &r);
        check(status == rows[i].status, "status of range", rows[i].value);
        if (status == 206)
            check(r.count == rows[i].count && r.range[0].from == rows[i].from &&
                      r.range[0].to == rows[i].to,
                  "range", rows[i].value);
    }
    struct ranges r;
    check(range_parse(STR("bytes=0-"), 0, &r) == 416, "range of nothing", "");
    check(range_parse(STR("bytes=-5"), 0, &r) == 200, "the last octets of nothing", "");
}

static void test_dates(void)
{
    static const struct {
        const char *text;
        time_t when;
    } rows[] = {
        {"Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
        {"Sunday, 06-Nov-94 08:49:37 GMT", 784111777},
        {"Sun Nov  6 08:49:37 1994", 784111777},
        {"Thu, 01 Jan 1970 00:00:00 GMT", 0},
        {"Sun, 06 Nov 1994 08:49:37", -1},
        {"Sun, 06 Nov 1994 08:49:37 GMTx", -1},
        {"Sunday, 06-Nov-69 08:49:37 GMT", 3150953377},
        {"Sun, 06 Nov 1994 25:49:37 GMT", -1},
        {"Sun, 06 Nix 1994 08:49:37 GMT", -1},
        {"yesterday", -1},
        {"", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str s = {rows[i].text, strlen(rows[i].text)};
        s.p = guarded(s.p, s.n);
        check(httpdate_parse(s) == rows[i].when, "date", rows[i].text);
    }
    char out[HTTPDATE_LENGTH];
    httpdate_format(784111777, out);
    check(memcmp(out, rows[0].text, HTTPDATE_LENGTH) == 0, "formatted date", rows[0].text);
    for (time_t t = -2000000000; t < 5000000000; t += 86399 * 3) {
        struct tm tm;
        char expected[64];
        strftime(expected, sizeof expected, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&t, &tm));
        httpdate_format(t, out);
        check(memcmp(out, expected, HTTPDATE_LENGTH) == 0, "formatted date", expected);
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

static void test_bodies(void)
{
    static const struct {
        enum body_state end;
        size_t used;
        const char *text;
    } rows[] = {
        {BODY_DONE, 5, "0\r\n\r\nGET"},
        {BODY_DONE, 15, "5\r\nhello\r\n0\r\n\r\n"},
        {BODY_DONE, 27, "5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n\n"},
        {BODY_DONE, 20, "A\r\n0123456789\r\n0\r\n\r\n"},
        {BODY_DONE, 18, "5 ;a\r\nhello\r\n0\r\n\r\n"},
        {BODY_BAD, 0, "5 5\r\nhello\r\n0\r\n\r\n"},
        {BODY_BAD, 0, "0\r\nX\r\n\r\n"},
        {BODY_BAD, 0, "0\r\n: y\r\n\r\n"},
        {BODY_BAD, 0, "0\r\nX y: z\r\n\r\n"},
        {BODY_SIZE, 0, ""},
        {BODY_DATA, 6, "5\r\nhel"},
        {BODY_BAD, 0, "\r\n"},
        {BODY_BAD, 0, "5\nhello\r\n0\r\n\r\n"},
        {BODY_BAD, 0, "5\r\nhello0\r\n\r\n"},
        {BODY_BAD, 0, "5\r\nhello\n0\r\n\r\n"},
        {BODY_BAD, 0, "0x5\r\nhello\r\n0\r\n\r\n"},
        {BODY_BAD, 0, "5 \r\nhello\r\n0\r\n\r\n"},
        {BODY_BAD, 0, "+5\r\nhello\r\n0\r\n\r\n"},
        {BODY_DONE, 30, "5; a = \"\\\"b;\" ;c\r\nhello\r\n0\r\n\r\n"},
        {BODY_BAD, 0, "5;\r\nhello\r\n0\r\n\r\n"},
        {BODY_BAD, 0, "5;a=\"b\r\nhello\r\n0\r\n\r\n"},
        {BODY_BAD, 0, "5;(\r\nhello\r\n0\r\n\r\n"},
        {BODY_BAD, 0, "5;a\nhello\r\n0\r\n\r\n"},
        {BODY_BAD, 0, "fffffffffffffffff\r\n"},
        {BODY_BAD, 0, "0\r\nX: \x01\r\n\r\n"},
        {BODY_BAD, 0, "0\r\n X: y\r\n\r\n"},
        {BODY_BAD, 0, "0\r\n\rX"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct request chunked = {.chunked = true};
        struct body b;
        size_t n = strlen(rows[i].text);
        body_start(&b, &chunked, false);
        size_t used = body_skip(&b, guarded(rows[i].text, n), n);
        check(b.state == rows[i].end, "end of body", rows[i].text);
        if (rows[i].end == BODY_DONE)
            check(used == rows[i].used, "length of body", rows[i].text);
        body_start(&b, &chunked, false);
        for (size_t k = 0; k < n && b.state != BODY_BAD && b.state != BODY_DONE; k++)
            body_skip(&b, guarded(rows[i].text + k, 1), 1);
        check(b.state == rows[i].end, "end of body, octet by octet", rows[i].text);
    }
}

static void test_memory_of_connections(void)
{
    static struct server s;
    static struct stats stats;
    struct conn c = {.server = &s, .deadline = DEADLINE_SEND};
    struct conn *slow = calloc(1, sizeof *slow);
    s.stats = &stats;
    s.connections = 2;
    TAILQ_INIT(&s.waiting[DEADLINE_SEND]);
    TAILQ_INSERT_TAIL(&s.waiting[DEADLINE_SEND], &c, peers);
    char *small = conn_realloc(&c, NULL, 0, 1000);
    char *large = conn_realloc(&c, NULL, 0, KEPT_MAX - 1000);
    check(small && large && s.kept == KEPT_MAX, "up to the bound", "");
    check(!conn_realloc(&c, small, 1000, 1001), "not beyond it", "");
    large = conn_realloc(&c, large, KEPT_MAX - 1000, 0);
    check(!large && s.kept == 1000, "what is freed may be had again", "");
    small = conn_realloc(&c, small, 1000, 2000);
    check(small && s.kept == 2000, "growing counts the difference", "");
    if (slow == NULL)
        return;
    *slow = (struct conn){.io.fd = -1, .server = &s, .deadline = DEADLINE_SEND};
    TAILQ_INSERT_TAIL(&s.waiting[DEADLINE_SEND], slow, peers);
    slow->out_length = KEPT_MAX - 2000;
    slow->out = conn_realloc(slow, NULL, 0, slow->out_length);
    small = conn_realloc(&c, small, 2000, 3000);
    check(small && s.kept == 3000 && s.connections == 1, "who reads slowly makes room", "");
    conn_realloc(&c, small, 3000, 0);
    check(s.kept == 0, "nothing is left", "");
}

static void test_types(void)
{
    const struct mime_added added = {2, {"foo text/x-old", ".foo\ttext/x-foo; a=b"}};
    static const struct {
        const char *path;
        const char *type;
    } rows[] = {
        {"/a.html", "text/html; charset=utf-8"},   {"/a.HTML", "text/html; charset=utf-8"},
        {"/a.tar.gz", "application/gzip"},         {"/a.foo", "text/x-foo; a=b"},
        {"/a.fo", "application/octet-stream"},     {"/a.", "application/octet-stream"},
        {"/a.b/html", "application/octet-stream"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check(str_eq(mime_type(&added, str_of(rows[i].path)), str_of(rows[i].type)), "type",
              rows[i].path);
    check(mime_valid("a b/c") && !mime_valid("a b") && !mime_valid(". b/c") &&
              !mime_valid("a b/\x01") && !mime_valid("a"),
          "lines of types", "");
}

static void test_tags(void)
{
    struct str etag = STR("\"a\"");
    check(condition_etag_in(STR("\"b\", \"a\""), etag, false), "tag in list", "");
    check(condition_etag_in(STR(" * "), etag, false), "any tag", "");
    check(condition_etag_in(STR("W/\"a\""), etag, true), "weak tag", "");
    check(!condition_etag_in(STR("W/\"a\""), etag, false), "weak tag where strong is asked", "");
    check(!condition_etag_in(STR("a, \"b\", \"a"), etag, true), "malformed tags", "");
    check(condition_etag_in(STR("\"x,y\" ,\"a\""), etag, true), "comma in a tag", "");
}

static void test_text(void)
{
    struct str wanted = STR("a bc|0 18446744073709551615 ff 07 0a 123%");
    for (size_t room = 0; room < 64; room++) {
        char *out = guard - room;
        size_t n = text_format(out, room, "%s %.*s|%d %lu %lx %02d %02x %d%s", "a", 2, "bcd", 0,
                               UINT64_MAX, 255UL, 7, 10U, 123, "%");
        size_t fits = room < wanted.n ? room : wanted.n;
        check(n == fits && memcmp(out, wanted.p, fits) == 0, "text that may be cut off", wanted.p);
    }
}

int main(void)
{
    char *p = mmap(NULL, ROOM + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    guard = p + ROOM;
    if (p == MAP_FAILED || mprotect(guard, PAGE, PROT_NONE))
        return 2;
    test_requests();
    test_limits();
    test_request_parts();
    test_targets();
    test_ranges();
    test_dates();
    test_negotiation();
    test_bodies();
    test_memory_of_connections();
    test_tags();
    test_types();
    test_text();
    printf("unit: %d checks failed\n", failures);
    return failures != 0;
}
