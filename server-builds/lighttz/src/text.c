#include "text.h"

struct out {
    char *p;
    size_t room;
};

static void put(struct out *o, const char *p, size_t n)
{
    n = n < o->room ? n : o->room;
    memcpy(o->p, p, n);
    o->p += n;
    o->room -= n;
}

static void put_number(struct out *o, unsigned long value, unsigned base, int least)
{
    char digits[20];
    char *p = digits + sizeof digits;
    for (; value || least > 0; value /= base, least--)
        *--p = "0123456789abcdef"[value % base];
    put(o, p, (size_t)(digits + sizeof digits - p));
}

size_t text_vformat(char *out, size_t size, const char *format, va_list args)
{
    struct out o = {out, size};
    for (const char *f = format; *f; f++) {
        size_t plain = (size_t)(strchrnul(f, '%') - f);
        put(&o, f, plain);
        f += plain;
        if (*f++ == '\0')
            break;
        if (*f == 's') {
            struct str s = str_of(va_arg(args, const char *));
            put(&o, s.p, s.n);
        } else if (*f == '.') {
            int n = va_arg(args, int);
            put(&o, va_arg(args, const char *), (size_t)n);
            f += 2;
        } else {
            int least = *f == '0' ? f[1] - '0' : 1;
            f += *f == '0' ? 2 : 0;
            bool wide = *f == 'l';
            f += wide;
            unsigned long value = wide ? va_arg(args, unsigned long) : va_arg(args, unsigned);
            put_number(&o, value, *f == 'x' ? 16 : 10, least);
        }
    }
    return (size_t)(o.p - out);
}

size_t text_format(char *out, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t n = text_vformat(out, size, format, args);
    va_end(args);
    return n;
}
