/* Disturb: `burn CPU SLEEP BURN SLEEP BURN ...` sleeps and burns the CPU (`-`: any) for these stretches, in µs. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static int64_t now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000) + time.tv_nsec / 1000;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (argv[1][0] != '-') {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET(strtoul(argv[1], NULL, 10), &cpus);
        if (sched_setaffinity(0, sizeof cpus, &cpus)) return 3;
    }
    for (int at = 2; at + 1 < argc; at += 2) {
        int64_t sleep_us = strtoll(argv[at], NULL, 10), burn_us = strtoll(argv[at + 1], NULL, 10);
        struct timespec pause = {.tv_sec = sleep_us / 1000000, .tv_nsec = sleep_us % 1000000 * 1000};
        nanosleep(&pause, NULL);
        for (int64_t end = now_us() + burn_us; now_us() < end;) continue;
    }
    return 0;
}
