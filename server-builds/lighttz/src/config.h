/* Settings: one table serves the file, the flags and the help. */
#pragma once

#include "mime.h"
#include <netinet/in.h>
#include <sys/un.h>

enum { CONFIG_LISTEN_MAX = 8, CONFIG_WORKERS_MAX = 64, CONFIG_FORMER_MAX = 16 };

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un un; /* of a socket that was passed */
    } sa;
    socklen_t length; /* 0: none */
    const char *text; /* for messages */
};

struct listens {
    unsigned count;
    struct address address[CONFIG_LISTEN_MAX];
};

enum { CONFIG_HEADERS_MAX = 16, CONFIG_HEADERS_SIZE = 2048 };

/* Fields that every response has. */
struct headers {
    unsigned count;
    size_t size; /* of all, with line ends */
    const char *line[CONFIG_HEADERS_MAX];
};

/* Texts are those of the arguments and of the file; nothing here is allocated. */
struct config {
    struct listens listen;
    struct address status_listen;
    struct mime_added types;
    struct headers headers;
    const char *root;
    const char *index;
    const char *access_log; /* NULL: off */
    const char *user;       /* numeric UID[:GID], or NULL */
    const char *lua_script; /* NULL: off */
    const char *lua_prefix;
    unsigned long workers;
    unsigned long former_generations;
    unsigned long keepalive_requests; /* 0: unlimited */
    unsigned long max_connections;    /* per worker */
    unsigned long connection_memory;
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
    unsigned long watchdog; /* 0: off */
    unsigned long lua_time;
    unsigned long spin;       /* in microseconds; 0: block at once */
    unsigned long lua_memory; /* in bytes */
    bool lua_reload;
    bool precompressed;
    bool defer_accept;
    bool cpu_affinity;
    bool sandbox;
};

/* What the command line asks for besides settings. */
enum command { COMMAND_RUN, COMMAND_CHECK, COMMAND_HELP, COMMAND_VERSION, COMMAND_WRONG };

/*
 * Reads the file named by -c and then the flags, which win. Says what is wrong on stderr, for a
 * file as "FILE:LINE: ...", and returns COMMAND_WRONG.
 */
enum command config_load(struct config *config, int argc, char *const argv[]);

/* Applies lines, cutting `text` up; it must outlive `config`. False after saying what is wrong. */
bool config_text(struct config *config, const char *name, char *text);

void config_defaults(struct config *config);
void config_help(void);
