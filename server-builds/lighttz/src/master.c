#include "master.h"
#include "sandbox.h"
#include "server.h"
#include "upgrade.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* One per statistics slot: retiring workers keep theirs until they are gone. */
struct worker {
    pid_t pid; /* 0: free */
    int index; /* which sockets it serves; -1: it retires */
    time_t started;
};

struct master {
    struct config *config;
    struct sockets sockets;
    struct stats *stats;
    struct worker workers[STATS_SLOTS];
    time_t respawn_at[CONFIG_WORKERS_MAX]; /* 0: it runs */
    bool stopping;
    time_t kill_at;
};

static struct master master;

static time_t now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* Tells systemd (Type=notify); nothing without it. */
static void notify(const char *state)
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

static void notify_reloading(void)
{
    char text[64];
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000);
    notify(text);
}

static void worker_main(int index, struct stats *slot, pid_t parent)
{
    struct master *m = &master;
    int fds[LISTENERS_MAX];
    bool status_page;
    sigset_t none;
    unsigned count = sockets_of(&m->sockets, index, fds, &status_page);
    for (unsigned i = 0; i < m->sockets.count; i++) {
        bool mine = false;
        for (unsigned k = 0; k < count; k++)
            mine = mine || fds[k] == m->sockets.slot[i].fd;
        if (!mine) /* a socket left open here would go on receiving connections */
            close(m->sockets.slot[i].fd);
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || !sandbox_user(m->config))
        exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGHUP, SIG_IGN);
    exit(server_run(m->config, fds, count, status_page, slot, m->stats));
}

static void spawn(struct master *m, int index)
{
    int slot = 0;
    while (slot < STATS_SLOTS && m->workers[slot].pid)
        slot++;
    pid_t parent = getpid();
    pid_t pid = slot < STATS_SLOTS ? fork() : -1;
    if (pid == 0)
        worker_main(index, &m->stats[slot], parent);
    m->respawn_at[index] = pid < 0 ? now_s() + 1 : 0;
    if (pid > 0)
        m->workers[slot] = (struct worker){pid, index, now_s()};
}

static void signal_workers(struct master *m, int number, bool retire)
{
    for (int i = 0; i < STATS_SLOTS; i++) {
        struct worker *w = &m->workers[i];
        if (w->pid && !(retire && w->index < 0))
            kill(w->pid, number);
        if (retire)
            w->index = -1;
    }
}

static void stop(struct master *m)
{
    if (m->stopping)
        return;
    m->stopping = true;
    m->kill_at = now_s() + (time_t)(m->config->stop_timeout / 1000) + 2;
    notify("STOPPING=1");
    signal_workers(m, SIGTERM, false);
    sockets_close(&m->sockets, NULL);
}

/* Whether workers could start with this configuration, tried in a process of its own. */
static bool is_workable(const struct config *config)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(sandbox_user(config) && server_check(config) ? 0 : 1);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static void reload(struct master *m, int argc, char *const argv[])
{
    static struct sockets sockets;
    struct config config;
    notify_reloading();
    if (config_load(&config, argc, argv) != COMMAND_RUN || !is_workable(&config) ||
        !sockets_open(&sockets, &config, &m->sockets)) {
        fprintf(stderr, "lighttz: the former configuration stays in force\n");
        config_free(&config);
        notify("READY=1");
        return;
    }
    signal_workers(m, SIGUSR1, true);
    memset(m->respawn_at, 0, sizeof m->respawn_at);
    sockets_close(&m->sockets, &sockets);
    config_free(m->config);
    *m->config = config;
    m->sockets = sockets;
    for (int i = 0; i < (int)m->config->workers; i++)
        spawn(m, i);
    fprintf(stderr, "lighttz: reloaded\n");
    notify("READY=1");
}

static void upgrade(struct master *m, char *const argv[])
{
    pid_t pids[STATS_SLOTS];
    unsigned n = 0;
    for (int i = 0; i < STATS_SLOTS; i++)
        if (m->workers[i].pid)
            pids[n++] = m->workers[i].pid;
    upgrade_exec(&m->sockets, pids, n, argv);
}

/* Opens the sockets, or takes over those of the binary that this one replaces, whose workers are
 * still our children and retire when ours are there. */
static bool begin(struct master *m)
{
    static struct sockets old;
    pid_t pids[STATS_SLOTS];
    unsigned n = upgrade_inherit(&old, pids, STATS_SLOTS / 2);
    if (!sockets_open(&m->sockets, m->config, &old))
        return false;
    sockets_close(&old, &m->sockets);
    for (unsigned i = 0; i < n; i++)
        m->workers[i] = (struct worker){pids[i], -1, now_s()};
    for (int i = 0; i < (int)m->config->workers; i++)
        spawn(m, i);
    for (unsigned i = 0; i < n; i++)
        kill(pids[i], SIGUSR1);
    notify("READY=1");
    return true;
}

/* A worker that dies is replaced, though not more than once a second. */
static void buried(struct master *m, int slot, int status)
{
    struct worker *w = &m->workers[slot];
    int index = w->index;
    w->pid = 0;
    m->stats[slot].connections_closed = m->stats[slot].connections_accepted;
    if (m->stopping || index < 0 || index >= (int)m->config->workers)
        return;
    fprintf(stderr, "lighttz: worker %d ended (%s %d), replaced\n", index,
            WIFSIGNALED(status) ? "signal" : "status",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (now_s() > w->started)
        spawn(m, index);
    else
        m->respawn_at[index] = now_s() + 1;
}

static void reap(struct master *m)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < STATS_SLOTS; i++)
            if (m->workers[i].pid == pid)
                buried(m, i, status);
}

static bool any_worker(const struct master *m)
{
    for (int i = 0; i < STATS_SLOTS; i++)
        if (m->workers[i].pid)
            return true;
    return false;
}

static void on_time(struct master *m)
{
    time_t now = now_s();
    if (m->stopping && now >= m->kill_at)
        signal_workers(m, SIGKILL, false);
    for (int i = 0; !m->stopping && i < (int)m->config->workers; i++)
        if (m->respawn_at[i] && now >= m->respawn_at[i])
            spawn(m, i);
}

static bool is_waiting(const struct master *m)
{
    for (int i = 0; i < CONFIG_WORKERS_MAX; i++)
        if (m->respawn_at[i])
            return true;
    return m->stopping;
}

static void raise_limits(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static void block_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR2);
    sigaddset(set, SIGCHLD);
    sigprocmask(SIG_BLOCK, set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int master_run(struct config *config, int argc, char *const argv[])
{
    struct master *m = &master;
    sigset_t set;
    m->config = config;
    m->stats = stats_map();
    raise_limits();
    block_signals(&set);
    if (m->stats == NULL || !is_workable(m->config) || !begin(m))
        return 1;
    while (any_worker(m) || !m->stopping) {
        const struct timespec second = {1, 0};
        sandbox_trim();
        int number = is_waiting(m) ? sigtimedwait(&set, NULL, &second) : sigwaitinfo(&set, NULL);
        if (number == SIGHUP && !m->stopping)
            reload(m, argc, argv);
        if (number == SIGUSR2 && !m->stopping)
            upgrade(m, argv);
        if (number == SIGTERM || number == SIGINT)
            stop(m);
        reap(m);
        on_time(m);
    }
    return 0;
}
