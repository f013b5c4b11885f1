#include "kernel.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    const char *message;
} lacks[LACKS] = {
    [LACKS_OPENAT2] = {"openat2",
                       "no openat2 here: lighttz opens and checks each step of a path instead"},
    [LACKS_PIDFD] = {"pidfd", "no pidfd here: masters signal each other by process ID and start "
                              "time"},
    [LACKS_LANDLOCK] = {"landlock", "no Landlock here: workers can read whatever their user can"},
    [LACKS_SECCOMP] = {"seccomp", "no seccomp here: workers can make any system call"},
};

static bool lacking[LACKS];

/* Whether the call itself is refused: by an old kernel, or by a filter, which may choose the error.
 */
static bool refused(long result)
{
    return result < 0 &&
           (errno == ENOSYS || errno == EINVAL || errno == EPERM || errno == EOPNOTSUPP);
}

static bool lacks_openat2(void)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how);
    bool lacks_it = refused(fd);
    if (fd >= 0)
        close((int)fd);
    return lacks_it;
}

static bool lacks_pidfd(void)
{
    long fd = syscall(SYS_pidfd_open, getpid(), 0);
    bool lacks_it =
        refused(fd) || (fd >= 0 && refused(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0)));
    if (fd >= 0)
        close((int)fd);
    return lacks_it;
}

/* Each of its calls, without what it would work on. Without the right to restrict itself a process
 * hears EPERM. */
static bool lacks_landlock(void)
{
    return kernel_landlock() < 1 ||
           (syscall(SYS_landlock_add_rule, -1, LANDLOCK_RULE_PATH_BENEATH, NULL, 0) < 0 &&
            errno != EBADF) ||
           (syscall(SYS_landlock_restrict_self, -1, 0) < 0 && errno != EBADF && errno != EPERM);
}

/* The filter has the calls of two architectures. gVisor knows filters, but not how to tell. */
static bool lacks_seccomp(void)
{
#if !defined __x86_64__ && !defined __aarch64__
    return true;
#endif
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) < 0 && errno != EFAULT;
}

long kernel_landlock(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

void kernel_probe(const struct config *config)
{
    lacking[LACKS_OPENAT2] = lacks_openat2();
    lacking[LACKS_PIDFD] = lacks_pidfd();
    lacking[LACKS_LANDLOCK] = config->sandbox && lacks_landlock();
    lacking[LACKS_SECCOMP] = config->sandbox && lacks_seccomp();
    for (enum lack i = 0; i < LACKS; i++)
        if (lacking[i])
            fprintf(stderr, "lighttz: %s\n", lacks[i].message);
}

bool kernel_lacks(enum lack lack)
{
    return lacking[lack];
}

void kernel_note(enum lack lack)
{
    lacking[lack] = true;
}

const char *kernel_lack_name(enum lack lack)
{
    return lacks[lack].name;
}
