/* What a worker can do that somebody has taken over: each attempt in a process of its own, which
 * has entered the sandbox. */
#include "config.h"
#include "sandbox.h"
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int root;

static bool opens(int folder, const char *path)
{
    struct open_how how = {.flags = O_RDONLY};
    return syscall(SYS_openat2, folder, path, &how, sizeof how) >= 0;
}

static bool open_inside(void)
{
    return opens(root, "file");
}

static bool map_memory(void)
{
    int access = PROT_READ | PROT_WRITE;
    return mmap(NULL, 1 << 20, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

static bool open_outside(void)
{
    return opens(AT_FDCWD, "/etc/passwd");
}

static bool open_to_write(void)
{
    return openat(root, "new", O_WRONLY | O_CREAT, 0600) >= 0;
}

static bool make_socket_ip(void)
{
    return socket(AF_INET, SOCK_DGRAM, 0) >= 0;
}

static bool make_socket_unix(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
}

static bool make_socket_netlink(void)
{
    return socket(AF_NETLINK, SOCK_RAW, 0) >= 0;
}

static bool signal_another(void)
{
    return kill(getppid(), 0) == 0;
}

static bool start_process(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return pid > 0;
}

static bool execute(void)
{
    return execl("/bin/true", "true", NULL) == 0 || errno != EPERM;
}

static bool map_code(void)
{
    int access = PROT_READ | PROT_WRITE | PROT_EXEC;
    return mmap(NULL, 4096, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

static bool make_code(void)
{
    int access = PROT_READ | PROT_WRITE;
    void *p = mmap(NULL, 4096, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED || mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0;
}

static bool trace_another(void)
{
    return ptrace(PTRACE_SEIZE, getppid(), NULL, NULL) == 0;
}

static bool in_sandbox(bool attempt(void), const struct config *config)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        syscall(SYS_exit_group, !sandbox_enter(config, root) ? 2 : attempt() ? 0 : 1);
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void test_sandbox(void)
{
    static const struct {
        const char *name;
        bool (*attempt)(void);
        bool may;
    } rows[] = {{"read a file of the root", open_inside, true},
                {"allocate", map_memory, true},
                {"read a file outside", open_outside, false},
                {"write a file", open_to_write, false},
                {"make an IP socket", make_socket_ip, false},
                {"make a UNIX socket", make_socket_unix, false},
                {"make a netlink socket", make_socket_netlink, false},
                {"signal another process", signal_another, false},
                {"start a process", start_process, false},
                {"execute a program", execute, false},
                {"map memory to write and execute", map_code, false},
                {"make memory executable", make_code, false},
                {"trace another process", trace_another, false}};
    char folder[] = "/tmp/lighttz-unit-XXXXXX";
    const struct config config = {.sandbox = true};
    root = mkdtemp(folder) ? open(folder, O_PATH | O_DIRECTORY) : -1;
    int file = openat(root, "file", O_WRONLY | O_CREAT, 0600);
    check(file >= 0, "a file to read", folder);
    close(file);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check(in_sandbox(rows[i].attempt, &config) == rows[i].may, "in the sandbox", rows[i].name);
    unlinkat(root, "new", 0);
    unlinkat(root, "file", 0);
    close(root);
    rmdir(folder);
}
