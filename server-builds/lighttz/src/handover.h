/* What a master and its successors share: a program started anew, and pipes between them. */
#pragma once

#include "sockets.h"
#include <sys/types.h>
#include <time.h>

/* What a master that comes to serve tells the first one. */
struct announcement {
    pid_t pid;
    unsigned long stop_timeout; /* ms */
    unsigned long former_generations;
};

/* Each is -1 where there is none. */
struct handover {
    int report;   /* of a successor: to its predecessor, when it serves */
    int anchor;   /* announcements: to the first master, or in it from those after it */
    int lifeline; /* from the first master, whose end it shows, or in it to those after it */
};

/* Where the binary lies that `name` starts. */
const char *handover_binary(const char *name);

/* What our predecessor has left open for us; false in the first master. */
bool handover_take(struct handover *h);

/* Announces that we serve. */
void handover_announce(struct handover *h, const struct config *config);

/* A process that is signalled by a descriptor, as its ID may be another process's by now. Where the
 * kernel lacks that, by the ID, if what has it started when this one did. */
struct process {
    int fd; /* -1: none */
    pid_t pid;
    unsigned long long started; /* ticks after the machine */
};

#define NO_PROCESS {-1, 0, 0}

/* A master that is being started, or was. */
struct successor {
    pid_t pid;
    struct process process;
    int report; /* -1: it has reported, or there is none */
    time_t limit;
};

enum news { NO_NEWS, SUCCESSOR_READY, SUCCESSOR_FAILED };

/* Starts the program at `binary`, which takes over the sockets; false after saying why not. It has
 * `patience` seconds. The first master opens its pipes for it. */
bool successor_start(struct successor *s, struct handover *h, bool first,
                     const struct sockets *sockets, const char *binary, char *const argv[],
                     time_t patience);

/* What is new of it, which has `ended` or not. One that takes too long is killed. */
enum news successor_look(struct successor *s, bool ended);

void successor_forget(struct successor *s);

/* Tells systemd (Type=notify); nothing without it. */
void notify_manager(const char *state);

/* Takes the process `pid`, instead of what was there. */
void process_open(struct process *process, pid_t pid);
void process_signal(const struct process *process, int number);

/* Whether it has not ended yet. */
bool process_lives(const struct process *process);
void process_forget(struct process *process);
void close_fd(int *fd);
