/* Responses, written into the worker's batch or sent from the cache. */
#pragma once

#include "conn.h"

/* To be called when the second changes: it is in every response. */
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

/* Appends of `c->parts` what there is up to one that must be sent from its descriptor. */
void respond_next_parts(struct conn *c);

/* 100 when it is waited for. True when the request was refused instead. */
bool respond_before_body(struct conn *c, const struct request *r, bool body_has_come);

/* The counters. */
void respond_page(struct conn *c, const struct request *r);
