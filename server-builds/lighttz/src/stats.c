#include "stats.h"
#include <stdio.h>
#include <sys/mman.h>

struct stats *stats_map(void)
{
    void *p = mmap(NULL, sizeof(struct stats) * STATS_SLOTS, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static size_t put(char *out, size_t size, const char *name, const char *help, const char *type,
                  uint64_t value, int prometheus)
{
    int n = prometheus ? snprintf(out, size,
                                  "# HELP lighttz_%s %s\n# TYPE lighttz_%s %s\nlighttz_%s %llu\n",
                                  name, help, name, type, name, (unsigned long long)value)
                       : snprintf(out, size, "%s %llu\n", name, (unsigned long long)value);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

size_t stats_text(const struct stats *slots, char *out, size_t size, int prometheus)
{
    struct stats sum = {0};
    size_t n = 0;
    for (int i = 0; i < STATS_SLOTS; i++) {
#define X(name, help) sum.name += slots[i].name;
        STATS_COUNTERS(X)
#undef X
    }
#define X(name, help)                                                                              \
    n += put(out + n, size - n, prometheus ? #name "_total" : #name, help, "counter", sum.name,    \
             prometheus);
    STATS_COUNTERS(X)
#undef X
    n += put(out + n, size - n, "connections", "Connections open now.", "gauge",
             sum.connections_accepted - sum.connections_closed, prometheus);
    return n;
}
