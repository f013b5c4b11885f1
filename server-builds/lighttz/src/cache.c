#include "cache.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { BUCKETS = 1024, SHED_BATCH = 16, AGE = 10 /* times `revalidate`, and a second */ };

struct cache {
    struct root root;
    size_t entries;
    size_t bytes;
    TAILQ_HEAD(uses, file) use; /* the latest first */
    LIST_HEAD(, file) buckets[BUCKETS];
};

/* FNV-1a */
static uint64_t hash_of(struct str key, enum encoding encoding)
{
    uint64_t h = 0xcbf29ce484222325U + encoding;
    for (size_t i = 0; i < key.n; i++)
        h = (h ^ (unsigned char)key.p[i]) * 0x100000001b3U;
    return h;
}

static void unlink_file(struct cache *c, struct file *f)
{
    LIST_REMOVE(f, bucket);
    TAILQ_REMOVE(&c->use, f, use);
    c->entries--;
    c->bytes -= file_weight(f);
    file_release(f);
}

static void link_file(struct cache *c, struct file *f)
{
    const struct config *config = c->root.config;
    while (c->entries &&
           (c->entries >= config->cache_entries || c->bytes + file_weight(f) > config->cache_bytes))
        unlink_file(c, TAILQ_LAST(&c->use, uses));
    LIST_INSERT_HEAD(&c->buckets[f->hash % BUCKETS], f, bucket);
    TAILQ_INSERT_HEAD(&c->use, f, use);
    c->entries++;
    c->bytes += file_weight(f);
}

void cache_age(struct cache *c, double now)
{
    double before = now - 1 - AGE * (double)c->root.config->revalidate / 1000;
    struct file *f; /* what is looked at again goes to the front, so these are in order */
    while ((f = TAILQ_LAST(&c->use, uses)) && f->checked < before)
        unlink_file(c, f);
}

int cache_root(const struct cache *c)
{
    return c->root.fd;
}

bool cache_shed(struct cache *c)
{
    int dropped = 0;
    struct file *next;
    for (struct file *f = TAILQ_LAST(&c->use, uses); f && dropped < SHED_BATCH; f = next) {
        next = TAILQ_PREV(f, uses, use);
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
    struct file *f;
    LIST_FOREACH (f, &c->buckets[hash % BUCKETS], bucket)
        if (f->hash == hash && f->encoding == encoding &&
            str_eq(path, (struct str){f->key, f->key_length}))
            break;
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
        TAILQ_REMOVE(&c->use, f, use);
        TAILQ_INSERT_HEAD(&c->use, f, use);
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
    TAILQ_INIT(&c->use);
    c->root.config = config;
    c->root.fd = open(config->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (c->root.fd >= 0 && file_confines(&c->root))
        return c;
    free(c);
    return NULL;
}
