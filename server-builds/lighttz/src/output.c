#include "output.h"
#include "keep.h"
#include "text.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/sendfile.h>

enum { SPENT_OCTETS = 4096 /* as much work as a request */ };
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
    c->sent += (uint64_t)n;
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
        return; /* nothing may follow a gap */
    size_t done = c->out ? 0 : send_text(c, p, n, c->file != NULL);
    n -= done;
    if (n == 0 || c->failed)
        return;
    char *out = keep_resize(c, c->out, c->out_length, c->out_length + n);
    if (out == NULL) {
        c->failed = true;
        return;
    }
    memcpy(out + c->out_length, p + done, n);
    c->out = out;
    c->out_length += n;
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
    c->out = keep_resize(c, c->out, c->out_length, 0);
    c->out_at = c->out_length = 0;
}

/* Sends the slice of the file; false when something of it remains. */
static bool flush_file(struct conn *c)
{
    if (c->file == NULL)
        return true;
    size_t left = (size_t)(c->end - c->at);
    /* Content that is no longer the announced one must not look complete. (Before the first piece
     * serve() has looked.) */
    c->abort = c->state == CONN_SEND && !file_unchanged(c->file);
    size_t most = left < SENDFILE_MAX ? left : SENDFILE_MAX;
    ssize_t n = c->abort ? 0 : sendfile(c->io.fd, c->file->fd, &c->at, most);
    c->abort = c->abort || n == 0;
    c->failed = c->abort;
    c->server->stats->count[ABORTED_FILES] += c->abort;
    c->server->spent += n > 0 ? (unsigned)n / SPENT_OCTETS : 0;
    if (sent(c, n) < left)
        return false;
    file_release(c->file);
    c->file = NULL;
    return true;
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
    if (c->server->out_length)
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

size_t output_part_head(const struct parts *parts, unsigned i, char *out, size_t size)
{
    const struct file *f = parts->file;
    const struct range *range = &parts->ranges.range[i];
    if (i == parts->ranges.count)
        return text_format(out, size, "\r\n--%lx--\r\n", parts->boundary);
    return text_format(out, size,
                       "\r\n--%lx\r\nContent-Type: %.*s\r\n"
                       "Content-Range: bytes %ld-%ld/%ld\r\n\r\n",
                       parts->boundary, (int)f->type.n, f->type.p, range->from, range->to - 1,
                       f->size);
}

/* Appends of the parts what there is up to one that must be sent from its descriptor. */
static void append_parts(struct conn *c)
{
    char text[512];
    while (c->parts && c->file == NULL) {
        struct parts *parts = c->parts;
        unsigned i = parts->next++;
        const struct range *range = &parts->ranges.range[i];
        output_append(c, (struct str){text, output_part_head(parts, i, text, sizeof text)});
        if (i < parts->ranges.count) {
            output_file(c, parts->file, range->from, range->to);
            continue;
        }
        file_release(parts->file);
        free(parts);
        c->parts = NULL;
    }
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
        append_parts(c);
    }
}

uint64_t output_end(const struct conn *c)
{
    return c->sent + (c->out_length - c->out_at) + c->server->out_length;
}

void output_drop(struct conn *c)
{
    keep_resize(c, c->out, c->out_length, 0);
    if (c->file)
        file_release(c->file);
    if (c->parts)
        file_release(c->parts->file);
    free(c->parts);
}
