/* The limit probe: what this machine's kernel and one core give at best. Raw epoll, a fixed
 * response, one receive and one send per request; a body beyond 32 KiB, or any by "sendfile", with
 * that. Not a server.
 *
 *   limit PORT BODY_SIZE [sendfile] */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 256, IN_SIZE = 65536, SENDFILE_FROM = 32769, FDS = 65536 };

static char in[IN_SIZE];
static char *response;
static size_t head;
static size_t size;
static int body_fd = -1;
static off_t left[FDS]; /* of a body that the socket did not take whole */

static void make_response(size_t body, bool by_sendfile)
{
    response = calloc(1, body + 512);
    head = (size_t)sprintf(
        response,
        "HTTP/1.1 200 OK\r\nServer: limit\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        "Content-Length: %zu\r\nContent-Type: application/octet-stream\r\n\r\n",
        body);
    size = body;
    if (body < SENDFILE_FROM && !by_sendfile)
        return;
    body_fd = memfd_create("body", 0);
    if (body_fd < 0 || write(body_fd, response + head, body) != (ssize_t)body)
        exit(1);
}

static int listen_on(int port)
{
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 4096))
        exit(1);
    return fd;
}

/* 1: sent, 0: the socket takes no more, -1: gone. */
static int send_body(int fd)
{
    off_t at = (off_t)size - left[fd];
    ssize_t n = sendfile(fd, body_fd, &at, (size_t)left[fd]);
    left[fd] = (off_t)size - at;
    return n < 0 ? (errno == EAGAIN ? 0 : -1) : left[fd] == 0;
}

static int answer(int fd)
{
    if (body_fd < 0)
        return send(fd, response, head + size, MSG_NOSIGNAL) > 0 ? 1 : -1;
    if (send(fd, response, head, MSG_NOSIGNAL | MSG_MORE) < 0)
        return -1;
    left[fd] = (off_t)size;
    return send_body(fd);
}

static void watch(int loop, int operation, int fd, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.fd = fd};
    epoll_ctl(loop, operation, fd, &e);
}

static void serve(int loop, int fd, int fresh)
{
    ssize_t n = recv(fd, in, IN_SIZE, 0);
    if (n <= 0 && !(fresh && n < 0)) {
        close(fd);
        return;
    }
    if (n > 0 && memmem(in, (size_t)n, "\r\n\r\n", 4)) {
        int done = answer(fd);
        if (done == 0) {
            watch(loop, fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, EPOLLOUT);
            return;
        }
        if (done < 0 || memmem(in, (size_t)n, "close", 5)) {
            close(fd);
            return;
        }
    }
    if (fresh)
        watch(loop, EPOLL_CTL_ADD, fd, EPOLLIN);
}

int main(int argc, char *argv[])
{
    struct epoll_event events[EVENTS];
    if (argc != 3 && argc != 4)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    make_response((size_t)atol(argv[2]), argc == 4);
    int listener = listen_on(atoi(argv[1]));
    int loop = epoll_create1(0);
    watch(loop, EPOLL_CTL_ADD, listener, EPOLLIN);
    for (;;) {
        int n = epoll_wait(loop, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    left[fd] = 0;
                    serve(loop, fd, 1);
                }
                continue;
            }
            if (left[fd] == 0) {
                serve(loop, fd, 0);
                continue;
            }
            /* Whether it was to be closed is not kept: the client closes after such a body. */
            int done = send_body(fd);
            if (done > 0)
                watch(loop, EPOLL_CTL_MOD, fd, EPOLLIN);
            if (done < 0)
                close(fd);
        }
    }
}
