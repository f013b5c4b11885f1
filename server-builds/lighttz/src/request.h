/* The request head: found, checked and cut into slices. Nothing here allocates or writes. */
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

struct request {
    enum method method;
    bool http_1_0;
    bool keep_alive;
    bool expects_continue;
    bool chunked;
    uint64_t length;               /* of the body, when not chunked */
    struct str line;               /* the request line, for the log */
    struct str name;               /* the method's */
    struct str target;             /* as sent */
    struct str path;               /* still encoded; empty for "*" */
    struct str query;              /* with its "?", or empty */
    struct str fields;             /* all field lines, each with its CRLF */
    unsigned seen;                 /* bit per enum field */
    unsigned repeated;             /* bit per enum field that came more than once */
    struct str value[FIELD_OTHER]; /* the first value, where `seen` */
};

struct request_limits {
    size_t line; /* of the request line: 414 */
    size_t head; /* of the whole head: 431 */
};

/* The length of the empty lines, a few, that a client may send before a request (9112 2.2). */
size_t request_empty_lines(const char *p, size_t n);

/*
 * Looks for the end of the head in the `n` bytes that have come so far.
 * Returns its length with the empty line (> 0), 0 when more is needed, or minus the status to
 * refuse it with. `*scanned` (0 at first) remembers how far earlier calls came, so that a head
 * sent byte by byte is scanned once. Every LF of an accepted head follows a CR.
 */
long request_end(const char *p, size_t n, size_t *scanned, const struct request_limits *limits);

/*
 * Checks a head that request_end() accepted and fills `r` with slices of it.
 * Returns 0, or the status to refuse it with: the connection must then be closed, since where
 * the next request starts is no longer known.
 */
int request_parse(const char *p, size_t n, struct request *r);

static inline bool request_has(const struct request *r, enum field f)
{
    return (r->seen >> f & 1U) != 0;
}

static inline bool request_repeats(const struct request *r, enum field f)
{
    return (r->repeated >> f & 1U) != 0;
}

/* Whether an octet may stand in a token: a method, a field name. */
bool is_tchar(char c);

/* Walks all lines of one field; start with `rest = r->fields`. */
bool request_each(struct str *rest, enum field f, struct str *value);

/* Cuts one checked field line off `rest`; false at the end. */
bool request_line(struct str *rest, struct str *name, struct str *value);
