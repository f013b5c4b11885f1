#include "file.h"
#include "httpdate.h"
#include "target.h"
#include "text.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const struct {
    struct str name;
    const char *suffix;
} codings[ENCODINGS] = {
    [ENCODING_NONE] = {{"identity", 8}, ""},
    [ENCODING_BR] = {{"br", 2}, ".br"},
    [ENCODING_ZSTD] = {{"zstd", 4}, ".zst"},
    [ENCODING_GZIP] = {{"gzip", 4}, ".gz"},
};

struct str encoding_name(enum encoding encoding)
{
    return codings[encoding].name;
}

/* The kernel refuses every step out of the root, also through a symlink or a rename meanwhile. */
static int open_beneath(int root, const char *path, unsigned flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = -1;
    for (int i = 0; i < 4; i++) { /* EAGAIN: a rename raced with the walk */
        fd = syscall(SYS_openat2, root, path, &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN)
            break;
    }
    return (int)fd;
}

bool file_confines(const struct root *root)
{
    int fd = open_beneath(root->fd, ".", O_PATH);
    if (fd < 0)
        return false;
    close(fd);
    return true;
}

static int status_of(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
        return 404;
    case EACCES:
    case EPERM:
    case EXDEV:
    case ELOOP:
    case ENXIO:
        return 403;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
        return 503;
    default:
        return 500;
    }
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool file_is(const struct file *f, const struct stat *st)
{
    return f->dev == st->st_dev && f->ino == st->st_ino && f->size == st->st_size &&
           same_time(f->mtime, st->st_mtim) && same_time(f->ctime, st->st_ctim);
}

bool file_unchanged(const struct file *f)
{
    struct stat st;
    return f->fd < 0 ||
           (fstat(f->fd, &st) == 0 && f->size == st.st_size && same_time(f->mtime, st.st_mtim));
}

void file_hold(struct file *f)
{
    f->refs++;
}

void file_release(struct file *f)
{
    if (--f->refs)
        return;
    if (f->fd >= 0)
        close(f->fd);
    free(f->block);
    free(f);
}

size_t file_weight(const struct file *f)
{
    return sizeof *f + f->key_length + FRONT_ROOM + f->head + (f->body ? (size_t)f->size : 0);
}

/* The name beneath the root: no leading slash, the index for a directory, the coding's suffix. */
static bool name_of(const struct root *root, struct str path, enum encoding encoding, char *name,
                    size_t size)
{
    bool directory = path.p[path.n - 1] == '/';
    const char *index = directory ? root->config->index : "";
    const char *suffix = codings[encoding].suffix;
    if (path.n + strlen(index) + strlen(suffix) > size)
        return false;
    char *p = text_str(name, str_from(path, 1));
    p = text_str(p, str_of(index));
    p = text_str(p, (struct str){suffix, strlen(suffix) + 1});
    return p - name > 1;
}

unsigned file_neighbours(const struct root *root, struct str path)
{
    char name[TARGET_PATH_MAX + 300];
    unsigned found = 0;
    if (!root->config->precompressed)
        return 0;
    for (enum encoding e = ENCODING_BR; e < ENCODINGS; e++) {
        struct stat st;
        int fd =
            name_of(root, path, e, name, sizeof name) ? open_beneath(root->fd, name, O_PATH) : -1;
        if (fd < 0)
            continue;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
            found |= 1U << e;
        close(fd);
    }
    return found;
}

/* Opens what `path` names; 200 and the descriptor of a plain file, or another status. */
int file_open(const struct root *root, struct str path, enum encoding encoding, int *out,
              struct stat *st)
{
    char name[TARGET_PATH_MAX + 300];
    bool slash = path.p[path.n - 1] == '/';
    if (!name_of(root, path, encoding, name, sizeof name))
        return 404;
    int fd = open_beneath(root->fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        int status = status_of(errno);
        if (status != 404 || !slash || encoding)
            return status;
        name[path.n - 1] = '\0'; /* a directory without an index is not listed */
        fd = open_beneath(root->fd, *name ? name : ".", O_PATH | O_DIRECTORY);
        if (fd < 0)
            return status_of(errno);
        close(fd);
        return 403;
    }
    int status = fstat(fd, st)          ? 500
                 : S_ISREG(st->st_mode) ? 200
                 : S_ISDIR(st->st_mode) ? (slash ? 403 : 301)
                                        : 403;
    if (status == 200)
        *out = fd;
    else
        close(fd);
    return status;
}

/* Writes the entity header; every response about the file sends all or a tail of it. */
static size_t format_head(const struct root *root, const struct file *f, struct str path, char *out,
                          size_t at[5])
{
    char date[HTTPDATE_LENGTH];
    char name[TARGET_PATH_MAX + 300] = "";
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    /* A date ahead of ours would be one at which we could not have sent it. */
    httpdate_format(f->mtime.tv_sec > now.tv_sec ? now.tv_sec : f->mtime.tv_sec, date);
    name_of(root, path, ENCODING_NONE, name, sizeof name);
    struct str type = mime_type(&root->config->types, str_of(name));
    char *p = text_str(out, STR("Content-Length: "));
    p = text_number(p, (uint64_t)f->size, 10);
    p = text_str(p, STR("\r\n"));
    at[0] = (size_t)(p - out);
    p = text_str(p, STR("Content-Type: "));
    p = text_str(p, type);
    p = text_str(p, STR("\r\n"));
    at[1] = (size_t)(p - out);
    if (f->encoding) {
        p = text_str(p, STR("Content-Encoding: "));
        p = text_str(p, encoding_name(f->encoding));
        p = text_str(p, STR("\r\n"));
    }
    p = text_str(p, STR("Accept-Ranges: bytes\r\n"));
    at[2] = (size_t)(p - out);
    p = text_str(p, STR("Last-Modified: "));
    p = text_str(p, (struct str){date, HTTPDATE_LENGTH});
    p = text_str(p, STR("\r\nETag: "));
    at[3] = (size_t)(p - out);
    p = text_str(p, STR("\""));
    p = text_number(p, (uint64_t)f->size, 16);
    p = text_str(p, STR("-"));
    p = text_number(p, (uint64_t)f->mtime.tv_sec * 1000000000U + (uint64_t)f->mtime.tv_nsec, 16);
    p = text_str(p, STR("-"));
    p = text_number(p, f->ino, 16);
    p = text_str(p, STR("\""));
    at[4] = (size_t)(p - out);
    p = text_str(p, STR("\r\n"));
    if (f->encoding || f->neighbours)
        p = text_str(p, STR("Vary: Accept-Encoding\r\n"));
    p = text_str(p, STR("\r\n"));
    return (size_t)(p - out);
}

/* Reads the body as it was at one moment; false when it keeps changing under our hands. */
static bool read_body(struct file *f, int fd, char *body)
{
    struct stat st;
    size_t done = 0;
    while (done < (size_t)f->size) {
        ssize_t n = pread(fd, body + done, (size_t)f->size - done, (off_t)done);
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return fstat(fd, &st) == 0 && file_is(f, &st);
}

static void adopt(struct file *f, const struct stat *st)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    f->dev = st->st_dev;
    f->ino = st->st_ino;
    f->size = st->st_size;
    f->mtime = st->st_mtim;
    f->ctime = st->st_ctim;
    f->young = now.tv_sec - st->st_ctim.tv_sec < 2;
}

/* Fills `f` from `fd`, which it keeps for a large file; 0 or a status. */
static int load(const struct root *root, struct file *f, struct str path, int fd)
{
    char head[1024];
    size_t at[5];
    f->head = format_head(root, f, path, head, at);
    bool small = (size_t)f->size <= root->config->cache_file &&
                 file_weight(f) + (size_t)f->size <= root->config->cache_bytes;
    size_t body = small ? (size_t)f->size : 0;
    f->block = malloc(FRONT_ROOM + f->head + body);
    if (f->block == NULL)
        return 503;
    char *p = f->block + FRONT_ROOM;
    memcpy(p, head, f->head);
    f->after_length = (struct str){p + at[0], f->head - at[0]};
    f->type = (struct str){p + at[0] + 14, at[1] - at[0] - 16};
    f->after_type = (struct str){p + at[1], f->head - at[1]};
    f->validators = (struct str){p + at[2], f->head - at[2]};
    f->etag = (struct str){p + at[3], at[4] - at[3]};
    f->body = small ? p + f->head : NULL; /* an earlier look may have found another size */
    if (small)
        return read_body(f, fd, p + f->head) ? 0 : 503;
    f->fd = fd;
    return 0;
}

int file_load(const struct root *root, struct str path, enum encoding encoding, uint64_t hash,
              int fd, struct file **out)
{
    struct file *f = calloc(1, sizeof *f + path.n);
    int status = 503;
    if (f == NULL) {
        close(fd);
        return status;
    }
    f->refs = 1;
    f->fd = -1;
    f->hash = hash;
    f->encoding = encoding;
    f->key_length = path.n;
    memcpy(f->key, path.p, path.n);
    f->neighbours = encoding == ENCODING_NONE ? file_neighbours(root, path) : 0;
    for (int i = 0; status && i < 3; i++) {
        struct stat st;
        free(f->block);
        f->block = NULL;
        if (fstat(fd, &st))
            break;
        adopt(f, &st);
        status = load(root, f, path, fd);
    }
    if (f->fd < 0)
        close(fd);
    if (status) {
        file_release(f);
        return status;
    }
    *out = f;
    return 0;
}
