/* Writing text without printf(): that would keep a fifth of the C library in a worker's memory.
 * Each returns where the text ends. */
#ifndef TEXT_H
#define TEXT_H

#include "str.h"
#include <stdint.h>

static inline char *text_str(char *p, struct str s)
{
    return (char *)memcpy(p, s.p, s.n) + s.n;
}

static inline char *text_number(char *p, uint64_t value, unsigned base)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value);
    while (n)
        *p++ = digits[--n];
    return p;
}

#endif
