/* What connections keep, what the cache holds and how times are counted. */
#include "cache.h"
#include "keep.h"
#include "stats.h"
#include "unit.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_timings(void)
{
    static struct stats stats;
    static const struct {
        double us;
        unsigned bucket;
    } rows[] = {{0, 0}, {-1, 0},    {1, 0},      {1.01, 1},    {1.5, 1}, {1.6, 2},
                {2, 2}, {2.5, 3},   {3, 3},      {3.01, 4},    {4, 4},   {6, 5},
                {8, 6}, {1000, 20}, {8.4e6, 47}, {8.38e6, 46}, {1e9, 47}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[32];
        uint64_t before = stats.timing[SERVICE_TIME].count[rows[i].bucket];
        sprintf(text, "%g us", rows[i].us);
        stats_time(&stats, SERVICE_TIME, rows[i].us / 1e6, 3);
        check(stats.timing[SERVICE_TIME].count[rows[i].bucket] == before + 3, "bucket of", text);
    }
}

static struct conn *closed;

static void close_in_test(struct conn *c)
{
    closed = c;
    keep_resize(c, c->out, c->kept, 0);
}

static void test_memory_of_connections(void)
{
    enum { LIMIT = 100000 };
    static struct server s;
    static struct stats stats;
    static struct config config = {.connection_memory = LIMIT};
    struct conn c = {.server = &s};
    struct conn others[3];
    s.stats = &stats;
    s.config = &config;
    s.close = close_in_test;
    TAILQ_INIT(&s.keepers);
    char *small = keep_resize(&c, NULL, 0, 1000);
    char *large = keep_resize(&c, NULL, 0, LIMIT - 1000);
    check(small && large && s.kept == LIMIT, "up to the bound", "");
    check(!keep_resize(&c, small, 1000, 1001), "not beyond it", "");
    large = keep_resize(&c, large, LIMIT - 1000, 0);
    check(!large && s.kept == 1000, "what is freed may be had again", "");
    small = keep_resize(&c, small, 1000, 2000);
    check(small && s.kept == 2000 && c.kept == 2000, "growing counts the difference", "");
    for (size_t i = 0; i < 3; i++) {
        others[i] = (struct conn){.server = &s};
        others[i].out = keep_resize(&others[i], NULL, 0, i == 1 ? 50000 : 20000);
    }
    small = keep_resize(&c, small, 2000, 20000);
    check(small && closed == &others[1] && s.kept == 60000, "who keeps most makes room", "");
    check(stats.count[CONNECTIONS_EVICTED] == 1, "and nobody else", "");
    check(!keep_resize(&c, small, 20000, LIMIT + 1) && s.kept == 60000,
          "what can never fit costs nobody anything", "");
    keep_resize(&c, small, 20000, 0);
    close_in_test(&others[0]);
    close_in_test(&others[2]);
    check(s.kept == 0 && TAILQ_EMPTY(&s.keepers), "nothing is left", "");
}

/* A file system of its own: a folder with `count` files of one octet, named by numbers. */
static bool make_files(char *folder, unsigned count)
{
    char path[64];
    if (mkdtemp(folder) == NULL)
        return false;
    for (unsigned i = 0; i < count; i++) {
        sprintf(path, "%s/%u", folder, i);
        FILE *f = fopen(path, "w");
        if (f == NULL || fputc('x', f) == EOF || fclose(f))
            return false;
    }
    return true;
}

static void remove_files(const char *folder, unsigned count)
{
    char path[64];
    for (unsigned i = 0; i < count; i++) {
        sprintf(path, "%s/%u", folder, i);
        unlink(path);
    }
    rmdir(folder);
}

static bool no_room(void *context)
{
    (void)context;
    return false;
}

/* A full cache has about one file a bucket, however many it may hold. */
static void test_buckets_of_the_cache(void)
{
    enum { FILES = 4096 };
    char folder[] = "/tmp/lighttz-unit-XXXXXX";
    static struct config config; /* and the cache outlive this: there is no closing it */
    config = (struct config){.root = folder,
                             .cache_entries = FILES,
                             .cache_bytes = 1 << 30,
                             .cache_file = 32768,
                             .revalidate = 3600000};
    bool made = make_files(folder, FILES);
    static struct cache *cache;
    cache = made ? cache_open(&config, no_room, NULL) : NULL;
    unsigned found = 0;
    unsigned behind = 0; /* in the buckets of all files: what a search for a missing one passes */
    for (unsigned i = 0; cache && i < FILES; i++) {
        char path[16];
        struct file *f;
        size_t n = (size_t)sprintf(path, "/%u", i);
        found += cache_get(cache, (struct str){path, n}, ENCODING_NONE, 1, &f) == 200;
    }
    for (unsigned i = 0; cache && found == FILES && i < FILES; i++) {
        char path[16];
        struct file *f;
        size_t n = (size_t)sprintf(path, "/%u", i);
        cache_get(cache, (struct str){path, n}, ENCODING_NONE, 1, &f);
        for (f = LIST_NEXT(f, bucket); f; f = LIST_NEXT(f, bucket))
            behind++;
    }
    check(found == FILES, "all files are in the cache", folder);
    check(behind < FILES, "files in a bucket", folder);
    check(cache && cache_age(cache, 1e9) && cache_age(cache, 1e9), "what is old goes in turns", "");
    unsigned turns = 2;
    while (cache && turns < FILES && cache_age(cache, 1e9))
        turns++;
    check(turns == FILES / 256, "and all of it goes", "");
    remove_files(folder, FILES);
}

static void add_line(struct accesslog *log)
{
    accesslog_add(log, STR("-"), NULL, 200, 10, 0);
}

/* Two workers write into one file, which for a while takes half of a line of the first one. It can
 * be cut off, or else (of a device) stays, with an end. */
static void test_torn_lines(bool cuts)
{
    enum { LINES = 20, WHOLE = 3 };
    char path[] = "/tmp/lighttz-unit-XXXXXX";
    char text[4096];
    static struct accesslog logs[2];
    struct stats stats = {0};
    struct rlimit before;
    int fd = mkstemp(path);
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    check(accesslog_open(&logs[0], path, &stats) && accesslog_open(&logs[1], path, &stats),
          "the log opens", path);
    check(logs[0].file && logs[1].file, "it is a file", path);
    logs[0].file = logs[1].file = cuts;
    add_line(&logs[0]);
    size_t length = logs[0].used;
    for (int i = 1; i < LINES; i++)
        add_line(&logs[0]);
    struct rlimit full = {WHOLE * length + length / 2, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &full);
    accesslog_tick(&logs[0], 0);
    accesslog_tick(&logs[0], 1); /* it is full still */
    struct stat st;
    check(fstat(fd, &st) == 0 && (size_t)st.st_size == WHOLE * length + (cuts ? 0 : length / 2),
          "the file ends behind a line that can be cut off", path);
    check(stats.count[LOG_LINES_DROPPED] == LINES - WHOLE, "the torn line is lost, too", "");
    setrlimit(RLIMIT_FSIZE, &before);
    accesslog_tick(&logs[0], 2);
    for (int i = 0; i < LINES; i++)
        add_line(&logs[i % 2]);
    accesslog_tick(&logs[1], 3);
    accesslog_tick(&logs[0], 3);
    ssize_t n = read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    unsigned whole = 0;
    unsigned others = 0;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && rest;)
        *(strncmp(line, "-", 1) == 0 && strstr(line, " 0.000000") ? &whole : &others) += 1;
    check(whole == WHOLE + LINES && others == !cuts, "all lines but a torn one are whole", text);
    close(logs[0].fd);
    close(logs[1].fd);
    close(fd);
    unlink(path);
}

static void on_freed(struct server *s)
{
    (void)s;
}

/* Connections whose deadlines expire together are closed in several turns. */
static void test_sweeps(void)
{
    enum { CLIENTS = 300, TURN = 256 };
    static struct server s;
    static struct stats stats;
    static struct config config;
    static const struct sockaddr_in6 peer;
    int clients[CLIENTS];
    config_defaults(&config);
    s.config = &config;
    s.stats = &stats;
    s.log.fd = -1;
    s.max_connections = CLIENTS;
    check(loop_open(&s.loop), "an event loop", "");
    s.freed = on_freed;
    conn_prepare(&s);
    for (unsigned i = 0; i < CLIENTS; i++) {
        int fd[2] = {-1, -1};
        check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0, "a pair of sockets",
              "");
        clients[i] = fd[0];
        conn_open(&s, fd[1], &peer, false);
    }
    check(!conn_sweep(&s) && s.connections == CLIENTS, "before their time none is closed", "");
    s.now += (double)config.header_timeout / 1000 + 1;
    check(conn_sweep(&s) && s.connections == CLIENTS - TURN, "then some in one turn", "");
    check(!conn_sweep(&s) && s.connections == 0, "and the rest in the next", "");
    for (unsigned i = 0; i < CLIENTS; i++)
        close(clients[i]);
    loop_close(&s.loop);
}

void test_state(void)
{
    test_timings();
    test_memory_of_connections();
    test_buckets_of_the_cache();
    test_torn_lines(true);
    test_torn_lines(false);
    test_sweeps();
}
