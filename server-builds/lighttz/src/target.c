#include "target.h"
#include "scan.h"

/* Ends the segment that starts at `start`; false when ".." climbs above the root. */
static bool end_segment(const char *out, size_t start, size_t *n)
{
    size_t length = *n - start;
    if (length == 1 && out[start] == '.') {
        *n = start;
    } else if (length == 2 && out[start] == '.' && out[start + 1] == '.') {
        if (start <= 1)
            return false;
        size_t parent = start - 1;
        while (out[parent - 1] != '/')
            parent--;
        *n = parent;
    }
    return true;
}

int target_decode(struct str path, char *out, size_t *n)
{
    if (path.n == 0 || path.p[0] != '/')
        return 400;
    if (path.n + SCANNED_BEHIND <= TARGET_PATH_MAX) {
        memcpy(out, path.p, path.n);
        memset(out + path.n, 0, SCANNED_BEHIND);
        *n = path.n;
        if (scan_plain_path(out, path.n))
            return 0;
    }
    size_t start = 1; /* of the current segment in `out` */
    size_t length = 1;
    int status = 0;
    out[0] = '/';
    for (size_t i = 1; i < path.n;) {
        bool escaped = path.p[i] == '%';
        int c = escaped ? str_escape(path, i) : (unsigned char)path.p[i];
        i += escaped ? 3 : 1;
        if (c <= 0)
            return 400;
        if (c == '/' && escaped)
            status = 404;
        if (c == '/' && length == start)
            continue;
        if (length == TARGET_PATH_MAX)
            return 404; /* no file is called so */
        if (c == '/' && !end_segment(out, start, &length))
            return 400;
        if (c != '/' || out[length - 1] != '/')
            out[length++] = (char)c;
        if (c == '/')
            start = length;
    }
    if (!end_segment(out, start, &length))
        return 400;
    *n = length;
    return status;
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) ||
           (c != '\0' && strchr("/-._~!$&'()*+,;=:@", c) != NULL);
}

size_t target_encode(struct str path, char *out)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t n = 0;
    for (size_t i = 0; i < path.n; i++) {
        unsigned char c = (unsigned char)path.p[i];
        if (is_plain(path.p[i])) {
            out[n++] = path.p[i];
            continue;
        }
        out[n++] = '%';
        out[n++] = digits[c >> 4];
        out[n++] = digits[c & 15];
    }
    return n;
}
