/* The parsers against tables. Every input ends at a guard page, and every prefix of a request is
 * tried too: one octet read too far is a crash, not a guess. */
#include "unit.h"
#include "body.h"
#include "condition.h"
#include "httpdate.h"
#include "mime.h"
#include "range.h"
#include "target.h"
#include "text.h"
#include <stdio.h>
#include <sys/mman.h>

enum { PAGE = 4096, ROOM = 8 * PAGE };

char *guard;
static int failures;

void check(bool ok, const char *what, const char *detail)
{
    if (ok)
        return;
    failures++;
    printf("FAILED %s: %.300s\n", what, detail);
}

const char *guarded(const char *p, size_t n)
{
    return memcpy(guard - n, p, n);
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
    for (time_t t = 0; t < 5000000000; t += 86399 * 3) {
        struct tm tm;
        char expected[64];
        strftime(expected, sizeof expected, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&t, &tm));
        httpdate_format(t, out);
        check(memcmp(out, expected, HTTPDATE_LENGTH) == 0, "formatted date", expected);
    }
    static const struct {
        time_t when;
        const char *text;
    } ends[] = {{-62135596800, "Thu, 01 Jan 1970 00:00:00 GMT"},
                {-1, "Thu, 01 Jan 1970 00:00:00 GMT"},
                {253402300799, "Fri, 31 Dec 9999 23:59:59 GMT"},
                {INT64_MAX, "Fri, 31 Dec 9999 23:59:59 GMT"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        httpdate_format(ends[i].when, out);
        check(memcmp(out, ends[i].text, HTTPDATE_LENGTH) == 0, "date far away", ends[i].text);
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
    test_request_heads();
    test_targets();
    test_ranges();
    test_dates();
    test_bodies();
    test_state();
    test_sandbox();
    test_beneath();
    test_tags();
    test_types();
    test_text();
    printf("unit: %d checks failed\n", failures);
    return failures != 0;
}
