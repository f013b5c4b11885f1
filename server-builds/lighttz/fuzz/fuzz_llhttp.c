/* A request as lighttz and llhttp (the parser of Node.js) read it. Each may refuse what the other
 * takes; what both take they must read alike, up to where the next request starts. */
#include "body.h"
#include "llhttp.h"
#include <stdlib.h>

enum { FIELDS = REQUEST_FIELDS_MAX };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct reading {
    struct str target;
    struct str name[FIELDS];
    struct str value[FIELDS];
    size_t names;
    size_t values;
    bool in_value;
    bool keep_alive;
    bool chunked;
    bool upgrade;
    bool head_done;
    uint64_t length;
    uint64_t content;
};

/* The input lies in one piece, so what comes in several calls is adjacent. */
static void grow(struct str *s, const char *p, size_t n)
{
    if (s->p == NULL)
        s->p = p;
    s->n = (size_t)(p + n - s->p);
}

static int on_url(llhttp_t *parser, const char *p, size_t n)
{
    grow(&((struct reading *)parser->data)->target, p, n);
    return 0;
}

static int on_name(llhttp_t *parser, const char *p, size_t n)
{
    struct reading *r = parser->data;
    if (!r->head_done && r->names < FIELDS)
        grow(&r->name[r->names], p, n);
    return 0;
}

static int on_name_end(llhttp_t *parser)
{
    struct reading *r = parser->data;
    r->names += !r->head_done;
    return 0;
}

static int on_value(llhttp_t *parser, const char *p, size_t n)
{
    struct reading *r = parser->data;
    if (!r->head_done && r->values < FIELDS)
        grow(&r->value[r->values], p, n);
    return 0;
}

static int on_value_end(llhttp_t *parser)
{
    struct reading *r = parser->data;
    r->values += !r->head_done;
    return 0;
}

static int on_head(llhttp_t *parser)
{
    struct reading *r = parser->data;
    r->head_done = true;
    r->keep_alive = llhttp_should_keep_alive(parser) != 0;
    r->chunked = (parser->flags & F_CHUNKED) != 0;
    r->length = r->chunked ? 0 : parser->content_length;
    r->upgrade = parser->upgrade != 0;
    return 0;
}

static int on_body(llhttp_t *parser, const char *p, size_t n)
{
    (void)p;
    ((struct reading *)parser->data)->content += n;
    return 0;
}

static int on_end(llhttp_t *parser)
{
    (void)parser;
    return HPE_PAUSED;
}

static void must(bool alike)
{
    if (!alike)
        abort();
}

static void compare_heads(const struct request *r, const struct reading *theirs,
                          const llhttp_t *parser)
{
    must(str_eq(r->name, str_of(llhttp_method_name(llhttp_get_method((llhttp_t *)parser)))));
    must(str_eq(r->target, theirs->target));
    must(parser->http_major == 1 && r->http_1_0 == (parser->http_minor == 0));
    must(r->fields->count == theirs->names && r->count == theirs->values);
    for (size_t i = 0; i < r->fields->count; i++) {
        must(str_eq(request_name(r, i), theirs->name[i]));
        must(str_eq(request_value(r, i), str_trim(theirs->value[i])));
    }
    must(r->chunked == theirs->chunked && r->length == theirs->length);
    must(theirs->upgrade || !r->keep_alive || theirs->keep_alive); /* closing is always right */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct request_limits limits = {8192, 16384};
    const char *p = (const char *)data;
    struct request r;
    struct body body;
    size_t scanned = 0;
    long end = request_parse(p, size, &scanned, &limits, &r);
    if (end <= 0 || r.refusal)
        return 0;
    body_start(&body, &r, false);
    size_t used = (size_t)end + body_skip(&body, p + end, size - (size_t)end);

    struct reading theirs = {.length = 0};
    llhttp_settings_t settings;
    llhttp_t parser;
    llhttp_settings_init(&settings);
    settings.on_url = on_url;
    settings.on_header_field = on_name;
    settings.on_header_field_complete = on_name_end;
    settings.on_header_value = on_value;
    settings.on_header_value_complete = on_value_end;
    settings.on_headers_complete = on_head;
    settings.on_body = on_body;
    settings.on_message_complete = on_end;
    llhttp_init(&parser, HTTP_REQUEST, &settings);
    parser.data = &theirs;
    enum llhttp_errno error = llhttp_execute(&parser, p, size);
    if (!theirs.head_done) {
        must(error != HPE_OK); /* they would wait for more of a head that has come whole */
        return 0;
    }
    if (error == HPE_INVALID_TRANSFER_ENCODING) /* which llhttp says after the head */
        return 0;
    compare_heads(&r, &theirs, &parser);
    if (theirs.upgrade || body.state == BODY_BAD || (error && error != HPE_PAUSED))
        return 0;
    must((body.state == BODY_DONE) == (error == HPE_PAUSED));
    must(body.total == theirs.content);
    if (error == HPE_PAUSED)
        must(llhttp_get_error_pos(&parser) == p + used);
    return 0;
}
