#include "file.h"
#include "beneath.h"
#include "httpdate.h"
#include "target.h"
#include "text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { NAME_SIZE = TARGET_PATH_MAX + 300, HEAD_SIZE = 768 + CONFIG_HEADERS_SIZE };

static const struct {
    struct str name;
    const char *suffix;
} codings[ENCODINGS] = {[ENCODING_NONE] = {STR_INIT("identity"), ""},
                        [ENCODING_BR] = {STR_INIT("br"), ".br"},
                        [ENCODING_ZSTD] = {STR_INIT("zstd"), ".zst"},
                        [ENCODING_GZIP] = {STR_INIT("gzip"), ".gz"}};

struct str encoding_name(enum encoding encoding)
{
    return codings[encoding].name;
}

bool file_confines(const struct root *root)
{
    int fd = beneath_open(root->fd, ".", O_PATH);
    if (fd < 0)
        return false;
    close(fd);
    return true;
}

static int status_of(int error)
{
    if (error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG)
        return 404;
    if (error == EACCES || error == EPERM || error == EXDEV || error == ELOOP || error == ENXIO)
        return 403;
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN ? 503 : 500;
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

bool file_still_is(const struct file *f)
{
    struct stat st;
    return fstat(f->fd, &st) == 0 && f->size == st.st_size && same_time(f->mtime, st.st_mtim);
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
static bool name_of(const struct root *root, struct str path, enum encoding encoding,
                    char name[NAME_SIZE])
{
    const char *index = path.p[path.n - 1] == '/' ? root->config->index : "";
    size_t n = text_format(name, NAME_SIZE, "%.*s%s%s", (int)path.n - 1, path.p + 1, index,
                           codings[encoding].suffix);
    name[n < NAME_SIZE ? n : 0] = '\0';
    return name[0] != '\0';
}

/* The status that `st` of what a path names makes, apart from what else can go wrong. */
static int status_of_kind(const struct stat *st, bool slash)
{
    if (S_ISREG(st->st_mode))
        return 200;
    return S_ISDIR(st->st_mode) && !slash ? 301 : 403;
}

/* O_PATH: a FIFO's writer and a device notice nothing, and a directory need not be readable. */
static int look_at(const struct root *root, const char *name, bool slash, struct stat *st)
{
    int fd = beneath_open(root->fd, name, O_PATH);
    if (fd < 0)
        return status_of(errno);
    int status = fstat(fd, st) ? status_of(errno) : status_of_kind(st, slash);
    close(fd);
    return status;
}

bool file_neighbours(const struct root *root, struct str path, unsigned *neighbours)
{
    char name[NAME_SIZE];
    *neighbours = 0;
    for (enum encoding e = ENCODING_BR; e < ENCODINGS && root->config->precompressed; e++) {
        struct stat st;
        int status = name_of(root, path, e, name) ? look_at(root, name, false, &st) : 404;
        if (status >= 500)
            return false;
        *neighbours |= status == 200 ? 1U << e : 0;
    }
    return true;
}

int file_find(const struct root *root, struct str path, enum encoding encoding, struct stat *st)
{
    char name[NAME_SIZE];
    bool slash = path.p[path.n - 1] == '/';
    if (!name_of(root, path, encoding, name))
        return 404;
    int status = look_at(root, name, slash, st);
    if (status != 404 || !slash || encoding)
        return status;
    name[path.n - 1] = '\0'; /* a directory without an index is not listed */
    status = look_at(root, *name ? name : ".", true, st);
    return status != 403 || S_ISDIR(st->st_mode) ? status : 404;
}

/* Opens a plain file for reading; the descriptor, or minus a status. */
static int open_file(const struct root *root, struct str path, enum encoding encoding)
{
    char name[NAME_SIZE];
    struct stat st;
    if (!name_of(root, path, encoding, name))
        return -404;
    int fd = beneath_open(root->fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -status_of(errno);
    int status = fstat(fd, &st) ? status_of(errno) : status_of_kind(&st, false);
    if (status == 200)
        return fd;
    close(fd);
    return -status;
}

/* Writes the entity header, of which every response about the file sends all or a tail; `at` is
 * where its four pieces end. */
static void format_head(const struct root *root, struct file *f, struct str path,
                        char head[HEAD_SIZE], size_t at[4])
{
    char date[HTTPDATE_LENGTH];
    char name[NAME_SIZE];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    /* A date ahead of ours would be one at which we could not have sent it. */
    f->modified = f->mtime.tv_sec > now.tv_sec ? now.tv_sec : f->mtime.tv_sec;
    httpdate_format(f->modified, date);
    name_of(root, path, ENCODING_NONE, name);
    f->type = mime_type(&root->config->types, str_of(name));
    uint64_t version = (uint64_t)f->mtime.tv_sec * 1000000000U + (uint64_t)f->mtime.tv_nsec;
    f->etag.p = f->etag_text;
    f->weak = now.tv_sec - f->mtime.tv_sec < 2;
    f->etag.n = text_format(f->etag_text, sizeof f->etag_text, "%s\"%lx-%lx-%lx\"",
                            f->weak ? "W/" : "", f->size, version, f->ino);
    struct str coding = encoding_name(f->encoding);
    at[0] = text_format(head, HEAD_SIZE, "Content-Length: %ld\r\n", f->size);
    at[1] = at[0] + text_format(head + at[0], HEAD_SIZE - at[0], "Content-Type: %.*s\r\n",
                                (int)f->type.n, f->type.p);
    at[2] =
        at[1] + text_format(head + at[1], HEAD_SIZE - at[1], "%s%.*s%sAccept-Ranges: bytes\r\n",
                            f->encoding ? "Content-Encoding: " : "",
                            f->encoding ? (int)coding.n : 0, coding.p, f->encoding ? "\r\n" : "");
    at[3] = at[2] + text_format(head + at[2], HEAD_SIZE - at[2],
                                "Last-Modified: %.*s\r\nETag: %.*s\r\n%s", HTTPDATE_LENGTH, date,
                                (int)f->etag.n, f->etag.p,
                                f->encoding || f->neighbours ? "Vary: Accept-Encoding\r\n" : "");
    const struct headers *headers = &root->config->headers;
    for (unsigned i = 0; i < headers->count; i++)
        at[3] += text_format(head + at[3], HEAD_SIZE - at[3], "%s\r\n", headers->line[i]);
    at[3] += text_format(head + at[3], HEAD_SIZE - at[3], "\r\n");
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

/* Fills `f` from `fd`, which it keeps for a large file; 0 or a status. */
static int load(const struct root *root, struct file *f, struct str path, int fd)
{
    char head[HEAD_SIZE];
    size_t at[4];
    struct stat st;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (fstat(fd, &st))
        return 503;
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    f->size = st.st_size;
    f->mtime = st.st_mtim;
    f->ctime = st.st_ctim;
    f->young = now.tv_sec - st.st_ctim.tv_sec < 2;
    format_head(root, f, path, head, at);
    f->head = at[3];
    bool small = (size_t)f->size <= root->config->cache_file &&
                 file_weight(f) + (size_t)f->size <= root->config->cache_bytes;
    char *block = realloc(f->block, FRONT_ROOM + f->head + (small ? (size_t)f->size : 0));
    if (block == NULL)
        return 503;
    f->block = block;
    struct str all = {memcpy(block + FRONT_ROOM, head, f->head), f->head};
    f->after_length = str_from(all, at[0]);
    f->after_type = str_from(all, at[1]);
    f->validators = str_from(all, at[2]);
    f->body = small ? all.p + all.n : NULL; /* an earlier look may have found another size */
    f->fd = small ? -1 : fd;
    return !small || read_body(f, fd, block + FRONT_ROOM + f->head) ? 0 : 503;
}

int file_load(const struct root *root, struct str path, enum encoding encoding, uint64_t hash,
              unsigned neighbours, struct file **out)
{
    int fd = open_file(root, path, encoding);
    if (fd < 0)
        return -fd;
    struct file *f = calloc(1, sizeof *f + path.n);
    int status = 503;
    if (f) {
        f->refs = 1;
        f->fd = -1;
        f->hash = hash;
        f->encoding = encoding;
        f->key_length = path.n;
        memcpy(f->key, path.p, path.n);
        f->neighbours = neighbours;
        for (int i = 0; status && i < 3; i++)
            status = load(root, f, path, fd);
    }
    if (f == NULL || f->fd < 0)
        close(fd);
    if (f && status)
        file_release(f);
    *out = f;
    return status;
}
