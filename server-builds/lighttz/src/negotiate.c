#include "negotiate.h"

/* The weight of "q=0.123" in thousandths; 1000 without one, -1 when malformed. */
static int weight_of(struct str parameters)
{
    struct str s;
    while (str_item(&parameters, ';', &s)) {
        if (!str_ieq(str_trim(str_before(s, '=')), STR("q")))
            continue;
        if (s.n < 3 || s.n > 7 || s.p[1] != '=' || (s.p[2] != '0' && s.p[2] != '1') ||
            (s.n > 3 && s.p[3] != '.'))
            return -1;
        int q = (s.p[2] - '0') * 1000;
        int unit = 100;
        for (size_t i = 4; i < s.n; i++, unit /= 10) {
            if (!is_digit(s.p[i]))
                return -1;
            q += unit * (s.p[i] - '0');
        }
        return q <= 1000 ? q : -1;
    }
    return 1000;
}

static void read_item(struct str item, int weights[ENCODINGS], int *others)
{
    struct str name;
    struct str rest = item;
    if (!str_item(&rest, ';', &name) || name.n == 0)
        return;
    int q = rest.p ? weight_of(rest) : 1000;
    if (q < 0)
        return;
    if (str_eq(name, STR("*")))
        *others = q;
    if (str_ieq(name, STR("x-gzip")))
        name = STR("gzip");
    for (enum encoding e = 0; e < ENCODINGS; e++)
        if (str_ieq(name, encoding_name(e)))
            weights[e] = q;
}

enum encoding negotiate(const struct request *r, unsigned neighbours)
{
    int weights[ENCODINGS] = {-1, -1, -1, -1};
    int others = -1;
    size_t at = 0;
    struct str value;
    struct str item;
    while (request_each(r, FIELD_ACCEPT_ENCODING, &at, &value))
        while (str_item(&value, ',', &item))
            read_item(item, weights, &others);
    enum encoding best = ENCODING_NONE;
    /* The plain file is always acceptable, but what is named is meant. */
    int plain = weights[ENCODING_NONE] >= 0 ? weights[ENCODING_NONE] : others;
    int best_weight = plain >= 0 ? plain : 0;
    for (enum encoding e = ENCODING_BR; e < ENCODINGS; e++) {
        int q = weights[e] >= 0 ? weights[e] : others;
        if ((neighbours >> e & 1U) && q > 0 &&
            (q > best_weight || (q == best_weight && best == ENCODING_NONE))) {
            best = e;
            best_weight = q;
        }
    }
    return best;
}
