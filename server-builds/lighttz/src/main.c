#include "cache.h"
#include "master.h"
#include <errno.h>
#include <stdio.h>

#ifndef VERSION
#define VERSION "0"
#endif

#ifdef WITH_LUA
#define EXTRAS " with Lua"
#else
#define EXTRAS ""
#endif

static int check(const struct config *config)
{
    struct cache *cache = cache_open(config);
    if (cache == NULL) {
        fprintf(stderr, "lighttz: %s: %s\n", config->root, strerror(errno));
        return 1;
    }
    cache_close(cache);
    return 0;
}

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
        if (check(config))
            return 1;
        puts("The configuration is right.");
        return 0;
    case COMMAND_RUN:
        return check(config) ? 1 : master_run(config, argc, argv);
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
