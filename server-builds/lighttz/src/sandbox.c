#include "sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <link.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
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

bool sandbox_enter(const struct config *config, int root)
{
    /* The kernel's headers may be older than the kernel: fields and rights by their ABI version. */
    struct {
        uint64_t fs;
        uint64_t net;
    } handled = {.fs = (1U << 13) - 1, .net = 3};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!config->sandbox)
        return true;
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1)
        return true;
    handled.fs |= (abi >= 2 ? 1U << 13 : 0) | (abi >= 3 ? 1U << 14 : 0);
    size_t size = abi >= 4 ? sizeof handled : sizeof handled.fs;
    int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, size, 0);
    if (rules < 0) {
        fprintf(stderr, "lighttz: not confined: %s\n", strerror(errno));
        return true;
    }
    bool good = allow_reading(rules, root) && (!config->lua_script || !config->lua_reload ||
                                               allow_script(rules, config->lua_script));
    if (!good || syscall(SYS_landlock_restrict_self, rules, 0))
        fprintf(stderr, "lighttz: %s: %s\n", good ? "not confined" : "a folder cannot be read",
                strerror(errno));
    close(rules);
    return good;
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
