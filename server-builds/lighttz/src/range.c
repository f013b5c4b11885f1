#include "range.h"

/* One range-spec; false when malformed. An unsatisfiable one is left empty. */
static bool parse_one(struct str s, int64_t size, struct range *r)
{
    struct str first = str_before(s, '-');
    if (first.n == s.n)
        return false;
    struct str last = str_from(s, first.n + 1);
    uint64_t end = (uint64_t)size;
    uint64_t from;
    uint64_t n;
    if (first.n == 0) { /* the last n octets */
        if (!str_number(last, &n))
            return false;
        *r = (struct range){n < end ? size - (int64_t)n : 0, n ? size : 0};
        return size > 0 || n == 0; /* of nothing the last octets are nothing: no range says it */
    }
    if (!str_number(first, &from) || (last.n && (!str_number(last, &n) || n < from)))
        return false;
    r->from = from < end ? (int64_t)from : size;
    r->to = last.n && n < end ? (int64_t)n + 1 : size;
    return true;
}

int range_parse(struct str value, int64_t size, struct ranges *out)
{
    struct str item;
    int64_t total = 0;
    bool any = false;
    out->count = 0;
    if (!str_starts(value, STR("bytes=")))
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
