"""What is said where the kernel cannot confine workers."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from abuse import until
from wire import AS_WHO, BINARY, SANITIZED, Server, free_port, free_ports

# Executes its arguments (from the fourth on) where the system calls from the first to the second fail with the third.
WITHOUT = """
import ctypes, os, struct, sys
first, last, error = (int(text) for text in sys.argv[1:4])
code = [(0x20, 0, 0, 0), (0x35, 0, 2, first), (0x25, 1, 0, last), (0x06, 0, 0, 0x50000 | error)]
code.append((0x06, 0, 0, 0x7FFF0000))
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[4], sys.argv[4:])
"""
# On x86-64, where the calls of 2019 and later have the numbers of all architectures.
SECCOMP, RSEQ, LAST = 317, 334, 0x3FFFFFFF
CALLS_SINCE = range(424, 472)
FALLBACKS = {SECCOMP: "seccomp", 424: "pidfd", 434: "pidfd", 437: "openat2"}
FALLBACKS |= dict.fromkeys((444, 445, 446), "landlock")
pytestmark = pytest.mark.skipif(SANITIZED or os.uname().machine != "x86_64", reason="it has no sandbox, or other calls")


def server_without(root: Path, first: int, last: int, error: int) -> Server:
    """Two workers where these calls fail."""
    port, status_port = free_ports(2)
    flags = ["--root", str(root), "--listen", f"127.0.0.1:{port}", "--workers", "2"]
    flags += ["--status-listen", f"127.0.0.1:{status_port}"]
    filtered = [sys.executable, "-c", WITHOUT, str(first), str(last), str(error), str(BINARY), *flags]
    server = Server(root, command=filtered)
    server.port, server.status_port = port, status_port
    return server


def reload(server: Server) -> None:
    before = set(server.workers())
    server.process.send_signal(signal.SIGHUP)
    until(lambda: not before & set(server.workers()) and len(server.workers()) == 2)


def active_fallbacks(server: Server) -> set[str]:
    """As the status page tells; the log must have told the same."""
    active = {name[9:] for name, value in server.counters().items() if name.startswith("fallback_") and value}
    lines = [line.split()[2].lower() for line in server.messages().splitlines() if line.startswith("lighttz: no ")]
    late = {"landlock"} if "lighttz: not confined: " in server.messages() else set()
    assert late.union(lines) == active
    return active


@pytest.mark.parametrize(("missing", "name"), [(444, "Landlock"), (SECCOMP, "seccomp"), (-1, "")])
def test_what_cannot_confine_is_said_once(root: Path, missing: int, name: str) -> None:
    number = missing & LAST
    with server_without(root, number, number, errno.ENOSYS) as server:
        until(lambda: len(server.workers()) == 2)
        before = server.workers()
        server.killed = True
        os.kill(before[0], signal.SIGKILL)
        until(lambda: len(server.workers()) == 2 and before[0] not in server.workers())
        assert server.get("/ten.txt").status == 200
        said = [line for line in server.messages().splitlines() if "here: workers can" in line]
        assert [line.split()[2] for line in said] == ([name] if name else [])


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EINVAL, errno.EPERM])
def test_each_newer_call_may_fail_alone(root: Path, error: int) -> None:
    """seccomp and every call newer than Linux 4.19, one at a time: the server starts, serves, reloads and stops."""

    def active(number: int) -> set[str]:
        with server_without(root, number, number, error) as server:
            reload(server)
            assert server.get("/ten.txt").status == 200 and server.get("/outdir/secret.txt").status == 403
            fallbacks = active_fallbacks(server)
        server.said.close()
        return fallbacks

    numbers = [SECCOMP, *CALLS_SINCE]
    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(numbers, pool.map(active, numbers), strict=True))
    assert found == {number: {FALLBACKS[number]} if number in FALLBACKS else set() for number in numbers}


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EINVAL])
def test_calls_of_linux_4_19_suffice(root: Path, error: int) -> None:
    """Nothing leaves the root, reloads and stops work, and log and status page name each fallback."""
    with server_without(root, RSEQ + 1, LAST, error) as server:
        for _ in range(3):
            reload(server)
        for path in ("/ten.txt", "/in.txt", "/", "/dir/", "/large.bin"):
            assert server.get(path).status == 200, path
        assert server.get("/page.css", "Accept-Encoding: gzip")["Content-Encoding"] == "gzip"
        for path in ("/out.txt", "/absolute.txt", "/outdir/secret.txt", "/loop", "/fifo"):
            assert server.get(path).status == 403, path
        assert server.get("/none").status == 404 and server.get("/dir").status == 301
        assert active_fallbacks(server) == {"openat2", "pidfd", "landlock"}
        for name in ("openat2", "pidfd", "Landlock"):
            assert server.messages().count(f"lighttz: no {name} here: ") == 4  # the start and each reload


def test_a_clock_that_begins_now(root: Path) -> None:
    """Within the first second of the monotonic clock, as in gVisor, workers start."""
    port = free_port()
    up = int(float(Path("/proc/uptime").read_text().split()[0]))
    namespace = ["unshare", "--time", f"--monotonic=-{up}", "--fork", "--kill-child"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("time namespaces are not allowed here")
    flags = ["--root", str(root), "--listen", f"127.0.0.1:{port}", "--workers", "2", *AS_WHO]
    with subprocess.Popen([*namespace, str(BINARY), *flags], stderr=subprocess.PIPE) as process:

        def serves() -> bool:
            assert process.poll() is None, process.stderr and process.stderr.read()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return True
            return False

        until(serves)
        process.kill()  # and its child
