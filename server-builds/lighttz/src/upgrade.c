#include "upgrade.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKETS_VARIABLE "LIGHTTZ_SOCKETS"
#define WORKERS_VARIABLE "LIGHTTZ_WORKERS"

enum { ARGUMENTS_MAX = 128 };

/* Whether the new binary starts at all and understands the configuration. */
static bool is_sound(char *const argv[])
{
    char *arguments[ARGUMENTS_MAX + 2];
    unsigned n = 0;
    int status = 1;
    while (argv[n] && n < ARGUMENTS_MAX) {
        arguments[n] = argv[n];
        n++;
    }
    arguments[n] = (char[]){"--check-config"};
    arguments[n + 1] = NULL;
    pid_t pid = fork();
    if (pid == 0) {
        execvp(arguments[0], arguments);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static void keep_open(int fd, bool keep)
{
    fcntl(fd, F_SETFD, keep ? 0 : FD_CLOEXEC);
}

void upgrade_exec(const struct sockets *s, const pid_t *workers, unsigned count, char *const argv[])
{
    static char text[SOCKETS_MAX * 96];
    size_t n = 0;
    if (!is_sound(argv)) {
        fprintf(stderr, "lighttz: the new binary does not start; this one goes on\n");
        return;
    }
    for (unsigned i = 0; i < s->count; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s %d %d ", s->slot[i].address,
                              s->slot[i].worker, s->slot[i].fd);
        keep_open(s->slot[i].fd, true);
    }
    setenv(SOCKETS_VARIABLE, text, 1);
    n = 0;
    for (unsigned i = 0; i < count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d ", (int)workers[i]);
    text[n] = '\0';
    setenv(WORKERS_VARIABLE, text, 1);
    execvp(argv[0], argv);
    fprintf(stderr, "lighttz: %s: %s\n", argv[0], strerror(errno));
    unsetenv(SOCKETS_VARIABLE);
    unsetenv(WORKERS_VARIABLE);
    for (unsigned i = 0; i < s->count; i++)
        keep_open(s->slot[i].fd, false);
}

unsigned upgrade_inherit(struct sockets *s, pid_t workers[], unsigned max)
{
    const char *sockets = getenv(SOCKETS_VARIABLE);
    const char *pids = getenv(WORKERS_VARIABLE);
    unsigned count = 0;
    int used;
    s->count = 0;
    while (sockets && s->count < SOCKETS_MAX) {
        struct socket_slot *slot = &s->slot[s->count];
        if (sscanf(sockets, "%71s %d %d %n", slot->address, &slot->worker, &slot->fd, &used) != 3)
            break;
        keep_open(slot->fd, false);
        s->count++;
        sockets += used;
    }
    while (pids && count < max && sscanf(pids, "%d %n", &workers[count], &used) == 1) {
        count++;
        pids += used;
    }
    unsetenv(SOCKETS_VARIABLE);
    unsetenv(WORKERS_VARIABLE);
    return count;
}
