#include "config.h"
#include "field.h"
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* Each reader returns NULL, or what is wrong with the value (which is never empty). */
typedef const char *reader(void *slot, const char *value);

struct setting {
    const char *name;
    reader *read;
    size_t offset;
    unsigned long low; /* of a number, when `high` is not 0 */
    unsigned long high;
    const char *preset; /* NULL: none */
    const char *help;
};

/* What may stand after a number, and what it multiplies it by. */
struct unit {
    const char *suffix;
    unsigned long factor;
};

static bool read_number(unsigned long *number, const char *value, const struct unit *unit)
{
    size_t digits = strspn(value, "0123456789");
    while (unit->suffix && strcmp(value + digits, unit->suffix) != 0)
        unit++;
    *number = strtoul(value, NULL, 10) * unit->factor;
    return unit->suffix && digits && digits <= 10; /* ten digits of g fit */
}

static const struct unit plain[] = {{"", 1}, {0}};

/* 0 is no limit where it is in the range. */
static const char *read_count(void *slot, const char *value)
{
    const char *number = strcmp(value, "unlimited") == 0 ? "0" : value;
    return read_number(slot, number, plain) ? NULL : "expected a whole number";
}

static const char *read_size(void *slot, const char *value)
{
    static const struct unit units[] = {
        {"", 1}, {"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {0}};
    return read_number(slot, value, units) ? NULL : "expected a size in bytes, or with k, m or g";
}

static const char *read_time(void *slot, const char *value)
{
    static const struct unit units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {0}};
    return read_number(slot, value, units) ? NULL : "expected a time in seconds, or with ms or s";
}

static const char *read_short_time(void *slot, const char *value)
{
    static const struct unit units[] = {
        {"", 1000000}, {"s", 1000000}, {"ms", 1000}, {"us", 1}, {0}};
    return read_number(slot, value, units) ? NULL
                                           : "expected a time in seconds, or with us, ms or s";
}

static const char *read_workers(void *slot, const char *value)
{
    cpu_set_t cpus;
    unsigned long *workers = slot;
    if (strcmp(value, "auto") != 0)
        return read_count(slot, value) ? "expected a whole number or 'auto'" : NULL;
    int n = sched_getaffinity(0, sizeof cpus, &cpus) ? 1 : CPU_COUNT(&cpus);
    *workers = n < CONFIG_WORKERS_MAX ? (unsigned long)n : CONFIG_WORKERS_MAX;
    return NULL;
}

static const char *read_switch(void *slot, const char *value)
{
    bool *on = slot;
    *on = strcmp(value, "on") == 0;
    return *on || strcmp(value, "off") == 0 ? NULL : "expected 'on' or 'off'";
}

static const char *read_string(void *slot, const char *value)
{
    *(const char **)slot = value;
    return NULL;
}

static const char *read_path(void *slot, const char *value)
{
    return read_string(slot, strcmp(value, "off") == 0 ? NULL : value);
}

static const char *read_user(void *slot, const char *value)
{
    size_t uid = strspn(value, "0123456789");
    size_t gid = value[uid] == ':' ? strspn(value + uid + 1, "0123456789") : 0;
    bool is_user = uid && value[uid + (gid ? gid + 1 : 0)] == '\0';
    const unsigned long none = (uid_t)-1; /* and what lies beyond would be another one */
    is_user = is_user && strtoul(value, NULL, 10) < none &&
              (gid == 0 || strtoul(value + uid + 1, NULL, 10) < none);
    return is_user ? read_string(slot, value) : "expected a numeric UID or UID:GID";
}

static const char *read_type(void *slot, const char *value)
{
    struct mime_added *types = slot;
    if (types->count == MIME_ADDED_MAX)
        return "too many types";
    types->line[types->count++] = value;
    return mime_valid(value) ? NULL : "expected an extension and a type";
}

/* "Name: value", but none that responses have anyway. */
static const char *read_header(void *slot, const char *value)
{
    static const char ours[] = "accept-ranges:\nallow:\ncontent-encoding:\ncontent-range:\n"
                               "content-type:\netag:\nlast-modified:\nlocation:\nretry-after:\n"
                               "vary:\n";
    struct headers *headers = slot;
    struct str name;
    struct str text;
    if (!field_split(str_of(value), &name, &text) || !field_can_send(name, text))
        return "expected 'Name: value'";
    if (field_in(str_of(ours), name))
        return "lighttz sends this field itself";
    for (unsigned i = 0; i < headers->count; i++)
        if (field_in(str_of(headers->line[i]), name))
            return "this field is set already";
    headers->size += strlen(value) + 2;
    if (headers->count == CONFIG_HEADERS_MAX || headers->size > CONFIG_HEADERS_SIZE)
        return "too many fields";
    headers->line[headers->count++] = value;
    return NULL;
}

/* [ADDRESS:]PORT. Numeric only: a static glibc cannot resolve names on every host. */
static const char *read_address(void *slot, const char *value)
{
    struct address *a = slot;
    char host[64];
    unsigned long port;
    const char *colon = strrchr(value, ':');
    size_t n = colon ? (size_t)(colon - value) : 0;
    bool six = n >= 2 && value[0] == '[' && value[n - 1] == ']';
    bool good = read_number(&port, colon ? colon + 1 : value, plain) && port && port < 65536;
    good = good && n < sizeof host;
    snprintf(host, sizeof host, "%.*s", (int)n - 2 * six, value + six);
    *a = (struct address){.text = value, .length = six ? sizeof a->sa.v6 : sizeof a->sa.v4};
    if (six) {
        a->sa.v6.sin6_family = AF_INET6;
        a->sa.v6.sin6_port = htons((uint16_t)port);
        good = good && inet_pton(AF_INET6, host, &a->sa.v6.sin6_addr) == 1;
    } else {
        bool any = n == 0 || strcmp(host, "*") == 0;
        a->sa.v4.sin_family = AF_INET;
        a->sa.v4.sin_port = htons((uint16_t)port);
        good = good && (any || inet_pton(AF_INET, host, &a->sa.v4.sin_addr) == 1);
    }
    return good ? NULL : "expected ADDRESS:PORT with a numeric address and a port from 1 to 65535";
}

static const char *read_listen(void *slot, const char *value)
{
    struct listens *l = slot;
    if (l->count == CONFIG_LISTEN_MAX)
        return "too many addresses";
    return read_address(&l->address[l->count++], value);
}

#define AT(member) offsetof(struct config, member)
#define DAY 86400000

static const struct setting settings[] = {
    {"listen", read_listen, AT(listen), 0, 0, NULL, "[address:]port to serve on; may be repeated"},
    {"root", read_string, AT(root), 0, 0, NULL, "directory to serve"},
    {"workers", read_workers, AT(workers), 1, CONFIG_WORKERS_MAX, "auto", "processes, or auto"},
    {"former_generations", read_count, AT(former_generations), 1, CONFIG_FORMER_MAX, "4",
     "that finish their transfers after reloads; older ones stop"},
    {"index", read_string, AT(index), 0, 0, "index.html", "file served for a directory"},
    {"type", read_type, AT(types), 0, 0, NULL, "an extension and its type; may be repeated"},
    {"header", read_header, AT(headers), 0, 0, NULL,
     "a field for every response, 'Name: value'; may be repeated"},
    {"access_log", read_path, AT(access_log), 0, 0, NULL, "file for the access log, or off"},
    {"status_listen", read_address, AT(status_listen), 0, 0, NULL, "for the status page"},
    {"user", read_user, AT(user), 0, 0, NULL, "numeric UID[:GID] that workers run as; 0: root"},
    {"keepalive_requests", read_count, AT(keepalive_requests), 0, -1UL, "unlimited",
     "requests per connection: a number or unlimited"},
    {"max_connections", read_count, AT(max_connections), 1, 1000000, "20000", "per worker"},
    {"connection_memory", read_size, AT(connection_memory), 65536, -1UL, "128m",
     "for heads, bodies and output that wait, per worker"},
    {"max_line", read_size, AT(max_line), 64, 16384, "8k", "longest request line"},
    {"max_head", read_size, AT(max_head), 128, 32768, "16k", "longest request head"},
    {"max_body", read_size, AT(max_body), 0, -1UL, "1m", "longest request body that is skipped"},
    {"header_timeout", read_time, AT(header_timeout), 1, DAY, "10s", "for a whole request head"},
    {"body_timeout", read_time, AT(body_timeout), 1, DAY, "30s", "for a whole request body"},
    {"idle_timeout", read_time, AT(idle_timeout), 1, DAY, "60s", "between two requests"},
    {"send_timeout", read_time, AT(send_timeout), 1, DAY, "30s", "without progress of the client"},
    {"stop_timeout", read_time, AT(stop_timeout), 0, DAY, "10s", "to finish what is in flight"},
    {"spin", read_short_time, AT(spin), 0, 10000, "0", "time to poll before the worker blocks"},
    {"watchdog", read_time, AT(watchdog), 0, DAY, "30s",
     "a worker that hangs so long is replaced; 0: never"},
    {"revalidate", read_time, AT(revalidate), 0, DAY, "1s", "how long a cached file is trusted"},
    {"cache_entries", read_count, AT(cache_entries), 1, 1000000, "2048", "files kept, per worker"},
    {"cache_bytes", read_size, AT(cache_bytes), 0, -1UL, "64m", "memory for them, per worker"},
    {"cache_file", read_size, AT(cache_file), 0, 65536, "12k", "largest file sent from memory"},
    {"lua_script", read_path, AT(lua_script), 0, 0, NULL, "for dynamic responses, or off"},
    {"lua_prefix", read_string, AT(lua_prefix), 0, 0, "/lua/", "paths that the script answers"},
    {"lua_reload", read_switch, AT(lua_reload), 0, 0, "off", "load the script for every request"},
    {"lua_time", read_time, AT(lua_time), 1, DAY, "100ms", "CPU time that one response may take"},
    {"lua_memory", read_size, AT(lua_memory), 0, -1UL, "16m", "what the script may hold"},
    {"precompressed", read_switch, AT(precompressed), 0, 0, "on",
     "serve .br, .zst, .gz neighbours"},
    {"defer_accept", read_switch, AT(defer_accept), 0, 0, "on", "wait for data before accepting"},
    {"cpu_affinity", read_switch, AT(cpu_affinity), 0, 0, "off",
     "a CPU for each worker, and connections by the CPU they come in on"},
    {"sandbox", read_switch, AT(sandbox), 0, 0, "on", "confine workers to what they need"},
};

enum { SETTINGS = sizeof settings / sizeof *settings };

static const char *apply(struct config *c, const char *name, const char *value)
{
    static char range[80];
    const struct setting *s = settings;
    while (s < settings + SETTINGS && strcmp(s->name, name) != 0)
        s++;
    if (s == settings + SETTINGS)
        return "unknown setting";
    if (value == NULL || *value == '\0')
        return "expected a value";
    void *slot = (char *)c + s->offset;
    const char *wrong = s->read(slot, value);
    if (wrong || s->high == 0)
        return wrong;
    if (*(unsigned long *)slot >= s->low && *(unsigned long *)slot <= s->high)
        return NULL;
    snprintf(range, sizeof range, "expected a value from %lu to %lu", s->low, s->high);
    return range;
}

static char *trim(char *text)
{
    static const char blank[] = " \t\r";
    text += strspn(text, blank);
    for (size_t n = strlen(text); n && strchr(blank, text[n - 1]); n--)
        text[n - 1] = '\0';
    return text;
}

/* "key = value"; `line` becomes the key. */
static const char *apply_line(struct config *c, char *line)
{
    char *equals = strchr(line, '=');
    if (equals == NULL)
        return "expected 'key = value'";
    *equals = '\0';
    trim(line);
    return apply(c, line, trim(equals + 1));
}

bool config_text(struct config *c, const char *name, char *text)
{
    for (unsigned number = 1; text; number++) {
        char *line = trim(strsep(&text, "\n"));
        const char *wrong = *line == '\0' || *line == '#' ? NULL : apply_line(c, line);
        if (wrong) {
            fprintf(stderr, "%s:%u: %.40s: %s\n", name, number, line, wrong);
            return false;
        }
    }
    return true;
}

static bool config_file(struct config *c, const char *path)
{
    static char text[65536];
    FILE *f = path ? fopen(path, "re") : NULL;
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    const char *wrong = path == NULL             ? "expected a file"
                        : f == NULL || ferror(f) ? strerror(errno)
                        : n == sizeof text       ? "too long"
                        : memchr(text, '\0', n)  ? "no text: it has a NUL"
                                                 : NULL;
    if (f)
        fclose(f);
    if (wrong)
        fprintf(stderr, "%s: %s\n", path ? path : "-c", wrong);
    return !wrong && config_text(c, path, text);
}

/* --key=value, or --key and the value as the next argument. */
static bool config_flag(struct config *c, const char *flag, const char *value)
{
    char name[64];
    size_t n = 0;
    for (; flag[n] && flag[n] != '=' && n + 1 < sizeof name; n++)
        name[n] = flag[n] == '-' ? '_' : flag[n];
    name[n] = '\0';
    const char *wrong = apply(c, name, value);
    if (wrong)
        fprintf(stderr, "--%s: %s\n", flag, wrong);
    return wrong == NULL;
}

static enum command config_complete(const struct config *c, enum command command)
{
    if (c->root == NULL)
        fprintf(stderr, "lighttz: no root is set\n");
    return c->root ? command : COMMAND_WRONG;
}

enum command config_load(struct config *c, int argc, char *const argv[])
{
    enum command command = COMMAND_RUN;
    const char *file = NULL;
    config_defaults(c);
    for (int i = 1; i < argc; i++) { /* the file first, so that flags win wherever they stand */
        if (strcmp(argv[i], "-c") != 0)
            continue;
        if (file)
            fprintf(stderr, "-c: only one file is read\n");
        if (file || !config_file(c, argv[++i]))
            return COMMAND_WRONG;
        file = argv[i];
    }
    bool from_file = c->listen.count > 0;
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
            if (from_file && strncmp(arg, "--listen", 8) == 0)
                c->listen.count = from_file = false;
            if (!config_flag(c, arg + 2, value ? value + 1 : argv[++i]))
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
    *c = (struct config){0};
    for (size_t i = 0; i < SETTINGS; i++)
        if (settings[i].preset)
            apply(c, settings[i].name, settings[i].preset);
}

void config_help(void)
{
    puts("Usage: lighttz [-c FILE] [--KEY VALUE]... [--check-config | --help | --version]\n\n"
         "Serves the files beneath a directory over HTTP/1.1, in the foreground. FILE has one\n"
         "'key = value' a line and '#' comments; the same keys are flags, which win.\n");
    for (const struct setting *s = settings; s < settings + SETTINGS; s++)
        printf(s->preset ? "  %-20s %s (%s)\n" : "  %-20s %s\n", s->name, s->help, s->preset);
    puts("\nSIGTERM finishes what is in flight. SIGHUP starts the binary at its place: it reads\n"
         "the configuration, opens the log and takes over when it is ready to serve.");
}
