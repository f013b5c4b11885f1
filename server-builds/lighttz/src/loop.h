/* What a worker waits for: descriptors, by epoll, level-triggered. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

enum { LOOP_EVENTS = 128 }; /* in one turn */

struct watch {
    void (*happen)(struct watch *w);
    int fd;
    uint32_t events; /* watched now; 0: none */
};

struct loop {
    int fd;
    int count; /* of the events of this turn */
    int at;    /* the one that is handed out */
    struct epoll_event events[LOOP_EVENTS];
};

/* False with errno. */
bool loop_open(struct loop *l);
void loop_close(struct loop *l);

/* Watches for these events instead of those before; 0: for none. False with errno when the kernel
 * refuses. */
bool loop_watch(struct loop *l, struct watch *w, uint32_t events);

/* For a descriptor that only this process has and closes next: it is not told of any more. */
void loop_forget(struct loop *l, struct watch *w);

/* Collects what has happened; if it `blocks`, waits until something has. Returns whether
 * anything has happened. */
bool loop_wait(struct loop *l, bool blocks);

/* Tells each watch what has happened. Any of them may be forgotten meanwhile. */
void loop_tell(struct loop *l);
