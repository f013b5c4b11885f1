/* The dates of RFC 9110, 5.6.7. */
#pragma once

#include "str.h"
#include <time.h>

enum { HTTPDATE_LENGTH = 29 };

/* Writes "Sun, 06 Nov 1994 08:49:37 GMT" without a terminator. */
void httpdate_format(time_t when, char out[HTTPDATE_LENGTH]);

/* Reads IMF-fixdate, RFC 850 and asctime; -1 when it is none of them. */
time_t httpdate_parse(struct str s);
