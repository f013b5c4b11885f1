/* Text with a subset of printf(): the C library's own would be a fifth of a worker's memory. */
#pragma once
#include "str.h"
#include <stdarg.h>

_Static_assert(sizeof(long) == sizeof(uint64_t), "%lu and %lx are for 64 bits");

/* Knows %s, %.*s, %d, %u, %x, each of the last three also after l, or 0 and a width; nothing is
 * negative. Returns the length; what does not fit is cut off, and no terminator is written. */
__attribute__((format(printf, 3, 4))) size_t text_format(char *out, size_t size, const char *format,
                                                         ...);
size_t text_vformat(char *out, size_t size, const char *format, va_list args);
