/* A load that is known exactly: `load ITERATIONS EXTRA CPU PARTS` counts ITERATIONS and EXTRA percent more.
 *
 * The loop is cut into PARTS equal parts, and the time of each is printed in ns. CPU is the only one that it runs on;
 * `-`: any. ITERATIONS is a multiple of 100 * PARTS, so that EXTRA is exact. All arguments have the same length for
 * every EXTRA of one digit, so that two loads differ in nothing but their iterations.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* Each iteration needs the one before it, so the processor can neither skip nor overlap them. */
static uint64_t count(uint64_t iterations, uint64_t state) {
    while (iterations--) {
        state = state * UINT64_C(6364136223846793005) + 1;
        __asm__ volatile("" : "+r"(state));
    }
    return state;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    uint64_t iterations = strtoull(argv[1], NULL, 10), extra = strtoull(argv[2], NULL, 10);
    uint64_t parts = strtoull(argv[4], NULL, 10);
    if (!parts || !iterations || iterations % (100 * parts)) return 2;
    if (argv[3][0] != '-') {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET(strtoul(argv[3], NULL, 10), &cpus);
        if (sched_setaffinity(0, sizeof cpus, &cpus)) return 3;
    }
    uint64_t state = 1;
    for (uint64_t part = 0; part < parts; part++) {
        int64_t began = now_ns();
        state = count(iterations / parts / 100 * (100 + extra), state);
        printf("%" PRId64 "\n", now_ns() - began);
    }
    return state == 0;
}
