#include "accesslog.h"
#include "scan.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Whole lines of at most PIPE_BUF octets are what other writers to a pipe cannot tear. */
enum { LINE_FIXED = 384, LINE_MAX_FILE = 49920, LINE_MAX_PIPE = PIPE_BUF, VALUES = 3 };

enum { LOCK_TRIES = 10 /* 1 ms apart */ };

bool accesslog_open(struct accesslog *log, const char *path, struct stats *stats)
{
    log->fd = -1;
    log->used = 0;
    log->torn = false;
    log->pipe = log->file = false;
    log->stats = stats;
    if (path == NULL)
        return true;
    /* O_NONBLOCK: a log that is a pipe loses lines rather than holding up the loop. */
    const int flags = O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    log->fd = open(path, O_WRONLY | flags, 0640);
    if (log->fd < 0 && errno == ENXIO) /* a FIFO without a reader */
        log->fd = open(path, O_RDWR | flags, 0640);
    struct stat st;
    bool known = log->fd >= 0 && fstat(log->fd, &st) == 0;
    log->pipe = known && S_ISFIFO(st.st_mode);
    log->file = known && S_ISREG(st.st_mode);
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

/* Keeps other workers and generations from appending. Not for long: anybody who can open the file
 * can hold its lock. */
static bool lock(const struct accesslog *log)
{
    for (int i = 0; log->file && i < LOCK_TRIES; i++) {
        if (flock(log->fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK)
            return false;
        poll(NULL, 0, 1);
    }
    return false;
}

/* Cuts off the last `n` octets that were written, if nothing came behind them. */
static bool cut(const struct accesslog *log, size_t n)
{
    struct stat st;
    off_t end = lseek(log->fd, 0, SEEK_CUR);
    return log->file && fstat(log->fd, &st) == 0 && st.st_size == end &&
           ftruncate(log->fd, end - (off_t)n) == 0;
}

/* Drops what the file does not take, and the part of a line that it took. Where that cannot be cut
 * off, the next to be written is the end of that line. */
static void flush_file(struct accesslog *log)
{
    size_t end = log->torn; /* octets of it */
    bool locked = log->used && lock(log);
    ssize_t n = log->used ? write(log->fd, log->buffer, log->used) : 0;
    size_t done = n > 0 ? (size_t)n : end;
    count_lost(log, log->buffer + done, log->used - done);
    if (n > 0 && log->buffer[done - 1] != '\n') {
        const char *last = memrchr(log->buffer, '\n', done);
        size_t whole = last ? (size_t)(last - log->buffer) + 1 : 0;
        log->torn = !cut(log, done - whole);
    } else if (n > 0) {
        log->torn = false;
    }
    if (locked)
        flock(log->fd, LOCK_UN);
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
        log->date_length =
            strftime(log->date, sizeof log->date, " - - [%d/%b/%Y:%H:%M:%S +0000]", &tm);
}

static char *put(char *p, struct str s)
{
    return (char *)memcpy(p, s.p, s.n) + s.n;
}

/* A number of at least so many digits. */
static char *put_number(char *p, uint64_t value, int least)
{
    char digits[20];
    char *first = digits + sizeof digits;
    for (; value || least > 0; value /= 10, least--)
        *--first = (char)('0' + value % 10);
    return put(p, (struct str){first, (size_t)(digits + sizeof digits - first)});
}

/* Adds a quoted field. Quotes, backslashes and unprintable octets become \xHH, so that a line stays
 * one line; a field of more than `most` octets is cut and ends with "...". */
static char *put_quoted(char *p, struct str s, size_t most)
{
    static const char hex[] = "0123456789abcdef";
    const char *last = p + most - 8; /* of what may be begun */
    p = put(p, s.n ? STR(" \"") : STR(" \"-"));
    while (s.n) {
        size_t room = last > p ? (size_t)(last - p) : 0;
        size_t n = (size_t)(scan_quotable(s.p, s.p + s.n) - s.p);
        p = put(p, (struct str){s.p, n < room ? n : room});
        s = str_from(s, n < room ? n : room);
        if (s.n == 0)
            break;
        if (p >= last) {
            p = put(p, STR("..."));
            break;
        }
        unsigned char c = (unsigned char)s.p[0];
        p = put(p, (struct str){(const char[]){'\\', 'x', hex[c >> 4], hex[c & 15]}, 4});
        s = str_from(s, 1);
    }
    return put(p, STR("\""));
}

static struct str value_of(const struct request *r, enum field f)
{
    return r && request_has(r, f) ? r->fields->value[f] : STR("");
}

size_t accesslog_address(const struct sockaddr_in6 *peer, char out[ACCESSLOG_ADDRESS])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)peer;
    bool six = peer->sin6_family == AF_INET6;
    if (!six && peer->sin6_family != AF_INET)
        return (size_t)(put(out, STR("-")) - out);
    inet_ntop(peer->sin6_family, six ? (const void *)&peer->sin6_addr : &v4->sin_addr, out,
              ACCESSLOG_ADDRESS);
    return strlen(out);
}

/* A line in two parts, between which the octets come that were sent, and the time behind them. Each
 * of the three values has at most `most` octets. */
static char *put_first(char *p, const struct accesslog *log, struct str address,
                       const struct request *r, int status, size_t most)
{
    p = put(p, address);
    p = put(p, (struct str){log->date, log->date_length});
    p = put_quoted(p, r ? r->line : STR(""), most);
    *p++ = ' ';
    return put_number(p, (uint64_t)status, 1);
}

static char *put_second(char *p, const struct request *r, size_t most)
{
    p = put_quoted(p, value_of(r, FIELD_REFERER), most);
    return put_quoted(p, value_of(r, FIELD_USER_AGENT), most);
}

static char *put_bytes(char *p, uint64_t bytes)
{
    *p++ = ' ';
    return put_number(p, bytes, 1);
}

static char *put_time(char *p, double seconds)
{
    uint64_t us = seconds > 0 ? (uint64_t)(seconds * 1e6) : 0;
    *p++ = ' ';
    p = put_number(p, us / 1000000, 1);
    *p++ = '.';
    p = put_number(p, us % 1000000, 6);
    *p++ = '\n';
    return p;
}

/* Room for a line whose values have `n` octets; NULL: it is lost. */
static char *reserve(struct accesslog *log, size_t n)
{
    if (log->used + n + LINE_FIXED > sizeof log->buffer)
        flush(log);
    if (log->used + n + LINE_FIXED <= sizeof log->buffer)
        return log->buffer + log->used;
    log->stats->count[LOG_LINES_DROPPED]++;
    return NULL;
}

void accesslog_add(struct accesslog *log, struct str address, const struct request *r, int status,
                   uint64_t bytes, double seconds)
{
    size_t most = (size_t)((log->pipe ? LINE_MAX_PIPE : LINE_MAX_FILE) - LINE_FIXED) / VALUES;
    size_t n = value_of(r, FIELD_REFERER).n + value_of(r, FIELD_USER_AGENT).n;
    n = 4 * (n + (r ? r->line.n : 0)); /* each octet as \xHH */
    char *p = reserve(log, n < VALUES * most ? n : VALUES * most);
    if (p == NULL)
        return;
    p = put_first(p, log, address, r, status, most);
    p = put_second(put_bytes(p, bytes), r, most);
    log->used = (size_t)(put_time(p, seconds) - log->buffer);
}

struct accesslog_line accesslog_begin(const struct accesslog *log, struct str address,
                                      const struct request *r, int status)
{
    static char text[LINE_MAX_PIPE];
    const size_t most = (LINE_MAX_PIPE - LINE_FIXED) / VALUES;
    char *split = put_first(text, log, address, r, status, most);
    char *end = put_second(split, r, most);
    return (struct accesslog_line){text, (size_t)(end - text), (size_t)(split - text)};
}

void accesslog_finish(struct accesslog *log, const struct accesslog_line *line, uint64_t bytes,
                      double seconds)
{
    char *p = reserve(log, line->n);
    if (p == NULL)
        return;
    p = put_bytes(put(p, (struct str){line->text, line->split}), bytes);
    p = put(p, (struct str){line->text + line->split, line->n - line->split});
    log->used = (size_t)(put_time(p, seconds) - log->buffer);
}
