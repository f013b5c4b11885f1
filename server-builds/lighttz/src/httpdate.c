#include "httpdate.h"

static const char days[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

static void put2(char *out, int value)
{
    out[0] = (char)('0' + value / 10 % 10);
    out[1] = (char)('0' + value % 10);
}

void httpdate_format(time_t when, char out[HTTPDATE_LENGTH])
{
    struct tm tm;
    memcpy(out, "---, -- --- ---- --:--:-- GMT", HTTPDATE_LENGTH);
    if (gmtime_r(&when, &tm) == NULL)
        return;
    int year = tm.tm_year + 1900;
    memcpy(out, days + 3 * tm.tm_wday, 3);
    memcpy(out + 3, ", ", 2);
    put2(out + 5, tm.tm_mday);
    out[7] = ' ';
    memcpy(out + 8, months + 3 * tm.tm_mon, 3);
    out[11] = ' ';
    put2(out + 12, year / 100);
    put2(out + 14, year);
    out[16] = ' ';
    put2(out + 17, tm.tm_hour);
    out[19] = ':';
    put2(out + 20, tm.tm_min);
    out[22] = ':';
    put2(out + 23, tm.tm_sec);
}

/* Matches `s` against a pattern: d, h, m, s and k (a year) two digits each, y four digits,
 * n a month's name, _ a digit or space before a digit, anything else itself. */
static bool match(struct str s, const char *pattern, struct tm *tm)
{
    size_t i = 0;
    for (; *pattern; pattern++) {
        size_t width = *pattern == 'y'              ? 4
                       : *pattern == 'n'            ? 3
                       : strchr("dhmsk_", *pattern) ? 2
                                                    : 1;
        if (s.n - i < width)
            return false;
        const char *p = s.p + i;
        i += width;
        if (width == 1) {
            if (*p != *pattern)
                return false;
            continue;
        }
        if (*pattern == 'n') {
            for (tm->tm_mon = 0; tm->tm_mon < 12; tm->tm_mon++)
                if (memcmp(months + (size_t)(3 * tm->tm_mon), p, 3) == 0)
                    break;
            if (tm->tm_mon == 12)
                return false;
            continue;
        }
        int value = 0;
        for (size_t k = 0; k < width; k++) {
            if (!is_digit(p[k]) && !(*pattern == '_' && k == 0 && p[k] == ' '))
                return false;
            value = value * 10 + (p[k] == ' ' ? 0 : p[k] - '0');
        }
        switch (*pattern) {
        case 'y':
            tm->tm_year = value - 1900;
            break;
        case 'k':
            tm->tm_year = value;
            break;
        case 'h':
            tm->tm_hour = value;
            break;
        case 'm':
            tm->tm_min = value;
            break;
        case 's':
            tm->tm_sec = value;
            break;
        default:
            tm->tm_mday = value;
        }
    }
    return i == s.n;
}

static bool day_name(struct str *s, const char *const names[7])
{
    for (size_t i = 0; i < 7; i++) {
        size_t n = strlen(names[i]);
        if (s->n > n && memcmp(s->p, names[i], n) == 0) {
            *s = str_from(*s, n);
            return true;
        }
    }
    return false;
}

/* Two digits that would lie more than 50 years ahead mean the past century. */
static int full_year(int two_digits)
{
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm) == NULL)
        return two_digits;
    int year = tm.tm_year / 100 * 100 + two_digits;
    return year > tm.tm_year + 50 ? year - 100 : year;
}

time_t httpdate_parse(struct str s)
{
    static const char *const brief[7] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const full[7] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                        "Thursday", "Friday", "Saturday"};
    struct tm tm = {0};
    struct str rest = s;
    if (day_name(&rest, full) && match(rest, ", d-n-k h:m:s GMT", &tm)) {
        tm.tm_year = full_year(tm.tm_year);
    } else {
        rest = s;
        if (!day_name(&rest, brief) ||
            !(match(rest, ", d n y h:m:s GMT", &tm) || match(rest, " n _ h:m:s y", &tm)))
            return -1;
    }
    if (tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
        return -1;
    return timegm(&tm);
}
