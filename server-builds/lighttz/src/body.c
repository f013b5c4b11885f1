#include "body.h"
#include <stdlib.h>

enum { OVERHEAD_MAX = 16384 };

void body_start(struct body *b, const struct request *r, bool keep)
{
    b->state = r->chunked ? BODY_SIZE : r->length ? BODY_LENGTH : BODY_DONE;
    b->any_digit = false;
    b->left = r->chunked ? 0 : r->length;
    b->total = b->overhead = 0;
    b->keep = keep;
    b->content = NULL;
}

static char *resize_plainly(struct body *b, char *p, size_t old, size_t n)
{
    (void)b;
    (void)old;
    if (n)
        return realloc(p, n);
    free(p);
    return NULL;
}

static body_resize *resize = resize_plainly;

void body_use(body_resize *other)
{
    resize = other;
}

void body_free(struct body *b)
{
    if (b->content)
        b->content = resize(b, b->content, (size_t)b->total, 0);
}

static bool keep_content(struct body *b, const char *p, size_t n)
{
    char *content = resize(b, b->content, (size_t)b->total, (size_t)b->total + n);
    if (content == NULL)
        return false;
    b->content = content;
    memcpy(content + b->total, p, n);
    return true;
}

/* Counts an octet that is skipped and is no content; there is a limit on these. */
static enum body_state more(struct body *b, bool good, enum body_state next)
{
    return good && ++b->overhead <= OVERHEAD_MAX ? next : BODY_BAD;
}

static enum body_state size_digit(struct body *b, char c)
{
    int digit = hex_value(c);
    if (digit >= 0) {
        bool fits = b->left >> 56 == 0;
        b->left = b->left * 16 + (uint64_t)digit;
        b->any_digit = true;
        /* Other digits than leading zeros are bounded by the content that each chunk has. */
        return b->left && fits ? BODY_SIZE : more(b, fits, BODY_SIZE);
    }
    if (!b->any_digit)
        return BODY_BAD;
    return c == '\r' ? BODY_SIZE_LF : c == ';' ? BODY_EXT_START : is_ows(c) ? BODY_SPACE : BODY_BAD;
}

static enum body_state after_size(struct body *b)
{
    b->any_digit = false;
    return b->left ? BODY_DATA : BODY_TRAILER;
}

static bool is_text(char c)
{
    return (unsigned char)c < ' ' ? c == '\t' : c != 0x7f;
}

/* Reads chunk-ext; does not check what stands around an equals sign. */
static enum body_state extension(struct body *b, char c)
{
    if (c == '\r')
        return BODY_SIZE_LF;
    bool good = is_tchar(c) || is_ows(c) || c == '=' || c == ';' || c == '"';
    return more(b, good, c == ';' ? BODY_EXT_START : c == '"' ? BODY_EXT_QUOTED : BODY_EXTENSION);
}

static enum body_state expect(char c, char wanted, enum body_state next)
{
    return c == wanted ? next : BODY_BAD;
}

/* One octet of the framing of chunks. */
static enum body_state step(struct body *b, char c)
{
    switch (b->state) {
    case BODY_SIZE:
        return size_digit(b, c);
    case BODY_SPACE:
        return c == ';' ? BODY_EXT_START : more(b, is_ows(c), BODY_SPACE);
    case BODY_EXT_START:
        return more(b, is_ows(c) || is_tchar(c), is_ows(c) ? BODY_EXT_START : BODY_EXTENSION);
    case BODY_EXTENSION:
        return extension(b, c);
    case BODY_EXT_QUOTED:
        return more(b, is_text(c),
                    c == '"'    ? BODY_EXTENSION
                    : c == '\\' ? BODY_EXT_ESCAPED
                                : BODY_EXT_QUOTED);
    case BODY_EXT_ESCAPED:
        return more(b, is_text(c), BODY_EXT_QUOTED);
    case BODY_SIZE_LF:
        return c == '\n' ? after_size(b) : BODY_BAD;
    case BODY_DATA_CR:
        return expect(c, '\r', BODY_DATA_LF);
    case BODY_DATA_LF:
        return expect(c, '\n', BODY_SIZE);
    case BODY_TRAILER:
        return c == '\r' ? BODY_END_LF : more(b, is_tchar(c), BODY_TRAILER_NAME);
    case BODY_TRAILER_NAME:
        return c == ':' ? BODY_TRAILER_VALUE : more(b, is_tchar(c), BODY_TRAILER_NAME);
    case BODY_TRAILER_VALUE:
        return c == '\r' ? BODY_TRAILER_LF : more(b, is_text(c), BODY_TRAILER_VALUE);
    case BODY_TRAILER_LF:
        return expect(c, '\n', BODY_TRAILER);
    case BODY_END_LF:
        return expect(c, '\n', BODY_DONE);
    default:
        return BODY_BAD;
    }
}

size_t body_skip(struct body *b, const char *p, size_t n)
{
    size_t used = 0;
    while (used < n && b->state != BODY_DONE && b->state != BODY_BAD &&
           b->state != BODY_NO_MEMORY) {
        if (b->state != BODY_LENGTH && b->state != BODY_DATA) {
            b->state = step(b, p[used++]);
            continue;
        }
        size_t take = b->left < n - used ? (size_t)b->left : n - used;
        if (b->keep && !keep_content(b, p + used, take)) {
            b->state = BODY_NO_MEMORY;
            break;
        }
        used += take;
        b->left -= take;
        b->total += take;
        if (b->left == 0)
            b->state = b->state == BODY_LENGTH ? BODY_DONE : BODY_DATA_CR;
    }
    return used;
}
