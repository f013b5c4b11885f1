/* The listening sockets: opened by the master, inherited by the workers, kept across reloads so
 * that no connection waiting in their queues is lost. */
#ifndef SOCKETS_H
#define SOCKETS_H

#include "config.h"

enum { SOCKETS_MAX = CONFIG_LISTEN_MAX * CONFIG_WORKERS_MAX + 1 };

struct socket_slot {
    char address[72];
    int worker; /* whose it is; STATUS_WORKER for the status page */
    int fd;
};

enum { STATUS_WORKER = -1 };

struct sockets {
    unsigned count;
    struct socket_slot slot[SOCKETS_MAX];
};

/* Opens what `config` asks for, taking over from `old` what is already open there. On failure says
 * why, closes what it opened and returns false; `old` is untouched. */
bool sockets_open(struct sockets *s, const struct config *config, const struct sockets *old);

/* Closes what `s` has and `kept` has not. */
void sockets_close(struct sockets *s, const struct sockets *kept);

/* The descriptors of one worker, the status page's last (the first worker has it). */
unsigned sockets_of(const struct sockets *s, int worker, int fds[], bool *status_page);

#endif
