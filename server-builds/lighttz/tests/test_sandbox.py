"""What is said where the kernel cannot confine workers."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from abuse import until
from wire import BINARY, SANITIZED, Server, free_port

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
