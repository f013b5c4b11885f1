#include "condition.h"
#include "httpdate.h"

bool condition_etag_in(struct str list, struct str etag, bool weak_matches)
{
    if (str_eq(str_trim(list), STR("*")))
        return true;
    if (str_starts(etag, STR("W/"))) {
        if (!weak_matches)
            return false;
        etag = str_from(etag, 2);
    }
    while (list.n) {
        if (is_ows(list.p[0]) || list.p[0] == ',') {
            list = str_from(list, 1);
            continue;
        }
        bool weak = list.n >= 2 && list.p[0] == 'W' && list.p[1] == '/';
        if (weak)
            list = str_from(list, 2);
        const char *end =
            list.n > 1 && list.p[0] == '"' ? memchr(list.p + 1, '"', list.n - 1) : NULL;
        if (end == NULL)
            return false;
        size_t n = (size_t)(end - list.p) + 1;
        if ((!weak || weak_matches) && str_eq((struct str){list.p, n}, etag))
            return true;
        list = str_from(list, n);
    }
    return false;
}

static bool any_line(const struct request *r, enum field field, struct str etag, bool weak_matches)
{
    size_t at = 0;
    struct str value;
    while (request_each(r, field, &at, &value))
        if (condition_etag_in(value, etag, weak_matches))
            return true;
    return false;
}

/* The date of a field that must not be repeated; -1 when there is no valid one. */
static time_t date_of(const struct request *r, enum field field)
{
    if (!request_has(r, field) || request_repeats(r, field))
        return -1;
    return httpdate_parse(r->fields->value[field]);
}

int condition_status(const struct request *r, const struct file *f)
{
    const unsigned conditions = 1U << FIELD_IF_MATCH | 1U << FIELD_IF_NONE_MATCH |
                                1U << FIELD_IF_MODIFIED_SINCE | 1U << FIELD_IF_UNMODIFIED_SINCE;
    if ((r->fields->seen & conditions) == 0)
        return 200;
    if (request_has(r, FIELD_IF_MATCH)) {
        if (!any_line(r, FIELD_IF_MATCH, f->etag, false))
            return 412;
    } else {
        time_t since = date_of(r, FIELD_IF_UNMODIFIED_SINCE);
        if (since != -1 && f->modified > since)
            return 412;
    }
    if (request_has(r, FIELD_IF_NONE_MATCH))
        return any_line(r, FIELD_IF_NONE_MATCH, f->etag, true) ? 304 : 200;
    time_t since = date_of(r, FIELD_IF_MODIFIED_SINCE);
    return since != -1 && f->modified <= since ? 304 : 200;
}

bool condition_if_range(const struct request *r, const struct file *f)
{
    if (!request_has(r, FIELD_IF_RANGE))
        return true;
    struct str value = r->fields->value[FIELD_IF_RANGE];
    if (request_repeats(r, FIELD_IF_RANGE))
        return false;
    if (value.n && value.p[0] == '"')
        return str_eq(value, f->etag);
    time_t date = httpdate_parse(value); /* -1 for what is no date, as a weak tag */
    return !f->weak && date != -1 && date == f->modified;
}
