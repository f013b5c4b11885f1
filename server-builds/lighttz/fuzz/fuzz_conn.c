/* A whole connection: the same octets at once and cut anywhere, with a client that reads in pieces,
 * get the same answers. */
#include "conn.h"
#include "response.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INPUT_MAX = 16384, ANSWER_MAX = 1 << 23, TURNS_MAX = 100000, SMALL_BUFFER = 4608 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct server server;
static struct config config;
static struct stats stats;

struct answer {
    size_t n;
    char *text;
};

static void make_file(const char *folder, const char *name, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "we");
    for (size_t i = 0; f && i < n; i++)
        fputc('a' + (int)(i % 26), f);
    if (f == NULL || fclose(f))
        abort();
}

static void make_script(const char *folder, char *path, size_t size)
{
    snprintf(path, size, "%s.lua", folder);
    FILE *f = fopen(path, "we");
    if (f == NULL)
        abort();
    fputs("local function text(r) if #r.query > 9 then error('long', 0) end return r.query end\n"
          "function handle(r)\n"
          "  local _, query = xpcall(text, function(e) return e .. #r.query end, r)\n"
          "  return 200, r.method .. r.path .. query .. '\\n' .. r.body\n"
          "end",
          f);
    fclose(f);
}

static char folder[] = "/tmp/lighttz-fuzz-XXXXXX";
static char script[sizeof folder + 8];

static void remove_files(void)
{
    static const char *const names[] = {"a", "b", "c", "b.gz"};
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    unlink(script);
    rmdir(folder);
}

static bool make_no_room(void *context)
{
    (void)context;
    return false;
}

static void on_freed(struct server *s)
{
    (void)s;
}

static void take_turn(void)
{
    bool turn = server.turn;
    server.turn = false;
    server.script_seconds = 0;
    loop_wait(&server.loop, false);
    loop_tell(&server.loop);
    if (turn)
        conn_continue(&server);
}

static void set_up(void)
{
    if (mkdtemp(folder) == NULL)
        abort();
    make_file(folder, "a", 10);
    make_file(folder, "b", 3000);
    make_file(folder, "b.gz", 50);
    make_file(folder, "c", 40000); /* sent from its descriptor */
    make_script(folder, script, sizeof script);
    atexit(remove_files);
    config_defaults(&config);
    config.root = folder;
    config.lua_script = script;
    config.lua_time = 60000;
    config.max_line = 200;
    config.max_head = 600;
    config.max_body = 2000;
    config.cache_file = 8192;
    server.config = &config;
    server.stats = &stats;
    server.all_stats = &stats;
    accesslog_open(&server.log, "/dev/null", &stats); /* its lines are kept meanwhile */
    server.cache = cache_open(&config, make_no_room, NULL);
    server.script = script_open(&config);
    if (!loop_open(&server.loop) || server.cache == NULL || server.script == NULL)
        abort();
    conn_prepare(&server);
    server.freed = on_freed;
    server.second = 784111777; /* so that no answer depends on the time */
    response_clock(&server);
}

/* Reads up to `most` octets of what has come; false at the end. */
static bool take(int fd, struct answer *a, size_t most)
{
    ssize_t n = recv(fd, a->text + a->n, most < ANSWER_MAX - a->n ? most : ANSWER_MAX - a->n, 0);
    if (n > 0)
        a->n += (size_t)n;
    return n > 0 || (n < 0 && errno == EAGAIN);
}

/* Sends the input in pieces of sizes that `seed` says, 0 for one piece; everything that comes back.
 */
static void converse(const char *p, size_t n, uint32_t seed, struct answer *a)
{
    int fd[2];
    static const struct sockaddr_in6 peer;
    size_t sent = 0;
    bool shut = false;
    a->n = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd))
        abort();
    int buffer = SMALL_BUFFER;
    if (seed)
        setsockopt(fd[1], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    conn_open(&server, fd[1], &peer, false);
    for (int turn = 0; server.connections || turn == 0; turn++) {
        if (turn == TURNS_MAX)
            abort(); /* it waits for what will never come */
        seed = seed ? seed * 1664525 + 1013904223 : 0;
        size_t piece = seed ? 1 + (seed >> 16) % ((seed >> 8) % 4 ? 7 : 300) : n - sent;
        piece = piece < n - sent ? piece : n - sent;
        ssize_t got = piece ? send(fd[0], p + sent, piece, MSG_NOSIGNAL) : 0;
        if (got < 0 && errno != EAGAIN)
            sent = n; /* it has closed */
        else if (got > 0)
            sent += (size_t)got;
        if (sent == n && !shut)
            shut = shutdown(fd[0], SHUT_WR) == 0 || errno == ENOTCONN;
        take_turn();
        take(fd[0], a, seed && (seed >> 4) % 3 ? seed >> 20 : ANSWER_MAX);
    }
    while (a->n < ANSWER_MAX && recv(fd[0], a->text + a->n, 1, MSG_PEEK) > 0)
        take(fd[0], a, ANSWER_MAX);
    close(fd[0]);
    if (a->n == ANSWER_MAX || server.kept || server.out_length)
        abort();
}

/* In place of the kernel's (--wrap): the boundaries of parts are alike. */
ssize_t __wrap_getrandom(void *p, size_t n, unsigned flags);
ssize_t __wrap_getrandom(void *p, size_t n, unsigned flags)
{
    (void)flags;
    memset(p, 'r', n);
    return (ssize_t)n;
}

/* Who expects an interim answer gets another one when the body has come with the head. */
static bool expects(const char *p, size_t n)
{
    static const char field[] = "expect";
    for (size_t i = 0; i + sizeof field - 1 <= n; i++)
        if (strncasecmp(p + i, field, sizeof field - 1) == 0)
            return true;
    return false;
}

/* Whether what is left of both answers is one refusal of the last request. It may come for another
 * reason when the octets that come later are not looked at any more. */
static bool refusals(const char *p, const char *q)
{
    static const char *const reasons[] = {"400", "413", "414", "417", "431", "501", "505", "421"};
    int count = 0;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        count += (strncmp(p, reasons[i], 3) == 0) + (strncmp(q, reasons[i], 3) == 0);
    return count == 2 && strstr(p, "Connection: close") && strstr(q, "Connection: close");
}

static bool alike(struct answer *a, struct answer *b)
{
    static const char version[] = "HTTP/1.1 ";
    size_t same = 0;
    a->text[a->n] = b->text[b->n] = '\0';
    while (same < a->n && same < b->n && a->text[same] == b->text[same])
        same++;
    if (same == a->n && same == b->n)
        return true;
    while (same && (same > a->n || strncmp(a->text + same, version, sizeof version - 1) != 0))
        same--;
    size_t status = same + sizeof version - 1;
    return status < a->n && status < b->n && refusals(a->text + status, b->text + status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct answer whole;
    static struct answer pieces;
    if (server.cache == NULL) {
        set_up();
        whole.text = malloc(ANSWER_MAX + 1);
        pieces.text = malloc(ANSWER_MAX + 1);
        server.max_connections = 0;
        converse("", 0, 0, &whole); /* refused before anything has come */
        if (whole.n < 12 || memcmp(whole.text, "HTTP/1.1 503", 12) != 0)
            abort();
        server.max_connections = 1;
    }
    if (size < 3 || size > INPUT_MAX || expects((const char *)data, size))
        return 0;
    uint32_t seed = 1 + data[0] + 256U * data[1];
    converse((const char *)data + 2, size - 2, 0, &whole);
    converse((const char *)data + 2, size - 2, seed, &pieces);
    if (!alike(&whole, &pieces)) {
        fprintf(stderr, "whole:\n%.*s\npieces:\n%.*s\n", (int)whole.n, whole.text, (int)pieces.n,
                pieces.text);
        abort();
    }
    return 0;
}
