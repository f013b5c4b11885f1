/* What a connection has received: cut into whole requests, and kept until they are whole. */
#pragma once

#include "conn.h"

/*
 * Finds the request at the start of the `*n` octets of input, its head in `r` and its body passed
 * over. Returns its length; all when it was refused, and the connection is closing; 0 when more is
 * needed, or another turn. Then `*n` is what to keep, since octets of a body are dropped as they
 * come.
 */
size_t input_take(struct conn *c, char *p, size_t *n, struct request *r);

/* Refuses an incomplete request; all that is known of it is whether it is HEAD. */
void input_refuse(struct conn *c, const char *p, size_t n, int status);

/* Empty lines, as some clients send behind a body: no request that has begun. */
bool input_is_empty_line(const char *p, size_t n);

/* Keeps input for later; `p` is not in `c->in`. False when there is no memory. */
bool input_keep(struct conn *c, const char *p, size_t n);

/* Copies what was kept to where the next input goes; its length. */
size_t input_restore(struct conn *c);
