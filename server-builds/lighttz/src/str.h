/* A slice of somebody else's bytes: never owned, never terminated. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *p;
    size_t n;
};

#define STR_INIT(literal) {(literal), sizeof(literal) - 1}
#define STR(literal) ((struct str)STR_INIT(literal))

static inline struct str str_of(const char *text)
{
    return (struct str){text, strlen(text)};
}

static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Value of a hexadecimal digit, or -1. */
static inline int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c = ascii_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The octet that "%HH" at `i` stands for, or -1. */
static inline int str_escape(struct str s, size_t i)
{
    int high = s.n - i < 3 ? -1 : hex_value(s.p[i + 1]);
    int low = high < 0 ? -1 : hex_value(s.p[i + 2]);
    return low < 0 ? -1 : high * 16 + low;
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

/* Equality that ignores the case of ASCII letters. */
static inline bool str_ieq(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    if (memcmp(a.p, b.p, a.n) == 0) /* most clients write what we do */
        return true;
    for (size_t i = 0; i < a.n; i++)
        if (ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
            return false;
    return true;
}

/* Whether `s` starts so, whatever the case. */
static inline bool str_starts(struct str s, struct str start)
{
    return s.n >= start.n && str_ieq((struct str){s.p, start.n}, start);
}

/* The number that `s` consists of, digits only; too large a number becomes UINT64_MAX. */
static inline bool str_number(struct str s, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (!is_digit(s.p[i]))
            return false;
        uint64_t digit = (uint64_t)(s.p[i] - '0');
        *value = *value > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *value * 10 + digit;
    }
    return s.n > 0;
}

/* `s` up to the first `end`, or all of it. */
static inline struct str str_before(struct str s, char end)
{
    const char *p = s.n ? memchr(s.p, end, s.n) : NULL;
    return (struct str){s.p, p ? (size_t)(p - s.p) : s.n};
}

static inline bool is_ows(char c)
{
    return c == ' ' || c == '\t';
}

static inline struct str str_trim(struct str s)
{
    while (s.n && is_ows(s.p[0]))
        s.p++, s.n--;
    while (s.n && is_ows(s.p[s.n - 1]))
        s.n--;
    return s;
}

static inline struct str str_from(struct str s, size_t offset)
{
    return (struct str){s.p + offset, s.n - offset};
}

/* Cuts the next item off a list and trims it; false at the end. Items may be empty. */
static inline bool str_item(struct str *rest, char separator, struct str *item)
{
    if (rest->p == NULL)
        return false;
    struct str cut = str_before(*rest, separator);
    *rest = cut.n < rest->n ? str_from(*rest, cut.n + 1) : (struct str){NULL, 0};
    *item = str_trim(cut);
    return true;
}
