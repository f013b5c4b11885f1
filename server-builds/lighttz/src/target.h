/* From the path of a request target to the name of a file beneath the root, and back. */
#pragma once

#include "str.h"

enum { TARGET_PATH_MAX = 4095 };

/*
 * Decodes `path` (it starts with "/") into `out`, which holds TARGET_PATH_MAX octets: percent
 * escapes resolved, "." and ".." and doubled slashes removed, no NUL. The result starts with one
 * "/" and has no ".." left, so it never names anything above the root.
 * Returns 0 and the length in `*n`, or 400 (malformed, or it climbs above the root), 404 (an
 * encoded slash, or longer than any path: no file is called so).
 */
int target_decode(struct str path, char *out, size_t *n);

/* Writes `path` percent-encoded for a Location field; `out` holds three times its length. */
size_t target_encode(struct str path, char *out);
