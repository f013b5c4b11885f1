/* Replacing the running binary: the master executes the new one in its own process and hands over
 * the listening sockets and the workers through the environment. No connection is refused
 * meanwhile. */
#ifndef UPGRADE_H
#define UPGRADE_H

#include "sockets.h"
#include <sys/types.h>

/* Checks the new binary with --check-config, then becomes it. Returns only when that fails. */
void upgrade_exec(const struct sockets *s, const pid_t *workers, unsigned count,
                  char *const argv[]);

/* What a predecessor left: its sockets in `*s`, its workers in `workers`; how many. */
unsigned upgrade_inherit(struct sockets *s, pid_t workers[], unsigned max);

#endif
