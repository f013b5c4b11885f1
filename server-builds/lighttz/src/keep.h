/* One account of what connections keep: heads, bodies and output that wait. */
#pragma once

#include "conn.h"

/* realloc() from `old` to `n` octets; 0 frees. Beyond `connection_memory` room is made first at the
 * expense of others: of the few that have kept something longest, the one that keeps most is
 * closed. NULL, with `p` as it was, when there is no memory even then. */
char *keep_resize(struct conn *c, char *p, size_t old, size_t n);
