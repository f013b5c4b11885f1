#include "httpdate.h"
#include "text.h"

static const time_t LAST = 253402300799; /* of the year 9999 */

static const char day_names[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

/* gmtime_r(), which would link the code of time zones. Years start in March: leap days end them. */
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
    break_down(when < 0 ? 0 : when > LAST ? LAST : when, &tm);
    text_format(out, HTTPDATE_LENGTH, "%.*s, %02d %.*s %04d %02d:%02d:%02d GMT", 3,
                day_names + (size_t)(3 * tm.tm_wday), tm.tm_mday, 3,
                months + (size_t)(3 * tm.tm_mon), tm.tm_year, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

/* Two digits that would lie more than 50 years ahead mean the past century. */
static int full_year(int year)
{
    struct tm now;
    break_down(time(NULL), &now);
    year = now.tm_year / 100 * 100 + year % 100;
    return year - (year > now.tm_year + 50 ? 100 : 0) - 1900;
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
        if (i == 0 && s.n != HTTPDATE_LENGTH) /* strptime() takes one digit for two */
            continue;
        const char *end = strptime(text, formats[i], &tm);
        if (end == NULL || *end != '\0')
            continue;
        if (i == 1)
            tm.tm_year = full_year(tm.tm_year);
        int month = tm.tm_mon;
        int second = tm.tm_sec; /* 60 may be a leap second */
        tm.tm_sec = 0;
        time_t when = timegm(&tm);
        return tm.tm_mon == month ? when + second : -1; /* no 31 February */
    }
    return -1;
}
