/* The CPU of each worker, where each has its own. */
#pragma once

#include <stdbool.h>

/* Of those that this process may run on, one for each worker in turn; -1 when that is not known. */
int cpu_of(int worker);

/* Confines this process to it; false with errno. */
bool cpu_pin(int worker);
