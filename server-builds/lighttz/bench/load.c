/* The load of the bench: an epoll client on one core, lighter than what it measures.
 *
 *   load [-r RATE] [-f FIELDS] [-n FILES] PORT PATH CONNECTIONS MILLISECONDS keep|pipe|close
 *
 * "pipe" sends 16 requests at once and waits for their 16 responses, which must be of one length.
 * Without RATE each connection asks again as soon as it is answered (closed loop). With RATE
 * requests start at that many a second whatever the server does (open loop), and the time of each
 * counts from when it should have started. FIELDS is a file with the field lines to send, each with
 * its CRLF. With FILES, PATH has a %d, and each request takes one of FILES numbers at random.
 * Prints "requests failures seconds", and the times as "us:count" of a histogram. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, IN_SIZE = 262144, BUCKETS = 64 * 32, DEEP = 16, FIELDS_SIZE = 4096 };

struct client {
    int fd; /* -1: to be connected */
    int busy;
    long left; /* octets of the responses to come; -1: the first head */
    double intended;
};

static struct client *clients;
static int count, keep, loop;
static int depth = 1; /* requests sent at once */
static struct sockaddr_in server;
static struct request {
    char *text;
    size_t length;
} *requests;
static int files = 1;
static uint32_t state = 1; /* of the random numbers, the same in every run */
static char in[IN_SIZE];
static long done, failed;
static uint32_t histogram[BUCKETS];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Log-linear: 32 steps to each power of two, 3% wide. */
static int bucket_of(uint64_t us)
{
    if (us < 32)
        return (int)us;
    int power = 63 - __builtin_clzll(us);
    return (power - 4) * 32 + (int)(us >> (power - 5) & 31);
}

static uint64_t bucket_us(int b)
{
    return b < 32 ? (uint64_t)b : (uint64_t)(32 + b % 32) << (b / 32 - 1);
}

static uint32_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
}

static void make_requests(const char *path, const char *fields)
{
    char line[1024];
    requests = calloc((size_t)files, sizeof *requests);
    for (int i = 0; i < files; i++) {
        FILE *f = open_memstream(&requests[i].text, &requests[i].length);
        const char *number = strstr(path, "%d");
        if (files > 1 && number)
            snprintf(line, sizeof line, "%.*s%d%s", (int)(number - path), path, i, number + 2);
        else
            snprintf(line, sizeof line, "%s", path);
        for (int k = 0; k < depth; k++)
            fprintf(f, "GET %s HTTP/1.1\r\n%s%s\r\n", line, fields,
                    keep ? "" : "Connection: close\r\n");
        fclose(f);
    }
}

static int read_fields(const char *path, char *fields)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(fields, 1, FIELDS_SIZE - 1, f) : 0;
    fields[n] = '\0';
    if (f)
        fclose(f);
    return n > 0;
}

static void start(struct client *c, double intended)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    c->intended = intended;
    c->busy = 1;
    c->left = -1;
    if (c->fd < 0) {
        /* Many source addresses, so that ports in TIME_WAIT do not run out. */
        int on = 1;
        struct sockaddr_in from = {.sin_family = AF_INET};
        from.sin_addr.s_addr = htonl(0x7f000002U + (uint32_t)(done + (c - clients)) % 200);
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        /* Blocking: on the loopback it returns at once. */
        if (bind(c->fd, (struct sockaddr *)&from, sizeof from) ||
            connect(c->fd, (struct sockaddr *)&server, sizeof server)) {
            perror("connect");
            exit(1);
        }
        epoll_ctl(loop, EPOLL_CTL_ADD, c->fd, &e);
    }
    const struct request *r = &requests[files > 1 ? next_random() % (uint32_t)files : 0];
    if (send(c->fd, r->text, r->length, MSG_NOSIGNAL) < 0)
        failed++;
}

static void drop(struct client *c)
{
    close(c->fd);
    c->fd = -1;
    c->busy = 0;
}

/* 1 when the response is complete, 0 when more is to come, -1 when it never will be. */
static int take(struct client *c, ssize_t n)
{
    if (n <= 0)
        return -1;
    if (c->left >= 0) {
        c->left -= n;
        return c->left <= 0;
    }
    in[n < IN_SIZE ? n : IN_SIZE - 1] = '\0';
    char *end = strstr(in, "\r\n\r\n");
    char *length = strcasestr(in, "\r\nContent-Length:");
    if (strncmp(in, "HTTP/1.1 200", 12) != 0 || end == NULL || length == NULL)
        return -1;
    c->left = depth * (atol(length + 17) + (end + 4 - in)) - n;
    return c->left <= 0;
}

static void finish(struct client *c, int result, double t)
{
    if (result < 0)
        failed++;
    else
        done += depth;
    double us = (t - c->intended) * 1e6;
    histogram[bucket_of(us > 0 ? (uint64_t)us : 0)] += (uint32_t)depth;
    c->busy = 0;
    if (result < 0 || !keep)
        drop(c);
}

int main(int argc, char *argv[])
{
    struct epoll_event events[EVENTS];
    char fields[FIELDS_SIZE] = "Host: bench\r\n";
    double rate = 0;
    for (int option; (option = getopt(argc, argv, "r:f:n:")) != -1;) {
        if (option == 'r')
            rate = atof(optarg);
        else if (option == 'n')
            files = atoi(optarg);
        else if (option != 'f' || !read_fields(optarg, fields))
            return 2;
    }
    argv += optind - 1;
    if (argc - optind != 5 || files < 1)
        return 2;
    count = atoi(argv[3]);
    keep = strcmp(argv[5], "close") != 0;
    depth = strcmp(argv[5], "pipe") == 0 ? DEEP : 1;
    server =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    inet_pton(AF_INET, "127.0.0.1", &server.sin_addr);
    make_requests(argv[2], fields);
    clients = calloc((size_t)count, sizeof *clients);
    loop = epoll_create1(0);
    for (int i = 0; i < count; i++)
        clients[i].fd = -1;
    double begin = now();
    double end = begin + atof(argv[4]) / 1000;
    double next = begin; /* open loop: when the next request should start */
    int turn = 0;
    for (int i = 0; i < count && rate == 0; i++)
        start(&clients[i], begin);
    double t = begin;
    while (t < end) {
        int n = epoll_wait(loop, events, EVENTS, rate == 0 ? 100 : 0);
        t = now();
        for (int i = 0; i < n; i++) {
            struct client *c = events[i].data.ptr;
            int result = take(c, recv(c->fd, in, IN_SIZE - 1, 0));
            if (result == 0)
                continue;
            if (c->busy)
                finish(c, result, t);
            else
                drop(c);
            if (rate == 0)
                start(c, t);
        }
        for (int tried = 0; rate > 0 && next <= t && tried < count; turn = (turn + 1) % count) {
            tried++;
            if (clients[turn].busy)
                continue; /* all busy: what is due waits, and its waiting counts */
            start(&clients[turn], next);
            next += 1 / rate;
            tried = 0;
        }
    }
    printf("%ld %ld %.6f", done, failed, t - begin);
    for (int b = 0; b < BUCKETS; b++)
        if (histogram[b])
            printf(" %lu:%u", bucket_us(b), histogram[b]);
    puts("");
    return 0;
}
