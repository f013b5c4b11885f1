/* From a request to the response it gets. */
#include "condition.h"
#include "negotiate.h"
#include "response.h"
#include "target.h"

/* The file for `path` in the coding the client prefers. */
static int find_file(struct conn *c, const struct request *r, struct str path, struct file **f)
{
    struct server *s = c->server;
    int status = cache_get(s->cache, path, ENCODING_NONE, s->now, f);
    if (status == 200 && (*f)->neighbours && request_has(r, FIELD_ACCEPT_ENCODING)) {
        enum encoding e = negotiate(r, (*f)->neighbours);
        /* A neighbour that went meanwhile leaves the plain file. */
        if (e && cache_get(s->cache, path, e, s->now, f) != 200)
            status = cache_get(s->cache, path, ENCODING_NONE, s->now, f);
    }
    if (status == 200 && !file_unchanged(*f)) {
        (*f)->checked = -1e9; /* written in place since the last look */
        status = cache_get(s->cache, path, (*f)->encoding, s->now, f);
    }
    return status;
}

static bool wants_ranges(const struct request *r, const struct file *f)
{
    return request_has(r, FIELD_RANGE) && r->method == METHOD_GET &&
           !(r->repeated >> FIELD_RANGE & 1U) && condition_if_range(r, f);
}

static void serve_file(struct conn *c, const struct request *r, struct str path, bool more)
{
    struct file *f;
    int status = find_file(c, r, path, &f);
    if (status == 301) {
        respond_redirect(c, r, path);
        return;
    }
    if (status == 200)
        status = condition_status(r, f);
    if (status == 304) {
        respond_not_modified(c, r, f);
        return;
    }
    if (status != 200) {
        respond_status(c, r, status);
        return;
    }
    struct ranges ranges;
    if (wants_ranges(r, f) && range_parse(r->value[FIELD_RANGE], f->size, &ranges) != 200)
        respond_ranges(c, r, f, &ranges);
    else
        respond_file(c, r, f, more);
}

void serve(struct conn *c, const struct request *r, bool more)
{
    char path[TARGET_PATH_MAX];
    size_t n = 0;
    if (r->method == METHOD_REFUSED || r->method == METHOD_UNKNOWN) {
        respond_status(c, r, r->method == METHOD_REFUSED ? 405 : 501);
        return;
    }
    int status = r->path.n ? target_decode(r->path, path, &n) : 200;
    if (status == 400)
        respond_refusal(c, r, status);
    else if (status && status != 200)
        respond_status(c, r, status);
    else if (r->method == METHOD_OPTIONS)
        respond_status(c, r, 200);
    else if (c->status_page)
        respond_page(c, r);
    else
        serve_file(c, r, (struct str){path, n}, more);
}
