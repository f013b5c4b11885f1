#include "response.h"
#include "httpdate.h"
#include "output.h"
#include "target.h"
#include "text.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
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
        {431, "Request Header Fields Too Large"},
        {501, "Not Implemented"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {302, "Found"},
        {303, "See Other"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {401, "Unauthorized"},
        {409, "Conflict"},
        {410, "Gone"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return status == 500 ? "Internal Server Error" : "Status";
}

static const char *const connection_line[FRONTS] = {
    [FRONT_KEEP] = "",
    [FRONT_CLOSE] = "Connection: close\r\n",
    [FRONT_KEEP_1_0] = "Connection: keep-alive\r\n",
};

#define BEFORE_DATE "HTTP/1.1 200 OK\r\nServer: lighttz\r\nDate: "

void response_fronts(struct server *s)
{
    for (enum front f = 0; f < FRONTS; f++)
        s->front[f].n = (size_t)snprintf(s->front[f].text, FRONT_ROOM, BEFORE_DATE "%*s\r\n%s",
                                         HTTPDATE_LENGTH, "", connection_line[f]);
}

void response_clock(struct server *s)
{
    httpdate_format(s->second, s->date);
    for (enum front f = 0; f < FRONTS; f++)
        memcpy(s->front[f].text + sizeof BEFORE_DATE - 1, s->date, HTTPDATE_LENGTH);
}

/* Counts the response and decides whether the connection outlives it. */
static enum front begin(struct conn *c, const struct request *r, int status)
{
    struct stats *stats = c->server->stats;
    unsigned long limit = c->server->config->keepalive_requests;
    stats->requests++;
    *(status < 300   ? &stats->responses_2xx
      : status < 400 ? &stats->responses_3xx
      : status < 500 ? &stats->responses_4xx
                     : &stats->responses_5xx) += 1;
    c->requests++;
    bool keep = r && r->keep_alive && !c->closing && !c->server->stopping &&
                (limit == 0 || c->requests < limit);
    c->closing = !keep;
    /* A client that did not ask for the end may already be sending its next request. */
    c->linger = c->linger || (!keep && r && r->keep_alive);
    return !keep ? FRONT_CLOSE : r->http_1_0 ? FRONT_KEEP_1_0 : FRONT_KEEP;
}

static void log_request(struct conn *c, const struct request *r, int status, uint64_t bytes)
{
    if (c->server->log.fd >= 0 && !c->status_page)
        accesslog_add(&c->server->log, &c->peer, r, status, bytes);
}

static void append_number(struct conn *c, const char *before, long long value, const char *after)
{
    struct server *s = c->server;
    char *p = s->out + s->out_length;
    p = text_str(p, str_of(before));
    p = text_number(p, (uint64_t)value, 10);
    p = text_str(p, str_of(after));
    s->out_length = (size_t)(p - s->out);
}

static void append_text(struct conn *c, const char *text)
{
    output_append(c, str_of(text));
}

static void append_front(struct conn *c, enum front front, int status)
{
    append_number(c, "HTTP/1.1 ", status, " ");
    append_text(c, reason_of(status));
    append_text(c, "\r\nServer: lighttz\r\nDate: ");
    output_append(c, (struct str){c->server->date, HTTPDATE_LENGTH});
    append_text(c, "\r\n");
    append_text(c, connection_line[front]);
}

/* A response with a text of our own; `fields` are whole lines. */
static void respond_text(struct conn *c, const struct request *r, int status, const char *fields,
                         struct str body)
{
    bool head = r && r->method == METHOD_HEAD;
    append_front(c, begin(c, r, status), status);
    append_text(c, fields);
    if (body.n)
        append_text(c, "Content-Type: text/plain; charset=utf-8\r\n");
    append_number(c, "Content-Length: ", (long long)body.n, "\r\n\r\n");
    if (!head)
        output_append(c, body);
    log_request(c, r, status, head ? 0 : body.n);
}

void respond_status(struct conn *c, const struct request *r, int status)
{
    char body[64];
    const char *reason = reason_of(status);
    char *p = text_number(body, (uint64_t)status, 10);
    p = text_str(p, STR(" "));
    p = text_str(p, str_of(reason));
    p = text_str(p, STR("\n"));
    const char *fields = status == 200 || status == 405 ? "Allow: GET, HEAD, OPTIONS\r\n"
                         : status == 503                ? "Retry-After: 1\r\n"
                                                        : "";
    respond_text(c, r, status, fields, (struct str){body, status == 200 ? 0 : (size_t)(p - body)});
}

void respond_script(struct conn *c, const struct request *r, const struct script_reply *reply)
{
    bool empty = reply->status == 204 || reply->status == 304;
    bool body = !empty && r->method != METHOD_HEAD;
    append_front(c, begin(c, r, reply->status), reply->status);
    output_append(c, reply->fields);
    if (!reply->has_type && !empty)
        append_text(c, "Content-Type: text/html; charset=utf-8\r\n");
    if (empty)
        append_text(c, "\r\n");
    else
        append_number(c, "Content-Length: ", (long long)reply->body.n, "\r\n\r\n");
    log_request(c, r, reply->status, body ? reply->body.n : 0);
    if (body)
        output_text(c, reply->body);
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
    char *p = fields + sprintf(fields, "Location: ");
    p += target_encode(path, p);
    *p++ = '/';
    memcpy(p, r->query.p, r->query.n);
    memcpy(p + r->query.n, "\r\n", 3);
    respond_text(c, r, 301, fields, STR("301 Moved Permanently\n"));
}

void respond_not_modified(struct conn *c, const struct request *r, const struct file *f)
{
    append_front(c, begin(c, r, 304), 304);
    output_append(c, f->validators);
    log_request(c, r, 304, 0);
}

void respond_file(struct conn *c, const struct request *r, struct file *f, bool more)
{
    struct server *s = c->server;
    enum front front = begin(c, r, 200);
    size_t front_n = s->front[front].n;
    char *start = f->block + FRONT_ROOM - front_n;
    bool body = r->method == METHOD_GET && f->size > 0;
    size_t n = front_n + f->head + (body && f->body ? (size_t)f->size : 0);
    memcpy(start, s->front[front].text, front_n);
    log_request(c, r, 200, body ? (uint64_t)f->size : 0);
    if (!more && s->out_length == 0 && (f->body || !body)) {
        output_send(c, start, n);
        return;
    }
    output_append(c, (struct str){start, n});
    if (body && f->body == NULL)
        output_file(c, f, 0, f->size);
}

static void append_content_range(struct conn *c, const struct range *range, off_t size)
{
    append_number(c, "Content-Range: bytes ", range->from, "-");
    append_number(c, "", range->to - 1, "/");
    append_number(c, "", size, "\r\n");
}

/* What precedes a part: its length is needed before it is written. */
static size_t part_head(const struct parts *parts, unsigned i, char *out, size_t size)
{
    const struct range *range = &parts->ranges.range[i];
    int n =
        snprintf(out, size,
                 "\r\n--%016llx\r\nContent-Type: %.*s\r\n"
                 "Content-Range: bytes %lld-%lld/%lld\r\n\r\n",
                 (unsigned long long)parts->boundary, (int)parts->file->type.n, parts->file->type.p,
                 (long long)range->from, (long long)range->to - 1, (long long)parts->file->size);
    return (size_t)n;
}

static size_t part_end(const struct parts *parts, char *out, size_t size)
{
    return (size_t)snprintf(out, size, "\r\n--%016llx--\r\n", (unsigned long long)parts->boundary);
}

bool respond_next_part(struct conn *c, off_t *from, off_t *to)
{
    char text[512];
    struct parts *parts = c->parts;
    if (parts->next == parts->ranges.count) {
        output_append(c, (struct str){text, part_end(parts, text, sizeof text)});
        free(parts);
        c->parts = NULL;
        return false;
    }
    const struct range *range = &parts->ranges.range[parts->next];
    output_append(c, (struct str){text, part_head(parts, parts->next++, text, sizeof text)});
    *from = range->from;
    *to = range->to;
    return true;
}

/* Not to be foreseen by who writes the files, so that none can hold it. */
static uint64_t new_boundary(void)
{
    uint64_t boundary = 0;
    if (getrandom(&boundary, sizeof boundary, GRND_NONBLOCK) < 0)
        boundary = (uint64_t)clock();
    return boundary;
}

static void respond_multipart(struct conn *c, const struct request *r, struct file *f,
                              const struct ranges *ranges, enum front front)
{
    char text[512];
    struct parts *parts = c->parts = malloc(sizeof *parts);
    c->failed = parts == NULL;
    if (parts == NULL)
        return;
    *parts = (struct parts){.file = f, .ranges = *ranges, .boundary = new_boundary()};
    size_t length = part_end(parts, text, sizeof text);
    for (unsigned i = 0; i < ranges->count; i++)
        length += part_head(parts, i, text, sizeof text) +
                  (size_t)(ranges->range[i].to - ranges->range[i].from);
    append_front(c, front, 206);
    append_number(c, "Content-Length: ", (long long)length, "\r\n");
    snprintf(text, sizeof text, "Content-Type: multipart/byteranges; boundary=%016llx\r\n",
             (unsigned long long)parts->boundary);
    append_text(c, text);
    output_append(c, f->after_type);
    log_request(c, r, 206, length);
    off_t from;
    off_t to;
    respond_next_part(c, &from, &to);
    output_file(c, f, from, to);
}

void respond_ranges(struct conn *c, const struct request *r, struct file *f,
                    const struct ranges *ranges)
{
    if (ranges->count == 0) {
        char field[64];
        snprintf(field, sizeof field, "Content-Range: bytes */%lld\r\n", (long long)f->size);
        respond_text(c, r, 416, field, STR("416 Range Not Satisfiable\n"));
        return;
    }
    enum front front = begin(c, r, 206);
    if (ranges->count > 1) {
        respond_multipart(c, r, f, ranges, front);
        return;
    }
    const struct range *range = &ranges->range[0];
    append_front(c, front, 206);
    append_content_range(c, range, f->size);
    append_number(c, "Content-Length: ", range->to - range->from, "\r\n");
    output_append(c, f->after_length);
    log_request(c, r, 206, (uint64_t)(range->to - range->from));
    output_file(c, f, range->from, range->to);
}

bool respond_before_body(struct conn *c, const struct request *r, bool body_has_come)
{
    if (!r->expects_continue || body_has_come)
        return false;
    if (!serve_needs_body(c, r) && (r->method == METHOD_REFUSED || r->method == METHOD_UNKNOWN)) {
        /* Whether the body still comes is the client's choice: only a new connection is in step. */
        respond_refusal(c, r, r->method == METHOD_REFUSED ? 405 : 501);
        return true;
    }
    append_text(c, "HTTP/1.1 100 Continue\r\n\r\n");
    return false;
}

void respond_page(struct conn *c, const struct request *r)
{
    char text[8192];
    bool plain = str_eq(r->path, STR("/-/status")) && !str_eq(r->query, STR("?format=prometheus"));
    if (!plain && !str_eq(r->path, STR("/-/metrics")) && !str_eq(r->path, STR("/-/status"))) {
        respond_status(c, r, 404);
        return;
    }
    size_t n = stats_text(c->server->all_stats, text, sizeof text, !plain);
    respond_text(c, r, 200, "Cache-Control: no-store\r\n", (struct str){text, n});
}
