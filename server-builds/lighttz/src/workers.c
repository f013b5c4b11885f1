#include "workers.h"
#include "clock.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { LOOKS = 3 /* of the watchdog before it kills */ };

void workers_start(struct workers *w, void run(int index, pid_t parent))
{
    pid_t parent = getpid();
    time_t now = (time_t)clock_s(CLOCK_MONOTONIC);
    for (int i = 0; i < (int)w->wanted; i++) {
        if (w->of[i].pid || now < w->of[i].again)
            continue;
        pid_t pid = fork();
        if (pid == 0)
            run(i, parent);
        if (pid < 0)
            fprintf(stderr, "lighttz: fork: %s\n", strerror(errno));
        w->of[i].pid = pid > 0 ? pid : 0;
        w->of[i].again = now + 1;
        w->of[i].unmoved = 0;
        w->running += pid > 0;
    }
}

void workers_signal(const struct workers *w, int number)
{
    for (int i = 0; i < (int)w->wanted; i++)
        if (w->of[i].pid)
            kill(w->of[i].pid, number);
}

int workers_forget(struct workers *w, pid_t pid)
{
    for (int i = 0; i < (int)w->wanted; i++)
        if (w->of[i].pid == pid) {
            w->of[i].pid = 0;
            w->running--;
            return i;
        }
    return -1;
}

/* By several looks in turn. (Elapsed time would not do: after a guest was paused, it is long for
 * every worker.) */
void workers_watch(struct workers *w, const struct stats *stats, unsigned long watchdog)
{
    time_t now = (time_t)clock_s(CLOCK_MONOTONIC);
    if (watchdog == 0 || now < w->look_at)
        return;
    w->look_at = now + (time_t)((watchdog + 1000 * LOOKS - 1) / (1000 * LOOKS));
    for (int i = 0; i < (int)w->wanted; i++) {
        bool moved = w->of[i].ticks != stats[i].ticks;
        w->of[i].ticks = stats[i].ticks;
        w->of[i].unmoved = moved || w->of[i].pid == 0 ? 0 : w->of[i].unmoved + 1;
        if (w->of[i].unmoved < LOOKS)
            continue;
        fprintf(stderr, "lighttz: worker %d does not respond and is killed\n", i);
        kill(w->of[i].pid, SIGKILL);
        w->of[i].unmoved = 0;
    }
}
