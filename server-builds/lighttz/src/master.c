#include "master.h"
#include "sandbox.h"
#include "server.h"
#include "sockets.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RETIRING "LIGHTTZ_RETIRING"

enum { ARGUMENTS_MAX = 128, RETIRING_MAX = 256 };

struct master {
    const struct config *config;
    char *const *argv;
    struct sockets sockets;
    struct stats *stats;
    struct {
        pid_t pid; /* 0: none */
        time_t started;
    } workers[CONFIG_WORKERS_MAX];
    pid_t retiring[RETIRING_MAX]; /* workers of those whose place we took */
    unsigned retiring_count;
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

static void worker_main(int index, pid_t parent)
{
    struct master *m = &master;
    int fds[LISTENERS_MAX];
    bool status_page;
    sigset_t none;
    unsigned count = sockets_keep(&m->sockets, index, fds, &status_page);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || !sandbox_user(m->config))
        exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGHUP, SIG_IGN);
    exit(server_run(m->config, fds, count, status_page, &m->stats[index], m->stats));
}

/* Starts the workers that are missing, each not more than once a second. */
static void start_workers(struct master *m)
{
    pid_t self = getpid();
    time_t now = now_s();
    for (int i = 0; i < (int)m->config->workers; i++) {
        if (m->workers[i].pid || now <= m->workers[i].started)
            continue;
        pid_t pid = fork();
        if (pid == 0)
            worker_main(i, self);
        m->workers[i].pid = pid > 0 ? pid : 0;
        m->workers[i].started = now;
    }
}

static void signal_workers(const struct master *m, int number)
{
    for (int i = 0; i < CONFIG_WORKERS_MAX; i++)
        if (m->workers[i].pid)
            kill(m->workers[i].pid, number);
    for (unsigned i = 0; i < m->retiring_count; i++)
        kill(m->retiring[i], number);
}

static void stop(struct master *m)
{
    if (m->stopping)
        return;
    m->stopping = true;
    m->kill_at = now_s() + (time_t)(m->config->stop_timeout / 1000) + 2;
    notify("STOPPING=1");
    signal_workers(m, SIGTERM);
    sockets_close(&m->sockets);
}

bool master_check(const struct config *config)
{
    struct sockets *s = &master.sockets;
    return (sockets_inherit(s) == 0 || sockets_open(s, config)) && sandbox_user(config) &&
           server_check(config);
}

/* Executes what is now at our place to look at what is now the configuration. */
static void check_anew(struct master *m)
{
    char *arguments[ARGUMENTS_MAX + 2] = {NULL};
    unsigned n = 0;
    for (; m->argv[n] && n < ARGUMENTS_MAX; n++)
        arguments[n] = m->argv[n];
    arguments[n] = (char[]){"--check-config"};
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    sockets_pass(&m->sockets);
    execvp(arguments[0], arguments);
    fprintf(stderr, "lighttz: %s: %s\n", arguments[0], strerror(errno));
    _exit(1);
}

/* Whether workers could start, tried in a process of its own; `anew` by what would be executed. */
static bool is_sound(struct master *m, bool anew)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0 && anew)
        check_anew(m);
    if (pid == 0)
        _exit(master_check(m->config) ? 0 : 1);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

/* A new configuration, a reopened log and a new binary are one thing: this process executes itself
 * anew. It keeps its sockets and its children. */
static void renew(struct master *m)
{
    char text[16 * (CONFIG_WORKERS_MAX + RETIRING_MAX)];
    size_t n = 0;
    if (!is_sound(m, true)) {
        fprintf(stderr, "lighttz: the former binary and configuration stay in force\n");
        return;
    }
    for (int i = 0; i < CONFIG_WORKERS_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d ", (int)m->workers[i].pid);
    for (unsigned i = 0; i < m->retiring_count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d ", (int)m->retiring[i]);
    setenv(RETIRING, text, 1);
    sockets_pass(&m->sockets);
    execvp(m->argv[0], m->argv);
    fprintf(stderr, "lighttz: %s: %s\n", m->argv[0], strerror(errno));
    exit(1); /* the workers notice and finish */
}

/* Workers of the master whose process this was retire when ours are there. */
static void retire_former(struct master *m)
{
    const char *text = getenv(RETIRING);
    while (text && *text && m->retiring_count < RETIRING_MAX) {
        char *end;
        pid_t pid = (pid_t)strtol(text, &end, 10);
        text = end + 1;
        if (pid == 0)
            continue;
        m->retiring[m->retiring_count++] = pid;
        kill(pid, SIGUSR1);
    }
    unsetenv(RETIRING);
}

static void buried(struct master *m, pid_t pid, int status)
{
    for (unsigned i = 0; i < m->retiring_count; i++)
        if (m->retiring[i] == pid) {
            m->retiring[i] = m->retiring[--m->retiring_count];
            return;
        }
    for (int i = 0; i < CONFIG_WORKERS_MAX; i++) {
        if (m->workers[i].pid != pid)
            continue;
        m->workers[i].pid = 0;
        m->stats[i].connections_closed = m->stats[i].connections_accepted;
        if (!m->stopping)
            fprintf(stderr, "lighttz: worker %d ended (%s %d), replaced\n", i,
                    WIFSIGNALED(status) ? "signal" : "status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

static bool any_worker(const struct master *m)
{
    bool any = m->retiring_count > 0;
    for (int i = 0; i < CONFIG_WORKERS_MAX; i++)
        any = any || m->workers[i].pid;
    return any;
}

static bool all_workers(const struct master *m)
{
    bool all = true;
    for (int i = 0; i < (int)m->config->workers; i++)
        all = all && m->workers[i].pid;
    return all;
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
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    sigemptyset(set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(set, numbers[i]);
    sigprocmask(SIG_BLOCK, set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* Waits for a signal, for a second at most when something is to be done then. */
static void turn(struct master *m, const sigset_t *set)
{
    const struct timespec second = {1, 0};
    bool waits = m->stopping || !all_workers(m);
    int number = waits ? sigtimedwait(set, NULL, &second) : sigwaitinfo(set, NULL);
    int status;
    pid_t pid;
    if (number == SIGHUP && !m->stopping)
        renew(m);
    if (number == SIGTERM || number == SIGINT)
        stop(m);
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        buried(m, pid, status);
    if (!m->stopping)
        start_workers(m);
    else if (now_s() >= m->kill_at)
        signal_workers(m, SIGKILL);
}

int master_run(const struct config *config, char *const argv[])
{
    struct master *m = &master;
    sigset_t set;
    m->config = config;
    m->argv = argv;
    m->stats = stats_map();
    raise_limits();
    block_signals(&set);
    bool renewed = getenv(RETIRING) != NULL; /* then its predecessor has looked */
    if (m->stats == NULL || (!renewed && !is_sound(m, false)))
        return 1;
    sockets_inherit(&m->sockets);
    if (!sockets_open(&m->sockets, config) || !sockets_listen(&m->sockets))
        return 1;
    start_workers(m);
    retire_former(m);
    notify("READY=1");
    while (any_worker(m) || !m->stopping) {
        sandbox_trim();
        turn(m, &set);
    }
    return 0;
}
