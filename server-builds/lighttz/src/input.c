#include "input.h"
#include "keep.h"
#include "response.h"
#include "serve.h"

void input_refuse(struct conn *c, const char *p, size_t n, int status)
{
    struct str part = n ? str_from((struct str){p, n}, request_empty_lines(p, n)) : STR("");
    bool head = str_starts(part, STR("HEAD "));
    static const struct fields none;
    struct request r = {.method = head ? METHOD_HEAD : METHOD_UNKNOWN, .fields = &none};
    struct str line = str_before(part, '\r');
    if (line.n < part.n)
        r.line = line;
    respond_refusal(c, &r, status);
}

bool input_is_empty_line(const char *p, size_t n)
{
    return n && request_empty_lines(p, n) == n;
}

static struct request_limits limits_of(const struct config *config)
{
    return (struct request_limits){config->max_line, config->max_head};
}

/* The length of the next head, checked; 0 when more of it is needed, or it was refused. */
static size_t take_head(struct conn *c, const char *p, size_t n, struct request *r)
{
    const struct config *config = c->server->config;
    struct request_limits limits = limits_of(config);
    long end = request_parse(p, n, &c->scanned, &limits, r);
    if (end == 0)
        return 0;
    c->scanned = 0;
    if (end < 0) {
        input_refuse(c, p, n, (int)-end);
        return 0;
    }
    int status = r->refusal ? r->refusal : r->length > config->max_body ? 413 : 0;
    if (status) {
        respond_refusal(c, r, status);
        return 0;
    }
    body_start(&c->body, r, serve_needs_body(c, r));
    if (request_has_body(r) && serve_before_body(c, r, n > (size_t)end))
        return 0;
    return (size_t)end;
}

/* Whether all of the body has come; otherwise more is needed, or it was refused. */
static bool take_body(struct conn *c, const struct request *r, const char *p, size_t n,
                      size_t *used)
{
    struct body *b = &c->body;
    *used = body_skip(b, p, n);
    int status = b->state == BODY_NO_MEMORY                         ? 503
                 : b->state == BODY_BAD                             ? 400
                 : b->total + b->left > c->server->config->max_body ? 413
                                                                    : 0;
    if (status)
        respond_refusal(c, r, status);
    return status == 0 && b->state == BODY_DONE;
}

size_t input_take(struct conn *c, char *p, size_t *n, struct request *r)
{
    size_t body = 0;
    struct request_limits limits = limits_of(c->server->config);
    if (c->head_length) /* the same head once more, instead of keeping what was read of it */
        request_parse(p, c->head_length, &(size_t){0}, &limits, r);
    else
        c->head_length = take_head(c, p, *n, r);
    size_t head = c->head_length;
    bool whole =
        head && (c->body.state == BODY_DONE || take_body(c, r, p + head, *n - head, &body));
    if (c->closing)
        return *n;
    if (head == 0)
        return 0;
    c->waits_turn =
        whole && c->server->script_seconds >= TURN_SCRIPTS_S && serve_calls_script(c, r);
    if (!whole || c->waits_turn) {
        *n -= body;
        memmove(p + head, p + head + body, *n - head);
        return 0;
    }
    c->head_length = 0;
    return head + body;
}

bool input_keep(struct conn *c, const char *p, size_t n)
{
    if (n == 0 && c->in == NULL)
        return true;
    char *in = keep_resize(c, c->in, c->in_length, n);
    if (n && in == NULL)
        return false;
    c->in = in;
    c->in_length = n;
    if (n)
        memcpy(in, p, n);
    return true;
}

size_t input_restore(struct conn *c)
{
    if (c->in_length)
        memcpy(c->server->in, c->in, c->in_length);
    return c->in_length;
}
