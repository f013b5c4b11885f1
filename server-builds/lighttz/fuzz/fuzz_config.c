/* Whatever a configuration says, it is read or refused, and what is read is within its bounds. */
#include "config.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *silence;
    struct config config;
    char *text = malloc(size + 1);
    if (silence == NULL) {
        silence = stderr;
        stderr = fopen("/dev/null", "w");
    }
    memcpy(text, data, size);
    text[size] = '\0';
    config_defaults(&config);
    if (config_text(&config, "fuzz", text)) {
        if (config.workers < 1 || config.workers > CONFIG_WORKERS_MAX ||
            config.listen.count > CONFIG_LISTEN_MAX || config.cache_file > 65536)
            abort();
        mime_type(&config.types, STR("/a.foo"));
    }
    free(text);
    return 0;
}
