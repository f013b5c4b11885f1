#include "range.h"

/* Digits up to the end of `s`; saturates, since a position far beyond the end is legal. */
static bool number(struct str s, int64_t *value)
{
    *value = 0;
    if (s.n == 0)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (!is_digit(s.p[i]))
            return false;
        int digit = s.p[i] - '0';
        *value = *value > (INT64_MAX - digit) / 10 ? INT64_MAX : *value * 10 + digit;
    }
    return true;
}

/* One range-spec; false when malformed. An unsatisfiable one is left empty. */
static bool parse_one(struct str s, int64_t size, struct range *r)
{
    const char *dash = memchr(s.p, '-', s.n);
    if (dash == NULL)
        return false;
    struct str first = {s.p, (size_t)(dash - s.p)};
    struct str last = str_from(s, first.n + 1);
    int64_t n;
    if (first.n == 0) {
        if (!number(last, &n))
            return false;
        r->from = n < size ? size - n : 0;
        r->to = n ? size : 0;
        return true;
    }
    if (!number(first, &r->from))
        return false;
    r->to = size;
    if (last.n) {
        if (!number(last, &n) || n < r->from)
            return false;
        r->to = n < size ? n + 1 : size;
    }
    return true;
}

int range_parse(struct str value, int64_t size, struct ranges *out)
{
    struct str item;
    int64_t total = 0;
    bool any = false;
    out->count = 0;
    if (value.n < 6 || !str_ieq((struct str){value.p, 6}, STR("bytes=")))
        return 200;
    value = str_from(value, 6);
    while (str_item(&value, ',', &item)) {
        struct range r;
        if (item.n == 0)
            continue;
        if (!parse_one(item, size, &r))
            return 200;
        any = true;
        if (r.from >= r.to)
            continue;
        if (out->count == RANGES_MAX || r.to - r.from > size - total)
            return 200;
        out->range[out->count++] = r;
        total += r.to - r.from;
    }
    return !any ? 200 : out->count ? 206 : 416;
}
