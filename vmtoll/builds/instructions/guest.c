// The first process of the guest: loads the modules /0.ko, /1.ko and so on, takes 198.18.0.3, and
// becomes lighttz, which serves /www. Prints /proc/modules for the profile. Prints what fails, and
// then waits.
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void need(long result, const char *what)
{
    if (result >= 0)
        return;
    perror(what);
    for (;;)
        pause();
}

int main(void)
{
    static char *const server[] = {"/lighttz",  "--listen", "198.18.0.3:8080", "--root", "/www",
                                   "--workers", "1",        "--user",          "0",      NULL};
    static char *const environment[] = {NULL};
    struct ifreq card = {.ifr_name = "eth0"};
    struct sockaddr_in *address = (struct sockaddr_in *)&card.ifr_addr;
    char text[4096];
    ssize_t length;

    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    mount("proc", "/proc", "proc", 0, NULL);
    int console = open("/dev/console", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(console, fd);
    for (int each = 0;; each++) {
        snprintf(text, sizeof text, "/%d.ko", each);
        int file = open(text, O_RDONLY);
        if (file < 0)
            break;
        need(syscall(SYS_finit_module, file, "", 0), text);
        close(file);
    }
    int loaded = open("/proc/modules", O_RDONLY);
    while ((length = read(loaded, text, sizeof text)) > 0)
        write(1, text, (size_t)length);
    close(loaded);
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    address->sin_family = AF_INET;
    inet_pton(AF_INET, "198.18.0.3", &address->sin_addr);
    need(ioctl(any, SIOCSIFADDR, &card), "address");
    inet_pton(AF_INET, "255.255.255.0", &address->sin_addr);
    need(ioctl(any, SIOCSIFNETMASK, &card), "netmask");
    card.ifr_flags = IFF_UP | IFF_RUNNING;
    need(ioctl(any, SIOCSIFFLAGS, &card), "up");
    close(any);
    need(execve(server[0], server, environment), "lighttz");
}
