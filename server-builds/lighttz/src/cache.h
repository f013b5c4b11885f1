/* The open-file cache: files by path, trusted for a bounded time. */
#pragma once

#include "file.h"

struct cache;

/* NULL with errno when the root cannot be opened. */
struct cache *cache_open(const struct config *config);

/*
 * The file that the decoded `path` names, in one encoding. Returns 200 and `*file`, good until the
 * next call or for as long as file_hold() says; 301 for a directory without its slash; 403, 404,
 * 500 or 503 otherwise. What it returns was true at most `revalidate` ago.
 */
int cache_get(struct cache *cache, struct str path, enum encoding encoding, double now,
              struct file **file);

/* The root itself, which descriptor stays the cache's. */
int cache_root(const struct cache *cache);

/* Lets go of what nobody has asked for since long: a file that was deleted takes room until then.
 */
void cache_age(struct cache *cache, double now);

/* Drops descriptors that nobody uses; false when there was none. For when they run out. */
bool cache_shed(struct cache *cache);
