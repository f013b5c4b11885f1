/* What this kernel lacks, being older or narrower than Linux 5.13 (a sandbox, a container's filter
 * of system calls), and what lighttz does instead. */
#pragma once

#include "config.h"

enum lack {
    LACKS_OPENAT2,  /* before 5.6: each step of a path is opened and checked instead */
    LACKS_PIDFD,    /* before 5.3: processes are signalled by ID and start time */
    LACKS_LANDLOCK, /* before 5.13: workers can read whatever their user can */
    LACKS_SECCOMP,  /* workers can make any system call */
    LACKS
};

/* Tries what may be missing and says once what is; workers and successors know it from then on.
 * Without it the kernel is taken to lack nothing. */
void kernel_probe(const struct config *config);

bool kernel_lacks(enum lack lack);

/* In a worker, when a call fails that seemed to be there. */
void kernel_note(enum lack lack);

/* As in the status page. */
const char *kernel_lack_name(enum lack lack);

/* The version of Landlock's interface; less than 1: there is none. */
long kernel_landlock(void);
