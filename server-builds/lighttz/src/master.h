/* The master: opens the sockets, keeps the workers alive, renews itself and stops. */
#pragma once

#include "config.h"

/* Runs until stopped; the exit status. On SIGHUP it executes `argv` anew in the same process. */
int master_run(const struct config *config, char *const argv[]);

/* Whether it could start like this: says why not. For a process that ends afterwards. */
bool master_check(const struct config *config);
