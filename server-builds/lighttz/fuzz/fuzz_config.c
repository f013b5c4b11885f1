/* Whatever a configuration says, it is read or refused, and freed. */
#include "config.h"
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *silence;
    struct config config;
    if (silence == NULL) {
        silence = stderr;
        stderr = fopen("/dev/null", "w");
    }
    config_defaults(&config);
    config_text(&config, "fuzz", (struct str){(const char *)data, size});
    config_free(&config);
    return 0;
}
