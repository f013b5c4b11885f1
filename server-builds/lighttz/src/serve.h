/* From a request to the response it gets. */
#pragma once

#include "conn.h"

/* Answers one request; `more` when input follows it. */
void serve(struct conn *c, const struct request *r, bool more);

/* Whether the script answers this request. */
bool serve_calls_script(const struct conn *c, const struct request *r);

/* Whether the body of this request is for the script. */
bool serve_needs_body(const struct conn *c, const struct request *r);

/* Sends 100 to a client that waits for it. True when it refused the request instead. */
bool serve_before_body(struct conn *c, const struct request *r, bool body_has_come);
