#include "field.h"
#include "request.h"

bool field_can_send(struct str name, struct str value)
{
    static const struct str ours[] = {STR_INIT("content-length"), STR_INIT("transfer-encoding"),
                                      STR_INIT("connection"),     STR_INIT("date"),
                                      STR_INIT("server"),         STR_INIT("trailer")};
    bool good = name.n > 0;
    for (size_t i = 0; i < name.n; i++)
        good = good && is_tchar(name.p[i]);
    for (size_t i = 0; i < value.n; i++)
        good = good && (unsigned char)value.p[i] >= ' ' && value.p[i] != 0x7f;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        good = good && !str_ieq(name, ours[i]);
    return good;
}

bool field_split(struct str line, struct str *name, struct str *value)
{
    *name = str_before(line, ':');
    if (name->n == line.n)
        return false;
    *value = str_trim(str_from(line, name->n + 1));
    return true;
}

bool field_in(struct str lines, struct str name)
{
    struct str line;
    struct str other;
    struct str value;
    while (str_item(&lines, '\n', &line))
        if (field_split(line, &other, &value) && str_ieq(other, name))
            return true;
    return false;
}
