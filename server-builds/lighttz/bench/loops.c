/* What the event loop costs: the limit probe's work, one receive and one send per request with
 * keep-alive, by raw epoll, by libev and by io_uring.
 *
 *   loops PORT BODY_SIZE epoll|libev|uring|uring-receive
 *
 * "uring-receive" only receives by io_uring: it sends at once, as a server does that answers out of
 * memory which may change. */
#include <arpa/inet.h>
#include <errno.h>
#include <ev.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef WITH_URING
#include <liburing.h>
#endif

enum { EVENTS = 256, IN_SIZE = 65536, FDS = 65536 };

static char in[IN_SIZE];
static char *response;
static size_t length;
static int listener;

static void make_response(size_t body)
{
    response = calloc(1, body + 512);
    length = body + (size_t)sprintf(response,
                                    "HTTP/1.1 200 OK\r\nServer: limit\r\n"
                                    "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
                                    "Content-Type: application/octet-stream\r\n"
                                    "Content-Length: %zu\r\n\r\n",
                                    body);
}

static void listen_on(int port)
{
    int on = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 4096))
        exit(1);
}

/* False when the client is gone. */
static int serve(int fd)
{
    ssize_t n = recv(fd, in, IN_SIZE, 0);
    if (n < 0 && errno == EAGAIN)
        return 1;
    if (n <= 0)
        return 0;
    return memmem(in, (size_t)n, "\r\n\r\n", 4) == NULL ||
           send(fd, response, length, MSG_NOSIGNAL) == (ssize_t)length;
}

static void by_epoll(void)
{
    struct epoll_event events[EVENTS];
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
    int loop = epoll_create1(0);
    epoll_ctl(loop, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(loop, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd != listener) {
                if (!serve(fd))
                    close(fd);
                continue;
            }
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                e.data.fd = fd;
                epoll_ctl(loop, EPOLL_CTL_ADD, fd, &e);
            }
        }
    }
}

static void on_client(struct ev_loop *loop, ev_io *io, int events)
{
    (void)events;
    if (serve(io->fd))
        return;
    ev_io_stop(loop, io);
    close(io->fd);
    free(io);
}

static void on_listener(struct ev_loop *loop, ev_io *io, int events)
{
    int fd;
    (void)events;
    while ((fd = accept4(io->fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        ev_io *client = calloc(1, sizeof *client);
        ev_io_init(client, on_client, fd, EV_READ);
        ev_io_start(loop, client);
    }
}

static void by_libev(void)
{
    struct ev_loop *loop = ev_loop_new(EVBACKEND_EPOLL);
    ev_io io;
    ev_io_init(&io, on_listener, listener, EV_READ);
    ev_io_start(loop, &io);
    ev_run(loop, 0);
}

#ifdef WITH_URING
enum { ENTRIES = 1024, BUFFERS = 256, BUFFER_SIZE = 2048, ACCEPT = 1, RECEIVE = 2, SEND = 3 };

static int sends_itself;
static char memory[BUFFERS * BUFFER_SIZE];

static struct io_uring_sqe *prepare(struct io_uring *ring)
{
    struct io_uring_sqe *e = io_uring_get_sqe(ring);
    if (e)
        return e;
    io_uring_submit(ring);
    return io_uring_get_sqe(ring);
}

static void mark(struct io_uring_sqe *e, uint64_t what, int fd)
{
    io_uring_sqe_set_data64(e, what << 32 | (uint32_t)fd);
}

/* Multishot: one submission receives until the client goes; the kernel picks the buffer. */
static void receive(struct io_uring *ring, int fd)
{
    struct io_uring_sqe *e = prepare(ring);
    io_uring_prep_recv_multishot(e, fd, NULL, 0, 0);
    e->flags |= IOSQE_BUFFER_SELECT;
    e->buf_group = 0;
    mark(e, RECEIVE, fd);
}

static void complete(struct io_uring *ring, struct io_uring_buf_ring *buffers,
                     const struct io_uring_cqe *c)
{
    uint64_t what = c->user_data >> 32;
    int fd = (int)(uint32_t)c->user_data;
    if (what == ACCEPT && c->res >= 0)
        receive(ring, c->res);
    if (what != RECEIVE)
        return;
    if (c->res > 0) {
        unsigned short id = (unsigned short)(c->flags >> IORING_CQE_BUFFER_SHIFT);
        if (sends_itself) {
            send(fd, response, length, MSG_NOSIGNAL);
        } else {
            struct io_uring_sqe *e = prepare(ring);
            io_uring_prep_send(e, fd, response, length, MSG_NOSIGNAL);
            e->flags |= IOSQE_CQE_SKIP_SUCCESS;
            mark(e, SEND, fd);
        }
        io_uring_buf_ring_add(buffers, memory + (size_t)id * BUFFER_SIZE, BUFFER_SIZE, id,
                              io_uring_buf_ring_mask(BUFFERS), 0);
        io_uring_buf_ring_advance(buffers, 1);
        if ((c->flags & IORING_CQE_F_MORE) == 0)
            receive(ring, fd);
    } else if (c->res == -ENOBUFS) {
        receive(ring, fd);
    } else {
        close(fd);
    }
}

static void by_uring(void)
{
    struct io_uring ring;
    struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                         IORING_SETUP_CQSIZE,
                                .cq_entries = 4096};
    struct io_uring_buf_ring *buffers;
    struct io_uring_buf_reg reg = {.ring_entries = BUFFERS};
    if (io_uring_queue_init_params(ENTRIES, &ring, &p) ||
        posix_memalign((void **)&buffers, 4096, BUFFERS * sizeof(struct io_uring_buf)))
        exit(1);
    reg.ring_addr = (uint64_t)(uintptr_t)buffers;
    io_uring_buf_ring_init(buffers);
    if (io_uring_register_buf_ring(&ring, &reg, 0))
        exit(1);
    for (unsigned short i = 0; i < BUFFERS; i++)
        io_uring_buf_ring_add(buffers, memory + (size_t)i * BUFFER_SIZE, BUFFER_SIZE, i,
                              io_uring_buf_ring_mask(BUFFERS), i);
    io_uring_buf_ring_advance(buffers, BUFFERS);
    struct io_uring_sqe *e = prepare(&ring);
    io_uring_prep_multishot_accept(e, listener, NULL, NULL, 0);
    mark(e, ACCEPT, listener);
    for (;;) {
        struct io_uring_cqe *c;
        unsigned head;
        unsigned n = 0;
        io_uring_submit_and_wait(&ring, 1);
        io_uring_for_each_cqe(&ring, head, c)
        {
            complete(&ring, buffers, c);
            n++;
        }
        io_uring_cq_advance(&ring, n);
    }
}
#endif

int main(int argc, char *argv[])
{
    if (argc != 4)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    make_response((size_t)atol(argv[2]));
    listen_on(atoi(argv[1]));
    if (strcmp(argv[3], "epoll") == 0)
        by_epoll();
    if (strcmp(argv[3], "libev") == 0)
        by_libev();
#ifdef WITH_URING
    sends_itself = strcmp(argv[3], "uring-receive") == 0;
    if (sends_itself || strcmp(argv[3], "uring") == 0)
        by_uring();
#endif
    return 2;
}
