#include "master.h"
#include "sandbox.h"
#include "server.h"
#include <stdio.h>

#ifndef VERSION
#define VERSION "0"
#endif

#ifdef WITH_LUA
#define EXTRAS " with Lua"
#else
#define EXTRAS ""
#endif

static int act(enum command command, struct config *config, int argc, char *const argv[])
{
    switch (command) {
    case COMMAND_HELP:
        config_help();
        return 0;
    case COMMAND_VERSION:
        puts("lighttz " VERSION EXTRAS);
        return 0;
    case COMMAND_CHECK:
        if (!sandbox_user(config) || !server_check(config))
            return 1;
        puts("The configuration is right.");
        return 0;
    case COMMAND_RUN:
        return master_run(config, argc, argv);
    default:
        return 2;
    }
}

int main(int argc, char *argv[])
{
    static struct config config;
    int status = act(config_load(&config, argc, argv), &config, argc, argv);
    config_free(&config);
    return status;
}
