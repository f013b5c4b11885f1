/* The open-file cache: what a path names, opened beneath the root, with its header prebuilt. */
#ifndef CACHE_H
#define CACHE_H

#include "config.h"
#include <stdint.h>
#include <sys/stat.h>

enum encoding { ENCODING_NONE, ENCODING_BR, ENCODING_ZSTD, ENCODING_GZIP, ENCODINGS };

/* Room before the entity header of a file for the status line, Server, Date and Connection, so
 * that a whole response lies in one piece of memory. */
enum { FRONT_ROOM = 128 };

struct file {
    struct file *chain; /* of the hash bucket */
    struct file *newer;
    struct file *older;
    double checked; /* loop time of the last look at the file */
    uint64_t hash;
    unsigned refs; /* the cache holds one */
    bool young;    /* so fresh when read that its time may not tell a later change */
    int fd;        /* -1 when the body is in memory */
    dev_t dev;
    ino_t ino;
    struct timespec mtime;
    struct timespec ctime;
    off_t size;
    char *block; /* FRONT_ROOM, entity header with its empty line, body if in memory */
    size_t head; /* length of the entity header */
    const char *body;
    struct str etag; /* these slice the entity header; the last three reach to its end */
    struct str type;
    struct str after_length;
    struct str after_type;
    struct str validators;
    enum encoding encoding;
    unsigned neighbours; /* bit per encoding that exists beside the plain file */
    size_t key_length;
    char key[];
};

struct cache;

/* NULL with errno when the root cannot be opened. */
struct cache *cache_open(const struct config *config);
void cache_close(struct cache *cache);

/*
 * The file that the decoded `path` names, in one encoding. Returns 200 and `*file`, good until the
 * next call or for as long as file_hold() says; 301 for a directory without its slash; 403, 404,
 * 500 or 503 otherwise. What it returns was true at most `revalidate` ago.
 */
int cache_get(struct cache *cache, struct str path, enum encoding encoding, double now,
              struct file **file);

/* Drops descriptors that nobody uses; false when there was none. For when they run out. */
bool cache_shed(struct cache *cache);

void file_hold(struct file *file);
void file_release(struct file *file);

/* False when the open file no longer is what its header says. */
bool file_unchanged(const struct file *file);

/* The name of a content coding. */
struct str encoding_name(enum encoding encoding);

#endif
