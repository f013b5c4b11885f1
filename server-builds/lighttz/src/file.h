/* A file beneath the root: opened so that it cannot lie outside, its response prebuilt. */
#pragma once

#include "config.h"
#include <stdint.h>
#include <sys/queue.h>
#include <sys/stat.h>

enum encoding { ENCODING_NONE, ENCODING_BR, ENCODING_ZSTD, ENCODING_GZIP, ENCODINGS };

/* Room before the entity header of a file for the status line, Server, Date and Connection, so
 * that a whole response lies in one piece of memory. */
enum { FRONT_ROOM = 128 };

struct file {
    LIST_ENTRY(file) bucket; /* of the hash table */
    TAILQ_ENTRY(file) use;   /* the latest look first */
    double checked;          /* loop time of the last look at the file */
    uint64_t hash;
    unsigned refs; /* the cache holds one */
    bool used;     /* since it came to the front: it is not the next to be evicted */
    bool weak;     /* its validators: another change may have the same time */
    bool young;    /* so fresh when read that its time may not tell a later change */
    int fd;        /* -1 when the body is in memory */
    dev_t dev;
    ino_t ino;
    struct timespec mtime;
    time_t modified; /* as Last-Modified says it */
    struct timespec ctime;
    off_t size;
    char *block; /* FRONT_ROOM, entity header with its empty line, body if in memory */
    size_t head; /* length of the entity header */
    const char *body;
    struct str etag;
    char etag_text[64];
    struct str type;
    struct str after_length; /* these reach to the end of the entity header */
    struct str after_type;
    struct str validators;
    enum encoding encoding;
    unsigned neighbours; /* bit per encoding that exists beside the plain file */
    size_t key_length;
    char key[];
};

struct root {
    const struct config *config;
    int fd;
};

/*
 * Looks at what the decoded `path` names, without opening it for reading: 200 with `*st` of a plain
 * file, 301 for a directory without its slash, 403, 404, 500, or 503 when descriptors or memory run
 * out.
 */
int file_find(const struct root *root, struct str path, enum encoding encoding, struct stat *st);

/* Loads the plain file that `path` names; 0 or a status. */
int file_load(const struct root *root, struct str path, enum encoding encoding, uint64_t hash,
              unsigned neighbours, struct file **file);

/* A bit per encoding that lies beside `path`; false when that cannot be told just now. */
bool file_neighbours(const struct root *root, struct str path, unsigned *neighbours);

/* Whether `st` is of the very file that was loaded, unchanged. */
bool file_is(const struct file *file, const struct stat *st);

/* False when the open file no longer is what its header says. */
bool file_still_is(const struct file *file);

/* What is in memory does not change. */
static inline bool file_unchanged(const struct file *file)
{
    return file->fd < 0 || file_still_is(file);
}

size_t file_weight(const struct file *file);
void file_hold(struct file *file);
void file_release(struct file *file);

/* Whether the kernel opens beneath the root at all; sets errno. */
bool file_confines(const struct root *root);

/* The name of a content coding. */
struct str encoding_name(enum encoding encoding);
