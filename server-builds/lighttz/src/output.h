/* What a connection sends, in order: what the socket did not take before, the batch of this turn, a
 * slice of a file, and further parts of a multipart response. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "conn.h"

/* Appends to the batch; there is room for OUT_RESERVE octets. */
void output_append(struct conn *c, struct str s);

/* Appends text of any length. */
void output_text(struct conn *c, struct str s);

/* Sends one piece now, past the batch, which must be empty. */
void output_send(struct conn *c, const char *p, size_t n);

/* Sends the batch and then a slice of a file. */
void output_file(struct conn *c, struct file *f, off_t from, off_t to);

/* Sends all there is. False when some of it must wait for the socket (the state is CONN_SEND then,
 * and nothing may be appended until it is out) or when sending failed. */
bool output_flush(struct conn *c);

void output_drop(struct conn *c);

#endif
