#include "mime.h"
#include <stdlib.h>

struct type {
    const char *extension;
    const char *type;
};

static const struct type builtin[] = {
    {"html", "text/html; charset=utf-8"},
    {"htm", "text/html; charset=utf-8"},
    {"css", "text/css; charset=utf-8"},
    {"js", "text/javascript; charset=utf-8"},
    {"mjs", "text/javascript; charset=utf-8"},
    {"json", "application/json"},
    {"map", "application/json"},
    {"jsonld", "application/ld+json"},
    {"webmanifest", "application/manifest+json"},
    {"txt", "text/plain; charset=utf-8"},
    {"log", "text/plain; charset=utf-8"},
    {"md", "text/markdown; charset=utf-8"},
    {"csv", "text/csv; charset=utf-8"},
    {"ics", "text/calendar; charset=utf-8"},
    {"xml", "application/xml"},
    {"xhtml", "application/xhtml+xml"},
    {"atom", "application/atom+xml"},
    {"rss", "application/rss+xml"},
    {"svg", "image/svg+xml"},
    {"png", "image/png"},
    {"jpg", "image/jpeg"},
    {"jpeg", "image/jpeg"},
    {"gif", "image/gif"},
    {"webp", "image/webp"},
    {"avif", "image/avif"},
    {"ico", "image/x-icon"},
    {"bmp", "image/bmp"},
    {"tif", "image/tiff"},
    {"tiff", "image/tiff"},
    {"woff", "font/woff"},
    {"woff2", "font/woff2"},
    {"ttf", "font/ttf"},
    {"otf", "font/otf"},
    {"mp3", "audio/mpeg"},
    {"ogg", "audio/ogg"},
    {"opus", "audio/ogg"},
    {"flac", "audio/flac"},
    {"wav", "audio/wav"},
    {"m4a", "audio/mp4"},
    {"mp4", "video/mp4"},
    {"webm", "video/webm"},
    {"mpeg", "video/mpeg"},
    {"mov", "video/quicktime"},
    {"pdf", "application/pdf"},
    {"zip", "application/zip"},
    {"gz", "application/gzip"},
    {"tgz", "application/gzip"},
    {"zst", "application/zstd"},
    {"xz", "application/x-xz"},
    {"bz2", "application/x-bzip2"},
    {"tar", "application/x-tar"},
    {"7z", "application/x-7z-compressed"},
    {"wasm", "application/wasm"},
    {"rtf", "application/rtf"},
    {"epub", "application/epub+zip"},
    {"odt", "application/vnd.oasis.opendocument.text"},
    {"ods", "application/vnd.oasis.opendocument.spreadsheet"},
    {"docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
    {"xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
    {"pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"},
};

struct mime_list {
    struct mime_list *next;
    struct str extension;
    struct str type;
    char text[];
};

static struct str extension_of(struct str path)
{
    for (size_t i = path.n; i > 0; i--) {
        if (path.p[i - 1] == '/')
            break;
        if (path.p[i - 1] == '.')
            return str_from(path, i);
    }
    return (struct str){path.p, 0};
}

/* A search through the whole table: done once per file that enters the cache. */
struct str mime_type(const struct mime_list *added, struct str path)
{
    struct str extension = extension_of(path);
    for (const struct mime_list *a = added; a; a = a->next)
        if (str_ieq(extension, a->extension))
            return a->type;
    for (size_t i = 0; i < sizeof builtin / sizeof *builtin; i++)
        if (str_ieq(extension, (struct str){builtin[i].extension, strlen(builtin[i].extension)}))
            return (struct str){builtin[i].type, strlen(builtin[i].type)};
    return STR("application/octet-stream");
}

bool mime_add(struct mime_list **added, struct str extension, struct str type)
{
    if (extension.n && extension.p[0] == '.')
        extension = str_from(extension, 1);
    if (extension.n == 0 || type.n == 0 || type.n > 200 || !memchr(type.p, '/', type.n))
        return false;
    for (size_t i = 0; i < type.n; i++)
        if (type.p[i] < ' ' || type.p[i] > '~')
            return false;
    struct mime_list *a = malloc(sizeof *a + extension.n + type.n);
    if (a == NULL)
        return false;
    memcpy(a->text, extension.p, extension.n);
    memcpy(a->text + extension.n, type.p, type.n);
    a->extension = (struct str){a->text, extension.n};
    a->type = (struct str){a->text + extension.n, type.n};
    a->next = *added;
    *added = a;
    return true;
}

void mime_free(struct mime_list *added)
{
    while (added) {
        struct mime_list *next = added->next;
        free(added);
        added = next;
    }
}
