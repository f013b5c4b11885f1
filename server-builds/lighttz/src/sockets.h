/* The listening sockets: opened by the master, or passed to it by systemd or by its predecessor,
 * inherited by the workers. They outlive workers and masters, so that no connection waiting in
 * their queues is lost. */
#pragma once

#include "config.h"

enum {
    SOCKETS_MAX = CONFIG_LISTEN_MAX * CONFIG_WORKERS_MAX + 1,
    LISTENERS_MAX = CONFIG_LISTEN_MAX + 1, /* of one worker */
};

/* Instead of a worker's number. */
enum {
    EVERY_WORKER = -1, /* one that was passed and that no others can be bound beside */
    UNCLAIMED = -2,
};

struct socket_slot {
    struct address address;
    int worker;
    int fd;
    bool activated;   /* at an address that the service manager chose */
    bool status_page; /* which the first worker serves */
};

struct sockets {
    unsigned count;
    struct socket_slot slot[SOCKETS_MAX];
};

/* Takes what the service manager passed by the protocol of sd_listen_fds(3), or what our
 * predecessor passed by sockets_pass(). */
void sockets_inherit(struct sockets *s);

/* Whether there is an address to listen at that is not the status page's; says so if not. */
bool sockets_suffice(const struct sockets *s, const struct config *config);

/* Has a socket for each worker and address: of those that were passed it takes what is at the
 * configured addresses (when none is configured: at those that the service manager chose), binds
 * what is missing and closes the rest. False after saying what cannot be had. */
bool sockets_open(struct sockets *s, const struct config *config);

/* Starts receiving connections as configured; false after saying why not. */
bool sockets_listen(const struct sockets *s, const struct config *config);

/* Passes them on to the program that this process executes next; false with errno. */
bool sockets_pass(const struct sockets *s);

void sockets_close(struct sockets *s);

/* In a worker: closes those of others, which left open would go on receiving connections. */
void sockets_keep(struct sockets *s, int worker);
