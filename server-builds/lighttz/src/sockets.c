#include "sockets.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <unistd.h>

enum { BACKLOG = 4096, DEFER_S = 5 };

static int listen_at(const struct address *a, const struct config *config)
{
    int on = 1;
    int defer = config->defer_accept ? DEFER_S : 0;
    int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->sa.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    /* Inherited by what is accepted: each response is one send, nothing is to be waited for. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &defer, sizeof defer);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) ||
        bind(fd, (const struct sockaddr *)&a->sa, a->length) || listen(fd, BACKLOG)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* SO_REUSEPORT would let a second server of the same user share the port unnoticed: the first
 * socket of an address is bound once without it, to see whether the address is free. */
static bool is_free(const struct address *a)
{
    int on = 1;
    int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->sa.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    bool is = bind(fd, (const struct sockaddr *)&a->sa, a->length) == 0;
    close(fd);
    return is;
}

static int find(const struct sockets *s, const char *address, int worker)
{
    for (unsigned i = 0; i < s->count; i++)
        if (strcmp(s->slot[i].address, address) == 0 && s->slot[i].worker == worker)
            return s->slot[i].fd;
    return -1;
}

static bool has_fd(const struct sockets *s, int fd)
{
    for (unsigned i = 0; s && i < s->count; i++)
        if (s->slot[i].fd == fd)
            return true;
    return false;
}

static bool add(struct sockets *s, const struct address *a, int worker, const struct config *config,
                const struct sockets *old)
{
    struct socket_slot *slot = &s->slot[s->count];
    int fd = old ? find(old, a->text, worker) : -1;
    bool first = worker <= 0;
    if (fd < 0 && (!first || is_free(a)))
        fd = listen_at(a, config);
    if (fd < 0) {
        fprintf(stderr, "lighttz: %s: %s\n", a->text, strerror(errno));
        return false;
    }
    memcpy(slot->address, a->text, sizeof slot->address);
    slot->worker = worker;
    slot->fd = fd;
    s->count++;
    return true;
}

bool sockets_open(struct sockets *s, const struct config *config, const struct sockets *old)
{
    bool ok = true;
    s->count = 0;
    for (int w = 0; ok && w < (int)config->workers; w++)
        for (unsigned i = 0; ok && i < config->listens; i++)
            ok = add(s, &config->listen[i], w, config, old);
    if (ok && config->status_listen.length)
        ok = add(s, &config->status_listen, STATUS_WORKER, config, old);
    if (!ok)
        sockets_close(s, old);
    return ok;
}

void sockets_close(struct sockets *s, const struct sockets *kept)
{
    for (unsigned i = 0; i < s->count; i++)
        if (!has_fd(kept, s->slot[i].fd))
            close(s->slot[i].fd);
    s->count = 0;
}

unsigned sockets_of(const struct sockets *s, int worker, int fds[], bool *status_page)
{
    unsigned n = 0;
    *status_page = false;
    for (unsigned i = 0; i < s->count; i++) {
        bool status = s->slot[i].worker == STATUS_WORKER && worker == 0;
        if (s->slot[i].worker == worker || status)
            fds[n++] = s->slot[i].fd;
        *status_page = *status_page || status;
    }
    return n;
}
