/* A decoded path names nothing above the root, is canonical, and survives a round trip. */
#include "httpdate.h"
#include "target.h"
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const char *p, size_t n)
{
    if (n == 0 || p[0] != '/' || memchr(p, '\0', n))
        abort();
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '/')
            continue;
        struct str rest = {p + i + 1, n - i - 1};
        const char *slash = rest.n ? memchr(rest.p, '/', rest.n) : NULL;
        size_t length = slash ? (size_t)(slash - rest.p) : rest.n;
        struct str segment = {rest.p, length};
        if ((slash && length == 0) || str_eq(segment, STR("..")) || str_eq(segment, STR(".")))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[TARGET_PATH_MAX];
    char again[TARGET_PATH_MAX];
    char encoded[3 * TARGET_PATH_MAX];
    size_t n = 0;
    size_t m = 0;
    struct str raw = {(const char *)data, size};
    httpdate_parse(raw);
    if (target_decode(raw, path, &n))
        return 0;
    check_path(path, n);
    struct str twice = {encoded, target_encode((struct str){path, n}, encoded)};
    if (target_decode(twice, again, &m) || n != m || memcmp(path, again, n) != 0)
        abort();
    return 0;
}
