/* The listening sockets: opened by the master or passed to it by systemd or by the binary that it
 * replaces, inherited by the workers. They outlive workers and masters, so that no connection
 * waiting in their queues is lost. */
#pragma once

#include "config.h"

enum {
    SOCKETS_MAX = CONFIG_LISTEN_MAX * CONFIG_WORKERS_MAX + 1,
    LISTENERS_MAX = CONFIG_LISTEN_MAX + 1, /* of one worker */
};

/* Instead of a worker's number. */
enum {
    EVERY_WORKER = -1, /* one that was passed without SO_REUSEPORT */
    UNCLAIMED = -2,
};

struct socket_slot {
    struct address address;
    int worker;
    int fd;
    bool status_page; /* which the first worker serves */
};

struct sockets {
    unsigned count;
    struct socket_slot slot[SOCKETS_MAX];
};

/* Takes what was passed by the protocol of sd_listen_fds(3); how many. */
unsigned sockets_inherit(struct sockets *s);

/* Binds a socket for each worker and address, or takes one that was passed: of these it takes what
 * is at the configured addresses, or all when none is configured, and closes the rest. False after
 * saying what cannot be had. */
bool sockets_open(struct sockets *s, const struct config *config);

/* Starts receiving connections; false after saying why not. */
bool sockets_listen(const struct sockets *s);

/* Passes them on to whatever this process executes next. */
void sockets_pass(struct sockets *s);

void sockets_close(struct sockets *s);

/* In a worker: closes those of others, which left open would go on receiving connections. */
void sockets_keep(struct sockets *s, int worker);
