#include "keep.h"
#include <stdlib.h>

enum { CANDIDATES = 8 };

/* The connection to close in favour of `c`; NULL when no other keeps anything. */
static struct conn *find_victim(const struct conn *c)
{
    struct conn *victim = NULL;
    struct conn *other;
    int left = CANDIDATES;
    TAILQ_FOREACH (other, &c->server->keepers, keepers) {
        if (other == c)
            continue;
        if (victim == NULL || other->kept > victim->kept)
            victim = other;
        if (--left == 0)
            break;
    }
    return victim;
}

static bool make_room(const struct conn *c, size_t more)
{
    struct server *s = c->server;
    size_t limit = s->config->connection_memory;
    if (more > limit || c->kept > limit - more)
        return false; /* all others together could not make it */
    while (s->kept > limit - more) {
        struct conn *victim = find_victim(c);
        if (victim == NULL)
            return false;
        s->stats->count[CONNECTIONS_EVICTED]++;
        s->close(victim);
    }
    return true;
}

char *keep_resize(struct conn *c, char *p, size_t old, size_t n)
{
    struct server *s = c->server;
    if (n > old && !make_room(c, n - old))
        return NULL;
    char *q = n ? realloc(p, n) : NULL;
    if (n == 0)
        free(p);
    if (n && q == NULL)
        return NULL;
    if (c->kept == 0 && n)
        TAILQ_INSERT_TAIL(&s->keepers, c, keepers);
    s->kept += n - old;
    c->kept += n - old;
    if (c->kept == 0 && old)
        TAILQ_REMOVE(&s->keepers, c, keepers);
    return q;
}
