#include "conn.h"
#include "clock.h"
#include "input.h"
#include "keep.h"
#include "output.h"
#include "response.h"
#include "serve.h"
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define EPOLL_AS_BEFORE UINT32_MAX /* instead of events */

enum {
    TURN_REQUESTS = 256,  /* what a connection may have answered before others have their turn */
    SEND_PROGRESS = 4096, /* what a reader must take within send_timeout */
    LINGER_MS = 2000,
    REFUSALS_MAX = 64,
    SWEEP_MAX = 256, /* deadlines that expire in one turn */
};

/* What a connection in each state waits for, and how long. The time for a head or a body runs from
 * its start, not from its latest octet: a state with the deadline of the one before goes on with
 * it, unless it `restarts`. */
static const struct {
    uint32_t events;
    enum deadline deadline;
    bool restarts;
} rules[CONN_STATES] = {
    [CONN_NEW] = {EPOLLIN, DEADLINE_HEAD, false},
    [CONN_IDLE] = {EPOLLIN, DEADLINE_IDLE, true},
    [CONN_HEAD] = {EPOLLIN, DEADLINE_HEAD, false},
    [CONN_BODY] = {EPOLLIN, DEADLINE_BODY, false},
    [CONN_WORK] = {EPOLL_AS_BEFORE, DEADLINES, false},
    [CONN_TURN] = {0, DEADLINE_TURN, true},
    [CONN_SEND] = {EPOLLOUT, DEADLINE_SEND, false},
    [CONN_LINGER] = {EPOLLIN, DEADLINE_LINGER, false},
};

static void set_deadline(struct conn *c, enum deadline kind)
{
    struct server *s = c->server;
    if (c->deadline != DEADLINES)
        TAILQ_REMOVE(&s->waiting[c->deadline], c, peers);
    c->deadline = kind;
    c->since = s->now;
    if (kind != DEADLINES)
        TAILQ_INSERT_TAIL(&s->waiting[kind], c, peers);
}

/* What the kernel does not watch is closed soon. */
static void watch(struct conn *c, uint32_t events)
{
    if (c->io.events == events || loop_watch(&c->server->loop, &c->io, events))
        return;
    c->failed = true;
    set_deadline(c, DEADLINE_LINGER);
}

/* The only place where the state of a connection changes. */
static void become(struct conn *c, enum conn_state state)
{
    c->state = state;
    if (rules[state].restarts || rules[state].deadline != c->deadline)
        set_deadline(c, rules[state].deadline);
    if (rules[state].events != EPOLL_AS_BEFORE)
        watch(c, rules[state].events);
}

static void forget_status(struct conn *c)
{
    struct server *s = c->server;
    unsigned i = 0;
    while (s->status[i] != c)
        i++;
    s->status_connections--;
    memmove(s->status + i, s->status + i + 1, (s->status_connections - i) * sizeof *s->status);
}

static void conn_close(struct conn *c)
{
    struct server *s = c->server;
    respond_end(c);
    loop_forget(&s->loop, &c->io);
    set_deadline(c, DEADLINES);
    output_drop(c);
    keep_resize(c, c->in, c->in_length, 0);
    body_free(&c->body);
    if (c->abort) {
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        setsockopt(c->io.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    close(c->io.fd);
    s->connections--;
    if (c->status_page)
        forget_status(c);
    s->stats->count[CONNECTIONS_CLOSED]++;
    free(c);
    s->freed(s);
}

static char *resize_body(struct body *b, char *p, size_t old, size_t n)
{
    return keep_resize((struct conn *)(void *)((char *)b - offsetof(struct conn, body)), p, old, n);
}

void conn_prepare(struct server *s)
{
    for (enum deadline kind = 0; kind < DEADLINES; kind++)
        TAILQ_INIT(&s->waiting[kind]);
    TAILQ_INIT(&s->keepers);
    s->close = conn_close;
    body_use(resize_body);
}

/* The last response is out. */
static void finish(struct conn *c)
{
    if (c->linger && shutdown(c->io.fd, SHUT_WR) == 0)
        become(c, CONN_LINGER); /* closing with input unread would reset it under the response */
    else
        conn_close(c);
}

static void wait_for_input(struct conn *c)
{
    bool none = c->in_length == 0 || input_is_empty_line(c->in, c->in_length);
    if (c->head_length)
        become(c, CONN_BODY);
    else if (none && c->requests)
        become(c, CONN_IDLE);
    else
        become(c, none ? CONN_NEW : CONN_HEAD);
}

/* What the peer has not acknowledged yet. */
static int unacknowledged(const struct conn *c)
{
    int n = 0;
    ioctl(c->io.fd, SIOCOUTQ, &n);
    return n;
}

static void wait_for_reader(struct conn *c)
{
    if (c->state != CONN_SEND || c->progress >= SEND_PROGRESS) {
        c->progress = 0;
        c->queued = unacknowledged(c);
        set_deadline(c, DEADLINE_SEND);
    }
    become(c, CONN_SEND);
}

static void wait_for_turn(struct conn *c)
{
    c->waits_turn = false;
    become(c, CONN_TURN);
    c->server->turn = true;
}

/* Decides what the connection waits for. */
static void settle(struct conn *c)
{
    bool waits = output_waits(c);
    if (!waits)
        respond_end(c);
    if (c->failed)
        conn_close(c);
    else if (waits)
        wait_for_reader(c);
    else if (c->closing)
        finish(c);
    else if (c->waits_turn)
        wait_for_turn(c);
    else
        wait_for_input(c);
}

static bool may_go_on(const struct conn *c)
{
    return !output_waits(c) && !c->closing && !c->failed && !c->waits_turn;
}

/* Answers one request after the other. Returns the octets used; the input up to `*n` must be kept.
 */
static size_t take_requests(struct conn *c, char *p, size_t *n)
{
    size_t at = 0;
    size_t used = 1;
    c->server->spent = 0;
    while (at < *n && used && may_go_on(c)) {
        struct request r;
        size_t left = *n - at;
        used = input_take(c, p + at, &left, &r);
        *n = at + left;
        at += used;
        if (used && !c->closing) {
            become(c, CONN_WORK);
            c->server->spent++;
            serve(c, &r, at < *n);
            body_free(&c->body);
        }
        c->waits_turn = c->waits_turn || (at < *n && c->server->spent >= TURN_REQUESTS);
    }
    return at;
}

static void count_time(struct server *s, unsigned long requests)
{
    s->answered = clock_s(CLOCK_MONOTONIC);
    stats_time(s->stats, SERVICE_TIME, s->answered - s->now, requests);
}

/* Goes on with the first `n` octets of the server's input. */
static void process(struct conn *c, size_t n)
{
    struct server *s = c->server;
    char *in = s->in;
    unsigned long requests = c->requests;
    size_t at = take_requests(c, in, &n);
    if (c->eof && may_go_on(c)) {
        if (at < n && !input_is_empty_line(in + at, n - at))
            input_refuse(c, in + at, n - at, 400); /* the rest of it will never come */
        c->closing = true;
        c->linger = false;
        at = n;
    }
    if (!c->closing && !input_keep(c, in + at, n - at)) {
        if (output_waits(c)) /* nothing may come between the parts of a response */
            c->failed = true;
        else
            respond_refusal(c, NULL, 503);
    }
    if (s->out_length && !output_waits(c) && !c->failed)
        output_flush(c);
    if (c->requests > requests && !c->status_page) /* reading the times does not change them */
        count_time(s, c->requests - requests);
    s->out_length = 0;
    c->linger = c->linger || (c->closing && at < n);
    if (c->closing)
        input_keep(c, NULL, 0);
    settle(c);
}

static void drain(struct conn *c)
{
    ssize_t n = recv(c->io.fd, c->server->in, IN_SIZE, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        conn_close(c);
}

static void on_readable(struct conn *c)
{
    char *in = c->server->in;
    size_t n = input_restore(c);
    ssize_t got = recv(c->io.fd, in + n, IN_SIZE - n, 0);
    c->eof = got == 0;
    if (got >= 0)
        process(c, n + (size_t)got);
    else if (errno == EAGAIN || errno == EINTR)
        wait_for_input(c);
    else
        conn_close(c);
}

static void on_writable(struct conn *c)
{
    if (output_flush(c)) {
        become(c, CONN_WORK);
        process(c, input_restore(c));
    } else {
        settle(c);
    }
}

static void on_io(struct watch *io)
{
    struct conn *c = (struct conn *)io;
    if (c->state == CONN_SEND)
        on_writable(c);
    else if (c->state == CONN_LINGER)
        drain(c);
    else
        on_readable(c);
}

static void refuse(struct conn *c, int status)
{
    input_refuse(c, c->in, c->in_length, status);
    process(c, 0);
}

void conn_continue(struct server *s)
{
    struct conns *waiting = &s->waiting[DEADLINE_TURN];
    struct conn *c;
    unsigned long left = 0;
    TAILQ_FOREACH (c, waiting, peers)
        left++;
    while (left-- && s->script_seconds < TURN_SCRIPTS_S && (c = TAILQ_FIRST(waiting)))
        process(c, input_restore(c));
    if (!TAILQ_EMPTY(waiting))
        s->turn = true;
}

/* Where the status page has all its connections, the one that has been silent longest gives way, or
 * else the oldest: whoever asks is answered. */
static void make_status_room(struct server *s)
{
    unsigned i = 0;
    if (s->status_connections < STATUS_MAX)
        return;
    while (i < STATUS_MAX && s->status[i]->state == CONN_SEND)
        i++;
    conn_close(s->status[i < STATUS_MAX ? i : 0]);
}

void conn_open(struct server *s, int fd, const struct sockaddr_in6 *peer, bool status_page)
{
    if (status_page)
        make_status_room(s);
    unsigned long others = s->connections - s->status_connections;
    bool full = !status_page && others >= s->max_connections && !conn_reclaim(s);
    s->stats->count[CONNECTIONS_REFUSED] += full;
    /* Refused clients linger briefly so that a reset does not discard the 503; their number is
     * limited. */
    bool drops = full && others >= s->max_connections + REFUSALS_MAX;
    struct conn *c = drops ? NULL : calloc(1, sizeof *c);
    if (c == NULL) {
        close(fd);
        return;
    }
    c->io = (struct watch){on_io, fd, 0};
    c->server = s;
    c->deadline = DEADLINES;
    c->status_page = status_page;
    if (s->log.fd >= 0)
        c->address_length = (unsigned char)accesslog_address(peer, c->address);
    s->connections++;
    if (status_page)
        s->status[s->status_connections++] = c;
    s->stats->count[CONNECTIONS_ACCEPTED]++;
    if (full)
        refuse(c, 503);
    else
        on_readable(c); /* deferred accept: the request is already there */
}

/* The loop hears of room only when a third of the socket's buffer is free, which a steady slow
 * reader may not bring about in time. */
static bool still_reads(struct conn *c)
{
    int before = c->queued;
    if (c->state != CONN_SEND || c->failed)
        return false;
    c->queued = unacknowledged(c);
    if (before - c->queued < SEND_PROGRESS)
        return false;
    set_deadline(c, DEADLINE_SEND);
    return true;
}

static void expire(struct conn *c)
{
    if (still_reads(c))
        return;
    c->server->stats->count[TIMEOUTS]++;
    if ((c->state == CONN_HEAD || c->state == CONN_BODY) && !c->server->stopping)
        refuse(c, 408);
    else
        conn_close(c);
}

static double timeout_of(const struct server *s, enum deadline kind)
{
    const unsigned long ms[TIMED_DEADLINES] = {s->config->header_timeout, s->config->body_timeout,
                                               s->config->idle_timeout, s->config->send_timeout,
                                               LINGER_MS};
    return (double)ms[kind] / 1000;
}

bool conn_sweep(struct server *s)
{
    struct conn *c;
    unsigned left = SWEEP_MAX;
    for (enum deadline kind = 0; kind < TIMED_DEADLINES; kind++) {
        double before = s->now - timeout_of(s, kind);
        while (left && (c = TAILQ_FIRST(&s->waiting[kind])) && c->since <= before) {
            expire(c);
            left--;
        }
    }
    if (!s->stopping || s->now < s->idle_end)
        return left == 0;
    while (left && conn_reclaim(s))
        left--;
    struct conn *next;
    for (c = TAILQ_FIRST(&s->waiting[DEADLINE_HEAD]); c && left; c = next) {
        next = TAILQ_NEXT(c, peers);
        if (c->state == CONN_NEW) {
            conn_close(c);
            left--;
        }
    }
    return left == 0;
}

unsigned long conn_end(struct server *s)
{
    struct conn *c;
    unsigned long cut = 0;
    for (enum deadline kind = 0; kind < DEADLINES; kind++)
        while ((c = TAILQ_FIRST(&s->waiting[kind]))) {
            cut += output_waits(c);
            conn_close(c);
        }
    return cut;
}

bool conn_reclaim(struct server *s)
{
    struct conn *c = TAILQ_FIRST(&s->waiting[DEADLINE_IDLE]);
    if (c)
        conn_close(c);
    return c != NULL;
}
