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
    CONNECTIONS_EVICTED,
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

/* Two buckets an octave: up to 1 us, 1.5, 2, 3, 4, 6 ... 8.4 s, and beyond. */
enum { HISTOGRAM_BUCKETS = 48 };

struct histogram {
    uint64_t count[HISTOGRAM_BUCKETS];
    uint64_t ns; /* the sum */
};

/* What they mean is in stats.c. */
enum timing { SERVICE_TIME, LOOP_LAG, TIMINGS };

struct stats {
    uint64_t count[COUNTERS];
    struct histogram timing[TIMINGS];
    uint64_t ticks; /* of the worker's clock: it lives as long as they go on */
} __attribute__((aligned(64)));

enum { STATS_SLOTS = 64 }; /* one for each possible worker */

/* Counts a time in seconds, `n` times. */
void stats_time(struct stats *stats, enum timing timing, double seconds, uint64_t n);

/* Maps the slots before the first fork; NULL with errno. */
struct stats *stats_map(void);

/* Writes the sum over all slots, as "name value" lines or in Prometheus' exposition format. Returns
 * the length; cuts off what exceeds `size`. */
size_t stats_text(const struct stats *slots, char *out, size_t size, bool prometheus);
