#include "sockets.h"
#include "cpu.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What a master passes to its successor: a descriptor, and whether it was activated, for each. */
#define PASSED "LIGHTTZ_SOCKETS"

enum { BACKLOG = 4096, DEFER_S = 1, FIRST_PASSED = 3, PASSED_ROOM = 12 };

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

static bool same(const struct address *a, const struct address *b)
{
    return a->length == b->length && memcmp(&a->sa, &b->sa, a->length) == 0;
}

static struct socket_slot *find(struct sockets *s, const struct address *a, int worker)
{
    for (unsigned i = 0; i < s->count; i++) {
        struct socket_slot *slot = &s->slot[i];
        if (slot->worker == worker && same(&slot->address, a))
            return slot;
    }
    return NULL;
}

/* The next worker's at an address: one that was passed, or a new one. The kernel binds none beside
 * a socket of another user, as the service manager's may be: all workers share that one then. */
static bool add(struct sockets *s, const struct address *a, int worker, bool status_page)
{
    struct socket_slot *slot = find(s, a, UNCLAIMED);
    struct socket_slot *shared = find(s, a, 0);
    if (find(s, a, EVERY_WORKER))
        return true;
    if (slot == NULL && s->count < SOCKETS_MAX) {
        slot = &s->slot[s->count];
        if (shared)
            set(shared->fd, SOL_SOCKET, SO_REUSEPORT, 1);
        *slot = (struct socket_slot){.address = *a, .fd = bind_at(a, worker == 0)};
        slot->activated = shared && shared->activated;
        s->count += slot->fd >= 0;
    }
    if (slot && slot->fd >= 0) {
        slot->status_page = status_page;
        slot->worker = worker;
        return true;
    }
    if (slot && shared && shared->activated) {
        set(shared->fd, SOL_SOCKET, SO_REUSEPORT, 0);
        shared->worker = EVERY_WORKER;
        return true;
    }
    fprintf(stderr, "lighttz: %s: %s\n", a->text, slot ? strerror(errno) : "too many sockets");
    return false;
}

/* The addresses that the service manager chose, each once. */
static void activated_addresses(struct sockets *s, struct listens *listen)
{
    for (unsigned i = 0; i < s->count && listen->count < CONFIG_LISTEN_MAX; i++)
        if (s->slot[i].activated && find(s, &s->slot[i].address, UNCLAIMED) == &s->slot[i])
            listen->address[listen->count++] = s->slot[i].address;
}

bool sockets_suffice(const struct sockets *s, const struct config *config)
{
    for (unsigned i = 0; i < config->listen.count; i++)
        if (same(&config->listen.address[i], &config->status_listen)) {
            fprintf(stderr, "lighttz: %s: listen and status_listen are the same; change one\n",
                    config->status_listen.text);
            return false;
        }
    for (unsigned i = 0; i < s->count; i++)
        if (s->slot[i].activated)
            return true;
    if (config->listen.count == 0)
        fprintf(stderr, "lighttz: no listen is set\n");
    return config->listen.count > 0;
}

bool sockets_open(struct sockets *s, const struct config *config)
{
    struct listens listen = config->listen;
    bool ok = sockets_suffice(s, config);
    if (ok && config->status_listen.length)
        ok = add(s, &config->status_listen, 0, true);
    if (listen.count == 0)
        activated_addresses(s, &listen);
    for (int w = 0; ok && w < (int)config->workers; w++)
        for (unsigned i = 0; ok && i < listen.count; i++)
            ok = add(s, &listen.address[i], w, false);
    unsigned kept = 0;
    for (unsigned i = 0; i < s->count; i++)
        if (s->slot[i].worker == UNCLAIMED)
            close(s->slot[i].fd);
        else
            s->slot[kept++] = s->slot[i];
    s->count = kept;
    return ok;
}

/* Passed sockets are those of the generation before, too, which serves until now. */
bool sockets_listen(const struct sockets *s, const struct config *config)
{
    for (unsigned i = 0; i < s->count; i++) {
        const struct socket_slot *slot = &s->slot[i];
        bool one = slot->worker != EVERY_WORKER;
        fcntl(slot->fd, F_SETFL, O_NONBLOCK);
        /* Of the sockets at an address the kernel prefers the one with the CPU of the first packet.
         */
        set(slot->fd, SOL_SOCKET, SO_INCOMING_CPU,
            config->cpu_affinity && one ? cpu_of(slot->worker) : -1);
        /* Accepted sockets inherit it: each response is one send, so there is nothing to wait for.
         */
        set(slot->fd, IPPROTO_TCP, TCP_NODELAY, 1);
        set(slot->fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, config->defer_accept ? DEFER_S : 0);
        if (listen(slot->fd, BACKLOG)) {
            fprintf(stderr, "lighttz: listen: %s\n", strerror(errno));
            return false;
        }
    }
    return true;
}

static void inherit(struct sockets *s, int fd, bool activated)
{
    struct socket_slot *slot = &s->slot[s->count];
    struct address *a = &slot->address;
    if (s->count == SOCKETS_MAX)
        return;
    *slot = (struct socket_slot){.worker = UNCLAIMED, .fd = fd, .activated = activated};
    a->length = sizeof a->sa;
    a->text = "a socket that was passed";
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (getsockname(fd, &a->sa.any, &a->length))
        return;
    s->count++;
}

void sockets_inherit(struct sockets *s)
{
    const char *pid = getenv("LISTEN_PID");
    const char *count = getenv("LISTEN_FDS");
    const char *passed = getenv(PASSED);
    int end = pid && count && atoi(pid) == getpid() ? FIRST_PASSED + atoi(count) : 0;
    for (int fd = FIRST_PASSED; fd < end; fd++)
        inherit(s, fd, true);
    while (passed && *passed) {
        char *kind;
        int fd = (int)strtol(passed, &kind, 10);
        inherit(s, fd, *kind == 'a');
        passed = *kind ? kind + 1 : kind;
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    unsetenv(PASSED);
}

bool sockets_pass(const struct sockets *s)
{
    static char text[PASSED_ROOM * SOCKETS_MAX];
    size_t n = 0;
    for (unsigned i = 0; i < s->count; i++) {
        const struct socket_slot *slot = &s->slot[i];
        if (fcntl(slot->fd, F_SETFD, 0))
            return false;
        n += (size_t)snprintf(text + n, sizeof text - n, "%d%c", slot->fd,
                              slot->activated ? 'a' : 'o');
    }
    return setenv(PASSED, text, 1) == 0;
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
