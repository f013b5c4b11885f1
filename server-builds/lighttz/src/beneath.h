/* Opening what lies beneath a folder, whatever symlinks and renames try. */
#pragma once

/* Opens `path` beneath the folder `root`; -1 with errno, EXDEV where a symlink leads out. Where the
 * kernel lacks openat2(), the steps are opened one by one. */
int beneath_open(int root, const char *path, unsigned flags);
