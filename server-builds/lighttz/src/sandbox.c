#include "sandbox.h"
#include "kernel.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <link.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

bool sandbox_allows(const struct config *config)
{
    if (geteuid() != 0 || config->user)
        return true;
    fprintf(stderr,
            "lighttz: workers would run as root: set user to a numeric UID[:GID], or to 0 if "
            "that is meant\n");
    return false;
}

bool sandbox_user(const struct config *config)
{
    if (config->user == NULL || geteuid() != 0)
        return true;
    char *end;
    uid_t uid = (uid_t)strtoul(config->user, &end, 10);
    gid_t gid = *end == ':' ? (gid_t)strtoul(end + 1, NULL, 10) : (gid_t)uid;
    if (setgroups(0, NULL) == 0 && setgid(gid) == 0 && setuid(uid) == 0)
        return true;
    fprintf(stderr, "lighttz: user %s: %s\n", config->user, strerror(errno));
    return false;
}

static bool allow_reading(int rules, int folder)
{
    struct landlock_path_beneath_attr rule = {
        .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
        .parent_fd = folder,
    };
    return syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
}

static bool allow_script(int rules, const char *path)
{
    char *script = strdup(path);
    int folder = script ? open(dirname(script), O_PATH | O_CLOEXEC) : -1;
    bool good = folder >= 0 && allow_reading(rules, folder);
    if (folder >= 0)
        close(folder);
    free(script);
    return good;
}

/* What the kernel calls this machine; 0: the list below is not for it. */
#if defined __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#define ARCHITECTURE 0
#endif

static bool confine_files(const struct config *config, int root)
{
    /* The kernel's headers may be older than the kernel: fields and rights by their ABI version. */
    struct {
        uint64_t fs;
        uint64_t net;
        uint64_t scoped; /* abstract sockets, signals */
    } handled = {.fs = (1U << 13) - 1, .net = 3, .scoped = 3};
    long abi = kernel_lacks(LACKS_LANDLOCK) ? 0 : kernel_landlock();
    if (abi < 1)
        return true;
    handled.fs |= (abi >= 2 ? 1U << 13 : 0) | (abi >= 3 ? 1U << 14 : 0) | (abi >= 5 ? 1U << 15 : 0);
    size_t size = abi >= 6   ? sizeof handled
                  : abi >= 4 ? offsetof(__typeof__(handled), scoped)
                             : sizeof handled.fs;
    int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, size, 0);
    if (rules < 0) {
        fprintf(stderr, "lighttz: not confined: %s\n", strerror(errno));
        kernel_note(LACKS_LANDLOCK);
        return true;
    }
    bool good = allow_reading(rules, root) && (!config->lua_script || !config->lua_reload ||
                                               allow_script(rules, config->lua_script));
    if (!good || syscall(SYS_landlock_restrict_self, rules, 0)) {
        fprintf(stderr, "lighttz: %s: %s\n", good ? "not confined" : "a folder cannot be read",
                strerror(errno));
        kernel_note(LACKS_LANDLOCK);
    }
    close(rules);
    return good;
}

/* The system calls of a worker that serves; all others fail with EPERM. The kernel remembers which
 * of these need no look at their arguments. */
/* clang-format off */
static const uint32_t calls[] = {
    SYS_recvfrom, SYS_sendto, SYS_epoll_pwait, SYS_epoll_ctl, SYS_accept4, SYS_close,
    SYS_sendfile, SYS_openat2, SYS_newfstatat, SYS_fstat, SYS_pread64, SYS_read, SYS_write,
    SYS_setsockopt, SYS_shutdown, SYS_clock_gettime, SYS_gettimeofday, SYS_getrandom, SYS_brk,
    SYS_munmap, SYS_mremap, SYS_madvise, SYS_ppoll, SYS_rt_sigreturn, SYS_rt_sigprocmask,
    SYS_restart_syscall, SYS_exit_group, SYS_flock, SYS_lseek, SYS_ftruncate,
#ifdef SYS_epoll_wait
    SYS_epoll_wait, SYS_poll, SYS_time,
#endif
};
/* clang-format on */

/* Those whose `argument`, with `mask`, must be `value`. */
static const struct {
    uint32_t call;
    uint32_t argument;
    uint32_t mask;
    uint32_t value;
} checked[] = {{SYS_mmap, 2, PROT_EXEC, 0},
               {SYS_ioctl, 1, UINT32_MAX, SIOCOUTQ},
               {SYS_openat, 2, O_ACCMODE | O_CREAT | O_TRUNC, 0}}; /* the last: see below */

/* Whether a worker opens by openat() at all: a script, or steps of a path. */
static bool opens_steps(const struct config *config)
{
    return config->lua_reload || kernel_lacks(LACKS_OPENAT2);
}

enum { CALLS = sizeof calls / sizeof *calls, CHECKED = sizeof checked / sizeof *checked };

#define AT(field) (uint32_t)offsetof(struct seccomp_data, field)

static bool confine_calls(const struct config *config)
{
    struct sock_filter code[2 * CALLS + 6 * CHECKED + 8];
    unsigned short n = 0;
    const struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_filter deny = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    code[n++] = deny;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(nr));
    for (unsigned i = 0; i < CALLS + (unsigned)kernel_lacks(LACKS_OPENAT2); i++) {
        uint32_t call = i < CALLS ? calls[i] : SYS_readlinkat;
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
        code[n++] = allow;
    }
    for (unsigned i = 0; i < CHECKED - (unsigned)!opens_steps(config); i++) {
        uint32_t low = AT(args) + (uint32_t)sizeof(uint64_t) * checked[i].argument;
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, checked[i].call, 0, 5);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, checked[i].mask);
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, checked[i].value, 0, 1);
        code[n++] = allow;
        code[n++] = deny;
    }
    code[n++] = deny;
    struct sock_fprog program = {n, code};
    const unsigned flags[] = {SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0}; /* gVisor takes none */
    for (size_t i = 0; i < 2 && !kernel_lacks(LACKS_SECCOMP); i++)
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags[i], &program) == 0)
            return true;
    if (!kernel_lacks(LACKS_SECCOMP))
        fprintf(stderr, "lighttz: no filter of system calls: %s\n", strerror(errno));
    kernel_note(LACKS_SECCOMP);
    return true;
}

bool sandbox_enter(const struct config *config, int root)
{
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return !config->sandbox || (confine_files(config, root) && confine_calls(config));
}

void sandbox_trim(void)
{
    const ElfW(Phdr) *segment = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    const ElfW(Phdr) *end = segment + getauxval(AT_PHNUM);
    size_t page = getauxval(AT_PAGESZ);
    for (; segment < end; segment++)
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_W) == 0)
            madvise((void *)(segment->p_vaddr & ~(page - 1)), segment->p_memsz, MADV_DONTNEED);
}
