/* The request head: found, checked and cut into slices in one pass. Nothing here allocates. Slices
 * and fields of `struct request` are good until the next head is read. */
#pragma once

#include "str.h"
#include <stdint.h>

enum method {
    METHOD_GET,
    METHOD_HEAD,
    METHOD_OPTIONS,
    METHOD_REFUSED, /* known, never allowed on a file: 405 */
    METHOD_UNKNOWN, /* 501 */
};

enum field {
    FIELD_HOST,
    FIELD_RANGE,
    FIELD_EXPECT,
    FIELD_REFERER,
    FIELD_IF_MATCH,
    FIELD_IF_RANGE,
    FIELD_CONNECTION,
    FIELD_USER_AGENT,
    FIELD_IF_NONE_MATCH,
    FIELD_CONTENT_LENGTH,
    FIELD_ACCEPT_ENCODING,
    FIELD_IF_MODIFIED_SINCE,
    FIELD_TRANSFER_ENCODING,
    FIELD_IF_UNMODIFIED_SINCE,
    FIELD_OTHER
};

enum { REQUEST_FIELDS_MAX = 100 };

/* A field line: where in the head its name and its value are. */
struct line {
    uint16_t name;
    uint16_t name_length;
    uint16_t value; /* without the blanks around it */
    uint16_t value_length;
    unsigned char field; /* enum field */
};

struct fields {
    unsigned seen;     /* bit per enum field */
    unsigned repeated; /* bit per enum field that came more than once */
    size_t count;
    const char *text;              /* what the lines' offsets count from */
    const struct line *lines;      /* all of them */
    struct str value[FIELD_OTHER]; /* the first value, where `seen` */
};

struct request {
    int refusal; /* the status to refuse it with, or 0 */
    enum method method;
    bool http_1_0;
    bool keep_alive;
    bool expects_continue;
    bool chunked;
    bool plain;        /* its path is what target_decode() would make of it */
    uint64_t length;   /* of the body, when not chunked */
    struct str line;   /* the request line, for the log */
    struct str name;   /* the method's */
    struct str target; /* as sent */
    struct str path;   /* still encoded; empty for "*" */
    struct str query;  /* with its "?", or empty */
    const struct fields *fields;
};

struct request_limits {
    size_t line; /* of the request line: 414 */
    size_t head; /* of the whole head: 431; less than 64 KiB */
};

/* The length of the empty lines, a few, that a client may send before a request (9112 2.2). */
size_t request_empty_lines(const char *p, size_t n);

/*
 * Reads the head in the `n` octets that have come so far, in one pass. Returns its length with the
 * empty line, 0 when more is needed, or minus the status to refuse it with before its end has come.
 * Of a whole head `r` has the slices, and r->refusal says whether it is refused. After a refusal of
 * either kind the connection must be closed: where the next request starts is no longer known.
 * `*scanned` (0 at first) is where the last line starts that had not come whole: a line that comes
 * octet by octet costs no look at those before it.
 */
long request_parse(const char *p, size_t n, size_t *scanned, const struct request_limits *limits,
                   struct request *r);

static inline bool request_has(const struct request *r, enum field f)
{
    return (r->fields->seen >> f & 1U) != 0;
}

static inline bool request_repeats(const struct request *r, enum field f)
{
    return (r->fields->repeated >> f & 1U) != 0;
}

/* Whether an octet may stand in a token: a method, a field name. */
bool is_tchar(char c);

static inline bool request_has_body(const struct request *r)
{
    return r->chunked || r->length;
}

static inline struct str request_name(const struct request *r, size_t i)
{
    const struct line *line = &r->fields->lines[i];
    return (struct str){r->fields->text + line->name, line->name_length};
}

static inline struct str request_value(const struct request *r, size_t i)
{
    const struct line *line = &r->fields->lines[i];
    return (struct str){r->fields->text + line->value, line->value_length};
}

/* Walks the values of one field; start with `at` = 0. */
bool request_each(const struct request *r, enum field f, size_t *at, struct str *value);
