/* One worker: its loop, its clock, its buffers. Everything a request touches hangs here. */
#pragma once

#include "accesslog.h"
#include "cache.h"
#include "config.h"
#include "script.h"
#include "sockets.h"
#include "stats.h"
#include <ev.h>

enum {
    IN_SIZE = 65536,   /* one receive takes a whole pipelined batch */
    OUT_SIZE = 262144, /* and one send answers it */
    SIGNALS = 3,
    KEPT_MAX = 128 << 20, /* octets that all connections may keep, of input and of output */
};

/* Each kind has one timeout, so a list in order of setting is in order of expiry: a sweep looks at
 * the first only, and setting one costs a few pointers. */
enum deadline {
    DEADLINE_HEAD,
    DEADLINE_BODY,
    DEADLINE_IDLE,
    DEADLINE_SEND,
    DEADLINE_LINGER,
    DEADLINES
};

/* The first lines of a response whose status is 200, by what becomes of the connection. */
enum front { FRONT_KEEP, FRONT_CLOSE, FRONT_KEEP_1_0, FRONTS };

struct conn;

struct listener {
    ev_io io; /* first: it is what the loop knows */
    bool status_page;
};

struct server {
    struct ev_loop *loop;
    const struct config *config;
    struct cache *cache;
    struct script *script; /* NULL: none */
    struct stats *stats;
    const struct stats *all_stats;
    struct listener listeners[LISTENERS_MAX];
    unsigned listener_count;
    unsigned long connections;
    bool stopping;
    bool paused;     /* not accepting for want of descriptors */
    double now;      /* monotonic, once per iteration */
    double stop_at;  /* when stopping: the end of patience */
    double idle_end; /* when stopping: the end of patience with idle connections */
    time_t second;   /* wall clock */
    TAILQ_HEAD(conns, conn) waiting[DEADLINES];
    struct {
        char text[FRONT_ROOM];
        size_t n;
    } front[FRONTS];
    char date[32];
    ev_timer tick;
    ev_check clock;
    ev_signal signals[SIGNALS];
    size_t out_length;
    size_t kept;
    struct accesslog log;
    char in[IN_SIZE];
    char out[OUT_SIZE];
};

/* Runs a worker on its listening sockets until it is told to stop; its exit status. */
int server_run(const struct config *config, const struct sockets *sockets, struct stats *slot,
               const struct stats *all);

/* Whether a worker could start; says why not. For a process that ends afterwards. */
bool server_check(const struct config *config);

/* Accepting was paused and a descriptor became free. */
void server_resume(struct server *s);
