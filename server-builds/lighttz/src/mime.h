/* Content types by file name extension. */
#ifndef MIME_H
#define MIME_H

#include "str.h"

/* Types the configuration adds; they win over the built-in ones, the last one first. */
struct mime_list;

/* The type of `path`; application/octet-stream when the extension is unknown. */
struct str mime_type(const struct mime_list *added, struct str path);

/* False when memory ran out or the type cannot stand in a field. */
bool mime_add(struct mime_list **added, struct str extension, struct str type);

void mime_free(struct mime_list *added);

#endif
