// client WARM_UP REQUESTS WINDOWS: sends requests to the inner guest on one connection, each after the answer to the one
// before: WARM_UP, then WINDOWS times REQUESTS. Prints how long each window took by this machine's clock.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char request[] = "GET / HTTP/1.1\r\nHost: guest\r\n\r\n";

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void get(int connection) {
    static char answer[8192];
    size_t length = 0, wanted = 0;
    if (write(connection, request, sizeof request - 1) < 0) fail("write");
    while (!wanted || length < wanted) {
        ssize_t more = read(connection, answer + length, sizeof answer - 1 - length);
        if (more <= 0) fail("read");
        length += more;
        answer[length] = 0;
        char *end = strstr(answer, "\r\n\r\n");
        if (end) wanted = end + 4 - answer + 4096;
    }
}

int main(int count, char **words) {
    if (count != 4) return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(8080)};
    int connection = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    inet_pton(AF_INET, "198.18.0.3", &to.sin_addr);
    if (connect(connection, (struct sockaddr *)&to, sizeof to)) fail("connect");
    for (int i = 0; i < atoi(words[1]); i++) get(connection);
    for (int window = 1; window <= atoi(words[3]); window++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int i = 0; i < atoi(words[2]); i++) get(connection);
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("window %d: %.3f s\n", window, end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9);
        fflush(stdout);
    }
    return 0;
}
