/* One worker: its loop, its clock, its buffers. Everything a request touches hangs here. */
#pragma once

#include "accesslog.h"
#include "cache.h"
#include "config.h"
#include "loop.h"
#include "script.h"
#include "sockets.h"
#include "stats.h"

enum {
    STATUS_MAX = 16,   /* connections to the status page, beside max_connections */
    IN_SIZE = 65536,   /* one receive takes a whole pipelined batch */
    OUT_SIZE = 262144, /* and one send answers it */
};

#define TURN_SCRIPTS_S 0.001 /* what scripts may take before others have their turn */

/* Each kind has one timeout, so a list in order of setting is in order of expiry: a sweep looks at
 * the first only, and setting one costs a few pointers. */
enum deadline {
    DEADLINE_HEAD,
    DEADLINE_BODY,
    DEADLINE_IDLE,
    DEADLINE_SEND,
    DEADLINE_LINGER,
    TIMED_DEADLINES,
    DEADLINE_TURN = TIMED_DEADLINES, /* the next turn of the loop */
    DEADLINES
};

/* The first lines of a 200 response, by the future of the connection. */
enum front { FRONT_KEEP, FRONT_CLOSE, FRONT_KEEP_1_0, FRONTS };

struct conn;

struct listener {
    struct watch io; /* first: it is what the loop knows */
    bool status_page;
};

struct server {
    struct loop loop;
    bool ends; /* after this turn of it */
    bool turn; /* connections wait for the next one */
    const struct config *config;
    struct cache *cache;
    struct script *script; /* NULL: none */
    struct stats *stats;
    const struct stats *all_stats;
    struct listener listeners[LISTENERS_MAX];
    unsigned listener_count;
    unsigned long connections;
    unsigned status_connections;     /* among them */
    struct conn *status[STATUS_MAX]; /* these, in order of coming */
    unsigned long max_connections;
    unsigned long paused; /* not accepting for want of descriptors: what `connections` was then */
    bool stopping;
    double now;      /* monotonic, once per iteration */
    double answered; /* when the latest response was handed over */
    double stop_at;  /* when stopping: the end of patience */
    double idle_end; /* when stopping: the end of patience with idle connections */
    time_t second;   /* wall clock */
    TAILQ_HEAD(conns, conn) waiting[DEADLINES];
    struct {
        char text[FRONT_ROOM];
        size_t n;
    } front[FRONTS];
    char date[32];
    void (*close)(struct conn *);   /* what makes room */
    void (*freed)(struct server *); /* called when a connection has ended */
    bool tick;                      /* the timer has expired */
    double spin_until;              /* monotonic; until then the loop polls instead of blocking */
    double wall;                    /* ahead of the monotonic clock */
    struct watch signals;
    struct watch timer;
    size_t out_length;
    size_t kept; /* octets of input and output that wait, of all connections */
    TAILQ_HEAD(keepers, conn) keepers;
    unsigned spent;        /* work done for a connection in this turn, in requests */
    double script_seconds; /* spent on scripts in this turn, for all */
    struct accesslog log;
    char in[IN_SIZE];
    char out[OUT_SIZE];
};

/* Where a worker tells that it is ready, and what it then waits for. */
struct gate {
    int ready; /* the worker writes to it */
    int open;  /* it may serve once this can be read, and ends when nobody can write to it */
};

/* Runs a worker on its listening sockets until it is told to stop; its exit status. */
int server_run(const struct config *config, const struct sockets *sockets, struct stats *slot,
               const struct stats *all, const struct gate *gate);

/* Whether a worker could start; says why not. For a process that ends afterwards. */
bool server_check(const struct config *config);

/* Raises the limit of open files as far as it goes; says so if `max_connections` do not fit. */
void server_raise_limit(const struct config *config);
