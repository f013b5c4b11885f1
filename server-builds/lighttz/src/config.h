/* Settings: one table serves the file, the flags and the help. */
#ifndef CONFIG_H
#define CONFIG_H

#include "mime.h"
#include <sys/socket.h>

enum { CONFIG_LISTEN_MAX = 8, CONFIG_WORKERS_MAX = 64 };

struct address {
    struct sockaddr_storage sa;
    socklen_t length;
    char text[72];
};

struct config {
    struct address listen[CONFIG_LISTEN_MAX];
    unsigned listens;
    struct address status_listen; /* length 0: none */
    char *root;
    char *index;
    char *access_log; /* NULL: off */
    char *user;       /* numeric UID[:GID], or NULL */
    char *lua_script; /* NULL: off */
    char *lua_prefix;
    struct mime_list *types;
    unsigned long workers;
    unsigned long keepalive_requests; /* 0: unlimited */
    unsigned long max_connections;    /* per worker */
    unsigned long max_line;
    unsigned long max_head;
    unsigned long max_body;
    unsigned long cache_entries;
    unsigned long cache_bytes;
    unsigned long cache_file;
    unsigned long header_timeout; /* this and the following in milliseconds */
    unsigned long body_timeout;
    unsigned long idle_timeout;
    unsigned long send_timeout;
    unsigned long stop_timeout;
    unsigned long revalidate;
    unsigned long lua_time;
    unsigned long lua_memory; /* in bytes */
    bool lua_reload;
    bool precompressed;
    bool defer_accept;
    bool sandbox;
};

/* What the command line asks for besides settings. */
enum command { COMMAND_RUN, COMMAND_CHECK, COMMAND_HELP, COMMAND_VERSION, COMMAND_WRONG };

/*
 * Reads the file named by -c and then the flags, which win. Says what is wrong on stderr, for a
 * file as "FILE:LINE: ...", and returns COMMAND_WRONG.
 */
enum command config_load(struct config *config, int argc, char *const argv[]);

/* Applies one file or text; false after saying what is wrong on stderr. */
bool config_text(struct config *config, const char *name, struct str text);

void config_defaults(struct config *config);
void config_free(struct config *config);
void config_help(void);

#endif
