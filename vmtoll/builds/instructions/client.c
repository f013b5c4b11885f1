// client ADDRESS PATH keep|close WARM_UP REQUESTS WINDOWS [PROBE]: sends requests one after
// another, on one connection or on a new one each: WARM_UP, then WINDOWS times REQUESTS, which it
// marks for the plugin (counter.c). It runs in the network namespace `client`. The file PROBE is
// printed before and after each window. Any failure ends it with status 1.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// nopl N+0x6d6b7400(%rax): one instruction, which nothing else has here.
#define MARK(number)                                                                               \
    __asm__ volatile(".byte 0x0f, 0x1f, 0x80, " #number ", 0x74, 0x6b, 0x6d" ::: "memory")

static struct sockaddr_in server = {.sin_family = AF_INET};
static char request[512];
static size_t request_length, expected; // length of a response, known after the first
static int keep, connection = -1;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void dial(void)
{
    int one = 1;
    connection = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(connection, (struct sockaddr *)&server, sizeof server))
        fail("connect");
}

static void get(void)
{
    static char response[1 << 18];
    size_t length = 0;
    if (connection < 0)
        dial();
    if (write(connection, request, request_length) != (ssize_t)request_length)
        fail("write");
    while (!expected || length < expected || !keep) {
        ssize_t more = read(connection, response + length, sizeof response - 1 - length);
        if (more < 0 || (!more && (keep || length != expected)))
            fail("read");
        if (!more)
            break;
        length += (size_t)more;
        if (expected)
            continue;
        response[length] = 0;
        char *end = strstr(response, "\r\n\r\n"),
             *field = strcasestr(response, "\r\ncontent-length:");
        if (end && (!field || field > end || strncmp(response, "HTTP/1.1 200 ", 13)))
            fail("response");
        if (end)
            expected = (size_t)(end + 4 - response) + strtoul(field + 17, NULL, 10);
    }
    if (keep)
        return;
    close(connection);
    connection = -1;
}

static void probe(const char *path)
{
    char text[65536];
    ssize_t length;
    int file = open(path, O_RDONLY);
    if (file < 0)
        fail(path);
    puts("PROBE");
    while ((length = read(file, text, sizeof text)) > 0)
        fwrite(text, 1, (size_t)length, stdout);
    close(file);
}

int main(int count, char **words)
{
    if (count < 7)
        return 2;
    int namespace = open("/run/netns/client", O_RDONLY);
    if (namespace < 0 || setns(namespace, CLONE_NEWNET))
        fail("network namespace");
    inet_pton(AF_INET, words[1], &server.sin_addr);
    server.sin_port = htons(8080);
    keep = !strcmp(words[3], "keep");
    request_length =
        (size_t)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", words[2],
                         words[1], keep ? "" : "Connection: close\r\n");
    for (int each = 0; each < atoi(words[4]); each++)
        get();
    for (int window = 0; window < atoi(words[6]); window++) {
        if (count > 7)
            probe(words[7]);
        MARK(8);
        for (int each = 0; each < atoi(words[5]); each++)
            get();
        MARK(9);
        if (count > 7)
            probe(words[7]);
    }
    return 0;
}
