#include "master.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION "0"
#endif

/* Otherwise a client's socket would take the number of stderr, and messages would go to it. */
static void open_standard_streams(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
        continue;
    if (fd >= 0)
        close(fd);
}

int main(int argc, char *argv[])
{
    static struct config config;
    open_standard_streams();
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
        puts("The configuration is valid.");
        return 0;
    case COMMAND_RUN:
        return master_run(&config, argv);
    default:
        return 2;
    }
}
