#include "cache.h"
#include "httpdate.h"
#include "target.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BUCKETS = 1024, SHED_BATCH = 16 };

struct cache {
    const struct config *config;
    int root;
    size_t entries;
    size_t bytes;
    struct file *newest;
    struct file *oldest;
    struct file *buckets[BUCKETS];
};

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

static uint64_t hash_of(struct str key, enum encoding encoding)
{
    uint64_t h = 0x9e3779b97f4a7c15U + encoding;
    for (; key.n; key = str_from(key, key.n < 8 ? key.n : 8)) {
        uint64_t word = 0;
        if (key.n >= 8) {
            memcpy(&word, key.p, 8);
        } else {
            memcpy(&word, key.p, key.n);
            word ^= (uint64_t)key.n << 56;
        }
        h = (h ^ word) * 0xff51afd7ed558ccdU;
        h ^= h >> 32;
    }
    return h;
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same_file(const struct file *f, const struct stat *st)
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

static size_t weight(const struct file *f)
{
    return sizeof *f + f->key_length + FRONT_ROOM + f->head + (f->body ? (size_t)f->size : 0);
}

static void unlink_file(struct cache *c, struct file *f)
{
    struct file **slot = &c->buckets[f->hash % BUCKETS];
    while (*slot != f)
        slot = &(*slot)->chain;
    *slot = f->chain;
    *(f->newer ? &f->newer->older : &c->newest) = f->older;
    *(f->older ? &f->older->newer : &c->oldest) = f->newer;
    c->entries--;
    c->bytes -= weight(f);
    file_release(f);
}

static void link_file(struct cache *c, struct file *f)
{
    while (c->oldest && (c->entries >= c->config->cache_entries ||
                         c->bytes + weight(f) > c->config->cache_bytes))
        unlink_file(c, c->oldest);
    f->chain = c->buckets[f->hash % BUCKETS];
    c->buckets[f->hash % BUCKETS] = f;
    f->older = c->newest;
    f->newer = NULL;
    *(c->newest ? &c->newest->newer : &c->oldest) = f;
    c->newest = f;
    c->entries++;
    c->bytes += weight(f);
}

static void touch(struct cache *c, struct file *f)
{
    if (c->newest == f)
        return;
    f->newer->older = f->older;
    *(f->older ? &f->older->newer : &c->oldest) = f->newer;
    f->older = c->newest;
    f->newer = NULL;
    c->newest->newer = f;
    c->newest = f;
}

bool cache_shed(struct cache *c)
{
    int dropped = 0;
    for (struct file *f = c->oldest, *next; f && dropped < SHED_BATCH; f = next) {
        next = f->newer;
        if (f->fd >= 0 && f->refs == 1) {
            unlink_file(c, f);
            dropped++;
        }
    }
    return dropped > 0;
}

/* The name beneath the root: no leading slash, the index for a directory, the coding's suffix. */
static bool name_of(const struct cache *c, struct str path, enum encoding encoding, char *name,
                    size_t size)
{
    bool directory = path.p[path.n - 1] == '/';
    int n = snprintf(name, size, "%.*s%s%s", (int)path.n - 1, path.p + 1,
                     directory ? c->config->index : "", codings[encoding].suffix);
    return n > 0 && (size_t)n < size;
}

static unsigned find_neighbours(const struct cache *c, struct str path)
{
    char name[TARGET_PATH_MAX + 300];
    unsigned found = 0;
    if (!c->config->precompressed)
        return 0;
    for (enum encoding e = ENCODING_BR; e < ENCODINGS; e++) {
        struct stat st;
        int fd = name_of(c, path, e, name, sizeof name) ? open_beneath(c->root, name, O_PATH) : -1;
        if (fd < 0)
            continue;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
            found |= 1U << e;
        close(fd);
    }
    return found;
}

/* Writes the entity header; every response about the file sends all or a tail of it. */
static size_t format_head(const struct cache *c, const struct file *f, struct str path, char *out,
                          size_t size, size_t at[5])
{
    char date[HTTPDATE_LENGTH];
    char name[TARGET_PATH_MAX + 300] = "";
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    /* A date ahead of ours would be one at which we could not have sent it. */
    httpdate_format(f->mtime.tv_sec > now.tv_sec ? now.tv_sec : f->mtime.tv_sec, date);
    name_of(c, path, ENCODING_NONE, name, sizeof name);
    struct str type = mime_type(c->config->types, (struct str){name, strlen(name)});
    struct str coding = encoding_name(f->encoding);
    size_t n = 0;
#define PUT(...) n += (size_t)snprintf(out + n, size - n, __VA_ARGS__)
    PUT("Content-Length: %lld\r\n", (long long)f->size);
    at[0] = n;
    PUT("Content-Type: %.*s\r\n", (int)type.n, type.p);
    at[1] = n;
    if (f->encoding)
        PUT("Content-Encoding: %.*s\r\n", (int)coding.n, coding.p);
    PUT("Accept-Ranges: bytes\r\n");
    at[2] = n;
    PUT("Last-Modified: %.*s\r\nETag: ", HTTPDATE_LENGTH, date);
    at[3] = n;
    PUT("\"%llx-%llx-%llx\"", (unsigned long long)f->size,
        (unsigned long long)f->mtime.tv_sec * 1000000000U + (unsigned long long)f->mtime.tv_nsec,
        (unsigned long long)f->ino);
    at[4] = n;
    PUT("\r\n%s\r\n", f->encoding || f->neighbours ? "Vary: Accept-Encoding\r\n" : "");
#undef PUT
    return n;
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
    return fstat(fd, &st) == 0 && same_file(f, &st);
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
static int load(struct cache *c, struct file *f, struct str path, int fd)
{
    char head[1024];
    size_t at[5];
    f->head = format_head(c, f, path, head, sizeof head, at);
    bool small = (size_t)f->size <= c->config->cache_file &&
                 weight(f) + (size_t)f->size <= c->config->cache_bytes;
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
    if (!small) {
        f->fd = fd;
        return 0;
    }
    f->body = p + f->head;
    return read_body(f, fd, p + f->head) ? 0 : 503;
}

static int build(struct cache *c, struct str path, enum encoding encoding, uint64_t hash, int fd,
                 struct file **out)
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
    f->neighbours = encoding == ENCODING_NONE ? find_neighbours(c, path) : 0;
    for (int i = 0; status && i < 3; i++) {
        struct stat st;
        free(f->block);
        f->block = NULL;
        if (fstat(fd, &st))
            break;
        adopt(f, &st);
        status = load(c, f, path, fd);
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

/* Opens what `path` names; 200 and the descriptor of a plain file, or another status. */
static int open_path(struct cache *c, struct str path, enum encoding encoding, int *out,
                     struct stat *st)
{
    char name[TARGET_PATH_MAX + 300];
    bool slash = path.p[path.n - 1] == '/';
    if (!name_of(c, path, encoding, name, sizeof name))
        return 404;
    int fd = open_beneath(c->root, name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE) && cache_shed(c))
        fd = open_beneath(c->root, name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        int status = status_of(errno);
        if (status != 404 || !slash || encoding)
            return status;
        name[path.n - 1] = '\0'; /* a directory without an index is not listed */
        fd = open_beneath(c->root, *name ? name : ".", O_PATH | O_DIRECTORY);
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

int cache_get(struct cache *c, struct str path, enum encoding encoding, double now,
              struct file **file)
{
    uint64_t hash = hash_of(path, encoding);
    struct file *f = c->buckets[hash % BUCKETS];
    while (f && !(f->hash == hash && f->encoding == encoding &&
                  str_eq(path, (struct str){f->key, f->key_length})))
        f = f->chain;
    if (f && (now - f->checked) * 1000 < (double)c->config->revalidate) {
        *file = f;
        return 200;
    }
    int fd = -1;
    struct stat st;
    if (f) /* cache_shed() must not drop it meanwhile */
        f->refs++;
    int status = open_path(c, path, encoding, &fd, &st);
    if (f)
        f->refs--;
    if (f && status == 200 && same_file(f, &st) && !f->young &&
        f->neighbours == (encoding ? 0 : find_neighbours(c, path))) {
        close(fd);
        touch(c, f);
    } else {
        if (f)
            unlink_file(c, f);
        if (status != 200)
            return status;
        status = build(c, path, encoding, hash, fd, &f);
        if (status)
            return status;
        link_file(c, f);
    }
    f->checked = now;
    *file = f;
    return 200;
}

struct cache *cache_open(const struct config *config)
{
    struct cache *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->config = config;
    c->root = open(config->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (c->root < 0) {
        free(c);
        return NULL;
    }
    return c;
}

void cache_close(struct cache *c)
{
    while (c->oldest)
        unlink_file(c, c->oldest);
    close(c->root);
    free(c);
}
