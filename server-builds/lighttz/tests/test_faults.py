"""The server while its system calls and allocations fail: what it sends is right, or it says that it cannot.

Only for the build with injected faults (`make faults`, tests/faults.c)."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest
from abuse import until
from wire import BINARY, Server

pytestmark = pytest.mark.skipif("faults" not in BINARY.name, reason="this build has no injected faults")
SECONDS = float(os.environ.get("FAULTS_SECONDS", "5"))
SCRIPT = """
function handle(r)
  local good, text = xpcall(string.rep, function(e) return "handled " .. e end, r.query, 1000)
  if not good then error(text) end
  return 200, text .. r.body, {["Content-Type"] = "text/plain"}
end
"""
AGENT = b"User-Agent: " + b"\x80" * 1500 + b"\r\n"
LINE = re.compile(r'127\.0\.0\.1 - - \[[^]]+\] "[^"]*" \d{3} \d+ "-" "[^"]*" \d+\.\d{6}')


@dataclass(frozen=True)
class Request:
    text: bytes
    status: int  # or 500 or 503
    content: bytes = b""  # of a 200 or 206
    head: bool = False


@dataclass
class Outcome:
    answers: Counter[int] = field(default_factory=Counter)
    octets: int = 0  # compared
    broken: int = 0  # connections that ended within an answer
    wrong: list[str] = field(default_factory=list)


def requests_of(root: Path) -> list[Request]:
    requests = [Request(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n", 404)]
    for name in ("ten.txt", "small.bin", "large.bin", "page.css", "bare/file.txt"):
        content = (root / name).read_bytes()
        line = f"GET /{name} HTTP/1.1\r\nHost: x\r\n".encode() + AGENT
        first, last = len(content) // 3, len(content) // 2
        requests += [
            Request(line + b"\r\n", 200, content),
            Request(line.replace(b"GET", b"HEAD") + b"\r\n", 200, head=True),
            Request(line + b"Range: bytes=%d-%d\r\n\r\n" % (first, last), 206, content[first : last + 1]),
            Request(line.replace(b"GET", b"PUT") + b"Content-Length: 70\r\n\r\n" + b"G" * 70, 405),
        ]
    query = "q" * 50
    script = f"GET /lua/x?{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    body = b"b" * 70_000
    post = b"POST /lua/x?q HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    requests += [Request(post, 200, b"q" * 1000 + body)]
    return [*requests, Request(script, 200, query.encode() * 1000)]


def read_answer(stream: BinaryIO, request: Request, outcome: Outcome) -> bool:
    """Compares one answer octet by octet; False when the connection ended within it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line.endswith(b"\n"):
            return False
        head += line
    status = int(head.split(b" ", 2)[1])
    length = re.search(rb"\r\nContent-Length: (\d+)\r\n", head)
    if length is None or (status not in (request.status, 500, 503)):
        outcome.wrong.append(f"{request.text[:60]!r}: {head!r}")
        return False
    body = b"" if request.head else stream.read(int(length[1]))
    expected = request.content if status in (200, 206) else body
    complete = request.head or len(body) == int(length[1])
    if (complete and body != expected) or not expected.startswith(body):
        outcome.wrong.append(f"{request.text[:60]!r}: another body with {status}")
    outcome.octets += len(body)
    outcome.answers[status] += complete
    return complete and b"\r\nConnection: close\r\n" not in head


def converse(server: Server, requests: list[Request], randomness: random.Random, outcome: Outcome) -> None:
    """One connection: a pipelined batch in pieces, its answers, and so on."""
    with server.connect(20) as s, s.makefile("rb") as stream:
        for _ in range(5):
            batch = randomness.choices(requests, k=randomness.choice([1, 1, 3, 20]))
            text = b"".join(request.text for request in batch)
            while text:
                n = randomness.choice([7, 100, 5000])
                s.sendall(text[:n])
                text = text[n:]
            for request in batch:
                if not read_answer(stream, request, outcome):
                    outcome.broken += 1
                    return


@contextlib.contextmanager
def clients(server: Server, requests: list[Request], count: int) -> Iterator[Outcome]:
    outcome, done = Outcome(), threading.Event()

    def run(seed: int) -> None:
        randomness = random.Random(seed)
        while not done.is_set():
            try:
                converse(server, requests, randomness, outcome)
            except (ConnectionError, BrokenPipeError):
                outcome.broken += 1
            except TimeoutError:
                outcome.wrong.append("an answer never came")

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield outcome
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("rate", [10, 100])
def test_what_is_sent_under_faults_is_right(
    root: Path, tmp_path: Path, rate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTS_RATE", str(rate))
    monkeypatch.setenv("FAULTS_SEED", str(random.randrange(1, 1 << 30)))
    script, log = tmp_path / "site.lua", tmp_path / "log"
    script.write_text(SCRIPT)
    flags = ["--revalidate", "10ms", "--cache-entries", "6", "--lua-script", str(script), "--lua-time", "10s"]
    flags += ["--connection-memory", "256k", "--stop-timeout", "2s"]
    with Server(root, *flags, "--access-log", str(log)) as server:
        before = set(server.workers())
        with clients(server, requests_of(root), 6) as outcome:
            time.sleep(SECONDS / 4)
            server.process.send_signal(signal.SIGHUP)
            until(lambda: set(server.workers()) - before, 20)
            worker, *_ = set(server.workers()) - before  # one that dies of a fault has a successor
            time.sleep(SECONDS / 4)
        assert not outcome.wrong
        # A fault may refuse the reload; then the former workers go on.
        assert worker in (workers := server.workers()) or set(workers) == before
        until(lambda: _connections(server) == 1)
        with clients(server, requests_of(root), 6) as last:  # while it stops
            until(lambda: last.octets)
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(20)
        assert not last.wrong
    lines = log.read_text().splitlines()
    assert len(lines) > 50 and not [line for line in lines if not LINE.fullmatch(line)]
    faults = Counter[str]()
    for name, count in re.findall(r"faults: (\w+) (\d+)", server.messages()):
        faults[name] += int(count)
    print(os.environ["FAULTS_SEED"], outcome.answers, outcome.octets, outcome.broken, faults)
    assert outcome.answers[200] > 50 and outcome.answers[206] > 10 and outcome.octets > 1_000_000
    injected = {name for name, count in faults.items() if count}
    expected = {"accept4", "recv", "send", "sendfile", "pread", "fstat", "openat2", "calloc", "realloc"}
    assert injected >= (expected if rate == 10 else {"recv", "send"})


def _connections(server: Server) -> int:
    """As the status page has it, which may fail as well."""
    with contextlib.suppress(OSError, AssertionError, ValueError, KeyError):
        return server.counters()["connections"]
    return -1
