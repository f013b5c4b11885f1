/* Every range lies within the body, and together they are bounded. */
#include "range.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t sizes[] = {0, 1, 100, INT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ranges r;
        int status = range_parse((struct str){(const char *)data, size}, sizes[i], &r);
        if (status != 200 && status != 206 && status != 416)
            abort();
        for (unsigned k = 0; status == 206 && k < r.count; k++)
            if (r.range[k].from < 0 || r.range[k].from >= r.range[k].to || r.range[k].to > sizes[i])
                abort();
    }
    return 0;
}
