/* The master: opens the sockets, keeps the workers alive, hands over to a successor and stops. */
#pragma once

#include "config.h"

/* Runs until stopped; the exit status. SIGHUP starts a successor by `argv`. */
int master_run(const struct config *config, char *const argv[]);

/* Checks that the server could start with this configuration, and prints why not. For a process
 * that ends afterwards. */
bool master_check(const struct config *config);
