#include "httpdate.h"

static const char day_names[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

static void put2(char *out, int value)
{
    out[0] = (char)('0' + value / 10 % 10);
    out[1] = (char)('0' + value % 10);
}

/* gmtime_r() without the time zones it brings. Years start in March, so that leap days end them. */
static void break_down(time_t when, struct tm *tm)
{
    long days = (long)(when / 86400) - (when % 86400 < 0);
    long second = (long)(when - days * 86400);
    long shifted = days + 719468; /* since 1 March of the year 0 */
    long era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    long day = shifted - era * 146097;
    long year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    long of_year = day - (365 * year + year / 4 - year / 100);
    long month = (5 * of_year + 2) / 153;
    tm->tm_wday = (int)(((days + 4) % 7 + 7) % 7);
    tm->tm_mday = (int)(of_year - (153 * month + 2) / 5 + 1);
    tm->tm_mon = (int)(month < 10 ? month + 2 : month - 10);
    tm->tm_year = (int)(year + era * 400 + (month >= 10));
    tm->tm_hour = (int)(second / 3600);
    tm->tm_min = (int)(second / 60 % 60);
    tm->tm_sec = (int)(second % 60);
}

void httpdate_format(time_t when, char out[HTTPDATE_LENGTH])
{
    struct tm tm;
    break_down(when, &tm);
    int year = tm.tm_year;
    memcpy(out, day_names + (size_t)(3 * tm.tm_wday), 3);
    memcpy(out + 3, ", ", 2);
    put2(out + 5, tm.tm_mday);
    out[7] = ' ';
    memcpy(out + 8, months + (size_t)(3 * tm.tm_mon), 3);
    out[11] = ' ';
    put2(out + 12, year / 100);
    put2(out + 14, year);
    out[16] = ' ';
    put2(out + 17, tm.tm_hour);
    out[19] = ':';
    put2(out + 20, tm.tm_min);
    out[22] = ':';
    put2(out + 23, tm.tm_sec);
    memcpy(out + 25, " GMT", 4);
}

/* Two digits that would lie more than 50 years ahead mean the past century. */
static int full_year(int year)
{
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm) == NULL)
        return year;
    year = tm.tm_year / 100 * 100 + year % 100;
    return year > tm.tm_year + 50 ? year - 100 : year;
}

time_t httpdate_parse(struct str s)
{
    /* The program never sets a locale, so the names are the English ones. */
    static const char *const formats[] = {"%a, %d %b %Y %H:%M:%S GMT", "%a, %d-%b-%y %H:%M:%S GMT",
                                          "%a %b %d %H:%M:%S %Y"};
    char text[48];
    if (s.n >= sizeof text || memchr(s.p, '\0', s.n))
        return -1;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct tm tm = {0};
        const char *end = strptime(text, formats[i], &tm);
        if (end == NULL || *end != '\0')
            continue;
        if (i == 1)
            tm.tm_year = full_year(tm.tm_year);
        return timegm(&tm);
    }
    return -1;
}
