/* The access log: combined format, then the seconds that the response took; buffered per worker and
 * written once a second. A pipe is not waited for: it loses lines instead. A disk is. A line that a
 * full disk takes in part is cut off again. */
#pragma once

#include "request.h"
#include "stats.h"
#include <netinet/in.h>

struct accesslog {
    int fd; /* -1: off */
    bool pipe;
    bool file; /* a regular one: what was written in part can be cut off */
    size_t used;
    bool torn; /* the log ends within a line of ours, and the buffer starts with its end */
    struct stats *stats;
    char date[40]; /* " - - [06/Nov/1994:08:49:37 +0000]" */
    size_t date_length;
    char buffer[65536];
};

/* What of a line is known before a response is out. */
struct accesslog_line {
    char *text; /* NULL: none */
    size_t n;
    size_t split; /* where the octets come that are sent; the time comes at the end */
};

/* `path` NULL: off. False with errno when it cannot be opened. */
bool accesslog_open(struct accesslog *log, const char *path, struct stats *stats);

/* Writes the buffer; call it when the second changes and before the end. */
void accesslog_tick(struct accesslog *log, time_t now);

enum { ACCESSLOG_ADDRESS = 46 };

/* The text of a peer's address in `out`, without an end; its length. */
size_t accesslog_address(const struct sockaddr_in6 *peer, char out[ACCESSLOG_ADDRESS]);

/* Adds the line of a response that is complete. `bytes` are those of its body; `r` may lack
 * everything when the request was not understood, or be NULL. */
void accesslog_add(struct accesslog *log, struct str address, const struct request *r, int status,
                   uint64_t bytes, double seconds);

/* The line of a response that goes on, of at most 4 KiB, for accesslog_finish(). Its text is good
 * until the next call. */
struct accesslog_line accesslog_begin(const struct accesslog *log, struct str address,
                                      const struct request *r, int status);

void accesslog_finish(struct accesslog *log, const struct accesslog_line *line, uint64_t bytes,
                      double seconds);
