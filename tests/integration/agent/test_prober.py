"""The prober against servers on this machine that appear late, refuse, answer wrongly, or never."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.ports import free_port
from vmtoll.agent.prober import Prober, is_whole


def handler(status: Callable[[], int], pause_s: float = 0.0) -> type[BaseHTTPRequestHandler]:
    """Answers each GET with the status that holds then, after a pause."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(pause_s)
            self.send_response(status())
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"page")

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@contextmanager
def late_server(port: int, after_s: float, kind: type[BaseHTTPRequestHandler]) -> Iterator[list[float]]:
    """A server that listens after some time; when it did."""
    began: list[float] = []
    servers: list[ThreadingHTTPServer] = []

    def serve() -> None:
        server = ThreadingHTTPServer(("127.0.0.1", port), kind)
        servers.append(server)
        began.append(time.time())
        server.serve_forever(0.05)

    timer = threading.Timer(after_s, serve)
    timer.start()
    try:
        yield began
    finally:
        timer.cancel()
        for server in servers:
            server.shutdown()
            server.server_close()
        timer.join()


def test_the_first_answer_of_a_server_that_appears_late_is_seen_at_once() -> None:
    port = free_port()
    with late_server(port, 0.6, handler(lambda: 200)) as began:
        seen = Prober("127.0.0.1", port, "/page", 0.01).run(20)
    assert seen["answered_at"] is not None
    assert seen["reached_at"] is not None
    assert seen["reached_at"] < began[0] - 0.3  # refused: this machine's network answers
    assert 0 <= seen["answered_at"] - began[0] < 0.3
    assert seen["requests"] > 10


def test_it_waits_for_no_earlier_request() -> None:
    """A server that takes 0.5 s for each answer gets the next request meanwhile."""
    port = free_port()
    with late_server(port, 0.0, handler(lambda: 200, pause_s=0.5)) as began:
        seen = Prober("127.0.0.1", port, "/page", 0.05).run(20)
    assert seen["answered_at"] is not None
    assert seen["answered_at"] - began[0] >= 0.5
    assert seen["requests"] >= 5


def test_an_error_is_no_answer() -> None:
    port, begin_s = free_port(), time.monotonic()
    with late_server(port, 0.0, handler(lambda: 200 if time.monotonic() - begin_s > 0.8 else 503)):
        seen = Prober("127.0.0.1", port, "/page", 0.02).run(20)
    assert time.monotonic() - begin_s >= 0.8
    assert seen["answered_at"] is not None


def test_without_a_server_it_ends_in_time_and_when_it_is_stopped() -> None:
    prober, begin_s = Prober("127.0.0.1", free_port(), "/page", 0.02), time.monotonic()
    assert prober.run(0.3)["answered_at"] is None
    assert 0.3 <= time.monotonic() - begin_s < 5
    prober, begin_s = Prober("127.0.0.1", free_port(), "/page", 0.02), time.monotonic()
    threading.Timer(0.3, prober.stop).start()
    assert prober.run(60)["answered_at"] is None
    assert time.monotonic() - begin_s < 5


@pytest.mark.parametrize(
    ("answer", "whole"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npag", False),
        (b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\npage", True),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\npage", False),
        (b"HTTP/1.1 200 OK\r\n", False),
        (b"", False),
    ],
)
def test_only_a_whole_answer_with_status_200_counts(answer: bytes, whole: bool) -> None:
    assert is_whole(answer) is whole
