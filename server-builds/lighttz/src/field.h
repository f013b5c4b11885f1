/* Response fields that are not the server's own. */
#pragma once

#include "str.h"

/* Whether a field may be added to responses: a token, a text, and nothing that frames them. */
bool field_can_send(struct str name, struct str value);

/* Cuts "Name: value" up; false when it has no colon. */
bool field_split(struct str line, struct str *name, struct str *value);

/* Whether whole lines have a field of that name. */
bool field_in(struct str lines, struct str name);
