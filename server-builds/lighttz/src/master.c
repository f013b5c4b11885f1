#include "master.h"
#include "clock.h"
#include "cpu.h"
#include "handover.h"
#include "kernel.h"
#include "sandbox.h"
#include "server.h"
#include "workers.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SUCCESSOR_S = 10,
    /* Those that keep their transfers, as many that stop, and some that end. */
    GENERATIONS_MAX = 2 * CONFIG_FORMER_MAX + 8,
};

#define RETIRING_S 0.5 /* a generation without work has ended by then */

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
    RETIRED, /* the successor serves; our workers finish, and then we end */
    RELAY,   /* the same in the first master, which stays */
    STOPPING,
    PHASES
};

enum event {
    STOP,   /* SIGTERM, SIGINT */
    HASTEN, /* SIGUSR2, from the first master: end now */
    RELOAD, /* SIGHUP */
    READY,  /* each worker could serve */
    WORKER_ENDED,
    SUCCESSOR_SERVES,
    FIRST_ENDED,   /* in a master after it */
    SERVING_ENDED, /* in the first master: of those after it none is left that serves */
    EVENTS
};

/* After the first one. */
struct generation {
    struct process master;
    int asked; /* to end, by this signal; 0: not yet */
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
    struct workers workers;
    unsigned ready_count;
    int signals;
    int ready[2]; /* a worker writes an octet when it could serve */
    int gate[2];  /* workers serve once it can be read; nobody reads it */
    struct handover handover;
    struct successor successor;
    /* In the first master: those that live, in order of age; the last one serves. */
    struct generation others[GENERATIONS_MAX];
    unsigned other_count;
    int asked; /* the first master's own workers to end, as in a generation */
    unsigned long former_generations;
    double bound_at;            /* 0: not */
    unsigned long stop_timeout; /* in ms; in the first master the longest of all */
    time_t kill_at;
} master = {.signals = -1,
            .ready = {-1, -1},
            .gate = {-1, -1},
            .handover = {-1, -1, -1},
            .successor = {0, NO_PROCESS, -1, 0}};

static time_t now_s(void)
{
    return (time_t)clock_s(CLOCK_MONOTONIC);
}

/* In a worker. */
static void run_worker(int index, pid_t parent)
{
    struct master *m = &master;
    sigset_t none;
    struct gate gate = {m->ready[1], m->gate[0]};
    int *const masters[] = {&m->signals,         &m->ready[0],        &m->gate[1],
                            &m->handover.report, &m->handover.anchor, &m->handover.lifeline,
                            &m->successor.report};
    for (size_t i = 0; i < sizeof masters / sizeof *masters; i++)
        close_fd(masters[i]);
    process_forget(&m->successor.process);
    for (unsigned i = 0; i < m->other_count; i++)
        process_forget(&m->others[i].master);
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

static void stop(struct master *m)
{
    m->kill_at = now_s() + (time_t)(m->stop_timeout / 1000) + (m->phase == RELAY ? 4 : 2);
    if (m->phase == STARTING)
        close_fd(&m->gate[1]); /* workers stop waiting for it */
    m->phase = STOPPING;
    if (m->first)
        notify_manager("STOPPING=1");
    workers_signal(&m->workers, SIGTERM);
    if (m->successor.report >= 0)
        process_signal(&m->successor.process, SIGTERM);
    close_fd(&m->handover.anchor);
    close_fd(&m->handover.lifeline); /* the first master's: all after us stop, too */
    sockets_close(&m->sockets);
}

/* What is not out yet is cut, and the workers say so. */
static void hasten(struct master *m)
{
    if (m->phase != STOPPING)
        stop(m);
    workers_signal(&m->workers, SIGUSR2);
    m->kill_at = now_s() + 2;
}

static void fail(struct master *m)
{
    m->failed = true;
    stop(m);
}

bool master_check(const struct config *config)
{
    struct sockets *s = &master.sockets;
    kernel_probe(config);
    sockets_inherit(s);
    return sockets_suffice(s, config) && sandbox_allows(config) && sandbox_user(config) &&
           server_check(config);
}

static void end_reload(struct master *m)
{
    successor_forget(&m->successor);
    if (m->phase == SERVING)
        fprintf(stderr, "lighttz: the former binary and configuration stay in force\n");
    if (m->first) {
        close_fd(&m->handover.anchor);
        close_fd(&m->handover.lifeline);
    }
}

static void reload(struct master *m)
{
    m->reload_again = false;
    if (!successor_start(&m->successor, &m->handover, m->first, &m->sockets, m->binary, m->argv,
                         SUCCESSOR_S + (time_t)(m->config->lua_time / 1000)))
        end_reload(m);
}

/* Our workers leave the sockets to those of the successor and finish what they have. */
static void retire(struct master *m)
{
    m->phase = m->first ? RELAY : RETIRED;
    sandbox_trim();
    workers_signal(&m->workers, SIGUSR1);
    sockets_close(&m->sockets);
    if (!m->first)
        close_fd(&m->handover.anchor);
    if (m->reload_again) /* the successor may have read what lay there before */
        process_signal(&m->successor.process, SIGHUP);
}

/* All workers are ready: from here on they serve, and so does whatever replaces them. */
static void serve(struct master *m)
{
    if (!sockets_listen(&m->sockets, m->config) || write(m->gate[1], "", 1) != 1) {
        fail(m);
        return;
    }
    m->phase = SERVING;
    handover_announce(&m->handover, m->config);
    sandbox_trim();
    if (m->first)
        notify_manager("READY=1");
}

static void note_reload(struct master *m)
{
    m->reload_again = true;
}

static void pass_reload(struct master *m)
{
    const struct generation *latest = m->others + m->other_count;
    process_signal(m->other_count ? &latest[-1].master : &m->successor.process, SIGHUP);
}

typedef void action(struct master *m);

/* Where there is none, nothing happens: a worker that ends while we serve is replaced, and the end
 * of a successor that does not serve yet is noticed by itself. */
static action *const actions[PHASES][EVENTS] = {
    [STARTING] = {[STOP] = stop,
                  [RELOAD] = note_reload,
                  [READY] = serve,
                  [WORKER_ENDED] = fail, /* it has said why */
                  [FIRST_ENDED] = stop},
    [SERVING] =
        {[STOP] = stop, [RELOAD] = note_reload, [SUCCESSOR_SERVES] = retire, [FIRST_ENDED] = stop},
    [RETIRED] = {[STOP] = stop, [HASTEN] = hasten, [RELOAD] = pass_reload, [FIRST_ENDED] = stop},
    [RELAY] = {[STOP] = stop, [RELOAD] = pass_reload, [SERVING_ENDED] = fail},
    [STOPPING] = {[HASTEN] = hasten},
};

static void happen(struct master *m, enum event event)
{
    if (actions[m->phase][event])
        actions[m->phase][event](m);
}

static void look_at_successor(struct master *m, bool ended)
{
    enum news news = successor_look(&m->successor, ended);
    if (news == SUCCESSOR_READY)
        happen(m, SUCCESSOR_SERVES);
    if (news == SUCCESSOR_FAILED)
        end_reload(m);
}

static void forget_generation(struct master *m, unsigned i)
{
    process_forget(&m->others[i].master);
    m->other_count--;
    memmove(m->others + i, m->others + i + 1, (m->other_count - i) * sizeof *m->others);
}

/* Asks a former generation to end, and says so; `g` NULL: our own workers. */
static void ask_to_end(struct master *m, struct generation *g, int number)
{
    int *asked = g ? &g->asked : &m->asked;
    if (*asked == number || *asked == SIGUSR2)
        return;
    *asked = number;
    fprintf(stderr, "lighttz: the oldest former generation (process %d) %s\n",
            g ? (int)g->master.pid : (int)getpid(),
            number == SIGTERM ? "has stop_timeout left for its transfers: more came after it than "
                                "former_generations"
                              : "ends now: more came after it than twice former_generations");
    if (g)
        process_signal(&g->master, number);
    else
        workers_signal(&m->workers, number);
}

/* Of the former generations that still have work the latest ones keep it. As many before them have
 * stop_timeout left, those before these nothing. The first `skip` do not count. */
static void bound_generations(struct master *m, unsigned skip)
{
    unsigned long most = m->former_generations;
    unsigned long newer = 0; /* former ones */
    for (unsigned i = m->other_count; i-- > 0;)
        if (!process_lives(&m->others[i].master))
            forget_generation(m, i);
    if (m->other_count <= skip)
        return;
    for (unsigned i = m->other_count - 1 - skip; i-- > 0; newer++)
        if (newer >= most)
            ask_to_end(m, &m->others[i], newer < 2 * most ? SIGTERM : SIGUSR2);
    if (newer >= most && m->workers.running)
        ask_to_end(m, NULL, newer < 2 * most ? SIGTERM : SIGUSR2);
}

/* In the first master: another one serves. Whether the one before it has work left shows soon. */
static void note_generation(struct master *m, const struct announcement *a)
{
    if (m->other_count == GENERATIONS_MAX) { /* they come faster than others end */
        process_signal(&m->others[0].master, SIGKILL);
        forget_generation(m, 0);
    }
    m->others[m->other_count] = (struct generation){NO_PROCESS, 0};
    process_open(&m->others[m->other_count++].master, a->pid);
    m->former_generations = a->former_generations;
    bound_generations(m, 1);
    m->bound_at = clock_s(CLOCK_MONOTONIC) + RETIRING_S;
    if (m->stop_timeout < a->stop_timeout)
        m->stop_timeout = a->stop_timeout;
}

/* The first master hears which one serves, the others hear when it ends. */
static void hear_from_masters(struct master *m)
{
    int fd = m->first ? m->handover.anchor : m->handover.lifeline;
    struct announcement a;
    ssize_t n = -1;
    while (fd >= 0 && (n = read(fd, &a, sizeof a)) == sizeof a)
        note_generation(m, &a);
    if (n == 0)
        happen(m, m->first ? SERVING_ENDED : FIRST_ENDED);
}

static void count_ready(struct master *m)
{
    char octets[CONFIG_WORKERS_MAX];
    ssize_t n = read(m->ready[0], octets, sizeof octets);
    m->ready_count += n > 0 ? (unsigned)n : 0;
    if (m->ready_count >= m->workers.wanted)
        happen(m, READY);
}

static void worker_ended(struct master *m, int i, int status)
{
    m->stats[i].count[CONNECTIONS_CLOSED] = m->stats[i].count[CONNECTIONS_ACCEPTED];
    happen(m, WORKER_ENDED);
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
        int worker = workers_forget(&m->workers, pid);
        if (worker >= 0)
            worker_ended(m, worker, status);
        if (pid == m->successor.pid)
            look_at_successor(m, true);
    }
    return pid == 0;
}

static void read_signals(struct master *m)
{
    struct signalfd_siginfo info;
    while (read(m->signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo == SIGHUP)
            happen(m, RELOAD);
        else if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
            happen(m, STOP);
        else if (info.ssi_signo == SIGUSR2)
            happen(m, HASTEN);
}

/* Milliseconds until the next task that no descriptor announces; -1: never. */
static int patience(const struct master *m)
{
    bool missing = m->phase == SERVING && m->workers.running < m->workers.wanted;
    if (m->phase == STOPPING || missing || m->successor.report >= 0)
        return 1000;
    if (m->bound_at > 0)
        return (int)(1000 * RETIRING_S);
    time_t left = m->workers.look_at - now_s();
    return m->config->watchdog == 0 || m->phase == STARTING ? -1 : left > 0 ? (int)left * 1000 : 0;
}

static void wait_for_events(struct master *m)
{
    struct pollfd fds[] = {
        {.fd = m->signals, .events = POLLIN},
        {.fd = m->ready[0], .events = POLLIN},
        {.fd = m->successor.report, .events = POLLIN},
        {.fd = m->first ? m->handover.anchor : m->handover.lifeline, .events = POLLIN},
    };
    poll(fds, sizeof fds / sizeof *fds, patience(m));
}

/* Waits for something to happen and handles it. False when this process has nothing left to do. */
static bool turn(struct master *m)
{
    wait_for_events(m);
    read_signals(m);
    count_ready(m);
    look_at_successor(m, false);
    hear_from_masters(m);
    bool any = reap(m);
    if (m->bound_at > 0 && clock_s(CLOCK_MONOTONIC) >= m->bound_at) {
        m->bound_at = 0;
        bound_generations(m, 0);
    }
    if (m->phase != STARTING)
        workers_watch(&m->workers, m->stats, m->config->watchdog);
    if (m->phase == SERVING) {
        workers_start(&m->workers, run_worker);
        if (m->reload_again && m->successor.report < 0)
            reload(m);
    }
    if (m->phase == STOPPING && now_s() >= m->kill_at) {
        workers_signal(&m->workers, SIGKILL);
        for (unsigned i = 0; i < m->other_count; i++)
            process_signal(&m->others[i].master, SIGKILL);
        return any && now_s() < m->kill_at + 2;
    }
    bool others =
        m->first || m->successor.report >= 0; /* end with us; a successor that serves does not */
    if (m->phase == STOPPING)
        return others ? any : m->workers.running;
    return m->phase != RETIRED || m->workers.running;
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
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a log that may not grow loses lines */
    signal(SIGUSR1, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    m->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return m->signals >= 0;
}

int master_run(const struct config *config, char *const argv[])
{
    struct master *m = &master;
    m->config = config;
    m->stop_timeout = config->stop_timeout;
    m->argv = argv;
    m->binary = handover_binary(argv[0]);
    m->stats = stats_map();
    m->workers.wanted = (unsigned)config->workers;
    server_raise_limit(config);
    m->first = !handover_take(&m->handover);
    if (m->stats == NULL || !prepare_signals(m) || pipe2(m->ready, O_CLOEXEC | O_NONBLOCK) ||
        pipe2(m->gate, O_CLOEXEC)) {
        fprintf(stderr, "lighttz: %s\n", strerror(errno));
        return 1;
    }
    kernel_probe(config);
    sockets_inherit(&m->sockets);
    if (!sandbox_allows(config) || !sockets_open(&m->sockets, config))
        return 1;
    workers_start(&m->workers, run_worker);
    if (m->workers.running < m->workers.wanted)
        fail(m);
    while (turn(m))
        continue;
    return m->failed;
}
