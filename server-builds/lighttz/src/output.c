#include "output.h"
#include "response.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/sendfile.h>

enum { SENDFILE_MAX = 1 << 20 }; /* per turn, so that one fast reader does not hold up the others */

/* Counts what was sent; keeps `errno`'s verdict. Returns the octets taken, 0 when none can be. */
static size_t sent(struct conn *c, ssize_t n)
{
    if (n < 0) {
        c->failed = c->failed || (errno != EAGAIN && errno != EINTR);
        return 0;
    }
    c->server->stats->bytes_sent += (uint64_t)n;
    c->progress += (size_t)n;
    return (size_t)n;
}

/* MSG_MORE where the end of the connection follows at once: it then goes in the packet of the last
 * octets, one packet less. */
static size_t send_text(struct conn *c, const char *p, size_t n, int flags)
{
    return sent(c, send(c->io.fd, p, n, flags | MSG_NOSIGNAL | (c->closing ? MSG_MORE : 0)));
}

/* Sends all, or keeps the rest for when the socket takes more. */
static bool push(struct conn *c, const char *p, size_t n, int flags)
{
    size_t done = send_text(c, p, n, flags);
    if (done == n || c->failed)
        return !c->failed;
    c->out_at = 0;
    c->out_length = n - done;
    c->out = malloc(c->out_length);
    if (c->out == NULL) {
        c->failed = true;
        return false;
    }
    memcpy(c->out, p + done, c->out_length);
    c->state = CONN_SEND;
    return false;
}

static bool flush_batch(struct conn *c, int flags)
{
    struct server *s = c->server;
    size_t n = s->out_length;
    s->out_length = 0;
    return n == 0 || push(c, s->out, n, flags);
}

static bool flush_kept(struct conn *c)
{
    if (c->out == NULL)
        return true;
    size_t n = c->out_length - c->out_at;
    c->out_at += send_text(c, c->out + c->out_at, n, c->file ? MSG_MORE : 0);
    if (c->out_at < c->out_length)
        return false;
    free(c->out);
    c->out = NULL;
    return true;
}

static size_t send_piece(struct conn *c, size_t n)
{
    const struct file *f = c->file;
    if (f->body) {
        size_t taken = send_text(c, f->body + c->at, n, 0);
        c->at += (off_t)taken;
        return taken;
    }
    /* What is not the announced content any more must not look complete. (Before the first piece
     * serve() has looked.) */
    c->abort = c->state == CONN_SEND && !file_unchanged(f);
    ssize_t taken = c->abort ? 0 : sendfile(c->io.fd, f->fd, &c->at, n);
    c->abort = c->abort || taken == 0;
    c->failed = c->abort;
    c->server->stats->aborted_files += c->abort;
    return sent(c, taken);
}

/* Sends the slice of the file; false when something of it remains. */
static bool flush_file(struct conn *c)
{
    if (c->file == NULL)
        return true;
    size_t left = (size_t)(c->end - c->at);
    size_t n = left < SENDFILE_MAX ? left : SENDFILE_MAX;
    if (n && send_piece(c, n) < left) {
        c->state = CONN_SEND;
        return false;
    }
    file_release(c->file);
    c->file = NULL;
    return !c->failed;
}

static void start_file(struct conn *c, struct file *f, off_t from, off_t to)
{
    file_hold(f);
    c->file = f;
    c->at = from;
    c->end = to;
}

bool output_flush(struct conn *c)
{
    for (;;) {
        struct file *f = c->file;
        if (f)
            file_hold(f); /* the next part is of the same file */
        bool done = flush_kept(c) && flush_batch(c, f ? MSG_MORE : 0) && flush_file(c);
        bool again = done && c->parts && f;
        if (again) {
            off_t from;
            off_t to;
            if (respond_next_part(c, &from, &to))
                start_file(c, f, from, to);
        }
        if (f)
            file_release(f);
        if (!again)
            return done;
    }
}

void output_append(struct conn *c, struct str s)
{
    memcpy(c->server->out + c->server->out_length, s.p, s.n);
    c->server->out_length += s.n;
}

void output_text(struct conn *c, struct str s)
{
    if (c->server->out_length + s.n <= OUT_SIZE) {
        output_append(c, s);
    } else if (output_flush(c)) {
        push(c, s.p, s.n, 0);
    } else if (!c->failed) {
        size_t kept = c->out_length - c->out_at;
        char *out = malloc(kept + s.n);
        c->failed = out == NULL;
        if (out == NULL)
            return;
        memcpy(out, c->out + c->out_at, kept);
        memcpy(out + kept, s.p, s.n);
        free(c->out);
        c->out = out;
        c->out_at = 0;
        c->out_length = kept + s.n;
    }
}

void output_send(struct conn *c, const char *p, size_t n)
{
    push(c, p, n, 0);
}

void output_file(struct conn *c, struct file *f, off_t from, off_t to)
{
    int cork = c->closing && f->body == NULL; /* what MSG_MORE does for text */
    if (cork)
        setsockopt(c->io.fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof cork);
    start_file(c, f, from, to);
    output_flush(c);
}

void output_drop(struct conn *c)
{
    free(c->out);
    c->out = NULL;
    if (c->file)
        file_release(c->file);
    c->file = NULL;
    free(c->parts);
    c->parts = NULL;
}
