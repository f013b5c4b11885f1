#include "stats.h"
#include "text.h"
#include <sys/mman.h>

static const struct {
    const char *name;
    const char *help;
} counters[COUNTERS] = {
    [CONNECTIONS_ACCEPTED] = {"connections_accepted", "Connections accepted."},
    [CONNECTIONS_REFUSED] = {"connections_refused", "Connections answered 503: too many."},
    [CONNECTIONS_CLOSED] = {"connections_closed", "Connections closed."},
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

struct stats *stats_map(void)
{
    void *p = mmap(NULL, sizeof(struct stats) * STATS_SLOTS, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
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
    return n;
}
