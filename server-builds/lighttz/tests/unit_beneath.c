/* Paths walked step by step, as on a kernel without openat2(), lead where the kernel's own walk
 * leads. */
#include "beneath.h"
#include "kernel.h"
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATHS = 20000, STEPS_MAX = 7, PATH_SIZE = 128 };

static const char *const folders[] = {"a", "a/b", "a/b/c"};
static const char *const files[] = {"file", "a/file", "a/b/c/file"};
static const struct {
    const char *name;
    const char *target;
} links[] = {{"out", ".."},
             {"absolute", "/etc"},
             {"loop", "loop"},
             {"round", "a/b/round"},
             {"a/b/round", "../../round"},
             {"here", "."},
             {"link", "a/b"},
             {"tofile", "link/c/../../file"},
             {"dangling", "a/none"},
             {"a/up", ".."},
             {"a/b/up2", "../.."},
             {"a/b/c/up4", "../../../.."},
             {"a/b/c/zigzag", "../../b/../b/./c//file"},
             {"slash", "a/b/"},
             {"fileslash", "file/"}};

enum {
    FOLDERS = sizeof folders / sizeof *folders,
    FILES = sizeof files / sizeof *files,
    LINKS = sizeof links / sizeof *links
};

static void make_tree(int root)
{
    for (size_t i = 0; i < FOLDERS; i++)
        mkdirat(root, folders[i], 0700);
    for (size_t i = 0; i < FILES; i++)
        close(openat(root, files[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    for (size_t i = 0; i < LINKS; i++)
        check(symlinkat(links[i].target, root, links[i].name) == 0, "a symlink", links[i].name);
}

static void remove_tree(int root)
{
    for (size_t i = 0; i < LINKS; i++)
        unlinkat(root, links[i].name, 0);
    for (size_t i = 0; i < FILES; i++)
        unlinkat(root, files[i], 0);
    for (size_t i = FOLDERS; i > 0; i--)
        unlinkat(root, folders[i - 1], AT_REMOVEDIR);
}

static void make_path(uint32_t *seed, char path[PATH_SIZE])
{
    static const char *const names[] = {
        "a",      "b",      "c",         "file",  "out", "absolute", "loop", "here",
        "link",   "tofile", "dangling",  "up",    "up2", "up4",      "..",   ".",
        "zigzag", "round",  "fileslash", "slash", "a",   "b",        "c",    "none"};
    size_t n = 0;
    *seed = *seed * 1664525 + 1013904223;
    for (unsigned left = 1 + (*seed >> 24) % STEPS_MAX; left; left--) {
        *seed = *seed * 1664525 + 1013904223;
        const char *name = names[(*seed >> 16) % (sizeof names / sizeof *names)];
        bool slash = left > 1 || (*seed >> 8) % 8 == 0;
        n += (size_t)snprintf(path + n, PATH_SIZE - n, "%s%s", name, slash ? "/" : "");
    }
}

/* What `fd` is, or the error; and closes it. */
static void describe(int fd, char text[PATH_SIZE])
{
    struct stat st = {0};
    if (fd < 0)
        snprintf(text, PATH_SIZE, "%s", strerror(errno));
    else if (fstat(fd, &st) == 0)
        snprintf(text, PATH_SIZE, "inode %lu", (unsigned long)st.st_ino);
    if (fd >= 0)
        close(fd);
}

static int compare(int root)
{
    char path[PATH_SIZE];
    char kernel[PATH_SIZE] = "";
    char ours[PATH_SIZE] = "";
    char detail[4 * PATH_SIZE];
    uint32_t seed = 55;
    int opened = 0;
    int wrong = 0;
    int first = dup(root);
    close(first);
    kernel_note(LACKS_OPENAT2);
    for (int i = 0; i < PATHS; i++) {
        make_path(&seed, path);
        unsigned flags = i % 2 ? O_PATH : O_RDONLY | O_NONBLOCK;
        struct open_how how = {.flags = flags | O_CLOEXEC,
                               .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
        describe((int)syscall(SYS_openat2, root, path, &how, sizeof how), kernel);
        describe(beneath_open(root, path, flags), ours);
        opened += ours[0] == 'i' && strncmp(ours, "inode", 5) == 0;
        if (strcmp(kernel, ours) == 0)
            continue;
        snprintf(detail, sizeof detail, "%s: kernel %s, ours %s", path, kernel, ours);
        check(false, "a path walked", detail);
        wrong++;
    }
    check(opened > PATHS / 20, "paths that lead somewhere", "");
    int last = dup(root); /* nothing has been left open */
    check(last == first, "descriptors left open", "");
    return wrong || opened <= PATHS / 20 || last != first;
}

void test_beneath(void)
{
    char folder[] = "/tmp/lighttz-unit-XXXXXX";
    int status = -1;
    int root = mkdtemp(folder) ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    check(root >= 0, "a folder", folder);
    make_tree(root);
    pid_t pid = fork();
    if (pid == 0) { /* what it notes stays there */
        int failed = compare(root);
        fflush(NULL);
        _exit(failed);
    }
    bool ended = waitpid(pid, &status, 0) == pid && WIFEXITED(status);
    check(ended && WEXITSTATUS(status) == 0, "walks beneath a folder", "");
    remove_tree(root);
    check(rmdir(folder) == 0, "a folder that is empty again", folder);
    close(root);
}
