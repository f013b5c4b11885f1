#include "master.h"
#include "cpu.h"
#include "sandbox.h"
#include "server.h"
#include "sockets.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Three descriptors that a master gives its successor: where to report that it serves, where to
 * announce itself to the first master, and what closes when the first master ends. A change of what
 * is sent takes another name: binaries that would misread each other do not take over. */
#define HANDOVER "LIGHTTZ_HANDOVER_2"

enum { SUCCESSOR_S = 10, LOOKS = 3 /* of the watchdog before it kills */ };

/*
 * A reload starts a successor: a new process, of the binary that lies at our place now, which reads
 * the configuration, opens its sockets beside ours and starts its workers. Only when all of them
 * are ready does it let them accept connections and report so; then we retire. Whatever fails
 * before that ends the successor and changes nothing.
 *
 * The first master stays, since its process id is that of the service: it passes signals on to the
 * master that serves, and ends when there is none.
 */
enum phase {
    STARTING, /* not all workers are ready yet */
    SERVING,
    RETIRED, /* the successor serves; our workers finish */
    STOPPING,
};

/* What a master that comes to serve tells the first one, whose configuration may be an older one.
 */
struct announcement {
    pid_t pid;
    unsigned long stop_timeout;
};

static struct master {
    const struct config *config;
    char *const *argv;
    const char *binary;
    enum phase phase;
    bool first;
    bool failed;
    bool reload_again; /* asked for during a reload */
    struct sockets sockets;
    struct stats *stats;
    int signals;
    int ready[2]; /* a worker writes an octet when it could serve */
    int gate[2];  /* workers serve once it can be read; nobody reads it */
    int report;   /* of a successor: to its predecessor; -1: none */
    int anchor;   /* to the first master, or in the first master from those after it; -1: none */
    int lifeline; /* from the first master, whose end it shows; -1: none */
    pid_t successor;
    int successor_report; /* -1: it has reported, or there is none */
    time_t successor_limit;
    unsigned long stop_timeout;        /* in ms; in the first master the longest of all */
    pid_t serving;                     /* in the first master when it has retired */
    pid_t workers[CONFIG_WORKERS_MAX]; /* 0: none */
    time_t started[CONFIG_WORKERS_MAX];
    unsigned ready_count;
    uint64_t ticks[CONFIG_WORKERS_MAX]; /* as the watchdog saw them last */
    unsigned unmoved[CONFIG_WORKERS_MAX];
    time_t look_at;
    time_t kill_at;
} master = {.signals = -1,
            .ready = {-1, -1},
            .gate = {-1, -1},
            .report = -1,
            .anchor = -1,
            .lifeline = -1,
            .successor_report = -1};

static time_t now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
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

static void worker_main(struct master *m, int index, pid_t parent)
{
    sigset_t none;
    struct gate gate = {m->ready[1], m->gate[0]};
    int *const masters[] = {&m->signals, &m->ready[0], &m->gate[1],         &m->report,
                            &m->anchor,  &m->lifeline, &m->successor_report};
    for (size_t i = 0; i < sizeof masters / sizeof *masters; i++)
        close_fd(masters[i]);
    sockets_keep(&m->sockets, index);
    if (m->config->cpu_affinity && !cpu_pin(index))
        fprintf(stderr, "lighttz: cpu_affinity: %s\n", strerror(errno));
    bool may_serve = sandbox_user(m->config);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* another user would have forgotten it */
    if (!may_serve || getppid() != parent)
        exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGHUP, SIG_IGN);
    exit(server_run(m->config, &m->sockets, &m->stats[index], m->stats, &gate));
}

/* Starts the workers that are missing, each not more than once a second. */
static void start_workers(struct master *m)
{
    pid_t self = getpid();
    time_t now = now_s();
    for (int i = 0; i < (int)m->config->workers; i++) {
        if (m->workers[i] || now <= m->started[i])
            continue;
        pid_t pid = fork();
        if (pid == 0)
            worker_main(m, i, self);
        m->workers[i] = pid > 0 ? pid : 0;
        m->started[i] = now;
        m->unmoved[i] = 0;
    }
}

static unsigned count_workers(const struct master *m)
{
    unsigned n = 0;
    for (int i = 0; i < CONFIG_WORKERS_MAX; i++)
        n += m->workers[i] != 0;
    return n;
}

static void signal_workers(const struct master *m, int number)
{
    for (int i = 0; i < CONFIG_WORKERS_MAX; i++)
        if (m->workers[i])
            kill(m->workers[i], number);
}

static void stop(struct master *m)
{
    if (m->phase == STOPPING)
        return;
    m->kill_at = now_s() + (time_t)(m->stop_timeout / 1000) + (m->serving ? 4 : 2);
    if (m->phase == STARTING)
        close_fd(&m->gate[1]); /* workers stop waiting for it */
    m->phase = STOPPING;
    if (m->first)
        notify("STOPPING=1");
    signal_workers(m, SIGTERM);
    if (m->successor_report >= 0)
        kill(m->successor, SIGTERM);
    if (m->first)
        close_fd(&m->lifeline); /* all masters after us stop, too */
    sockets_close(&m->sockets);
}

bool master_check(const struct config *config)
{
    struct sockets *s = &master.sockets;
    sockets_inherit(s);
    return sockets_suffice(s, config) && sandbox_allows(config) && sandbox_user(config) &&
           server_check(config);
}

static void keep_on_exec(int fd)
{
    fcntl(fd, F_SETFD, 0);
}

static void execute_successor(struct master *m, int report, int anchor, int lifeline)
{
    char text[48];
    snprintf(text, sizeof text, "%d %d %d", report, anchor, lifeline);
    keep_on_exec(report);
    keep_on_exec(anchor);
    keep_on_exec(lifeline);
    if (setenv(HANDOVER, text, 1) == 0 && sockets_pass(&m->sockets))
        execv(m->binary, m->argv);
    fprintf(stderr, "lighttz: %s: %s\n", m->binary, strerror(errno));
    _exit(1);
}

/* The first master's pipes to and from those after it: their ends go to the successor. */
static bool open_anchor(struct master *m, int ends[2])
{
    int anchor[2];
    int lifeline[2];
    if (pipe2(anchor, O_CLOEXEC | O_NONBLOCK))
        return false;
    if (pipe2(lifeline, O_CLOEXEC)) {
        close(anchor[0]);
        close(anchor[1]);
        return false;
    }
    m->anchor = anchor[0];
    m->lifeline = lifeline[1];
    ends[0] = anchor[1];
    ends[1] = lifeline[0];
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* workers of retired masters become our children */
    return true;
}

static void end_reload(struct master *m, bool good)
{
    close_fd(&m->successor_report);
    if (!good && m->phase == SERVING)
        fprintf(stderr, "lighttz: the former binary and configuration stay in force\n");
    if (good)
        return;
    m->successor = 0;
    if (m->first) {
        close_fd(&m->anchor);
        close_fd(&m->lifeline);
    }
}

static void reload(struct master *m)
{
    int report[2];
    int ends[2] = {m->anchor, m->lifeline};
    m->reload_again = false;
    if (pipe2(report, O_CLOEXEC | O_NONBLOCK) || (m->first && !open_anchor(m, ends))) {
        fprintf(stderr, "lighttz: reload: %s\n", strerror(errno));
        return;
    }
    m->successor = fork();
    if (m->successor == 0)
        execute_successor(m, report[1], ends[0], ends[1]);
    close(report[1]);
    m->successor_report = report[0];
    m->successor_limit = now_s() + SUCCESSOR_S + (time_t)(m->config->lua_time / 1000);
    if (m->first) {
        close(ends[0]);
        close(ends[1]);
    }
    if (m->successor < 0)
        end_reload(m, false);
}

/* Our workers leave the sockets to those of the successor and finish what they have. */
static void retire(struct master *m)
{
    end_reload(m, true);
    m->phase = RETIRED;
    sandbox_trim();
    signal_workers(m, SIGUSR1);
    sockets_close(&m->sockets);
    if (m->first)
        m->serving = m->successor;
    else
        close_fd(&m->anchor);
    if (m->reload_again) /* the successor may have read what lay there before */
        kill(m->successor, SIGHUP);
}

/* Checks whether the successor serves, has `ended` or takes too long. */
static void look_at_successor(struct master *m, bool ended)
{
    char octet;
    if (m->successor_report < 0)
        return;
    ssize_t n = read(m->successor_report, &octet, 1);
    if (n == 1 && m->phase == SERVING)
        retire(m);
    else if (ended)
        end_reload(m, false);
    else if (now_s() > m->successor_limit) {
        fprintf(stderr, "lighttz: the new configuration took too long to start\n");
        kill(m->successor, SIGKILL); /* its end is noticed */
        m->successor_limit += SUCCESSOR_S;
    }
}

/* In the first master: notes which master serves. False when none is left. */
static bool hear_from_masters(struct master *m)
{
    struct announcement a;
    ssize_t n;
    while ((n = read(m->anchor, &a, sizeof a)) == sizeof a) {
        m->serving = a.pid;
        if (m->stop_timeout < a.stop_timeout)
            m->stop_timeout = a.stop_timeout;
    }
    return n != 0;
}

static void report_service(struct master *m)
{
    struct announcement a = {getpid(), m->config->stop_timeout};
    ssize_t n = m->report < 0 ? 0 : write(m->report, "", 1);
    if (m->anchor >= 0)
        n = write(m->anchor, &a, sizeof a);
    (void)n; /* a reader that has ended does not matter */
    close_fd(&m->report);
}

/* All workers are ready: from here on they serve, and so does whatever replaces them. */
static void serve_from_now_on(struct master *m)
{
    if (!sockets_listen(&m->sockets) || write(m->gate[1], "", 1) != 1) {
        m->failed = true;
        stop(m);
        return;
    }
    m->phase = SERVING;
    report_service(m);
    sandbox_trim();
    if (m->first)
        notify("READY=1");
}

static void count_ready(struct master *m)
{
    char octets[CONFIG_WORKERS_MAX];
    ssize_t n = read(m->ready[0], octets, sizeof octets);
    m->ready_count += n > 0 ? (unsigned)n : 0;
    if (m->phase == STARTING && m->ready_count >= m->config->workers)
        serve_from_now_on(m);
}

static void worker_ended(struct master *m, int i, int status)
{
    m->workers[i] = 0;
    m->stats[i].count[CONNECTIONS_CLOSED] = m->stats[i].count[CONNECTIONS_ACCEPTED];
    if (m->phase == STARTING) {
        m->failed = true; /* it has said why */
        stop(m);
    }
    if (m->phase == SERVING)
        fprintf(stderr, "lighttz: worker %d ended (%s %d), replaced\n", i,
                WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* False when no child is left. */
static bool reap(struct master *m)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int i = 0; i < CONFIG_WORKERS_MAX; i++)
            if (m->workers[i] == pid)
                worker_ended(m, i, status);
        if (pid == m->successor)
            look_at_successor(m, true);
        if (pid == m->serving)
            m->serving = 0;
    }
    return pid == 0;
}

/* Kills a worker that has not ticked between several looks. (Elapsed time would not do: after a
 * guest was paused, it is long for every worker.) */
static void watch_workers(struct master *m)
{
    time_t now = now_s();
    time_t pause = (time_t)((m->config->watchdog + 1000 * LOOKS - 1) / (1000 * LOOKS));
    if (m->config->watchdog == 0 || m->phase == STARTING || now < m->look_at)
        return;
    m->look_at = now + pause;
    for (int i = 0; i < CONFIG_WORKERS_MAX; i++) {
        bool moved = m->ticks[i] != m->stats[i].ticks;
        m->ticks[i] = m->stats[i].ticks;
        m->unmoved[i] = moved || m->workers[i] == 0 ? 0 : m->unmoved[i] + 1;
        if (m->unmoved[i] < LOOKS)
            continue;
        fprintf(stderr, "lighttz: worker %d does not respond and is killed\n", i);
        kill(m->workers[i], SIGKILL);
        m->unmoved[i] = 0;
    }
}

static void handle_signal(struct master *m, int number)
{
    if (number == SIGTERM || number == SIGINT)
        stop(m);
    if (number != SIGHUP)
        return;
    if (m->phase == RETIRED)
        kill(m->serving ? m->serving : m->successor, SIGHUP);
    else
        m->reload_again = true;
}

static void read_signals(struct master *m)
{
    struct signalfd_siginfo info;
    while (read(m->signals, &info, sizeof info) == sizeof info)
        handle_signal(m, (int)info.ssi_signo);
}

/* Milliseconds until the next task that no descriptor announces; -1: never. */
static int patience(const struct master *m)
{
    bool missing = m->phase == SERVING && count_workers(m) < m->config->workers;
    if (m->phase == STOPPING || missing || m->successor_report >= 0)
        return 1000;
    time_t left = m->look_at - now_s();
    return m->config->watchdog == 0 || m->phase == STARTING ? -1 : left > 0 ? (int)left * 1000 : 0;
}

/* Waits for something to happen and handles it. False when this process has nothing left to do. */
static bool turn(struct master *m)
{
    struct pollfd fds[] = {
        {.fd = m->signals, .events = POLLIN},
        {.fd = m->ready[0], .events = POLLIN},
        {.fd = m->successor_report, .events = POLLIN},
        {.fd = m->phase == STOPPING ? -1 /* nobody else closes it */
               : m->first           ? m->anchor
                                    : m->lifeline,
         .events = POLLIN},
    };
    poll(fds, sizeof fds / sizeof *fds, patience(m));
    read_signals(m);
    count_ready(m);
    look_at_successor(m, false);
    if (m->first && m->anchor >= 0 && !hear_from_masters(m) && m->phase == RETIRED) {
        m->failed = true; /* the serving master has ended by itself */
        close_fd(&m->anchor);
        m->serving = 0;
        stop(m);
    }
    if (!m->first && fds[3].revents & POLLHUP)
        stop(m);
    bool any = reap(m);
    watch_workers(m);
    if (m->phase == SERVING)
        start_workers(m);
    if (m->phase == SERVING && m->reload_again && m->successor_report < 0)
        reload(m);
    if (m->phase == STOPPING && now_s() >= m->kill_at) {
        signal_workers(m, SIGKILL);
        if (m->serving)
            kill(m->serving, SIGKILL);
        return any && now_s() < m->kill_at + 2;
    }
    if (m->phase == RETIRED && !m->first)
        return count_workers(m) > 0;
    return any || m->phase == SERVING;
}

/* Where our binary lies. Not left to execvp(), which hands a file that is no program to a shell. */
static const char *find_binary(const char *name)
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

/* Whatever we were started with: dispositions are inherited. */
static bool prepare_signals(struct master *m)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1); /* it is for workers */
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a log that may not grow loses lines */
    signal(SIGUSR1, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    m->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return m->signals >= 0;
}

static void raise_file_limit(const struct config *config)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    unsigned long connections = server_connections(config);
    if (connections < config->max_connections)
        fprintf(stderr, "lighttz: max_connections is %lu: the limit of open files is %lu\n",
                connections, (unsigned long)files.rlim_cur);
}

/* What our predecessor, if there is one, has left open for us. */
static void take_over(struct master *m)
{
    const char *text = getenv(HANDOVER);
    m->first = text == NULL || sscanf(text, "%d %d %d", &m->report, &m->anchor, &m->lifeline) != 3;
    unsetenv(HANDOVER);
    if (m->first)
        return;
    fcntl(m->report, F_SETFD, FD_CLOEXEC);
    fcntl(m->anchor, F_SETFD, FD_CLOEXEC);
    fcntl(m->lifeline, F_SETFD, FD_CLOEXEC);
}

int master_run(const struct config *config, char *const argv[])
{
    struct master *m = &master;
    m->config = config;
    m->stop_timeout = config->stop_timeout;
    m->argv = argv;
    m->binary = find_binary(argv[0]);
    m->stats = stats_map();
    raise_file_limit(config);
    take_over(m);
    if (m->stats == NULL || !prepare_signals(m) || pipe2(m->ready, O_CLOEXEC | O_NONBLOCK) ||
        pipe2(m->gate, O_CLOEXEC)) {
        fprintf(stderr, "lighttz: %s\n", strerror(errno));
        return 1;
    }
    sockets_inherit(&m->sockets);
    if (!sandbox_allows(config) || !sockets_open(&m->sockets, config))
        return 1;
    start_workers(m);
    if (count_workers(m) < config->workers) {
        fprintf(stderr, "lighttz: fork: %s\n", strerror(errno));
        m->failed = true;
        stop(m);
    }
    while (turn(m))
        continue;
    return m->failed;
}
