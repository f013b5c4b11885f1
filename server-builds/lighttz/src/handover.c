#include "handover.h"
#include "clock.h"
#include "kernel.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* The three descriptors. Another way to speak through them takes another name, so that two binaries
 * that do not understand each other do not try. */
#define HANDOVER "LIGHTTZ_HANDOVER_3"

enum { PATIENCE_S = 10 /* with one that was killed */ };

void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void notify_manager(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (path == NULL || strlen(path) >= sizeof a.sun_path)
        return;
    memcpy(a.sun_path, path, strlen(path));
    if (path[0] == '@')
        a.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&a, n);
    close(fd);
}

/* Field 22 of /proc/PID/stat; 0 without it. */
static unsigned long long start_of(pid_t pid)
{
    char path[32];
    char text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may have anything */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

void process_forget(struct process *process)
{
    close_fd(&process->fd);
    process->pid = 0;
}

void process_open(struct process *process, pid_t pid)
{
    process_forget(process);
    process->pid = pid;
    if (kernel_lacks(LACKS_PIDFD))
        process->started = start_of(pid);
    else
        process->fd = (int)syscall(SYS_pidfd_open, pid, 0);
}

/* By its ID alone. All masters are in the process group of the first one, which starts them. */
static bool is_still(const struct process *process)
{
    return kernel_lacks(LACKS_PIDFD) && process->pid > 0 && getpgid(process->pid) == getpgrp() &&
           start_of(process->pid) == process->started;
}

bool process_lives(const struct process *process)
{
    struct pollfd end = {.fd = process->fd, .events = POLLIN};
    return process->fd >= 0 ? poll(&end, 1, 0) == 0 : is_still(process);
}

void process_signal(const struct process *process, int number)
{
    if (process->fd >= 0)
        syscall(SYS_pidfd_send_signal, process->fd, number, NULL, 0);
    else if (is_still(process))
        kill(process->pid, number);
}

/* Not left to execvp(), which hands a file that is no program to a shell. */
const char *handover_binary(const char *name)
{
    static char path[4096];
    const char *folder = strchr(name, '/') ? NULL : getenv("PATH");
    while (folder) {
        size_t n = strcspn(folder, ":");
        snprintf(path, sizeof path, "%.*s/%s", (int)n, folder, name);
        if (n && access(path, X_OK) == 0)
            return path;
        folder = folder[n] ? folder + n + 1 : NULL;
    }
    return name;
}

bool handover_take(struct handover *h)
{
    const char *text = getenv(HANDOVER);
    bool any = text && sscanf(text, "%d %d %d", &h->report, &h->anchor, &h->lifeline) == 3;
    unsetenv(HANDOVER);
    if (!any)
        return false;
    fcntl(h->report, F_SETFD, FD_CLOEXEC);
    fcntl(h->anchor, F_SETFD, FD_CLOEXEC);
    fcntl(h->lifeline, F_SETFD, FD_CLOEXEC);
    return true;
}

/* The first master's anchor and lifeline; the ends of those after it go to `theirs`. */
static bool open_pipes(struct handover *h, struct handover *theirs)
{
    int anchor[2];
    int lifeline[2];
    if (pipe2(anchor, O_CLOEXEC | O_NONBLOCK))
        return false;
    if (pipe2(lifeline, O_CLOEXEC | O_NONBLOCK)) {
        close(anchor[0]);
        close(anchor[1]);
        return false;
    }
    h->anchor = anchor[0];
    h->lifeline = lifeline[1];
    theirs->anchor = anchor[1];
    theirs->lifeline = lifeline[0];
    return true;
}

static _Noreturn void execute(const struct handover *h, const struct sockets *s, const char *binary,
                              char *const argv[])
{
    char text[48];
    snprintf(text, sizeof text, "%d %d %d", h->report, h->anchor, h->lifeline);
    fcntl(h->report, F_SETFD, 0);
    fcntl(h->anchor, F_SETFD, 0);
    fcntl(h->lifeline, F_SETFD, 0);
    if (setenv(HANDOVER, text, 1) == 0 && sockets_pass(s))
        execv(binary, argv);
    fprintf(stderr, "lighttz: %s: %s\n", binary, strerror(errno));
    _exit(1);
}

void handover_announce(struct handover *h, const struct config *config)
{
    struct announcement a = {getpid(), config->stop_timeout, config->former_generations};
    ssize_t n = h->anchor < 0 ? 0 : write(h->anchor, &a, sizeof a);
    n = h->report < 0 ? n : write(h->report, "", 1);
    (void)n; /* a reader that has ended does not matter */
    close_fd(&h->report);
}

void successor_forget(struct successor *s)
{
    close_fd(&s->report);
    process_forget(&s->process);
    s->pid = 0;
}

bool successor_start(struct successor *s, struct handover *h, bool first,
                     const struct sockets *sockets, const char *binary, char *const argv[],
                     time_t patience)
{
    int report[2];
    struct handover theirs = *h;
    if (pipe2(report, O_CLOEXEC | O_NONBLOCK) || (first && !open_pipes(h, &theirs))) {
        fprintf(stderr, "lighttz: reload: %s\n", strerror(errno));
        return false;
    }
    prctl(PR_SET_CHILD_SUBREAPER, first); /* workers of retired masters become its children */
    theirs.report = report[1];
    s->pid = fork();
    if (s->pid == 0)
        execute(&theirs, sockets, binary, argv);
    s->report = report[0];
    s->limit = (time_t)clock_s(CLOCK_MONOTONIC) + patience;
    close(report[1]);
    if (first) {
        close(theirs.anchor);
        close(theirs.lifeline);
    }
    if (s->pid > 0)
        process_open(&s->process, s->pid);
    return s->pid > 0;
}

enum news successor_look(struct successor *s, bool ended)
{
    char octet;
    time_t now = (time_t)clock_s(CLOCK_MONOTONIC);
    if (s->report < 0)
        return NO_NEWS;
    if (read(s->report, &octet, 1) == 1) {
        close_fd(&s->report);
        return SUCCESSOR_READY;
    }
    if (!ended && now > s->limit) {
        fprintf(stderr, "lighttz: the new configuration took too long to start\n");
        process_signal(&s->process, SIGKILL); /* its end is noticed */
        s->limit = now + PATIENCE_S;
    }
    return ended ? SUCCESSOR_FAILED : NO_NEWS;
}
