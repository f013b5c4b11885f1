/* Looks at many octets at a time: sixteen with SSE2, which every x86-64 has, or else eight. Only
 * what lies between the two pointers is read. */
#pragma once

#include "str.h"
#include <endian.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The first octet from `p` on below ' ' or equal to DEL, or `end`: eight octets at a time. */
static inline const char *scan_control_8(const char *p, const char *end)
{
    const uint64_t each = 0x0101010101010101;
    for (; end - p >= 8; p += 8) {
        uint64_t x;
        memcpy(&x, p, sizeof x);
        x = le64toh(x);
        /* A borrow can only mark octets behind the first one that is marked rightly. */
        uint64_t del = x ^ each * 0x7f;
        uint64_t marks = ((x - each * ' ') & ~x) | ((del - each) & ~del);
        if ((marks &= each << 7) != 0)
            return p + __builtin_ctzll(marks) / 8;
    }
    while (p < end && (unsigned char)*p >= ' ' && *p != 0x7f)
        p++;
    return p;
}

#ifdef __SSE2__
static inline __m128i scan_load(const char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* Marks the octets from `low` to `low` + `size`. */
static inline __m128i scan_within(__m128i x, char low, char size)
{
    x = _mm_sub_epi8(x, _mm_set1_epi8(low));
    return _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(size)), x);
}

static inline const char *scan_control_16(const char *p, const char *end)
{
    for (; end - p >= 16; p += 16) {
        __m128i x = scan_load(p);
        __m128i del = _mm_cmpeq_epi8(x, _mm_set1_epi8(0x7f));
        int marks = _mm_movemask_epi8(_mm_or_si128(scan_within(x, 0, ' ' - 1), del));
        if (marks)
            return p + __builtin_ctz((unsigned)marks);
    }
    return scan_control_8(p, end);
}
#endif

/* The first octet from `p` on that a quoted text must not have as it is, or `end`: what is not
 * printable ASCII, a quote or a backslash. */
static inline const char *scan_quotable(const char *p, const char *end)
{
#ifdef __SSE2__
    while (end - p >= 16) {
        __m128i x = scan_load(p);
        __m128i bad = _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')),
                                   _mm_cmpeq_epi8(x, _mm_set1_epi8('\\')));
        int marks = _mm_movemask_epi8(_mm_andnot_si128(bad, scan_within(x, ' ', '~' - ' ')));
        if (marks != 0xffff)
            return p + __builtin_ctz(~(unsigned)marks);
        p += end - p >= 32 || end - p == 16 ? 16 : end - p - 16; /* the last piece overlaps */
    }
#endif
    while (p < end && *p >= ' ' && *p <= '~' && *p != '"' && *p != '\\')
        p++;
    return p;
}

/* Where the octets of a field value end: the first control octet that is no HTAB, or `end`. */
static inline const char *scan_text(const char *p, const char *end)
{
    for (;; p++) {
#ifdef __SSE2__
        p = scan_control_16(p, end);
#else
        p = scan_control_8(p, end);
#endif
        if (p == end || *p != '\t')
            return p;
    }
}

enum { SCANNED_BEHIND = 17 };

/* Whether the `n` octets at `p` are a path without escapes, NUL, empty segments and those that
 * begin with a dot. Behind them SCANNED_BEHIND more may be read, whatever they are. */
static inline bool scan_plain_path(const char *p, size_t n)
{
    size_t at = 0;
#ifdef __SSE2__
    for (; at < n; at += 16) {
        __m128i x = scan_load(p + at);
        __m128i next = scan_load(p + at + 1);
        __m128i slashes = _mm_cmpeq_epi8(x, _mm_set1_epi8('/'));
        __m128i starts = _mm_or_si128(_mm_cmpeq_epi8(next, _mm_set1_epi8('/')),
                                      _mm_cmpeq_epi8(next, _mm_set1_epi8('.')));
        __m128i bad = _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('%')),
                                   _mm_cmpeq_epi8(x, _mm_setzero_si128()));
        size_t left = n - at;
        unsigned here = left < 16 ? (1U << left) - 1 : 0xffff;
        unsigned followed = left <= 16 ? here >> 1 : here;
        unsigned marks = (unsigned)_mm_movemask_epi8(bad) & here;
        if (marks | ((unsigned)_mm_movemask_epi8(_mm_and_si128(slashes, starts)) & followed))
            return false;
    }
#else
    for (; at < n; at++)
        if (p[at] == '%' || p[at] == '\0' ||
            (at + 1 < n && p[at] == '/' && (p[at + 1] == '/' || p[at + 1] == '.')))
            return false;
#endif
    return true;
}

/* Passes over letters and the octets from '-' to `last`, sixteen at a time: a shortcut, which may
 * stop before any of them. */
static inline const char *scan_word(const char *p, const char *end, char last)
{
#ifdef __SSE2__
    for (; end - p >= 16; p += 16) {
        __m128i x = scan_load(p);
        __m128i letters = scan_within(_mm_or_si128(x, _mm_set1_epi8(0x20)), 'a', 'z' - 'a');
        __m128i others = scan_within(x, '-', (char)(last - '-'));
        int marks = _mm_movemask_epi8(_mm_or_si128(letters, others));
        if (marks != 0xffff)
            return p + __builtin_ctz(~(unsigned)marks);
    }
#else
    (void)end;
    (void)last;
#endif
    return p;
}
