/* Preconditions of RFC 9110, 13, evaluated in its order. */
#pragma once

#include "cache.h"
#include "request.h"

/* 200 to go on, 304 or 412. */
int condition_status(const struct request *r, const struct file *f);

/* Whether If-Range, if there is one, lets a Range through. */
bool condition_if_range(const struct request *r, const struct file *f);

/* Whether a list of entity tags holds `etag` (with quotes, after W/ when it is weak) or "*". */
bool condition_etag_in(struct str list, struct str etag, bool weak_matches);
