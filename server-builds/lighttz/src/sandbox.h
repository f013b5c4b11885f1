/* What a worker gives up once it has opened what it needs. */
#pragma once

#include "config.h"

/* Whether workers may run as our user, which may be root only if `user` says so; prints why not. */
bool sandbox_allows(const struct config *config);

/* Leaves root for `config->user`; false after saying why not. */
bool sandbox_user(const struct config *config);

/* From here on the process can read beneath the `root`, and where a script lies that is loaded for
 * each request, and nothing else (Landlock). It can serve the connections that it accepts, but not
 * make sockets, processes or executable memory, nor signal others (seccomp, and Landlock's scopes).
 * Kernels without either are served without it. False after saying what could not be allowed:
 * nothing could be served then. */
bool sandbox_enter(const struct config *config, int root);

/* Unmaps the pages of the program that starting needed: what serving needs comes back by itself,
 * and it is the smaller part. (Only what cannot be written is dropped: the file still has it. The
 * addresses are those of the static binary; in another one nothing lies there.) */
void sandbox_trim(void);
