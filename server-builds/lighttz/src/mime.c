#include "mime.h"

enum { TYPE_MAX = 200 };

static const char builtin[] =
#include "mime.inc" /* mime.types as string literals, made by make */
    ;

static struct str extension_of(struct str path)
{
    for (size_t i = path.n; i > 0 && path.p[i - 1] != '/'; i--)
        if (path.p[i - 1] == '.')
            return str_from(path, i);
    return (struct str){path.p, 0};
}

/* Whether `line` is of this extension, whose type it then names. */
static bool names(struct str line, struct str extension, struct str *type)
{
    if (line.n && line.p[0] == '.')
        line = str_from(line, 1);
    if (line.n <= extension.n || !is_ows(line.p[extension.n]) ||
        !str_ieq((struct str){line.p, extension.n}, extension))
        return false;
    *type = str_trim(str_from(line, extension.n));
    return true;
}

/* A search through all lines: done once per file that enters the cache. */
struct str mime_type(const struct mime_added *added, struct str path)
{
    struct str extension = extension_of(path);
    struct str type;
    for (unsigned i = added->count; i-- > 0;)
        if (names((struct str){added->line[i], strlen(added->line[i])}, extension, &type))
            return type;
    struct str rest = STR(builtin);
    struct str line;
    while (str_item(&rest, '\n', &line))
        if (names(line, extension, &type))
            return type;
    return STR("application/octet-stream");
}

bool mime_valid(const char *line)
{
    size_t n = strcspn(line, " \t");
    struct str type = str_trim((struct str){line + n, strlen(line + n)});
    for (size_t i = 0; i < type.n; i++)
        if (type.p[i] < ' ' || type.p[i] > '~')
            return false;
    return n > (line[0] == '.') && type.n && type.n <= TYPE_MAX && memchr(type.p, '/', type.n);
}
