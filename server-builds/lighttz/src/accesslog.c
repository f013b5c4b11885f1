#include "accesslog.h"
#include "text.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Whole lines of at most PIPE_BUF octets are what other writers to a pipe cannot tear. */
enum { LINE_FIXED = 384, LINE_MAX_FILE = 49920, LINE_MAX_PIPE = PIPE_BUF, VALUES = 3 };

bool accesslog_open(struct accesslog *log, const char *path, struct stats *stats)
{
    log->fd = -1;
    log->used = 0;
    log->torn = false;
    log->pipe = false;
    log->stats = stats;
    if (path == NULL)
        return true;
    /* O_NONBLOCK: a log that is a pipe loses lines rather than holding up the loop. */
    const int flags = O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    log->fd = open(path, O_WRONLY | flags, 0640);
    if (log->fd < 0 && errno == ENXIO) /* a FIFO without a reader */
        log->fd = open(path, O_RDWR | flags, 0640);
    struct stat st;
    log->pipe = log->fd >= 0 && fstat(log->fd, &st) == 0 && S_ISFIFO(st.st_mode);
    return log->fd >= 0;
}

static void count_lost(struct accesslog *log, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        log->stats->count[LOG_LINES_DROPPED] += p[i] == '\n';
}

/* Lines in pieces that go in whole or not at all; what does not go in is lost. */
static void flush_pipe(struct accesslog *log)
{
    size_t at = 0;
    while (at < log->used) {
        const char *p = log->buffer + at;
        size_t n = log->used - at;
        if (n > PIPE_BUF)
            n = (size_t)((const char *)memrchr(p, '\n', PIPE_BUF) - p) + 1;
        if (write(log->fd, p, n) != (ssize_t)n)
            break;
        at += n;
    }
    count_lost(log, log->buffer + at, log->used - at);
    log->used = 0;
}

/* Drops what the file does not take. The rest of a line that was begun would come behind lines of
 * other workers: it is dropped, too, and the next to be written is the end of that line. */
static void flush_file(struct accesslog *log)
{
    size_t end = log->torn; /* octets of it */
    ssize_t n = log->used ? write(log->fd, log->buffer, log->used) : 0;
    size_t done = n > 0 ? (size_t)n : end;
    count_lost(log, log->buffer + done, log->used - done);
    if (n > 0)
        log->torn = log->buffer[done - 1] != '\n';
    log->buffer[0] = '\n';
    log->used = log->torn;
}

static void flush(struct accesslog *log)
{
    if (log->pipe)
        flush_pipe(log);
    else
        flush_file(log);
}

void accesslog_tick(struct accesslog *log, time_t now)
{
    struct tm tm;
    if (log->fd < 0)
        return;
    flush(log);
    if (gmtime_r(&now, &tm))
        strftime(log->date, sizeof log->date, "[%d/%b/%Y:%H:%M:%S +0000]", &tm);
}

/* Adds a quoted field. Quotes, backslashes and unprintable octets become \xHH, so that a line stays
 * one line; a field of more than `most` octets is cut and ends with "...". */
static size_t put_quoted(char *out, struct str s, size_t most)
{
    size_t n = text_format(out, 3, s.n ? " \"" : " \"-");
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (n + 4 > most) {
            n += text_format(out + n, 3, "...");
            break;
        }
        if (c >= ' ' && c < 0x7f && c != '"' && c != '\\')
            out[n++] = s.p[i];
        else
            n += text_format(out + n, 4, "\\x%02x", c);
    }
    out[n++] = '"';
    return n;
}

static struct str value_of(const struct request *r, enum field f)
{
    return r && request_has(r, f) ? r->value[f] : STR("");
}

/* All of a line but the octets and the time, in memory of ours. */
static struct accesslog_line format(const struct accesslog *log, const struct sockaddr_in6 *peer,
                                    const struct request *r, int status, size_t most)
{
    static char out[LINE_MAX_FILE];
    char address[INET6_ADDRSTRLEN] = "-";
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)peer;
    bool six = peer->sin6_family == AF_INET6;
    if (six || peer->sin6_family == AF_INET)
        inet_ntop(peer->sin6_family, six ? (const void *)&peer->sin6_addr : &v4->sin_addr, address,
                  sizeof address);
    most = (most - LINE_FIXED) / VALUES;
    size_t n = text_format(out, LINE_FIXED, "%s - - %s", address, log->date);
    n += put_quoted(out + n, r ? r->line : STR(""), most);
    n += text_format(out + n, LINE_FIXED, " %d", status);
    struct accesslog_line line = {out, n, n};
    line.n += put_quoted(out + line.n, value_of(r, FIELD_REFERER), most);
    line.n += put_quoted(out + line.n, value_of(r, FIELD_USER_AGENT), most);
    return line;
}

void accesslog_finish(struct accesslog *log, const struct accesslog_line *line, uint64_t bytes,
                      double seconds)
{
    if (log->used + line->n + LINE_FIXED > sizeof log->buffer)
        flush(log);
    if (log->used + line->n + LINE_FIXED > sizeof log->buffer) {
        log->stats->count[LOG_LINES_DROPPED]++;
        return;
    }
    uint64_t us = seconds > 0 ? (uint64_t)(seconds * 1e6) : 0;
    char *p = log->buffer + log->used;
    memcpy(p, line->text, line->split);
    p += line->split;
    p += text_format(p, LINE_FIXED, " %lu", bytes);
    memcpy(p, line->text + line->split, line->n - line->split);
    p += line->n - line->split;
    p += text_format(p, LINE_FIXED, " %lu.%06lu\n", us / 1000000, us % 1000000);
    log->used = (size_t)(p - log->buffer);
}

void accesslog_add(struct accesslog *log, const struct sockaddr_in6 *peer, const struct request *r,
                   int status, uint64_t bytes, double seconds)
{
    size_t most = log->pipe ? LINE_MAX_PIPE : LINE_MAX_FILE;
    struct accesslog_line line = format(log, peer, r, status, most);
    accesslog_finish(log, &line, bytes, seconds);
}

struct accesslog_line accesslog_begin(const struct accesslog *log, const struct sockaddr_in6 *peer,
                                      const struct request *r, int status)
{
    return format(log, peer, r, status, LINE_MAX_PIPE);
}
