"""What the tests of endurance share: requests, load that keeps its failures, and the process's figures."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import termios
import threading
import time
from pathlib import Path

from wire import Server, read_responses

GET = b"GET /ten.txt HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n"


def reset(s: socket.socket) -> None:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def until(condition, timeout: float = 10) -> None:
    """Wait until the condition holds. One that looks at a process which has just ended does not hold yet."""
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if condition():
                return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def unread(s: socket.socket | int) -> int:
    """Octets that have come and were not read yet."""
    return struct.unpack("i", fcntl.ioctl(s, termios.FIONREAD, b"\0" * 4))[0]


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def pss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


class Load(threading.Thread):
    """Requests one after the other until told to stop; counts answers, keeps failures, and apart from
    them the losses: failures on a connection that was served before (the others may never have been let in)
    and was not idle as long as a server that stops waits for its next request."""

    PATIENCE_S = 0.4  # the server's is 0.5

    def __init__(self, server: Server, path: str, check, keep: bool = True):
        super().__init__(daemon=True)
        self.server, self.check, self.keep = server, check, keep
        self.request = (
            f"GET {path} HTTP/1.1\r\nHost: x\r\n{'' if keep else 'Connection: close' + chr(13) + chr(10)}\r\n".encode()
        )
        self.done = threading.Event()
        self.answers = 0
        self.failures: list[str] = []
        self.losses: list[str] = []
        self.start()

    def run(self) -> None:
        s: socket.socket | None = None
        served = 0
        answered = idle = 0.0
        while not self.done.is_set():
            try:
                if s is None:
                    served = 0
                    s = self.server.connect()
                try:
                    s.sendall(self.request)
                finally:
                    idle = time.monotonic() - answered
                response = read_responses(s, 1)[0]
                self.check(response)
                self.answers += 1
                served += 1
                answered = time.monotonic()
                if response["Connection"] == "close":
                    s.close()
                    s = None
            except (OSError, AssertionError) as e:
                self.failures.append(repr(e))
                if served and idle < self.PATIENCE_S:
                    self.losses.append(repr(e))
                if s:
                    s.close()
                s = None
        if s:
            s.close()

    def proceed(self) -> None:
        """Waits for one more answer."""
        before = self.answers
        until(lambda: self.answers > before)

    def finish(self) -> None:
        self.done.set()
        self.join()


def ok(response) -> None:
    assert response.status == 200
