/* Byte ranges of RFC 9110, 14. */
#pragma once

#include "str.h"
#include <stdint.h>

enum { RANGES_MAX = 16 };

struct range {
    int64_t from;
    int64_t to; /* one past the last octet */
};

struct ranges {
    unsigned count;
    struct range range[RANGES_MAX];
};

/*
 * Reads the value of a Range field for a body of `size` octets. Returns 206 with one or more
 * satisfiable ranges in the order asked for, 416 when none is satisfiable, and 200 when the field
 * is to be ignored: another unit, malformed, or more than a sane client asks for (too many ranges,
 * or ranges that overlap so that they sum up to more than the body).
 */
int range_parse(struct str value, int64_t size, struct ranges *out);
