#include "stats.h"
#include "kernel.h"
#include "text.h"
#include <sys/mman.h>

static const struct {
    const char *name;
    const char *help;
} counters[COUNTERS] = {
    [CONNECTIONS_ACCEPTED] = {"connections_accepted", "Connections accepted."},
    [CONNECTIONS_REFUSED] = {"connections_refused", "Connections answered 503: too many."},
    [CONNECTIONS_CLOSED] = {"connections_closed", "Connections closed."},
    [CONNECTIONS_EVICTED] = {"connections_evicted", "Connections closed: memory ran out."},
    [CONNECTIONS] = {"connections", "Connections open now."},
    [ACCEPT_PAUSES] = {"accept_pauses", "Times accepting stopped: no descriptors or memory."},
    [REQUESTS] = {"requests", "Requests answered."},
    [RESPONSES_2XX] = {"responses_2xx", "Responses 200 to 299."},
    [RESPONSES_3XX] = {"responses_3xx", "Responses 300 to 399."},
    [RESPONSES_4XX] = {"responses_4xx", "Responses 400 to 499."},
    [RESPONSES_5XX] = {"responses_5xx", "Responses 500 to 599."},
    [BYTES_SENT] = {"bytes_sent", "Octets handed to the kernel."},
    [TIMEOUTS] = {"timeouts", "Connections closed by a timeout."},
    [ABORTED_FILES] = {"aborted_files", "Connections closed: a file changed while it was sent."},
    [LOG_LINES_DROPPED] = {"log_lines_dropped", "Access log lines that could not be written."},
};

static const struct {
    const char *name;
    const char *help;
} timings[TIMINGS] = {
    [SERVICE_TIME] = {"service_seconds",
                      "From the loop's waking up for a request to its response."},
    [LOOP_LAG] = {"loop_lag_seconds", "Turns of the loop: how long what comes next may wait."},
};

/* The upper bound of a bucket in nanoseconds. */
static uint64_t bound_of(unsigned bucket)
{
    uint64_t base = bucket == 0 ? 1000 : bucket % 2 ? 1500 : 2000;
    return bucket == 0 ? base : base << (bucket - 1) / 2;
}

void stats_time(struct stats *stats, enum timing timing, double seconds, uint64_t n)
{
    struct histogram *h = &stats->timing[timing];
    uint64_t ns = seconds > 0 ? (uint64_t)(int64_t)(seconds * 1e9) : 0;
    uint64_t half_us = ns ? (ns - 1) / 500 : 0;
    unsigned bucket = 0;
    if (half_us >= 2) {
        unsigned octave = 63 - (unsigned)__builtin_clzll(half_us);
        bucket = 2 * octave - 1 + (unsigned)(half_us >> (octave - 1) & 1);
    }
    h->count[bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1] += n;
    h->ns += ns * n;
}

struct stats *stats_map(void)
{
    void *p = mmap(NULL, sizeof(struct stats) * STATS_SLOTS, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static size_t histogram_text(const struct stats *slots, enum timing t, char *out, size_t size)
{
    const char *name = timings[t].name;
    uint64_t sum = 0;
    uint64_t total = 0;
    size_t n = text_format(out, size, "# HELP lighttz_%s %s\n# TYPE lighttz_%s histogram\n", name,
                           timings[t].help, name);
    for (unsigned b = 0; b < HISTOGRAM_BUCKETS; b++) {
        uint64_t le = bound_of(b);
        for (unsigned i = 0; i < STATS_SLOTS; i++)
            total += slots[i].timing[t].count[b];
        if (b < HISTOGRAM_BUCKETS - 1)
            n += text_format(out + n, size - n, "lighttz_%s_bucket{le=\"%lu.%09lu\"} %lu\n", name,
                             le / 1000000000, le % 1000000000, total);
    }
    for (unsigned i = 0; i < STATS_SLOTS; i++)
        sum += slots[i].timing[t].ns;
    return n + text_format(out + n, size - n,
                           "lighttz_%s_bucket{le=\"+Inf\"} %lu\nlighttz_%s_sum %lu.%09lu\n"
                           "lighttz_%s_count %lu\n",
                           name, total, name, sum / 1000000000, sum % 1000000000, name, total);
}

size_t stats_text(const struct stats *slots, char *out, size_t size, bool prometheus)
{
    struct stats sum = {0};
    size_t n = 0;
    for (enum counter i = 0; i < COUNTERS * STATS_SLOTS; i++)
        sum.count[i % COUNTERS] += slots[i / COUNTERS].count[i % COUNTERS];
    sum.count[CONNECTIONS] = sum.count[CONNECTIONS_ACCEPTED] - sum.count[CONNECTIONS_CLOSED];
    for (enum counter i = 0; i < COUNTERS; i++) {
        const char *name = counters[i].name;
        const char *unit = prometheus && i != CONNECTIONS ? "_total" : "";
        if (prometheus)
            n += text_format(out + n, size - n, "# HELP lighttz_%s%s %s\n# TYPE lighttz_%s%s %s\n",
                             name, unit, counters[i].help, name, unit, *unit ? "counter" : "gauge");
        n += text_format(out + n, size - n, "%s%s%s %lu\n", prometheus ? "lighttz_" : "", name,
                         unit, sum.count[i]);
    }
    for (enum lack i = 0; i < LACKS; i++) {
        const char *name = kernel_lack_name(i);
        if (prometheus)
            n += text_format(out + n, size - n,
                             "# HELP lighttz_fallback_%s 1: the kernel lacks it, or refuses it.\n"
                             "# TYPE lighttz_fallback_%s gauge\n",
                             name, name);
        n += text_format(out + n, size - n, "%sfallback_%s %d\n", prometheus ? "lighttz_" : "",
                         name, kernel_lacks(i));
    }
    for (enum timing t = 0; t < TIMINGS && prometheus; t++)
        n += histogram_text(slots, t, out + n, size - n);
    return n;
}
