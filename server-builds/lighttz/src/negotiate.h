/* Which precompressed neighbour a client wants. */
#pragma once

#include "cache.h"
#include "request.h"

/* The coding of `neighbours` (a bit per enum encoding) that Accept-Encoding prefers; of equals the
 * smallest file, and the plain file only where it is preferred or nothing else will do. */
enum encoding negotiate(const struct request *r, unsigned neighbours);
