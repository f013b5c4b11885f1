/* The access log, in combined format: buffered per worker, never waited for. */
#pragma once

#include "request.h"
#include "stats.h"
#include <netinet/in.h>

struct accesslog {
    int fd; /* -1: off */
    size_t used;
    bool torn; /* the buffer starts in the middle of a line */
    struct stats *stats;
    char date[32]; /* "[06/Nov/1994:08:49:37 +0000]" */
    char buffer[65536];
};

/* `path` NULL: off. False with errno when it cannot be opened. */
bool accesslog_open(struct accesslog *log, const char *path, struct stats *stats);

/* To be called when the second changes and before the end: writes what is buffered. */
void accesslog_tick(struct accesslog *log, time_t now);

/* `r` may lack everything when the request was not understood. */
void accesslog_add(struct accesslog *log, const struct sockaddr_in6 *peer, const struct request *r,
                   int status, uint64_t bytes);
