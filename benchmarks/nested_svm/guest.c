// The first process of the inner guest: loads the drivers of its network card, takes 198.18.0.3, and answers every
// request on port 8080 with 4,096 bytes. Prints what fails, and then waits.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void need(long result, const char *what) {
    if (result >= 0) return;
    perror(what);
    for (;;) pause();
}

int main(void) {
    static const char *const modules[] = {"/failover.ko", "/net_failover.ko", "/virtio_net.ko", NULL};
    static char body[4096], request[4096], answer[sizeof body + 128];
    struct ifreq card = {.ifr_name = "eth0"};
    struct sockaddr_in *address = (struct sockaddr_in *)&card.ifr_addr;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(8080)};
    int one = 1;

    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    int console = open("/dev/console", O_RDWR);
    for (int fd = 0; fd < 3; fd++) dup2(console, fd);
    for (int i = 0; modules[i]; i++) {
        int file = open(modules[i], O_RDONLY);
        need(syscall(SYS_finit_module, file, "", 0), modules[i]);
        close(file);
    }
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    address->sin_family = AF_INET;
    inet_pton(AF_INET, "198.18.0.3", &address->sin_addr);
    need(ioctl(listening, SIOCSIFADDR, &card), "address");
    inet_pton(AF_INET, "255.255.255.0", &address->sin_addr);
    need(ioctl(listening, SIOCSIFNETMASK, &card), "netmask");
    card.ifr_flags = IFF_UP | IFF_RUNNING;
    need(ioctl(listening, SIOCSIFFLAGS, &card), "up");
    need(bind(listening, (struct sockaddr *)&here, sizeof here), "bind");
    need(listen(listening, 64), "listen");
    int head = sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", sizeof body);
    memcpy(answer + head, body, sizeof body);
    for (;;) {
        int connection = accept(listening, NULL, NULL);
        if (connection < 0) continue;
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        while (read(connection, request, sizeof request) > 0)
            if (write(connection, answer, head + sizeof body) < 0) break;
        close(connection);
    }
}
