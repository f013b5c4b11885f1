/* Head and body, whole and in two pieces: both must be understood alike. */
#include "body.h"
#include "condition.h"
#include "negotiate.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct request *r)
{
    struct file f = {.etag = STR("\"a-b\""), .mtime = {784111777, 0}};
    condition_status(r, &f);
    condition_if_range(r, &f);
    if (request_has(r, FIELD_ACCEPT_ENCODING) && negotiate(r, 14) >= ENCODINGS)
        abort();
}

/* The same head once more: its fields are remembered by now. */
static void compare(const struct request *r, const struct request *s)
{
    const struct fields *a = r->fields;
    const struct fields *b = s->fields;
    bool alike = r->method == s->method && r->http_1_0 == s->http_1_0 &&
                 r->keep_alive == s->keep_alive && r->expects_continue == s->expects_continue &&
                 r->chunked == s->chunked && r->length == s->length && a->seen == b->seen &&
                 a->repeated == b->repeated && a->count == b->count;
    for (size_t i = 0; alike && i < a->count; i++)
        alike = a->lines[i].field == b->lines[i].field &&
                str_eq(request_name(r, i), request_name(s, i)) &&
                str_eq(request_value(r, i), request_value(s, i));
    for (enum field f = 0; alike && f < FIELD_OTHER; f++)
        alike = !request_has(r, f) || str_eq(a->value[f], b->value[f]);
    if (!alike)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data;
    const struct request_limits limits = {300, 1000};
    struct request r;
    struct request other;
    size_t scanned = 0;
    long end = request_parse(p, size, &scanned, &limits, &r);
    struct line lines[REQUEST_FIELDS_MAX]; /* a request's fields last until the next one is read */
    struct fields fields = *r.fields;
    memcpy(lines, fields.lines, fields.count * sizeof *lines);
    fields.lines = lines;
    r.fields = &fields;
    size_t cut = 0; /* somewhere, but for the same input at the same place */
    for (size_t i = 0; i < size; i++)
        cut = (cut * 31 + data[i]) % (size + 1);
    size_t again = 0;
    long rest = request_parse(p, cut, &again, &limits, &other);
    if (rest == 0)
        rest = request_parse(p, size, &again, &limits, &other);
    if (end > (long)size || rest > (long)size)
        abort();
    /* What is refused may be refused sooner or later, and for another reason; what is taken may
     * not. */
    bool taken = end > 0 && r.refusal == 0;
    if (taken != (rest > 0 && other.refusal == 0) || (taken && end != rest))
        abort();
    if (!taken)
        return 0;
    use(&r);
    if (request_parse(p, size, &(size_t){0}, &limits, &other) != end || other.refusal)
        abort();
    compare(&r, &other);
    struct body whole;
    struct body pieces;
    body_start(&whole, &r, false);
    body_start(&pieces, &r, true);
    p += end;
    size -= (size_t)end;
    size_t used = body_skip(&whole, p, size);
    size_t first = body_skip(&pieces, p, size / 2);
    first += first == size / 2 ? body_skip(&pieces, p + first, size - first) : 0;
    if (used != first || whole.state != pieces.state)
        abort();
    body_free(&pieces);
    return 0;
}
