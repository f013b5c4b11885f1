/* The worker processes of a master: started, counted, watched. */
#pragma once

#include "config.h"
#include "stats.h"
#include <sys/types.h>
#include <time.h>

struct workers {
    unsigned wanted;
    unsigned running;
    time_t look_at; /* of the watchdog */
    struct {
        pid_t pid;      /* 0: none */
        time_t again;   /* not before */
        uint64_t ticks; /* as the watchdog saw them last */
        unsigned unmoved;
    } of[CONFIG_WORKERS_MAX];
};

/* Forks those that are missing, each at most once a second, and says why it cannot. `run` does not
 * return in them. */
void workers_start(struct workers *w, void run(int index, pid_t parent));

void workers_signal(const struct workers *w, int number);

/* Forgets the one that has ended with `pid`; its index, or -1 when it is none of them. */
int workers_forget(struct workers *w, pid_t pid);

/* Kills those whose clock has not ticked for `watchdog` ms; 0: never. */
void workers_watch(struct workers *w, const struct stats *stats, unsigned long watchdog);
