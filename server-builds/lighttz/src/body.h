/* The request body, found and passed over: by its length or by chunks, strictly. */
#pragma once

#include "request.h"

enum body_state {
    BODY_DONE,
    BODY_LENGTH,    /* `left` octets to go */
    BODY_SIZE,      /* in the digits of a chunk size */
    BODY_SPACE,     /* after them, before the ";" of an extension */
    BODY_EXT_START, /* before the name of an extension */
    BODY_EXTENSION, /* in it, up to the next or CR */
    BODY_EXT_QUOTED,
    BODY_EXT_ESCAPED,
    BODY_SIZE_LF, /* the LF after them */
    BODY_DATA,    /* `left` octets of the chunk to go */
    BODY_DATA_CR, /* the CR and the LF after it */
    BODY_DATA_LF,
    BODY_TRAILER, /* at the start of a trailer line */
    BODY_TRAILER_NAME,
    BODY_TRAILER_VALUE,
    BODY_TRAILER_LF,
    BODY_END_LF, /* the LF of the empty line */
    BODY_BAD,
    BODY_NO_MEMORY, /* for content that is kept */
};

struct body {
    enum body_state state;
    bool any_digit;
    uint64_t left;
    uint64_t total; /* octets of content so far */
    char *content;  /* the octets themselves, when kept */
    bool keep;
    uint64_t overhead; /* octets of extensions and trailers so far: bounded */
};

/* realloc() for kept content; 0 frees. */
typedef char *body_resize(struct body *b, char *p, size_t old, size_t n);

/* Sets what takes the place of realloc(). */
void body_use(body_resize *resize);

/* With `keep` the content is gathered in `b->content` until body_free(). */
void body_start(struct body *b, const struct request *r, bool keep);
void body_free(struct body *b);

/* Passes over what there is of the body; returns the octets used. Ends in BODY_DONE, BODY_BAD or
 * BODY_NO_MEMORY, or wants more after using all `n`. */
size_t body_skip(struct body *b, const char *p, size_t n);
