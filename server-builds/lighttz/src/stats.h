/* Counters of all workers in shared memory: each worker writes its own slot, anybody reads all. */
#ifndef STATS_H
#define STATS_H

#include <stddef.h>
#include <stdint.h>

#define STATS_COUNTERS(X)                                                                          \
    X(connections_accepted, "Connections accepted.")                                               \
    X(connections_refused, "Connections answered 503 because there were too many.")                \
    X(connections_closed, "Connections closed.")                                                   \
    X(accept_pauses, "Times accepting stopped for want of descriptors or memory.")                 \
    X(requests, "Requests answered.")                                                              \
    X(responses_2xx, "Responses 200 to 299.")                                                      \
    X(responses_3xx, "Responses 300 to 399.")                                                      \
    X(responses_4xx, "Responses 400 to 499.")                                                      \
    X(responses_5xx, "Responses 500 to 599.")                                                      \
    X(bytes_sent, "Octets handed to the kernel.")                                                  \
    X(timeouts, "Connections closed by a timeout.")                                                \
    X(aborted_files, "Connections closed because a file changed while it was sent.")               \
    X(log_lines_dropped, "Access log lines that could not be written.")

struct stats {
#define X(name, help) uint64_t name;
    STATS_COUNTERS(X)
#undef X
} __attribute__((aligned(64)));

enum { STATS_SLOTS = 64 }; /* one for each possible worker */

/* Maps the slots before the first fork; NULL with errno. */
struct stats *stats_map(void);

/* Writes the sum over all slots, as "name value" lines or in Prometheus' exposition format. Returns
 * the length, less than `size`. */
size_t stats_text(const struct stats *slots, char *out, size_t size, int prometheus);

#endif
