/* The master: opens the sockets, keeps the workers alive, reloads and stops. */
#ifndef MASTER_H
#define MASTER_H

#include "config.h"

/* Runs until stopped; the exit status. A reload replaces `*config`. */
int master_run(struct config *config, int argc, char *const argv[]);

#endif
