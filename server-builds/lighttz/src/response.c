#include "response.h"
#include "clock.h"
#include "field.h"
#include "httpdate.h"
#include "keep.h"
#include "output.h"
#include "target.h"
#include "text.h"
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {206, "Partial Content"},
                   {301, "Moved Permanently"},
                   {304, "Not Modified"},
                   {400, "Bad Request"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {411, "Length Required"},
                   {412, "Precondition Failed"},
                   {413, "Content Too Large"},
                   {414, "URI Too Long"},
                   {416, "Range Not Satisfiable"},
                   {417, "Expectation Failed"},
                   {421, "Misdirected Request"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {505, "HTTP Version Not Supported"},
                   {201, "Created"},
                   {204, "No Content"},
                   {302, "Found"},
                   {303, "See Other"},
                   {401, "Unauthorized"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Status";
}

static const char *const connection_line[FRONTS] = {
    [FRONT_KEEP] = "",
    [FRONT_CLOSE] = "Connection: close\r\n",
    [FRONT_KEEP_1_0] = "Connection: keep-alive\r\n",
};

/* Once a second: the start of a 200 with the date of now. */
void response_clock(struct server *s)
{
    httpdate_format(s->second, s->date);
    for (enum front f = 0; f < FRONTS; f++)
        s->front[f].n = text_format(s->front[f].text, FRONT_ROOM,
                                    "HTTP/1.1 200 OK\r\nServer: lighttz\r\nDate: %s\r\n%s", s->date,
                                    connection_line[f]);
}

static struct str address_of(const struct conn *c)
{
    return (struct str){c->address, c->address_length};
}

/* A response that lies in memory is handed over at once. */
static void log_request(struct conn *c, const struct request *r, int status, uint64_t bytes)
{
    struct server *s = c->server;
    if (s->log.fd >= 0 && !c->status_page)
        accesslog_add(&s->log, address_of(c), r, status, bytes, clock_s(CLOCK_MONOTONIC) - s->now);
}

/* Octets of the body that is logged which were sent so far. */
static uint64_t body_sent(const struct conn *c)
{
    return c->sent > c->body_at ? c->sent - c->body_at : 0;
}

static void keep_line(struct conn *c, const struct request *r, int status)
{
    struct server *s = c->server;
    c->asked = s->now;
    c->line = accesslog_begin(&s->log, address_of(c), r, status);
    const char *text = c->line.text;
    c->line.text = keep_resize(c, NULL, 0, c->line.n);
    if (c->line.text)
        memcpy(c->line.text, text, c->line.n);
    else
        s->stats->count[LOG_LINES_DROPPED]++;
}

/* Sends the body behind what was appended so far, a slice of `f` or parts. It is logged now when it
 * is out, or else by respond_end(). */
static void send_body(struct conn *c, const struct request *r, int status, struct file *f,
                      off_t from, off_t to)
{
    c->body_at = output_end(c);
    if (f)
        output_file(c, f, from, to);
    output_flush(c);
    if (!output_waits(c))
        log_request(c, r, status, body_sent(c));
    else if (c->server->log.fd >= 0 && !c->status_page)
        keep_line(c, r, status);
}

void respond_end(struct conn *c)
{
    if (c->line.text == NULL)
        return;
    accesslog_finish(&c->server->log, &c->line, body_sent(c), clock_s(CLOCK_MONOTONIC) - c->asked);
    c->line.text = keep_resize(c, c->line.text, c->line.n, 0);
}

/* Counts the response and decides whether the connection outlives it. */
static enum front begin(struct conn *c, const struct request *r, int status)
{
    struct stats *stats = c->server->stats;
    unsigned long limit = c->server->config->keepalive_requests;
    respond_end(c); /* the one before */
    stats->count[REQUESTS]++;
    stats->count[RESPONSES_2XX + status / 100 - 2]++;
    c->requests++;
    bool keep = r && r->keep_alive && !c->closing && !c->server->stopping && !c->status_page &&
                (limit == 0 || c->requests < limit);
    c->closing = !keep;
    /* A client that did not ask for the end may already be sending its next request. */
    c->linger = c->linger || (!keep && r && r->keep_alive);
    return !keep ? FRONT_CLOSE : r->http_1_0 ? FRONT_KEEP_1_0 : FRONT_KEEP;
}

/* The start of any response but those of whole files. */
static void start(struct conn *c, const struct request *r, int status)
{
    enum front front = begin(c, r, status);
    output_format(c, "HTTP/1.1 %d %s\r\nServer: lighttz\r\nDate: %s\r\n%s", status,
                  reason_of(status), c->server->date, connection_line[front]);
}

/* The configured fields, but those that are among `lines` already. */
static void append_headers(struct conn *c, struct str lines)
{
    const struct headers *headers = &c->server->config->headers;
    struct str name;
    struct str value;
    for (unsigned i = 0; i < headers->count && !c->status_page; i++) {
        struct str line = str_of(headers->line[i]);
        if (!field_split(line, &name, &value) || field_in(lines, name))
            continue;
        output_append(c, line);
        output_append(c, STR("\r\n"));
    }
}

/* A response with a text of our own; `fields` are whole lines. */
static void respond_text(struct conn *c, const struct request *r, int status, struct str fields,
                         struct str body)
{
    bool head = r && r->method == METHOD_HEAD;
    start(c, r, status);
    append_headers(c, fields);
    output_append(c, fields);
    output_format(c, "%sContent-Length: %lu\r\n\r\n",
                  body.n ? "Content-Type: text/plain; charset=utf-8\r\n" : "", body.n);
    if (!head)
        output_append(c, body);
    log_request(c, r, status, head ? 0 : body.n);
}

void respond_status(struct conn *c, const struct request *r, int status)
{
    char text[64];
    struct str body = {text, text_format(text, sizeof text, "%d %s\n", status, reason_of(status))};
    struct str fields = status == 503                    ? STR("Retry-After: 1\r\n")
                        : status == 200 || status == 405 ? STR("Allow: GET, HEAD, OPTIONS\r\n")
                                                         : STR("");
    respond_text(c, r, status, fields, status == 200 ? STR("") : body);
}

void respond_script(struct conn *c, const struct request *r, const struct script_reply *reply)
{
    bool empty = reply->status == 204 || reply->status == 304;
    bool body = !empty && r->method != METHOD_HEAD;
    start(c, r, reply->status);
    append_headers(c, reply->fields);
    output_append(c, reply->fields);
    if (!reply->has_type && !empty)
        output_append(c, STR("Content-Type: text/html; charset=utf-8\r\n"));
    if (!empty)
        output_format(c, "Content-Length: %lu\r\n", reply->body.n);
    output_append(c, STR("\r\n"));
    if (body)
        output_append(c, reply->body);
    log_request(c, r, reply->status, body ? reply->body.n : 0);
}

void respond_refusal(struct conn *c, const struct request *r, int status)
{
    c->closing = true;
    c->linger = true;
    respond_status(c, r, status);
}

void respond_redirect(struct conn *c, const struct request *r, struct str path)
{
    static char fields[3 * TARGET_PATH_MAX + 32768];
    static char encoded[3 * TARGET_PATH_MAX];
    size_t n = text_format(fields, sizeof fields, "Location: %.*s/%.*s\r\n",
                           (int)target_encode(path, encoded), encoded, (int)r->query.n, r->query.p);
    respond_text(c, r, 301, (struct str){fields, n}, STR("301 Moved Permanently\n"));
}

void respond_not_modified(struct conn *c, const struct request *r, const struct file *f)
{
    start(c, r, 304);
    output_append(c, f->validators);
    log_request(c, r, 304, 0);
}

void respond_file(struct conn *c, const struct request *r, struct file *f, bool more)
{
    struct server *s = c->server;
    enum front front = begin(c, r, 200);
    bool body = r->method == METHOD_GET && f->size > 0;
    size_t n = s->front[front].n;
    char *start = f->block + FRONT_ROOM - n;
    struct str whole = {start, n + f->head + (body && f->body ? (size_t)f->size : 0)};
    memcpy(start, s->front[front].text, n);
    if (!body || f->body)
        log_request(c, r, 200, body ? (uint64_t)f->size : 0);
    if (body && f->body == NULL) {
        output_append(c, whole);
        send_body(c, r, 200, f, 0, f->size);
    } else if (more || s->out_length) {
        output_append(c, whole);
    } else {
        output_send(c, whole);
    }
}

static void respond_multipart(struct conn *c, const struct request *r, struct file *f,
                              const struct ranges *ranges)
{
    char text[512];
    struct parts *parts = c->parts = malloc(sizeof *parts);
    c->failed = c->failed || parts == NULL;
    if (parts == NULL)
        return;
    *parts = (struct parts){.file = f, .ranges = *ranges};
    file_hold(f);
    /* Unpredictable, so that no file can contain it. */
    if (getrandom(&parts->boundary, sizeof parts->boundary, GRND_NONBLOCK) < 0)
        parts->boundary = (uint64_t)clock();
    size_t length = 0;
    for (unsigned i = 0; i <= ranges->count; i++)
        length += output_part_head(parts, i, text, sizeof text);
    for (unsigned i = 0; i < ranges->count; i++)
        length += (size_t)(ranges->range[i].to - ranges->range[i].from);
    output_format(c,
                  "Content-Length: %lu\r\n"
                  "Content-Type: multipart/byteranges; boundary=%lx\r\n",
                  length, parts->boundary);
    output_append(c, f->after_type);
    send_body(c, r, 206, NULL, 0, 0);
}

void respond_ranges(struct conn *c, const struct request *r, struct file *f,
                    const struct ranges *ranges)
{
    const struct range *range = &ranges->range[0];
    if (ranges->count == 0) {
        char text[64];
        size_t n = text_format(text, sizeof text, "Content-Range: bytes */%ld\r\n", f->size);
        respond_text(c, r, 416, (struct str){text, n}, STR("416 Range Not Satisfiable\n"));
        return;
    }
    start(c, r, 206);
    if (ranges->count > 1) {
        respond_multipart(c, r, f, ranges);
        return;
    }
    output_format(c, "Content-Range: bytes %ld-%ld/%ld\r\nContent-Length: %ld\r\n", range->from,
                  range->to - 1, f->size, range->to - range->from);
    output_append(c, f->after_length);
    send_body(c, r, 206, f, range->from, range->to);
}

void respond_page(struct conn *c, const struct request *r)
{
    char text[16384];
    bool status = str_eq(r->path, STR("/-/status"));
    bool plain = status && !str_eq(r->query, STR("?format=prometheus"));
    if (!status && !str_eq(r->path, STR("/-/metrics"))) {
        respond_status(c, r, 404);
        return;
    }
    size_t n = stats_text(c->server->all_stats, text, sizeof text, !plain);
    respond_text(c, r, 200, STR("Cache-Control: no-store\r\n"), (struct str){text, n});
}
