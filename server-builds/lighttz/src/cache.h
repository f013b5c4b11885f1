/* The open-file cache: files by path, trusted for a bounded time. */
#pragma once

#include "file.h"

struct cache;

/* Lets go of descriptors when they run out; false when there was nothing to let go. */
typedef bool cache_make_room(void *context);

/* NULL with errno when the root cannot be opened. */
struct cache *cache_open(const struct config *config, cache_make_room *make_room, void *context);

/*
 * The file that the decoded `path` names, in one encoding. Returns 200 and `*file`, good until the
 * next call or for as long as file_hold() says; 301 for a directory without its slash; 403, 404,
 * 500 or 503 otherwise. What it returns was true at most `revalidate` ago; when descriptors or
 * memory run out, it is what was true at the last look.
 */
int cache_get(struct cache *cache, struct str path, enum encoding encoding, double now,
              struct file **file);

/* The root itself, which descriptor stays the cache's. */
int cache_root(const struct cache *cache);

/* Closes files that nobody has asked for in a while, a few in each turn of the loop; until then a
 * deleted file takes room. Whether there may be more. */
bool cache_age(struct cache *cache, double now);

/* Closes unused descriptors when they run out; false when there is none. */
bool cache_shed(struct cache *cache);
