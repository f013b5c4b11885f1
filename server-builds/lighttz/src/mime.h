/* Content types by file name extension: those of mime.types, and what the configuration adds. */
#pragma once

#include "str.h"

enum { MIME_ADDED_MAX = 64 };

/* Lines "extension type" of the configuration; they win over the built-in ones. */
struct mime_added {
    unsigned count;
    const char *line[MIME_ADDED_MAX];
};

/* The type of `path`; application/octet-stream when the extension is unknown. */
struct str mime_type(const struct mime_added *added, struct str path);

/* Whether a line has an extension and a type that can stand in a field. */
bool mime_valid(const char *line);
