#include "cache.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { BUCKETS = 1024, SHED_BATCH = 16 };

struct cache {
    struct root root;
    size_t entries;
    size_t bytes;
    struct file *newest;
    struct file *oldest;
    struct file *buckets[BUCKETS];
};

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

static void unlink_file(struct cache *c, struct file *f)
{
    struct file **slot = &c->buckets[f->hash % BUCKETS];
    while (*slot != f)
        slot = &(*slot)->chain;
    *slot = f->chain;
    *(f->newer ? &f->newer->older : &c->newest) = f->older;
    *(f->older ? &f->older->newer : &c->oldest) = f->newer;
    c->entries--;
    c->bytes -= file_weight(f);
    file_release(f);
}

static void link_file(struct cache *c, struct file *f)
{
    while (c->oldest && (c->entries >= c->root.config->cache_entries ||
                         c->bytes + file_weight(f) > c->root.config->cache_bytes))
        unlink_file(c, c->oldest);
    f->chain = c->buckets[f->hash % BUCKETS];
    c->buckets[f->hash % BUCKETS] = f;
    f->older = c->newest;
    f->newer = NULL;
    *(c->newest ? &c->newest->newer : &c->oldest) = f;
    c->newest = f;
    c->entries++;
    c->bytes += file_weight(f);
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

int cache_get(struct cache *c, struct str path, enum encoding encoding, double now,
              struct file **file)
{
    uint64_t hash = hash_of(path, encoding);
    struct file *f = c->buckets[hash % BUCKETS];
    while (f && !(f->hash == hash && f->encoding == encoding &&
                  str_eq(path, (struct str){f->key, f->key_length})))
        f = f->chain;
    if (f && (now - f->checked) * 1000 < (double)c->root.config->revalidate) {
        *file = f;
        return 200;
    }
    int fd = -1;
    struct stat st;
    if (f) /* cache_shed() must not drop it meanwhile */
        f->refs++;
    int status = file_open(&c->root, path, encoding, &fd, &st);
    if (status == 503 && cache_shed(c))
        status = file_open(&c->root, path, encoding, &fd, &st);
    if (f)
        f->refs--;
    if (f && status == 200 && file_is(f, &st) && !f->young &&
        f->neighbours == (encoding ? 0 : file_neighbours(&c->root, path))) {
        close(fd);
        touch(c, f);
    } else {
        if (f)
            unlink_file(c, f);
        if (status != 200)
            return status;
        status = file_load(&c->root, path, encoding, hash, fd, &f);
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
    c->root.config = config;
    c->root.fd = open(config->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (c->root.fd >= 0 && file_confines(&c->root))
        return c;
    free(c);
    return NULL;
}

void cache_close(struct cache *c)
{
    while (c->oldest)
        unlink_file(c, c->oldest);
    close(c->root.fd);
    free(c);
}
