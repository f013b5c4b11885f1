#include "master.h"
#include <stdio.h>

#ifndef VERSION
#define VERSION "0"
#endif

int main(int argc, char *argv[])
{
    static struct config config;
    switch (config_load(&config, argc, argv)) {
    case COMMAND_HELP:
        config_help();
        return 0;
    case COMMAND_VERSION:
        puts("lighttz " VERSION);
        return 0;
    case COMMAND_CHECK:
        if (!master_check(&config))
            return 1;
        puts("The configuration is right.");
        return 0;
    case COMMAND_RUN:
        return master_run(&config, argv);
    default:
        return 2;
    }
}
