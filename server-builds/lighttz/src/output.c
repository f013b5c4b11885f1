#include "output.h"
#include "response.h"
#include "text.h"
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
    c->server->stats->count[BYTES_SENT] += (uint64_t)n;
    c->progress += (size_t)n;
    return (size_t)n;
}

/* MSG_MORE where the end of the connection follows at once: it then goes in the packet of the last
 * octets, one packet less. */
static size_t send_text(struct conn *c, const char *p, size_t n, bool more)
{
    int flags = MSG_NOSIGNAL | (more || c->closing ? MSG_MORE : 0);
    return sent(c, send(c->io.fd, p, n, flags));
}

/* Sends what can be sent and keeps the rest for when the socket takes more. */
static void push(struct conn *c, const char *p, size_t n)
{
    if (c->failed)
        return; /* nothing may follow what is missing */
    size_t done = c->out ? 0 : send_text(c, p, n, c->file != NULL);
    n -= done;
    if (n == 0 || c->failed)
        return;
    char *out = conn_realloc(c, c->out, c->out_length, c->out_length + n);
    if (out == NULL) {
        c->failed = true;
        return;
    }
    memcpy(out + c->out_length, p + done, n);
    c->out = out;
    c->out_length += n;
    c->state = CONN_SEND;
}

static void flush_batch(struct conn *c)
{
    size_t n = c->server->out_length;
    c->server->out_length = 0;
    if (n)
        push(c, c->server->out, n);
}

static void flush_kept(struct conn *c)
{
    if (c->out == NULL)
        return;
    c->out_at += send_text(c, c->out + c->out_at, c->out_length - c->out_at, c->file != NULL);
    if (c->out_at < c->out_length)
        return;
    c->out = conn_realloc(c, c->out, c->out_length, 0);
    c->out_at = c->out_length = 0;
}

/* Sends the slice of the file; false when something of it remains. */
static bool flush_file(struct conn *c)
{
    if (c->file == NULL)
        return true;
    size_t left = (size_t)(c->end - c->at);
    /* What is not the announced content any more must not look complete. (Before the first piece
     * serve() has looked.) */
    c->abort = c->state == CONN_SEND && !file_unchanged(c->file);
    size_t most = left < SENDFILE_MAX ? left : SENDFILE_MAX;
    ssize_t n = c->abort ? 0 : sendfile(c->io.fd, c->file->fd, &c->at, most);
    c->abort = c->abort || n == 0;
    c->failed = c->abort;
    c->server->stats->count[ABORTED_FILES] += c->abort;
    if (sent(c, n) < left) {
        c->state = CONN_SEND;
        return false;
    }
    file_release(c->file);
    c->file = NULL;
    return true;
}

bool output_flush(struct conn *c)
{
    for (;;) {
        flush_kept(c);
        flush_batch(c);
        if (c->out || c->failed || !flush_file(c))
            return false;
        if (c->parts == NULL)
            return true;
        respond_next_parts(c);
    }
}

void output_append(struct conn *c, struct str s)
{
    struct server *v = c->server;
    if (c->out || v->out_length + s.n > OUT_SIZE) {
        output_send(c, s);
        return;
    }
    memcpy(v->out + v->out_length, s.p, s.n);
    v->out_length += s.n;
}

void output_format(struct conn *c, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    output_append(c, (struct str){text, text_vformat(text, sizeof text, format, args)});
    va_end(args);
}

void output_send(struct conn *c, struct str s)
{
    flush_batch(c);
    push(c, s.p, s.n);
}

void output_file(struct conn *c, struct file *f, off_t from, off_t to)
{
    if (f->body) {
        output_append(c, (struct str){f->body + from, (size_t)(to - from)});
        return;
    }
    int cork = c->closing; /* what MSG_MORE does for text */
    if (cork)
        setsockopt(c->io.fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof cork);
    file_hold(f);
    c->file = f;
    c->at = from;
    c->end = to;
}

void output_drop(struct conn *c)
{
    conn_realloc(c, c->out, c->out_length, 0);
    if (c->file)
        file_release(c->file);
    if (c->parts)
        file_release(c->parts->file);
    free(c->parts);
}
