/* Dynamic responses by Lua: one script, loaded once per worker, bounded in time and memory. */
#pragma once

#include "config.h"
#include "request.h"

struct script;

struct script_reply {
    int status;
    bool has_type;
    double seconds;    /* that it took */
    struct str fields; /* whole lines; these live until the next call */
    struct str body;
};

/* Loads `config->lua_script`, which defines handle(request) and nothing that outlives its bounds.
 * NULL after saying why not. */
struct script *script_open(const struct config *config);

/* False when the script failed, which was said on stderr: that is a 500. */
bool script_answer(struct script *script, const struct request *r, struct str path,
                   struct str content, struct script_reply *reply);

/* Whether a path is the script's. */
bool script_takes(const struct config *config, struct str path);
