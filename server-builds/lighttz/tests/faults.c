/* Failing system calls and allocations, put between the server and the C library by the linker
 * (--wrap). They begin in a worker with its first connection. Each call fails or is cut short once
 * in FAULTS_RATE calls (environment; 0: never), by random numbers from FAULTS_SEED. When the worker
 * ends it writes how often each one failed. */
#include <errno.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

enum call { ACCEPT4, RECV, SEND, SENDFILE, PREAD, FSTAT, OPENAT2, MALLOC, CALLOC, REALLOC, CALLS };

static const char *const names[CALLS] = {"accept4", "recv",    "send",   "sendfile", "pread",
                                         "fstat",   "openat2", "malloc", "calloc",   "realloc"};
static unsigned long failed[CALLS];
static unsigned long rate; /* 0: not yet, or never */
static uint64_t state;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static unsigned long from_environment(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : otherwise;
}

static void begin(void)
{
    if (state)
        return;
    rate = from_environment("FAULTS_RATE", 20);
    state = from_environment("FAULTS_SEED", 1) * 2654435761U + 1;
}

__attribute__((destructor)) static void report(void)
{
    for (int i = 0; state && i < CALLS; i++)
        fprintf(stderr, "faults: %s %lu\n", names[i], failed[i]);
}

static int fails(enum call call)
{
    if (rate == 0 || next_random() % rate)
        return 0;
    failed[call]++;
    return 1;
}

/* Sets one of these errors, ended by 0. */
static int fail(const int *errors)
{
    int count = 0;
    while (errors[count])
        count++;
    errno = errors[next_random() % (uint64_t)count];
    return -1;
}

#define FAIL(...) fail((const int[]){__VA_ARGS__, 0})

/* A length from 1 to `n`, or 0 for an error. */
static size_t shorter(size_t n)
{
    return n > 1 && next_random() % 4 ? 1 + next_random() % (n < 64 ? n : next_random() % n + 1)
                                      : 0;
}

WRAP(int, accept4, int fd, struct sockaddr *address, socklen_t *n, int flags)
{
    if (fails(ACCEPT4))
        return FAIL(EMFILE, ENFILE, ENOMEM, ECONNABORTED, EINTR, EAGAIN);
    int client = __real_accept4(fd, address, n, flags);
    if (client >= 0)
        begin();
    return client;
}

WRAP(ssize_t, recv, int fd, void *p, size_t n, int flags)
{
    if (!fails(RECV))
        return __real_recv(fd, p, n, flags);
    n = shorter(n);
    return n ? __real_recv(fd, p, n, flags) : FAIL(EAGAIN, EAGAIN, EINTR, EINTR, ECONNRESET);
}

WRAP(ssize_t, send, int fd, const void *p, size_t n, int flags)
{
    if (!fails(SEND))
        return __real_send(fd, p, n, flags);
    n = shorter(n);
    return n ? __real_send(fd, p, n, flags) : FAIL(EAGAIN, EAGAIN, EINTR, EINTR, ENOBUFS, EPIPE);
}

WRAP(ssize_t, sendfile, int out, int in, off_t *at, size_t n)
{
    if (!fails(SENDFILE))
        return __real_sendfile(out, in, at, n);
    n = shorter(n);
    return n ? __real_sendfile(out, in, at, n) : FAIL(EAGAIN, EAGAIN, EINTR, EINTR, EIO, ENOMEM);
}

WRAP(ssize_t, pread, int fd, void *p, size_t n, off_t at)
{
    if (!fails(PREAD))
        return __real_pread(fd, p, n, at);
    n = shorter(n);
    return n ? __real_pread(fd, p, n, at) : FAIL(EIO, EINTR, ENOMEM);
}

WRAP(int, fstat, int fd, struct stat *st)
{
    return fails(FSTAT) ? FAIL(EIO, ENOMEM) : __real_fstat(fd, st);
}

/* Of system calls without a function of their own only openat2() fails. */
WRAP(long, syscall, long number, long a, long b, long c, long d, long e, long f)
{
    if (number == SYS_openat2 && fails(OPENAT2))
        return FAIL(EMFILE, ENFILE, ENOMEM, EAGAIN, EINTR, EIO);
    return __real_syscall(number, a, b, c, d, e, f);
}

WRAP(void *, malloc, size_t n)
{
    return fails(MALLOC) ? NULL : __real_malloc(n);
}

WRAP(void *, calloc, size_t count, size_t n)
{
    return fails(CALLOC) ? NULL : __real_calloc(count, n);
}

WRAP(void *, realloc, void *p, size_t n)
{
    return fails(REALLOC) ? NULL : __real_realloc(p, n);
}
