"""What is said where the kernel cannot confine workers."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from abuse import until
from wire import AS_WHO, BINARY, SANITIZED, Server, free_port, free_ports

# Executes its arguments where the system call of that number is missing.
WITHOUT = """
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (0x06, 0, 0, 0x00050026), (0x06, 0, 0, 0x7FFF0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""
LANDLOCK_CREATE_RULESET, SECCOMP = 444, 317
pytestmark = pytest.mark.skipif(SANITIZED or os.uname().machine != "x86_64", reason="it has no sandbox, or other calls")


@pytest.mark.parametrize(("missing", "name"), [(LANDLOCK_CREATE_RULESET, "Landlock"), (SECCOMP, "seccomp"), (-1, "")])
def test_what_cannot_confine_is_said_once(root: Path, missing: int, name: str) -> None:
    port = free_port()
    flags = ["--root", str(root), "--listen", f"127.0.0.1:{port}", "--workers", "2"]
    server = Server(root, command=[sys.executable, "-c", WITHOUT, str(missing & 0xFFFFFFFF), str(BINARY), *flags])
    server.port = port
    with server.ready():
        until(lambda: len(server.workers()) == 2)
        before = server.workers()
        server.killed = True
        os.kill(before[0], signal.SIGKILL)
        until(lambda: len(server.workers()) == 2 and before[0] not in server.workers())
        assert server.get("/ten.txt").status == 200
        said = [line for line in server.messages().splitlines() if "here: workers can" in line]
        assert [line.split()[2] for line in said] == ([name] if name else [])


# Executes its arguments where every system call newer than Linux 4.19 (on x86-64: above rseq) fails with that error.
OLD = WITHOUT.replace("0x15, 0, 1,", "0x25, 0, 1,").replace("0x00050026", "0x00050000 | int(sys.argv[2])")
OLD = OLD.replace("sys.argv[2], sys.argv[2:]", "sys.argv[3], sys.argv[3:]")
RSEQ = 334


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EINVAL])
def test_calls_of_linux_4_19_suffice(root: Path, error: int) -> None:
    """Nothing leaves the root, reloads and stops work, and log and status page name each fallback."""
    port, status_port = free_ports(2)
    flags = ["--root", str(root), "--listen", f"127.0.0.1:{port}", "--workers", "2"]
    flags += ["--status-listen", f"127.0.0.1:{status_port}"]
    server = Server(root, command=[sys.executable, "-c", OLD, str(RSEQ), str(error), str(BINARY), *flags])
    server.port, server.status_port = port, status_port
    with server.ready():
        for _ in range(3):
            before = set(server.workers())
            server.process.send_signal(signal.SIGHUP)
            until(lambda: not before & set(server.workers()) and len(server.workers()) == 2)  # noqa: B023
        for path in ("/ten.txt", "/in.txt", "/", "/dir/", "/large.bin"):
            assert server.get(path).status == 200, path
        assert server.get("/page.css", "Accept-Encoding: gzip")["Content-Encoding"] == "gzip"
        for path in ("/out.txt", "/absolute.txt", "/outdir/secret.txt", "/loop", "/fifo"):
            assert server.get(path).status == 403, path
        assert server.get("/none").status == 404 and server.get("/dir").status == 301
        counters = server.counters()
        active = {name for name, value in counters.items() if name.startswith("fallback_") and value}
        assert active == {"fallback_openat2", "fallback_pidfd", "fallback_landlock"}
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
