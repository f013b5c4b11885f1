#include "cache.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    SHED_BATCH = 16,
    AGE_BATCH = 256,
    AGE = 10, /* times `revalidate`, and a second */
};

struct cache {
    struct root root;
    size_t entries;
    size_t bytes;
    double trusted; /* seconds after a look at a file */
    cache_make_room *make_room;
    void *context;
    TAILQ_HEAD(uses, file) use; /* the latest look first */
    size_t mask;                /* of the buckets' number, a power of two */
    LIST_HEAD(bucket, file) buckets[];
};

static uint64_t mixed(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15U;
    return h ^ h >> 32;
}

/* Eight octets at a time; the last piece overlaps. */
static uint64_t hash_of(struct str key, enum encoding encoding)
{
    uint64_t h = 0xcbf29ce484222325U + encoding + 8 * key.n;
    uint64_t word = 0;
    for (size_t i = 0; i + 8 < key.n; i += 8) {
        memcpy(&word, key.p + i, sizeof word);
        h = mixed(h, word);
    }
    if (key.n >= 8)
        memcpy(&word, key.p + key.n - 8, sizeof word);
    for (size_t i = 0; key.n < 8 && i < key.n; i++)
        word = word << 8 | (unsigned char)key.p[i];
    return mixed(mixed(h, word), 0);
}

static void unlink_file(struct cache *c, struct file *f)
{
    LIST_REMOVE(f, bucket);
    TAILQ_REMOVE(&c->use, f, use);
    c->entries--;
    c->bytes -= file_weight(f);
    file_release(f);
}

static void to_front(struct cache *c, struct file *f)
{
    TAILQ_REMOVE(&c->use, f, use);
    TAILQ_INSERT_HEAD(&c->use, f, use);
    f->used = false;
}

/* Evicts the file whose last look is the oldest; one that was used since gets a second chance. */
static void evict(struct cache *c)
{
    struct file *f;
    while ((f = TAILQ_LAST(&c->use, uses))->used)
        to_front(c, f);
    unlink_file(c, f);
}

static void link_file(struct cache *c, struct file *f)
{
    const struct config *config = c->root.config;
    while (c->entries &&
           (c->entries >= config->cache_entries || c->bytes + file_weight(f) > config->cache_bytes))
        evict(c);
    LIST_INSERT_HEAD(&c->buckets[f->hash & c->mask], f, bucket);
    TAILQ_INSERT_HEAD(&c->use, f, use);
    c->entries++;
    c->bytes += file_weight(f);
}

bool cache_age(struct cache *c, double now)
{
    double before = now - 1 - (double)AGE * c->trusted;
    struct file *f; /* the latest look first, but for second chances */
    for (int left = AGE_BATCH; left; left--) {
        if ((f = TAILQ_LAST(&c->use, uses)) == NULL || f->checked >= before)
            return false;
        unlink_file(c, f);
    }
    return true;
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

/* Looks at the file and its neighbours; 503 also where only these cannot be told. */
static int look(struct cache *c, struct str path, enum encoding encoding, struct stat *st,
                unsigned *neighbours)
{
    *neighbours = 0;
    int status = file_find(&c->root, path, encoding, st);
    if (status == 200 && !encoding && !file_neighbours(&c->root, path, neighbours))
        return 503;
    return status;
}

/* What lies there now: `f` if it is that one, or else a new file. */
static int refresh(struct cache *c, struct str path, enum encoding encoding, uint64_t hash,
                   struct file **f)
{
    struct stat st;
    unsigned neighbours;
    struct file *fresh = NULL;
    int status = look(c, path, encoding, &st, &neighbours);
    if (*f && status == 200 && file_is(*f, &st) && !(*f)->young && (*f)->neighbours == neighbours) {
        to_front(c, *f);
        return 200;
    }
    if (status == 200)
        status = file_load(&c->root, path, encoding, hash, neighbours, &fresh);
    if (status == 503)
        return 503;
    if (*f)
        unlink_file(c, *f);
    *f = fresh;
    if (status)
        return status;
    link_file(c, fresh);
    return 200;
}

int cache_get(struct cache *c, struct str path, enum encoding encoding, double now,
              struct file **file)
{
    uint64_t hash = hash_of(path, encoding);
    struct file *f;
    LIST_FOREACH (f, &c->buckets[hash & c->mask], bucket)
        if (f->hash == hash && f->encoding == encoding &&
            str_eq(path, (struct str){f->key, f->key_length}))
            break;
    *file = f;
    if (f && now - f->checked < c->trusted) {
        f->used = true;
        return 200;
    }
    if (f) /* making room must not drop it meanwhile */
        f->refs++;
    errno = 0;
    int status = refresh(c, path, encoding, hash, &f);
    bool lacks = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    if (status == 503 && lacks && c->make_room(c->context))
        status = refresh(c, path, encoding, hash, &f);
    if (*file)
        file_release(*file);
    if (status == 503 && f) /* what we have is better than nothing */
        status = 200;
    if (status == 200)
        f->checked = now;
    *file = f;
    return status;
}

static size_t power_of_two(size_t least)
{
    size_t n = 1;
    while (n < least)
        n *= 2;
    return n;
}

struct cache *cache_open(const struct config *config, cache_make_room *make_room, void *context)
{
    size_t buckets = power_of_two(config->cache_entries);
    struct cache *c = calloc(1, sizeof *c + buckets * sizeof(struct bucket));
    if (c == NULL)
        return NULL;
    TAILQ_INIT(&c->use);
    c->mask = buckets - 1;
    c->make_room = make_room;
    c->context = context;
    c->root.config = config;
    c->trusted = (double)config->revalidate / 1000;
    c->root.fd = open(config->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (c->root.fd >= 0 && file_confines(&c->root))
        return c;
    free(c);
    return NULL;
}
