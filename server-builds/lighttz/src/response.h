/* Responses, written into the worker's batch or sent from the cache. */
#ifndef RESPONSE_H
#define RESPONSE_H

#include "conn.h"

/* Writes the fronts once, and once a second the date in them. */
void response_fronts(struct server *s);
void response_clock(struct server *s);

/* An error (or the answer to OPTIONS, 200) with a small body. */
void respond_status(struct conn *c, const struct request *r, int status);

/* What the script answered. */
void respond_script(struct conn *c, const struct request *r, const struct script_reply *reply);

/* 301 to the path with a slash. */
void respond_redirect(struct conn *c, const struct request *r, struct str path);

void respond_not_modified(struct conn *c, const struct request *r, const struct file *f);

/* 200 with the whole file, or its header for HEAD. */
void respond_file(struct conn *c, const struct request *r, struct file *f, bool more);

/* 206; 416 when `ranges` is empty. */
void respond_ranges(struct conn *c, const struct request *r, struct file *f,
                    const struct ranges *ranges);

/* Writes the next delimiter of a multipart response; false after the last one. */
bool respond_next_part(struct conn *c, off_t *from, off_t *to);

/* 100 when it is waited for. True when the request was refused instead. */
bool respond_before_body(struct conn *c, const struct request *r, bool body_has_come);

/* The counters. */
void respond_page(struct conn *c, const struct request *r);

#endif
