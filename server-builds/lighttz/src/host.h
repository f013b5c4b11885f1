/* The host of a URI or of the field Host. */
#pragma once

#include "str.h"

/* Whether `s` is uri-host [ ":" [ port ] ], without a user. An http URI has a host, which Host
 * repeats (RFC 9110, 4.2.1 and 7.2). */
bool host_valid(struct str s);
