#include "beneath.h"
#include "kernel.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TRIES = 4, LINKS_MAX = 40, WALK_MAX = 3 * PATH_MAX };

/* A path that is walked: the octets before `at` name the folder, without a symlink or "..". */
struct walk {
    int root;
    int folder;
    int links; /* followed */
    size_t at;
    char path[WALK_MAX];
};

static void enter(struct walk *w, int folder)
{
    if (w->folder != w->root)
        close(w->folder);
    w->folder = folder;
}

/* Puts `n` octets of `text` in place of the path from `from` to `to`. */
static bool replace(struct walk *w, size_t from, size_t to, const char *text, size_t n)
{
    size_t rest = strlen(w->path + to) + 1;
    if (from + n + rest > sizeof w->path) {
        errno = ENAMETOOLONG;
        return false;
    }
    memmove(w->path + from + n, w->path + to, rest);
    memcpy(w->path + from, text, n);
    return true;
}

/* "..", up to `end`: takes the name before it out of the path, which is walked again. No step is
 * ever up: the folder may lie elsewhere by now. */
static bool step_back(struct walk *w, size_t end)
{
    size_t from = w->at;
    while (from && w->path[from - 1] == '/')
        from--;
    if (from == 0) {
        errno = EXDEV;
        return false;
    }
    while (from && w->path[from - 1] != '/')
        from--;
    w->at = 0;
    enter(w, w->root);
    return replace(w, from, end, "", 0);
}

static bool follow(struct walk *w, int link, size_t end)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(link, "", target, sizeof target);
    if (n <= 0)
        return false;
    if (target[0] == '/' || ++w->links > LINKS_MAX) {
        errno = target[0] == '/' ? EXDEV : ELOOP;
        return false;
    }
    return replace(w, w->at, end, target, (size_t)n);
}

/* Takes the step up to `end`, a name. The descriptor where it is the last; else -1, and -2 when the
 * walk has failed. */
static int step(struct walk *w, size_t end, unsigned flags)
{
    struct stat st;
    char after = w->path[end];
    const char *name = w->path + w->at;
    w->path[end] = '\0';
    int fd = openat(w->folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    bool known = fd >= 0 && fstat(fd, &st) == 0;
    bool is_link = known && S_ISLNK(st.st_mode);
    if (known && !is_link && after == '\0' && !(flags & O_PATH)) {
        close(fd);
        fd = openat(w->folder, name, (int)flags | O_NOFOLLOW | O_CLOEXEC);
        known = fd >= 0;
        if (!known && errno == ELOOP) /* it is a symlink by now */
            errno = EAGAIN;
    }
    w->path[end] = after;
    if (known && !is_link && after == '\0')
        return fd;
    if (known && !is_link && S_ISDIR(st.st_mode)) {
        enter(w, fd);
        w->at = end;
        return -1;
    }
    if (known && !is_link)
        errno = ENOTDIR;
    known = is_link && follow(w, fd, end);
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return known ? -1 : -2;
}

static int walk_from(int root, const char *path, unsigned flags)
{
    struct walk w;
    int fd = -1;
    size_t n = strlen(path);
    if (n >= sizeof w.path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    w.root = w.folder = root;
    w.links = 0;
    w.at = 0;
    memcpy(w.path, path, n + 1);
    while (fd == -1) {
        w.at += strspn(w.path + w.at, "/");
        const char *name = w.path + w.at;
        n = strcspn(name, "/");
        size_t end = w.at + n;
        if (n == 0 || (n == 1 && name[0] == '.' && name[1] == '\0')) {
            fd = openat(w.folder, ".", (int)flags | O_CLOEXEC);
            fd = fd < 0 ? -2 : fd;
        } else if (n == 1 && name[0] == '.') {
            fd = replace(&w, w.at, end, "", 0) ? -1 : -2;
        } else if (n == 2 && name[0] == '.' && name[1] == '.') {
            fd = step_back(&w, end) ? -1 : -2;
        } else {
            fd = step(&w, end, flags);
        }
    }
    int error = errno;
    enter(&w, root);
    errno = error;
    return fd < 0 ? -1 : fd;
}

/* The kernel refuses every step out of the root, also through a symlink or a rename meanwhile. */
static int resolve(int root, const char *path, unsigned flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

int beneath_open(int root, const char *path, unsigned flags)
{
    int (*open)(int, const char *, unsigned) = kernel_lacks(LACKS_OPENAT2) ? walk_from : resolve;
    int fd = -1;
    for (int i = 0; i < TRIES; i++) { /* EAGAIN: a rename raced with the walk */
        fd = open(root, path, flags);
        if (fd >= 0 || errno != EAGAIN)
            break;
    }
    return fd;
}
