"""Ask a server that does not run yet, again and again, until it answers: an open loop, which waits for no request."""

from __future__ import annotations

import contextlib
import errno
import json
import selectors
import socket
import threading
import time
from typing import Any

from vmtoll.agent.machine import output_of
from vmtoll.agent.protocol import Probed

# A request without an answer is given up after this time; new ones begin all the while.
_PATIENCE_S = 2.0
# The kernel asks for the address of a silent neighbour once a second, and a start would be seen up to a second late. An
# entry that is called reachable more often than this keeps it from asking, and ages by itself afterwards.
_NEIGHBOUR_S = 5.0


class Prober:
    """One server that is asked for `path` every `every_s` until it answers with status 200."""

    def __init__(self, host: str, port: int, path: str, every_s: float) -> None:
        self.family: int
        self.address: tuple[Any, ...]
        self.family, *_, self.address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self.request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
        self.every_s = every_s
        self.stopped = threading.Event()
        self.result: Probed = {"answered_at": None, "reached_at": None, "requests": 0, "gap_s": 0.0}

    def run(self, limit_s: float) -> Probed:
        """Ask until there is an answer, `limit_s` is over or `stop` is called."""
        keeper = threading.Thread(target=keep_neighbour, args=(str(self.address[0]), self.stopped), daemon=True)
        keeper.start()
        try:
            with selectors.DefaultSelector() as selector:
                try:
                    self._ask(selector, time.monotonic() + limit_s)
                finally:
                    for key in list(selector.get_map().values()):
                        key.data.close()
        finally:
            self.stopped.set()
        keeper.join()
        return self.result

    def stop(self) -> None:
        """End a run; its result so far counts."""
        self.stopped.set()

    def _ask(self, selector: selectors.BaseSelector, deadline: float) -> None:
        due = last = time.monotonic()
        while not self.stopped.is_set() and self.result["answered_at"] is None and (now := time.monotonic()) < deadline:
            if now >= due:
                self.result["gap_s"] = max(self.result["gap_s"], now - last)
                last, due = now, max(due + self.every_s, now)
                self.result["requests"] += 1
                _Request(self, selector)
            for key, _ in selector.select(max(0.0, min(due - time.monotonic(), 0.1))):
                key.data.go_on()
            for key in list(selector.get_map().values()):
                if now - key.data.begin > _PATIENCE_S:
                    key.data.close()


class Probers:
    """The probers of an agent that run."""

    def __init__(self) -> None:
        self.running: list[Prober] = []

    def probe(self, host: str, port: int, path: str, every_s: float, limit_s: float) -> Probed:
        """Ask a server until it answers; see Prober."""
        prober = Prober(host, port, path, every_s)
        self.running.append(prober)
        try:
            return prober.run(limit_s)
        finally:
            self.running.remove(prober)

    def stop(self) -> None:
        """End all probes; each returns what it has seen."""
        for prober in list(self.running):
            prober.stop()


class _Request:
    """A request of a prober; it closes itself when it has failed or is answered."""

    def __init__(self, prober: Prober, selector: selectors.BaseSelector) -> None:
        self.prober, self.selector = prober, selector
        self.begin, self.received = time.monotonic(), b""
        self.is_sent = False
        self.socket = socket.socket(prober.family, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        status = self.socket.connect_ex(prober.address)
        if status in (0, errno.EINPROGRESS):
            selector.register(self.socket, selectors.EVENT_WRITE, self)
        else:
            self._fail(OSError(status, "not connected"))

    def go_on(self) -> None:
        """Send what was connected, read what was sent."""
        try:
            if not self.is_sent:
                if number := self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(number, "not connected")
                self._reached()
                self.socket.send(self.prober.request)
                self.is_sent = True
                self.selector.modify(self.socket, selectors.EVENT_READ, self)
                return
            data = self.socket.recv(65536)
        except OSError as error:
            self._fail(error)
            return
        if data:
            self.received += data
        else:
            now_s = time.time()
            if is_whole(self.received) and self.prober.result["answered_at"] is None:
                self.prober.result["answered_at"] = now_s
            self.close()

    def close(self) -> None:
        """Give it up."""
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(self.socket)
        self.socket.close()

    def _fail(self, error: OSError) -> None:
        if isinstance(error, ConnectionRefusedError):
            self._reached()
        self.close()

    def _reached(self) -> None:
        if self.prober.result["reached_at"] is None:
            self.prober.result["reached_at"] = time.time()


def is_whole(answer: bytes) -> bool:
    """Return whether this is a whole answer with status 200, of as many bytes as it says."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    if not separator or first.split(b" ")[1:2] != [b"200"]:
        return False
    lengths = [line.partition(b":")[2] for line in lines if line.lower().startswith(b"content-length:")]
    return not lengths or len(body) == int(lengths[0])


def keep_neighbour(address: str, stopped: threading.Event) -> None:
    """Until `stopped`, keep the kernel's entry of a neighbour on the network reachable; nothing where it has none, as
    behind a router, or where this user may not change it.
    """
    listed = output_of("ip", "-j", "neigh", "show", "to", address)
    entries = [entry for entry in json.loads(listed or "[]") if entry.get("lladdr")]
    while entries and not stopped.is_set():
        words = [address, "lladdr", entries[0]["lladdr"], "dev", entries[0]["dev"], "nud", "reachable"]
        output_of("ip", "neigh", "replace", *words)
        stopped.wait(_NEIGHBOUR_S)
