/* What a connection sends, in order: what the socket did not take before, the batch of this turn, a
 * slice of a file, and further parts of a multipart response. */
#pragma once
#include "conn.h"

/* Appends text of any length. */
void output_append(struct conn *c, struct str s);

/* Appends up to 512 octets of text_format(). */
__attribute__((format(printf, 2, 3))) void output_format(struct conn *c, const char *format, ...);

/* Sends text now, and what was appended before it. */
void output_send(struct conn *c, struct str s);

/* Appends a slice of a file, or holds it to be sent by output_flush(). */
void output_file(struct conn *c, struct file *f, off_t from, off_t to);

/* What precedes a part of a multipart response, and after the last one what ends them. */
size_t output_part_head(const struct parts *parts, unsigned i, char *out, size_t size);

/* Sends all there is. False when some of it must wait for the socket, when no further response may
 * be begun until it is out, or when sending failed. */
bool output_flush(struct conn *c);

/* What `c->sent` will be when all that was appended so far is out. */
uint64_t output_end(const struct conn *c);

/* Whether something waits for the socket. */
static inline bool output_waits(const struct conn *c)
{
    return c->out || c->file || c->parts;
}

void output_drop(struct conn *c);
