#include "serve.h"
#include "condition.h"
#include "negotiate.h"
#include "output.h"
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
        if (status == 200 && !file_unchanged(*f)) /* it cannot be looked at again just now */
            status = 503;
    }
    return status;
}

static bool wants_ranges(const struct request *r, const struct file *f)
{
    return request_has(r, FIELD_RANGE) && r->method == METHOD_GET &&
           !request_repeats(r, FIELD_RANGE) && condition_if_range(r, f);
}

static void serve_file(struct conn *c, const struct request *r, struct str path, bool more)
{
    struct file *f;
    struct ranges ranges;
    int status = find_file(c, r, path, &f);
    if (status == 200)
        status = condition_status(r, f);
    if (status == 301)
        respond_redirect(c, r, path);
    else if (status == 304)
        respond_not_modified(c, r, f);
    else if (status != 200)
        respond_status(c, r, status);
    else if (wants_ranges(r, f) &&
             range_parse(r->fields->value[FIELD_RANGE], f->size, &ranges) != 200)
        respond_ranges(c, r, f, &ranges);
    else
        respond_file(c, r, f, more);
}

static bool is_scripts(const struct conn *c, struct str path)
{
    return !c->status_page && script_takes(c->server->config, path);
}

bool serve_calls_script(const struct conn *c, const struct request *r)
{
    char text[TARGET_PATH_MAX];
    struct str path = {text, 0};
    return c->server->script && target_decode(r->path, text, &path.n) == 0 && is_scripts(c, path);
}

bool serve_needs_body(const struct conn *c, const struct request *r)
{
    return request_has_body(r) && serve_calls_script(c, r);
}

bool serve_before_body(struct conn *c, const struct request *r, bool body_has_come)
{
    if (!r->expects_continue || body_has_come)
        return false;
    bool refused = r->method == METHOD_REFUSED;
    bool serves = serve_needs_body(c, r) || !(refused || r->method == METHOD_UNKNOWN);
    if (serves)
        output_append(c, STR("HTTP/1.1 100 Continue\r\n\r\n"));
    else /* whether the body still comes is the client's choice: only a new connection is in step */
        respond_refusal(c, r, refused ? 405 : 501);
    return !serves;
}

/* False when the script failed. Its time is the turn's. */
static bool call_script(struct conn *c, const struct request *r, struct str path,
                        struct str content, struct script_reply *reply)
{
    bool good = script_answer(c->server->script, r, path, content, reply);
    c->server->script_seconds += reply->seconds;
    return good;
}

static void serve_script(struct conn *c, const struct request *r, struct str path)
{
    struct script_reply reply;
    static const struct script_reply not_allowed = {
        .status = 405,
        .fields = STR_INIT("Allow: GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE\r\n"
                           "Content-Type: text/plain; charset=utf-8\r\n"),
        .has_type = true,
        .body = STR_INIT("405 Method Not Allowed\n")};
    struct str content = {c->body.content, c->body.content ? (size_t)c->body.total : 0};
    bool sends = str_eq(r->name, STR("POST")) || str_eq(r->name, STR("PUT")) ||
                 str_eq(r->name, STR("PATCH"));
    if (r->method == METHOD_UNKNOWN)
        respond_status(c, r, 501);
    else if (str_eq(r->name, STR("TRACE")))
        respond_script(c, r, &not_allowed);
    else if (sends && !r->chunked && !request_has(r, FIELD_CONTENT_LENGTH))
        respond_refusal(c, r, 411);
    else if (call_script(c, r, path, content, &reply))
        respond_script(c, r, &reply);
    else
        respond_status(c, r, 500);
}

/* `status`: what decoding the path came to. */
static void serve_path(struct conn *c, const struct request *r, struct str path, int status,
                       bool more)
{
    if (c->server->script && status == 0 && is_scripts(c, path))
        serve_script(c, r, path);
    else if (r->method == METHOD_REFUSED || r->method == METHOD_UNKNOWN)
        respond_status(c, r, r->method == METHOD_REFUSED ? 405 : 501);
    else if (status == 400)
        respond_refusal(c, r, status);
    else if (status)
        respond_status(c, r, status);
    else if (r->method == METHOD_OPTIONS)
        respond_status(c, r, 200);
    else if (c->status_page)
        respond_page(c, r);
    else
        serve_file(c, r, path, more);
}

static __attribute__((noinline)) void decode_and_serve(struct conn *c, const struct request *r,
                                                       bool more)
{
    char text[TARGET_PATH_MAX];
    struct str path = {text, 0};
    int status = r->path.n ? target_decode(r->path, text, &path.n) : 0;
    serve_path(c, r, path, status, more);
}

void serve(struct conn *c, const struct request *r, bool more)
{
    if (r->plain)
        serve_path(c, r, r->path, 0, more);
    else
        decode_and_serve(c, r, more);
}
