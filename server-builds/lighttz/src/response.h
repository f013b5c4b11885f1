/* Responses, written into the worker's batch or sent from the cache. */
#pragma once

#include "conn.h"

/* Call it when the second changes: every response contains the date. */
void response_clock(struct server *s);

/* An error (or the answer to OPTIONS, 200) with a small body. */
void respond_status(struct conn *c, const struct request *r, int status);

/* Answers with an error and closes; `r` may be NULL. */
void respond_refusal(struct conn *c, const struct request *r, int status);

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

/* Logs the response that goes on, as far as its octets were sent. */
void respond_end(struct conn *c);

/* The counters. */
void respond_page(struct conn *c, const struct request *r);
