#include "sockets.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BACKLOG = 4096, DEFER_S = 1, FIRST_PASSED = 3 };

static void set(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value);
}

/* SO_REUSEPORT would let a second server of the same user share the port unnoticed: the `first`
 * socket of an address sets it when it has the address. */
static int bind_at(const struct address *a, bool first)
{
    int fd = socket(a->sa.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    set(fd, SOL_SOCKET, SO_REUSEPORT, !first);
    if (a->sa.any.sa_family == AF_INET6)
        set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    bool bound = bind(fd, &a->sa.any, a->length) == 0;
    set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    if (bound)
        return fd;
    close(fd);
    return -1;
}

static struct socket_slot *find(struct sockets *s, const struct address *a, int worker)
{
    for (unsigned i = 0; i < s->count; i++) {
        struct socket_slot *slot = &s->slot[i];
        if (slot->worker == worker && slot->address.length == a->length &&
            memcmp(&slot->address.sa, &a->sa, a->length) == 0)
            return slot;
    }
    return NULL;
}

static void claim(struct socket_slot *slot, int worker, const struct config *config)
{
    int shared = 0;
    socklen_t n = sizeof shared;
    getsockopt(slot->fd, SOL_SOCKET, SO_REUSEPORT, &shared, &n);
    slot->worker = shared ? worker : EVERY_WORKER;
    fcntl(slot->fd, F_SETFL, O_NONBLOCK);
    /* Inherited by what is accepted: each response is one send, nothing is to be waited for. */
    set(slot->fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(slot->fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, config->defer_accept ? DEFER_S : 0);
}

static bool add(struct sockets *s, const struct address *a, int worker, const struct config *config)
{
    struct socket_slot *slot = find(s, a, UNCLAIMED);
    if (find(s, a, EVERY_WORKER))
        return true;
    if (slot == NULL && s->count < SOCKETS_MAX) {
        slot = &s->slot[s->count];
        *slot = (struct socket_slot){.address = *a, .fd = bind_at(a, worker == 0)};
        s->count += slot->fd >= 0;
    }
    if (slot == NULL || slot->fd < 0) {
        fprintf(stderr, "lighttz: %s: %s\n", a->text, slot ? strerror(errno) : "too many sockets");
        return false;
    }
    slot->status_page = a == &config->status_listen;
    claim(slot, worker, config);
    return true;
}

bool sockets_open(struct sockets *s, const struct config *config)
{
    bool ok = config->status_listen.length == 0 || add(s, &config->status_listen, 0, config);
    for (int w = 0; ok && w < (int)config->workers; w++)
        for (unsigned i = 0; ok && i < config->listen.count; i++)
            ok = add(s, &config->listen.address[i], w, config);
    for (unsigned i = 0; i < s->count && config->listen.count == 0 && i < CONFIG_LISTEN_MAX; i++)
        if (s->slot[i].worker == UNCLAIMED)
            claim(&s->slot[i], EVERY_WORKER, config);
    unsigned kept = 0;
    for (unsigned i = 0; i < s->count; i++)
        if (s->slot[i].worker == UNCLAIMED)
            close(s->slot[i].fd);
        else
            s->slot[kept++] = s->slot[i];
    s->count = kept;
    return ok;
}

bool sockets_listen(const struct sockets *s)
{
    for (unsigned i = 0; i < s->count; i++)
        if (listen(s->slot[i].fd, BACKLOG)) {
            fprintf(stderr, "lighttz: listen: %s\n", strerror(errno));
            return false;
        }
    return true;
}

unsigned sockets_inherit(struct sockets *s)
{
    const char *pid = getenv("LISTEN_PID");
    const char *count = getenv("LISTEN_FDS");
    int end = pid && count && atoi(pid) == getpid() ? FIRST_PASSED + atoi(count) : 0;
    for (int fd = FIRST_PASSED; fd < end && s->count < SOCKETS_MAX; fd++) {
        struct socket_slot *slot = &s->slot[s->count];
        *slot = (struct socket_slot){.worker = UNCLAIMED, .fd = fd};
        slot->address.length = sizeof slot->address.sa;
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        if (getsockname(fd, &slot->address.sa.any, &slot->address.length) == 0)
            s->count++;
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return s->count;
}

void sockets_pass(struct sockets *s)
{
    char number[16];
    for (unsigned i = 0; i < s->count; i++) { /* out of the way of each other first */
        int fd = fcntl(s->slot[i].fd, F_DUPFD_CLOEXEC, FIRST_PASSED + (int)s->count);
        close(s->slot[i].fd);
        s->slot[i].fd = fd;
    }
    for (unsigned i = 0; i < s->count; i++)
        dup2(s->slot[i].fd, FIRST_PASSED + (int)i);
    snprintf(number, sizeof number, "%u", s->count);
    setenv("LISTEN_FDS", number, 1);
    snprintf(number, sizeof number, "%d", (int)getpid());
    setenv("LISTEN_PID", number, 1);
}

void sockets_close(struct sockets *s)
{
    for (unsigned i = 0; i < s->count; i++)
        close(s->slot[i].fd);
    s->count = 0;
}

void sockets_keep(struct sockets *s, int worker)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < s->count; i++)
        if (s->slot[i].worker == worker || s->slot[i].worker == EVERY_WORKER)
            s->slot[kept++] = s->slot[i];
        else
            close(s->slot[i].fd);
    s->count = kept;
}
