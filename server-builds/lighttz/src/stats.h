/* Counters of all workers in shared memory: each worker writes its own slot, anybody reads all. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What they mean is in stats.c. CONNECTIONS is no worker's: those accepted and not closed. */
enum counter {
    CONNECTIONS_ACCEPTED,
    CONNECTIONS_REFUSED,
    CONNECTIONS_CLOSED,
    CONNECTIONS,
    ACCEPT_PAUSES,
    REQUESTS,
    RESPONSES_2XX,
    RESPONSES_3XX,
    RESPONSES_4XX,
    RESPONSES_5XX,
    BYTES_SENT,
    TIMEOUTS,
    ABORTED_FILES,
    LOG_LINES_DROPPED,
    COUNTERS
};

struct stats {
    uint64_t count[COUNTERS];
} __attribute__((aligned(64)));

enum { STATS_SLOTS = 64 }; /* one for each possible worker */

/* Maps the slots before the first fork; NULL with errno. */
struct stats *stats_map(void);

/* Writes the sum over all slots, as "name value" lines or in Prometheus' exposition format. Returns
 * the length; what is beyond `size` is cut off. */
size_t stats_text(const struct stats *slots, char *out, size_t size, bool prometheus);
