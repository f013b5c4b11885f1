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

enum { CHECK_S = 10, FOREVER_S = 1 << 30 }; /* what looking at a new configuration may take */
enum { ARGUMENTS_MAX = 128, RETIRING_MAX = 256, CHILDREN_MAX = CONFIG_WORKERS_MAX + RETIRING_MAX };

static struct master {
    const struct config *config;
    char *const *argv;
    const char *binary;
    struct sockets sockets;
    struct stats *stats;
    pid_t children[CHILDREN_MAX]; /* the workers, then those of whom we took over from; 0: none */
    time_t started[CONFIG_WORKERS_MAX];
    bool stopping;
    time_t kill_at;
} master;

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

static void worker_main(struct master *m, int index, pid_t parent)
{
    sigset_t none;
    sockets_keep(&m->sockets, index);
    bool ready = sandbox_user(m->config);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* another user would have forgotten it */
    if (!ready || getppid() != parent)
        exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGHUP, SIG_IGN);
    exit(server_run(m->config, &m->sockets, &m->stats[index], m->stats));
}

/* Starts the workers that are missing, each not more than once a second. */
static void start_workers(struct master *m)
{
    pid_t self = getpid();
    time_t now = now_s();
    for (int i = 0; i < (int)m->config->workers; i++) {
        if (m->children[i] || now <= m->started[i])
            continue;
        pid_t pid = fork();
        if (pid == 0)
            worker_main(m, i, self);
        m->children[i] = pid > 0 ? pid : 0;
        m->started[i] = now;
    }
}

/* How many of the first `n` children there are. */
static unsigned count(const struct master *m, unsigned n)
{
    unsigned found = 0;
    for (unsigned i = 0; i < n; i++)
        found += m->children[i] != 0;
    return found;
}

static void signal_children(const struct master *m, int number)
{
    for (int i = 0; i < CHILDREN_MAX; i++)
        if (m->children[i])
            kill(m->children[i], number);
}

static void stop(struct master *m)
{
    if (m->stopping)
        return;
    m->stopping = true;
    m->kill_at = now_s() + (time_t)(m->config->stop_timeout / 1000) + 2;
    notify("STOPPING=1");
    signal_children(m, SIGTERM);
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
    execv(m->binary, arguments);
    fprintf(stderr, "lighttz: %s: %s\n", m->binary, strerror(errno));
    _exit(1);
}

/* Whether a child ends well, within so many seconds: one that hangs must not make the master deaf.
 */
static bool ends_well(pid_t pid, time_t limit)
{
    const struct timespec moment = {0, 10000000};
    time_t end = now_s() + limit;
    int status = 1;
    pid_t ended;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0) {
        nanosleep(&moment, NULL);
        if (now_s() > end && kill(pid, SIGKILL) == 0) {
            fprintf(stderr, "lighttz: looking at the configuration took too long\n");
            end += limit;
        }
    }
    return ended == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Whether workers could start, tried in a process of its own; `anew` by what would be executed. */
static bool is_sound(struct master *m, bool anew)
{
    pid_t pid = fork();
    if (pid == 0 && anew)
        check_anew(m);
    if (pid == 0)
        _exit(master_check(m->config) ? 0 : 1);
    time_t limit = CHECK_S + (time_t)(m->config->lua_time / 1000);
    return pid > 0 && ends_well(pid, anew ? limit : FOREVER_S);
}

/* A new configuration, a reopened log and a new binary are one thing: this process executes itself
 * anew. It keeps its sockets and its children. */
static void renew(struct master *m)
{
    char text[16 * CHILDREN_MAX];
    size_t n = 0;
    if (!is_sound(m, true)) {
        fprintf(stderr, "lighttz: the former binary and configuration stay in force\n");
        return;
    }
    for (int i = 0; i < CHILDREN_MAX; i++)
        if (m->children[i])
            n += (size_t)snprintf(text + n, sizeof text - n, "%d ", (int)m->children[i]);
    text[n] = '\0';
    setenv(RETIRING, text, 1);
    sockets_pass(&m->sockets);
    execv(m->binary, m->argv);
    fprintf(stderr, "lighttz: %s: %s\n", m->binary, strerror(errno));
    exit(1); /* the workers notice and finish */
}

/* Workers of the master whose process this was retire when ours are there. */
static void retire_former(struct master *m)
{
    const char *text = getenv(RETIRING);
    for (int i = CONFIG_WORKERS_MAX; text && *text && i < CHILDREN_MAX; i++) {
        char *end;
        pid_t pid = (pid_t)strtol(text, &end, 10);
        m->children[i] = pid > 0 && kill(pid, SIGUSR1) == 0 ? pid : 0;
        text = *end ? end + 1 : end;
    }
    unsetenv(RETIRING);
}

static void buried(struct master *m, pid_t pid, int status)
{
    int i = 0;
    while (i < CHILDREN_MAX && m->children[i] != pid)
        i++;
    if (i < CHILDREN_MAX)
        m->children[i] = 0;
    if (i >= CONFIG_WORKERS_MAX)
        return;
    m->stats[i].count[CONNECTIONS_CLOSED] = m->stats[i].count[CONNECTIONS_ACCEPTED];
    if (!m->stopping)
        fprintf(stderr, "lighttz: worker %d ended (%s %d), replaced\n", i,
                WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
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
static void prepare(sigset_t *set)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1); /* it is for workers */
    sigaddset(set, SIGCHLD);
    sigprocmask(SIG_BLOCK, set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a log that may not grow loses lines */
    signal(SIGUSR1, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
}

/* Waits for a signal, for a second at most when something is to be done then. */
static void turn(struct master *m, const sigset_t *set)
{
    const struct timespec second = {1, 0};
    unsigned workers = (unsigned)m->config->workers;
    bool waits = m->stopping || count(m, workers) < workers;
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
        signal_children(m, SIGKILL);
}

int master_run(const struct config *config, char *const argv[])
{
    struct master *m = &master;
    sigset_t set;
    m->config = config;
    m->argv = argv;
    m->binary = find_binary(argv[0]);
    m->stats = stats_map();
    prepare(&set);
    bool renewed = getenv(RETIRING) != NULL; /* then its predecessor has looked */
    if (m->stats == NULL || (!renewed && !is_sound(m, false)))
        return 1;
    sockets_inherit(&m->sockets);
    if (!sockets_open(&m->sockets, config) || !sockets_listen(&m->sockets))
        return 1;
    start_workers(m);
    retire_former(m);
    notify("READY=1");
    while (!m->stopping || count(m, CHILDREN_MAX)) {
        sandbox_trim();
        turn(m, &set);
    }
    return 0;
}
