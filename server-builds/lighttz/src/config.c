#include "config.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Each reader returns NULL, or what is wrong with the value. */
typedef const char *reader(struct config *, void *slot, const char *value);

struct setting {
    const char *name;
    reader *read;
    size_t offset;
    unsigned long low;
    unsigned long high;
    const char *help;
};

static bool read_number(const char *value, unsigned long *number, const char **rest)
{
    char *end;
    if (!is_digit(value[0]) || strspn(value, "0123456789") > 15)
        return false;
    *number = strtoul(value, &end, 10);
    *rest = end;
    return true;
}

static const char *read_count(struct config *c, void *slot, const char *value)
{
    (void)c;
    const char *rest;
    return read_number(value, slot, &rest) && *rest == '\0' ? NULL : "expected a whole number";
}

static const char *read_size(struct config *c, void *slot, const char *value)
{
    (void)c;
    const char *rest;
    unsigned long *size = slot;
    if (read_number(value, size, &rest)) {
        size_t shift = *rest == 'k' ? 10 : *rest == 'm' ? 20 : *rest == 'g' ? 30 : 0;
        *size <<= shift;
        if (rest[shift ? 1 : 0] == '\0')
            return NULL;
    }
    return "expected a size in bytes, or with k, m or g";
}

static const char *read_time(struct config *c, void *slot, const char *value)
{
    (void)c;
    const char *rest;
    unsigned long *ms = slot;
    if (read_number(value, ms, &rest)) {
        if (strcmp(rest, "ms") == 0)
            return NULL;
        *ms *= 1000;
        if (*rest == '\0' || strcmp(rest, "s") == 0)
            return NULL;
    }
    return "expected a time in seconds, or with ms or s";
}

static const char *read_unlimited(struct config *c, void *slot, const char *value)
{
    if (strcmp(value, "unlimited") != 0)
        return read_count(c, slot, value) ? "expected a whole number or 'unlimited'" : NULL;
    *(unsigned long *)slot = 0;
    return NULL;
}

static const char *read_workers(struct config *c, void *slot, const char *value)
{
    if (strcmp(value, "auto") != 0)
        return read_count(c, slot, value) ? "expected a whole number or 'auto'" : NULL;
    cpu_set_t cpus;
    unsigned long n = 1;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        n = (unsigned long)CPU_COUNT(&cpus);
    *(unsigned long *)slot = n > CONFIG_WORKERS_MAX ? CONFIG_WORKERS_MAX : n;
    return NULL;
}

static const char *read_switch(struct config *c, void *slot, const char *value)
{
    (void)c;
    bool on = strcmp(value, "on") == 0;
    *(bool *)slot = on;
    return on || strcmp(value, "off") == 0 ? NULL : "expected 'on' or 'off'";
}

static const char *read_string(struct config *c, void *slot, const char *value)
{
    (void)c;
    char **text = slot;
    free(*text);
    *text = strdup(value);
    return *text == NULL ? "out of memory" : *value == '\0' ? "expected a value" : NULL;
}

static const char *read_path(struct config *c, void *slot, const char *value)
{
    if (strcmp(value, "off") != 0)
        return read_string(c, slot, value);
    free(*(char **)slot);
    *(char **)slot = NULL;
    return NULL;
}

static const char *read_index(struct config *c, void *slot, const char *value)
{
    if (strchr(value, '/') || strcmp(value, ".") == 0 || strcmp(value, "..") == 0 ||
        strlen(value) > 255)
        return "expected the name of a file";
    return read_string(c, slot, value);
}

static const char *read_user(struct config *c, void *slot, const char *value)
{
    size_t n = strspn(value, "0123456789:");
    if (value[n] != '\0' || !is_digit(value[0]) || strchr(value, ':') != strrchr(value, ':'))
        return "expected a numeric UID or UID:GID";
    return read_string(c, slot, value);
}

static const char *read_type(struct config *c, void *slot, const char *value)
{
    (void)slot;
    size_t n = strcspn(value, " \t");
    struct str type = str_trim((struct str){value + n, strlen(value + n)});
    return mime_add(&c->types, (struct str){value, n}, type) ? NULL
                                                             : "expected an extension and a type";
}

/* Numeric only: a static glibc cannot resolve names on every host. */
static bool parse_address(struct address *a, const char *value)
{
    char host[64] = "0.0.0.0";
    const char *colon = strrchr(value, ':');
    const char *port_text = colon ? colon + 1 : value;
    const char *rest;
    unsigned long port;
    size_t n = colon ? (size_t)(colon - value) : 0;
    if (!read_number(port_text, &port, &rest) || *rest || port > 65535 || n >= sizeof host)
        return false;
    memset(&a->sa, 0, sizeof a->sa);
    bool six = n >= 2 && value[0] == '[' && value[n - 1] == ']';
    if (n && !(n == 1 && value[0] == '*')) {
        memcpy(host, value + six, n - 2U * six);
        host[n - 2U * six] = '\0';
    }
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a->sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a->sa;
    snprintf(a->text, sizeof a->text, six ? "[%s]:%lu" : "%s:%lu", host, port);
    if (six) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        a->length = sizeof *v6;
        return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1;
    }
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)port);
    a->length = sizeof *v4;
    return inet_pton(AF_INET, host, &v4->sin_addr) == 1;
}

static const char bad_address[] = "expected ADDRESS:PORT with a numeric address";

static const char *read_listen(struct config *c, void *slot, const char *value)
{
    (void)slot;
    if (c->listens == CONFIG_LISTEN_MAX)
        return "too many addresses";
    return parse_address(&c->listen[c->listens], value) ? c->listens++, NULL : bad_address;
}

static const char *read_status(struct config *c, void *slot, const char *value)
{
    struct address *a = slot;
    (void)c;
    a->length = 0;
    if (strcmp(value, "off") == 0)
        return NULL;
    return parse_address(a, value) ? NULL : bad_address;
}

#define AT(member) offsetof(struct config, member)

static const struct setting settings[] = {
    {"listen", read_listen, 0, 0, 0, "address and port to serve on; may be given more than once"},
    {"root", read_string, AT(root), 0, 0, "directory to serve"},
    {"workers", read_workers, AT(workers), 1, CONFIG_WORKERS_MAX, "processes: a number or auto"},
    {"index", read_index, AT(index), 0, 0, "file served for a directory"},
    {"type", read_type, 0, 0, 0, "an extension and its content type; may be repeated"},
    {"access_log", read_path, AT(access_log), 0, 0, "file for the access log, or off"},
    {"status_listen", read_status, AT(status_listen), 0, 0, "address of the status page, or off"},
    {"user", read_user, AT(user), 0, 0, "numeric UID[:GID] that workers run as"},
    {"keepalive_requests", read_unlimited, AT(keepalive_requests), 0, -1UL,
     "requests per connection: a number or unlimited"},
    {"max_connections", read_count, AT(max_connections), 1, 1000000, "connections per worker"},
    {"max_line", read_size, AT(max_line), 64, 16384, "longest request line"},
    {"max_head", read_size, AT(max_head), 128, 32768, "longest request head"},
    {"max_body", read_size, AT(max_body), 0, -1UL, "longest request body that is skipped"},
    {"header_timeout", read_time, AT(header_timeout), 1, 86400000, "for a whole request head"},
    {"body_timeout", read_time, AT(body_timeout), 1, 86400000, "for a whole request body"},
    {"idle_timeout", read_time, AT(idle_timeout), 1, 86400000, "between two requests"},
    {"send_timeout", read_time, AT(send_timeout), 1, 86400000, "without progress of the client"},
    {"stop_timeout", read_time, AT(stop_timeout), 0, 86400000, "to finish what is in flight"},
    {"revalidate", read_time, AT(revalidate), 0, 86400000, "how long a cached file is trusted"},
    {"cache_entries", read_count, AT(cache_entries), 1, 1000000, "files kept open, per worker"},
    {"cache_bytes", read_size, AT(cache_bytes), 0, -1UL, "memory for small files, per worker"},
    {"cache_file", read_size, AT(cache_file), 0, 65536, "largest file served from memory"},
    {"lua_script", read_path, AT(lua_script), 0, 0, "script for dynamic responses, or off"},
    {"lua_prefix", read_string, AT(lua_prefix), 0, 0, "paths that the script answers"},
    {"lua_reload", read_switch, AT(lua_reload), 0, 0, "load the script anew for every request"},
    {"lua_time", read_time, AT(lua_time), 1, 86400000, "what one response may take"},
    {"lua_memory", read_size, AT(lua_memory), 0, -1UL, "what the script may hold"},
    {"precompressed", read_switch, AT(precompressed), 0, 0, "serve .br, .zst and .gz neighbours"},
    {"defer_accept", read_switch, AT(defer_accept), 0, 0, "wait for data before accepting"},
    {"sandbox", read_switch, AT(sandbox), 0, 0, "confine workers to what they need"},
};

enum { SETTINGS = sizeof settings / sizeof *settings };

static const char *apply(struct config *c, struct str name, const char *value)
{
    static char range[80];
    const struct setting *s = settings;
    while (s < settings + SETTINGS && !str_eq(name, (struct str){s->name, strlen(s->name)}))
        s++;
    if (s == settings + SETTINGS)
        return "unknown setting";
    void *slot = (char *)c + s->offset;
    const char *wrong = s->read(c, slot, value);
    if (wrong || s->high == 0)
        return wrong;
    if (*(unsigned long *)slot >= s->low && *(unsigned long *)slot <= s->high)
        return NULL;
    snprintf(range, sizeof range, "expected a value from %lu to %lu", s->low, s->high);
    return range;
}

/* One line "key = value", "# comment" or nothing. */
static const char *apply_line(struct config *c, struct str line, struct str *name)
{
    char value[4096];
    *name = line = str_trim(line);
    if (line.n == 0 || line.p[0] == '#')
        return NULL;
    if (memchr(line.p, '\0', line.n))
        return "NUL in a setting";
    const char *equals = memchr(line.p, '=', line.n);
    if (equals == NULL)
        return "expected 'key = value'";
    *name = str_trim((struct str){line.p, (size_t)(equals - line.p)});
    struct str text = str_trim(str_from(line, (size_t)(equals - line.p) + 1));
    if (text.n >= sizeof value)
        return "value too long";
    memcpy(value, text.p, text.n);
    value[text.n] = '\0';
    return apply(c, *name, value);
}

bool config_text(struct config *c, const char *name, struct str text)
{
    unsigned number = 0;
    struct str line;
    while (str_item(&text, '\n', &line)) {
        struct str key;
        number++;
        const char *wrong = apply_line(c, line, &key);
        if (wrong == NULL)
            continue;
        int shown = key.n > 40 ? 40 : (int)key.n;
        fprintf(stderr, "%s:%u: %.*s: %s\n", name, number, shown, key.p, wrong);
        return false;
    }
    return true;
}

static bool config_file(struct config *c, const char *path)
{
    static char text[65536];
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    size_t n = fread(text, 1, sizeof text, f);
    bool failed = ferror(f) != 0;
    fclose(f);
    if (failed || n == sizeof text) {
        fprintf(stderr, "%s: %s\n", path, failed ? "cannot be read" : "too long");
        return false;
    }
    return config_text(c, path, (struct str){text, n});
}

static bool config_flag(struct config *c, const char *flag, const char *value)
{
    char name[64];
    size_t n = strcspn(flag, "=");
    if (n >= sizeof name)
        n = sizeof name - 1;
    for (size_t i = 0; i < n; i++)
        name[i] = flag[i] == '-' ? '_' : flag[i];
    const char *wrong = value ? apply(c, (struct str){name, n}, value) : "expected a value";
    if (wrong)
        fprintf(stderr, "--%s: %s\n", flag, wrong);
    return wrong == NULL;
}

static enum command config_complete(struct config *c, enum command command)
{
    const char *missing = c->root == NULL ? "root" : c->listens == 0 ? "listen" : NULL;
    if (missing)
        fprintf(stderr, "lighttz: no %s is set\n", missing);
    else if (c->max_line > c->max_head)
        fprintf(stderr, "lighttz: max_line is more than max_head\n");
    else
        return command;
    return COMMAND_WRONG;
}

enum command config_load(struct config *c, int argc, char *const argv[])
{
    enum command command = COMMAND_RUN;
    unsigned from_file = 0;
    config_defaults(c);
    for (int i = 1; i < argc; i++) /* the file first, so that flags win wherever they stand */
        if (strcmp(argv[i], "-c") == 0 && (++i == argc || !config_file(c, argv[i]))) {
            if (i == argc)
                fprintf(stderr, "-c: expected a file\n");
            return COMMAND_WRONG;
        }
    from_file = c->listens;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
            return COMMAND_HELP;
        if (strcmp(arg, "--version") == 0)
            return COMMAND_VERSION;
        if (strcmp(arg, "--check-config") == 0) {
            command = COMMAND_CHECK;
        } else if (strcmp(arg, "-c") == 0) {
            i++;
        } else if (strncmp(arg, "--", 2) == 0) {
            const char *value = strchr(arg, '=');
            if (strncmp(arg, "--listen", 8) == 0 && from_file)
                c->listens = from_file = 0;
            if (!config_flag(c, arg + 2, value ? value + 1 : ++i < argc ? argv[i] : NULL))
                return COMMAND_WRONG;
        } else {
            fprintf(stderr, "%s: unknown argument; see --help\n", arg);
            return COMMAND_WRONG;
        }
    }
    return config_complete(c, command);
}

void config_defaults(struct config *c)
{
    static const char text[] =
        "workers = auto\nindex = index.html\nkeepalive_requests = unlimited\n"
        "max_connections = 20000\nmax_line = 8k\nmax_head = 16k\n"
        "max_body = 1m\nheader_timeout = 10s\nbody_timeout = 30s\n"
        "idle_timeout = 60s\nsend_timeout = 30s\nstop_timeout = 10s\n"
        "revalidate = 1s\ncache_entries = 2048\ncache_bytes = 64m\n"
        "cache_file = 32k\nlua_prefix = /lua/\nlua_reload = off\nlua_time = 100ms\nlua_memory = "
        "16m\nprecompressed = on\ndefer_accept = on\n"
        "sandbox = on\n";
    memset(c, 0, sizeof *c);
    config_text(c, "defaults", (struct str){text, sizeof text - 1});
}

void config_free(struct config *c)
{
    free(c->root);
    free(c->index);
    free(c->access_log);
    free(c->user);
    free(c->lua_script);
    free(c->lua_prefix);
    mime_free(c->types);
    memset(c, 0, sizeof *c);
}

void config_help(void)
{
    puts("Usage: lighttz [-c FILE] [--KEY VALUE]... [--check-config | --help | --version]\n\n"
         "Serves the files beneath a directory over HTTP/1.1, in the foreground. FILE has one\n"
         "'key = value' a line and '#' comments; the same keys are flags, which win.\n");
    for (size_t i = 0; i < SETTINGS; i++)
        printf("  %-20s %s\n", settings[i].name, settings[i].help);
    puts("\nSIGTERM finishes what is in flight; SIGHUP reloads the file and reopens the log;\n"
         "SIGUSR2 replaces the running binary by the one now at its place.");
}
