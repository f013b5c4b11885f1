#include "server.h"
#include "clock.h"
#include "conn.h"
#include "response.h"
#include "sandbox.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    ACCEPT_BATCH = 64,
    ACCEPT_LAST = 4096,
    PAUSE_ROOM = 16,   /* connections that must go before a pause ends early */
    FILES_SPARE = 128, /* descriptors other than connections, and refused connections */
};

#define TICK_NS 500000000
#define STOP_IDLE_S 0.5
#define RETIRE_S 3600.0

static struct server server; /* one per process: its pages cost nothing until they are used */

/* Before all else that happens in a turn of the loop. */
static void look_at_clock(struct server *s)
{
    s->script_seconds = 0;
    if (s->answered > s->now) /* in the turn before */
        stats_time(s->stats, LOOP_LAG, s->answered - s->now, 1);
    s->now = clock_s(CLOCK_MONOTONIC);
    time_t second = (time_t)(s->now + s->wall);
    if (second == s->second)
        return;
    s->second = second;
    response_clock(s);
    accesslog_tick(&s->log, second);
}

/* A listener that the kernel does not watch is tried again with the next tick. */
static void listen_on(struct server *s, bool on)
{
    for (unsigned i = 0; i < s->listener_count; i++)
        if (!loop_watch(&s->loop, &s->listeners[i].io, on ? EPOLLIN : 0))
            s->paused = 1;
}

static void resume(struct server *s)
{
    s->paused = 0;
    if (!s->stopping)
        listen_on(s, true);
}

/* A connection has ended: where accepting was paused it goes on, when there is some room. */
static void on_freed(struct server *s)
{
    if (s->paused && s->connections + PAUSE_ROOM <= s->paused)
        resume(s);
    if (s->stopping && s->connections == 0)
        s->ends = true;
}

static bool make_room(void *context)
{
    struct server *s = context;
    return cache_shed(s->cache) || conn_reclaim(s);
}

/* No descriptor or memory is left: make room, or else stop listening until there is some. Trying
 * again at once would spin, since the listener stays readable. */
static bool pause_accepting(struct server *s)
{
    if (make_room(s))
        return true;
    s->paused = s->connections ? s->connections : 1;
    s->stats->count[ACCEPT_PAUSES]++;
    listen_on(s, false);
    return false;
}

/* False when there is nothing more to accept now. */
static bool accept_one(struct server *s, struct listener *l)
{
    struct sockaddr_in6 peer = {0}; /* room for either family */
    socklen_t n = sizeof peer;
    bool log = s->log.fd >= 0;
    int fd = accept4(l->io.fd, log ? (struct sockaddr *)&peer : NULL, log ? &n : NULL,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
        return pause_accepting(s);
    if (fd < 0)
        return errno == ECONNABORTED || errno == EINTR;
    conn_open(s, fd, &peer, l->status_page);
    return true;
}

static void accept_many(struct listener *l, int most)
{
    for (int i = 0; i < most && accept_one(&server, l); i++)
        continue;
}

static void on_accept(struct watch *io)
{
    accept_many((struct listener *)io, ACCEPT_BATCH);
}

/* What has come of age; what is left of it waits for the next turn, so that others have theirs. */
static void sweep(struct server *s)
{
    bool more = conn_sweep(s);
    if (cache_age(s->cache, s->now) || more)
        s->turn = true;
}

static void set_wall(struct server *s)
{
    s->wall = clock_s(CLOCK_REALTIME) - clock_s(CLOCK_MONOTONIC);
}

static void on_tick(struct server *s)
{
    s->tick = false;
    set_wall(s);
    s->stats->ticks++;
    sweep(s);
    if (s->paused)
        resume(s);
    if (s->stopping && (s->connections == 0 || s->now >= s->stop_at))
        s->ends = true;
}

/* Finishes what is in flight: the next response of each connection says close. A successor on the
 * same sockets (SIGUSR1) leaves transfers an hour and idle connections as long as it stops for;
 * otherwise they get that and a moment. SIGUSR2 leaves them nothing. */
static void stop(struct server *s, uint32_t signal)
{
    bool retire = signal == SIGUSR1;
    bool at_once = signal == SIGUSR2;
    double patience = at_once ? 0 : (double)s->config->stop_timeout / 1000;
    double end = s->now + (retire ? RETIRE_S : patience);
    s->stop_at = s->stopping && s->stop_at < end ? s->stop_at : end;
    if (!s->stopping) {
        for (unsigned i = 0; i < s->listener_count; i++) /* serve what is in the accept queue */
            accept_many(&s->listeners[i], ACCEPT_LAST);
        s->stopping = true;
        listen_on(s, false);
        for (unsigned i = 0; i < s->listener_count; i++)
            close(s->listeners[i].io.fd);
    }
    double idle = retire || patience < STOP_IDLE_S ? patience : STOP_IDLE_S;
    s->idle_end = s->now + idle;
    if (s->connections == 0 || at_once)
        s->ends = true;
}

static void on_signal(struct watch *io)
{
    struct signalfd_siginfo info;
    while (read(io->fd, &info, sizeof info) == sizeof info)
        stop(&server, info.ssi_signo);
}

/* They come by a descriptor from here on. */
static bool watch_signals(struct server *s)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->signals = (struct watch){on_signal, signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), 0};
    return s->signals.fd >= 0 && loop_watch(&s->loop, &s->signals, EPOLLIN);
}

static void on_timer(struct watch *io)
{
    uint64_t times;
    server.tick = read(io->fd, &times, sizeof times) == sizeof times;
}

/* A timer descriptor wakes the loop, so epoll_wait needs no timeout. For a timeout, the kernel
 * reads its clock twice and sets a timer in each turn that blocks. */
static bool watch_timer(struct server *s)
{
    static const struct itimerspec each = {.it_interval = {.tv_nsec = TICK_NS},
                                           .it_value = {.tv_nsec = TICK_NS}};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    s->timer = (struct watch){on_timer, fd, 0};
    return fd >= 0 && timerfd_settime(fd, 0, &each, NULL) == 0 &&
           loop_watch(&s->loop, &s->timer, EPOLLIN);
}

/* What a worker needs of the file system. */
static bool open_files(struct server *s)
{
    const struct config *config = s->config;
    s->cache = cache_open(config, make_room, s);
    bool logs = s->cache && accesslog_open(&s->log, config->access_log, s->stats);
    if (!logs) {
        fprintf(stderr, "lighttz: %s: %s\n", s->cache ? config->access_log : config->root,
                strerror(errno));
        return false;
    }
    s->script = config->lua_script ? script_open(config) : NULL;
    return s->script || !config->lua_script;
}

bool server_check(const struct config *config)
{
    server.config = config;
    return open_files(&server);
}

/* The connections that the descriptors allow; some are for files and other uses. */
static unsigned long server_connections(const struct config *config)
{
    struct rlimit files;
    unsigned long max = config->max_connections;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur == RLIM_INFINITY)
        return max;
    unsigned long limit = files.rlim_cur;
    unsigned long cached = config->cache_entries < limit / 4 ? config->cache_entries : limit / 4;
    unsigned long other = FILES_SPARE < limit / 2 ? FILES_SPARE : limit / 2;
    return max < limit - cached - other ? max : limit - cached - other;
}

void server_raise_limit(const struct config *config)
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

static bool start(struct server *s, const struct sockets *sockets)
{
    s->max_connections = server_connections(s->config);
    bool loops = loop_open(&s->loop);
    if (loops && !open_files(s))
        return false;
    /* Only now: a script that is being loaded is ended by the signal itself. */
    if (!loops || !watch_signals(s) || !watch_timer(s)) {
        fprintf(stderr, "lighttz: no event loop: %s\n", strerror(errno));
        return false;
    }
    s->listener_count = sockets->count;
    for (unsigned i = 0; i < sockets->count; i++) {
        struct listener *l = &s->listeners[i];
        l->status_page = sockets->slot[i].status_page;
        l->io = (struct watch){on_accept, sockets->slot[i].fd, 0};
    }
    conn_prepare(s);
    s->freed = on_freed;
    set_wall(s);
    look_at_clock(s);
    listen_on(s, true);
    return true;
}

/* Waits for what comes next and answers it. */
static void take_turn(struct server *s)
{
    bool turn = s->turn;
    bool blocks = !turn && s->now >= s->spin_until;
    bool happened = loop_wait(&s->loop, blocks);
    look_at_clock(s);
    if (s->config->spin && (happened || turn))
        s->spin_until = s->now + (double)s->config->spin / 1e6;
    s->turn = false;
    loop_tell(&s->loop);
    if (turn) {
        conn_continue(s);
        sweep(s);
    }
    if (s->tick)
        on_tick(s);
}

/* False when the worker must not serve: the master has ended or given up. */
static bool pass_gate(const struct gate *gate)
{
    struct pollfd open = {.fd = gate->open, .events = POLLIN};
    bool may = write(gate->ready, "", 1) == 1 && poll(&open, 1, -1) == 1 && open.revents & POLLIN;
    close(gate->ready);
    close(gate->open);
    return may;
}

int server_run(const struct config *config, const struct sockets *sockets, struct stats *slot,
               const struct stats *all, const struct gate *gate)
{
    server.config = config;
    server.stats = slot;
    server.all_stats = all;
    if (!start(&server, sockets))
        return 1;
    if (!sandbox_enter(config, cache_root(server.cache)))
        return 1;
    sandbox_trim();
    if (!pass_gate(gate))
        return 0;
    while (!server.ends)
        take_turn(&server);
    unsigned long cut = conn_end(&server);
    if (cut)
        fprintf(stderr, "lighttz: a worker ends: responses that were cut: %lu\n", cut);
    accesslog_tick(&server.log, server.second);
    return 0;
}
