#include "conn.h"
#include "output.h"
#include "response.h"
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    SEND_PROGRESS = 4096, /* what a reader must take within send_timeout */
    LINGER_MS = 2000,
    REFUSALS_MAX = 64,
};

static void deadline_unset(struct conn *c)
{
    if (c->deadline != DEADLINES)
        TAILQ_REMOVE(&c->server->waiting[c->deadline], c, peers);
    c->deadline = DEADLINES;
}

static void deadline_set(struct conn *c, enum deadline kind)
{
    deadline_unset(c);
    c->deadline = kind;
    c->since = c->server->now;
    TAILQ_INSERT_TAIL(&c->server->waiting[kind], c, peers);
}

static void watch(struct conn *c, int events)
{
    if (c->events == events)
        return;
    if (c->events)
        ev_io_stop(c->server->loop, &c->io);
    ev_io_modify(&c->io, events);
    c->events = events;
    if (events)
        ev_io_start(c->server->loop, &c->io);
}

void conn_close(struct conn *c)
{
    struct server *s = c->server;
    watch(c, 0);
    deadline_unset(c);
    output_drop(c);
    conn_realloc(c, c->in, c->in_length, 0);
    body_free(&c->body);
    if (c->abort) {
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        setsockopt(c->io.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    close(c->io.fd);
    s->connections--;
    s->stats->count[CONNECTIONS_CLOSED]++;
    free(c);
    if (s->paused)
        server_resume(s);
    if (s->stopping && s->connections == 0)
        ev_break(s->loop, EVBREAK_ALL);
}

/* Who waits for its reader longest, but for `c`. */
static struct conn *longest_sending(const struct conn *c)
{
    struct conn *other = TAILQ_FIRST(&c->server->waiting[DEADLINE_SEND]);
    return other == c ? TAILQ_NEXT(other, peers) : other;
}

char *conn_realloc(struct conn *c, char *p, size_t old, size_t n)
{
    struct server *s = c->server;
    struct conn *other;
    while (n > old && s->kept + (n - old) > KEPT_MAX) {
        if ((other = longest_sending(c)) == NULL)
            return NULL;
        conn_close(other);
    }
    char *q = n ? realloc(p, n) : NULL;
    if (n == 0)
        free(p);
    if (q || n == 0)
        s->kept += n - old;
    return q;
}

/* Refuses what is no whole request: whether it is HEAD, which gets no content, is all one knows. */
static void refuse_part(struct conn *c, const char *p, size_t n, int status)
{
    struct str part = str_from((struct str){p, n}, request_empty_lines(p, n));
    bool head = str_starts(part, STR("HEAD "));
    struct request r = {.method = head ? METHOD_HEAD : METHOD_UNKNOWN};
    struct str line = str_before(part, '\r');
    if (line.n < part.n)
        r.line = line;
    respond_refusal(c, &r, status);
}

/* Empty lines, as some clients send behind a body: no request that has begun. */
static bool is_empty_line(const char *p, size_t n)
{
    return n && request_empty_lines(p, n) == n;
}

/* The request whose head and body have come. Returns the octets used of `*n`, 0 when more is
 * needed: then `*n` is what to keep, since body octets are thrown away as they come. */
static size_t take_request(struct conn *c, const char *p, size_t *n)
{
    struct request r;
    const struct config *config = c->server->config;
    if (c->head_length == 0) {
        struct request_limits limits = {config->max_line, config->max_head};
        long end = request_end(p, *n, &c->scanned, &limits);
        if (end == 0)
            return 0;
        c->scanned = 0;
        if (end < 0) {
            refuse_part(c, p, *n, (int)-end);
            return *n;
        }
        int status = request_parse(p, (size_t)end, &r);
        if (status == 0 && r.length > config->max_body)
            status = 413;
        if (status) {
            respond_refusal(c, &r, status);
            return *n;
        }
        c->head_length = (size_t)end;
        body_start(&c->body, &r, serve_needs_body(c, &r));
        if (c->body.state != BODY_DONE && respond_before_body(c, &r, *n > c->head_length))
            return *n;
    } else {
        request_parse(p, c->head_length, &r);
    }
    size_t used = c->head_length;
    used += body_skip(&c->body, p + used, *n - used);
    bool bad = c->body.state == BODY_BAD;
    if (bad || c->body.total + c->body.left > config->max_body) {
        respond_refusal(c, &r, bad ? 400 : 413);
        return *n;
    }
    if (c->body.state != BODY_DONE) {
        *n = c->head_length;
        return 0;
    }
    c->head_length = 0;
    serve(c, &r, used < *n);
    if (c->body.content)
        body_free(&c->body);
    return used;
}

/* Keeps input for later; `p` is not in `c->in`. */
static void keep_input(struct conn *c, const char *p, size_t n)
{
    char *in = conn_realloc(c, c->in, c->in_length, n);
    if (n && in == NULL) {
        c->failed = true;
        return;
    }
    c->in = in;
    c->in_length = n;
    if (n)
        memcpy(in, p, n);
}

/* The last response is out. */
static void finish(struct conn *c)
{
    if (!c->linger || shutdown(c->io.fd, SHUT_WR)) {
        conn_close(c);
    } else {
        /* Closing with input unread would reset the connection under the response. */
        c->state = CONN_LINGER;
        keep_input(c, NULL, 0);
        watch(c, EV_READ);
        deadline_set(c, DEADLINE_LINGER);
    }
}

static void wait_for_input(struct conn *c)
{
    bool none = c->in_length == 0 || is_empty_line(c->in, c->in_length);
    bool idle = none && c->requests;
    enum deadline kind = c->head_length ? DEADLINE_BODY : idle ? DEADLINE_IDLE : DEADLINE_HEAD;
    c->state = c->head_length ? CONN_BODY : none ? CONN_IDLE : CONN_HEAD;
    /* The time for a head or a body runs from its start, not from its latest octet. */
    if (kind == DEADLINE_IDLE || c->deadline != kind)
        deadline_set(c, kind);
    watch(c, EV_READ);
}

/* What the peer has not acknowledged yet. */
static int unacknowledged(const struct conn *c)
{
    int n = 0;
    ioctl(c->io.fd, SIOCOUTQ, &n);
    return n;
}

/* Decides what the connection waits for. */
static void settle(struct conn *c)
{
    if (c->failed) {
        conn_close(c);
    } else if (c->state == CONN_SEND) {
        if (c->deadline != DEADLINE_SEND || c->progress >= SEND_PROGRESS) {
            c->progress = 0;
            c->queued = unacknowledged(c);
            deadline_set(c, DEADLINE_SEND);
        }
        watch(c, EV_WRITE);
    } else if (c->closing) {
        finish(c);
    } else {
        wait_for_input(c);
    }
}

static void process(struct conn *c, const char *p, size_t n)
{
    struct server *s = c->server;
    size_t at = 0;
    while (at < n && c->state != CONN_SEND && !c->closing && !c->failed) {
        size_t left = n - at;
        size_t used = take_request(c, p + at, &left);
        n = at + left;
        if (used == 0)
            break;
        at += used;
    }
    if (c->eof && c->state != CONN_SEND && !c->closing && !c->failed) {
        if (at < n && !is_empty_line(p + at, n - at))
            refuse_part(c, p + at, n - at, 400); /* the rest of it will never come */
        c->closing = true;
        c->linger = false;
        at = n;
    }
    if (c->state != CONN_SEND && !c->failed)
        output_flush(c);
    s->out_length = 0;
    if (at)
        deadline_unset(c); /* it was of a request that is served now */
    c->linger = c->linger || (c->closing && at < n);
    keep_input(c, p + at, c->closing ? 0 : n - at);
    settle(c);
}

static void drain(struct conn *c)
{
    ssize_t n = recv(c->io.fd, c->server->in, IN_SIZE, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        conn_close(c);
}

/* Copies what was kept to where the next input goes; its length. */
static size_t restore_input(struct conn *c)
{
    if (c->in_length)
        memcpy(c->server->in, c->in, c->in_length);
    return c->in_length;
}

static void on_readable(struct conn *c)
{
    char *in = c->server->in;
    size_t n = restore_input(c);
    ssize_t got = recv(c->io.fd, in + n, IN_SIZE - n, 0);
    c->eof = got == 0;
    if (got >= 0)
        process(c, in, n + (size_t)got);
    else if (errno == EAGAIN || errno == EINTR)
        wait_for_input(c);
    else
        conn_close(c);
}

static void on_writable(struct conn *c)
{
    if (output_flush(c)) {
        c->state = CONN_HEAD;
        deadline_unset(c);
        process(c, c->server->in, restore_input(c));
    } else {
        settle(c);
    }
}

static void on_io(struct ev_loop *loop, ev_io *io, int events)
{
    struct conn *c = (struct conn *)io;
    (void)loop;
    if (events & EV_ERROR) /* it cannot be watched */
        conn_close(c);
    else if (c->state == CONN_SEND)
        on_writable(c);
    else if (c->state == CONN_LINGER)
        drain(c);
    else
        on_readable(c);
}

static void refuse(struct conn *c, int status)
{
    refuse_part(c, c->in, c->in_length, status);
    process(c, "", 0);
}

void conn_open(struct server *s, int fd, const struct sockaddr_in6 *peer, bool status_page)
{
    unsigned long max = s->config->max_connections;
    bool full = s->connections >= max && !status_page && !conn_reclaim(s);
    s->stats->count[CONNECTIONS_REFUSED] += full;
    /* Who is refused lingers for a moment, lest the answer be lost: only so many. */
    struct conn *c = full && s->connections >= max + REFUSALS_MAX ? NULL : calloc(1, sizeof *c);
    if (c == NULL) {
        close(fd);
        return;
    }
    ev_io_init(&c->io, on_io, fd, EV_READ);
    c->server = s;
    c->deadline = DEADLINES;
    c->status_page = status_page;
    c->peer = *peer;
    s->connections++;
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
    if (c->state != CONN_SEND)
        return false;
    c->queued = unacknowledged(c);
    if (before - c->queued < SEND_PROGRESS)
        return false;
    deadline_set(c, DEADLINE_SEND);
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
    const unsigned long ms[DEADLINES] = {s->config->header_timeout, s->config->body_timeout,
                                         s->config->idle_timeout, s->config->send_timeout,
                                         LINGER_MS};
    return (double)ms[kind] / 1000;
}

void conn_sweep(struct server *s)
{
    struct conn *c;
    for (enum deadline kind = 0; kind < DEADLINES; kind++) {
        double before = s->now - timeout_of(s, kind);
        while ((c = TAILQ_FIRST(&s->waiting[kind])) && c->since <= before)
            expire(c);
    }
    if (!s->stopping || s->now < s->idle_end)
        return;
    while (conn_reclaim(s))
        continue;
    while ((c = TAILQ_FIRST(&s->waiting[DEADLINE_HEAD])) && c->state == CONN_IDLE)
        conn_close(c);
}

bool conn_reclaim(struct server *s)
{
    struct conn *c = TAILQ_FIRST(&s->waiting[DEADLINE_IDLE]);
    if (c)
        conn_close(c);
    return c != NULL;
}
