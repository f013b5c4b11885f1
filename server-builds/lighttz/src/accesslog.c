#include "accesslog.h"
#include "text.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum { LINE_FIXED = 256, FIELD_MAX = 4096, LOG_LINE_MAX = LINE_FIXED + 3 * (4 * FIELD_MAX + 4) };

bool accesslog_open(struct accesslog *log, const char *path, struct stats *stats)
{
    log->fd = -1;
    log->used = 0;
    log->torn = false;
    log->stats = stats;
    if (path == NULL)
        return true;
    /* O_NONBLOCK: a log that is a pipe loses lines rather than holding up the loop. */
    const int flags = O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    log->fd = open(path, O_WRONLY | flags, 0640);
    if (log->fd < 0 && errno == ENXIO) /* a pipe whose reader is not there just now */
        log->fd = open(path, O_RDWR | flags, 0640);
    return log->fd >= 0;
}

static void count_lost(struct accesslog *log, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        log->stats->count[LOG_LINES_DROPPED] += p[i] == '\n';
}

/* What is not taken is lost, but for the rest of a line that was begun: the next one starts on a
 * line of its own. */
static void flush(struct accesslog *log)
{
    ssize_t n = log->used ? write(log->fd, log->buffer, log->used) : 0;
    size_t done = n > 0 ? (size_t)n : 0;
    char *rest = log->buffer + done;
    size_t left = log->used - done;
    bool torn = done ? rest[-1] != '\n' : log->torn;
    size_t kept = left && torn ? (size_t)((char *)memchr(rest, '\n', left) - rest) + 1 : 0;
    count_lost(log, rest + kept, left - kept);
    memmove(log->buffer, rest, kept);
    log->used = kept;
    log->torn = kept > 0;
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

static void put(struct accesslog *log, struct str s)
{
    memcpy(log->buffer + log->used, s.p, s.n);
    log->used += s.n;
}

/* A field in quotes; quotes, backslashes and what is not printable as \xHH: a line stays one line.
 */
static void put_quoted(struct accesslog *log, struct str s)
{
    put(log, s.n ? STR(" \"") : STR(" \"-"));
    for (size_t i = 0; i < s.n && i < FIELD_MAX; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= ' ' && c < 0x7f && c != '"' && c != '\\')
            log->buffer[log->used++] = s.p[i];
        else
            log->used += text_format(log->buffer + log->used, 4, "\\x%02x", c);
    }
    put(log, STR("\""));
}

static struct str value_of(const struct request *r, enum field f)
{
    return r && request_has(r, f) ? r->value[f] : STR("");
}

void accesslog_add(struct accesslog *log, const struct sockaddr_in6 *peer, const struct request *r,
                   int status, uint64_t bytes)
{
    char address[INET6_ADDRSTRLEN] = "-";
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)peer;
    bool six = peer->sin6_family == AF_INET6;
    if (log->used + LOG_LINE_MAX > sizeof log->buffer)
        flush(log);
    if (log->used + LOG_LINE_MAX > sizeof log->buffer) {
        log->stats->count[LOG_LINES_DROPPED]++;
        return;
    }
    if (six || peer->sin6_family == AF_INET)
        inet_ntop(peer->sin6_family, six ? (const void *)&peer->sin6_addr : &v4->sin_addr, address,
                  sizeof address);
    log->used += text_format(log->buffer + log->used, LINE_FIXED, "%s - - %s", address, log->date);
    put_quoted(log, r ? r->line : STR(""));
    log->used += text_format(log->buffer + log->used, LINE_FIXED, " %d %lu", status, bytes);
    put_quoted(log, value_of(r, FIELD_REFERER));
    put_quoted(log, value_of(r, FIELD_USER_AGENT));
    put(log, STR("\n"));
}
