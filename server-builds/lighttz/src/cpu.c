#include "cpu.h"
#include <sched.h>

int cpu_of(int worker)
{
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus))
        return -1;
    int left = worker % CPU_COUNT(&cpus);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus) && left-- == 0)
            return (int)cpu;
    return -1;
}

bool cpu_pin(int worker)
{
    cpu_set_t one;
    int cpu = cpu_of(worker);
    CPU_ZERO(&one);
    if (cpu < 0)
        return false;
    CPU_SET((size_t)cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}
