#include "host.h"
#include <arpa/inet.h>

static bool allowed[256]; /* in a reg-name */

/* Before main(), and never written again. */
__attribute__((constructor)) static void fill_allowed(void)
{
    static const char octets[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                 "!$%&'*+-._~(),;=";
    for (const char *p = octets; *p; p++)
        allowed[(unsigned char)*p] = true;
}

/* The length of "[" IPv6address "]" at the start of `s`; 0 when it is none. */
static size_t ip_literal(struct str s)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct in6_addr address;
    struct str inside = str_before(str_from(s, 1), ']');
    if (inside.n + 1 == s.n || inside.n >= sizeof text || memchr(inside.p, '\0', inside.n))
        return 0;
    memcpy(text, inside.p, inside.n);
    return inet_pton(AF_INET6, text, &address) == 1 ? inside.n + 2 : 0;
}

/* The length of a reg-name or an IPv4 address at the start of `s`; 0 when it has a bad escape. */
static size_t reg_name(struct str s)
{
    size_t n = 0;
    for (; n < s.n && allowed[(unsigned char)s.p[n]]; n++)
        if (s.p[n] == '%' && str_escape(s, n) < 0)
            return 0;
    return n;
}

bool host_valid(struct str s)
{
    uint64_t number = 0;
    bool six = s.n && s.p[0] == '[';
    size_t n = six ? ip_literal(s) : reg_name(s);
    struct str port = str_from(s, n);
    if (n == 0 || (port.n && port.p[0] != ':'))
        return false;
    return port.n < 2 || (str_number(str_from(port, 1), &number) && number < 65536);
}
