/* A slice of somebody else's bytes: never owned, never terminated. */
#ifndef STR_H
#define STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct str {
    const char *p;
    size_t n;
};

#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})

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

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

/* Equality that ignores the case of ASCII letters. */
static inline bool str_ieq(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
            return false;
    return true;
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
    const char *end = rest->n ? memchr(rest->p, separator, rest->n) : NULL;
    size_t n = end ? (size_t)(end - rest->p) : rest->n;
    *item = str_trim((struct str){rest->p, n});
    *rest = end ? str_from(*rest, n + 1) : (struct str){NULL, 0};
    return true;
}

#endif
