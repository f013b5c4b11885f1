"""The answers of a service, over a connection that it closes while it is idle."""

import socket
import threading
from collections.abc import Callable

import pytest

from vmtoll.agent.service import ask

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def serve(*connections: Callable[[socket.socket], None]) -> tuple[str, threading.Thread]:
    """Handle one connection after the other on a port of loopback, then close the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def handle() -> None:
        with listener:
            for connection in connections:
                with listener.accept()[0] as stream:
                    connection(stream)

    thread = threading.Thread(target=handle, daemon=True)
    thread.start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}", thread


def answer(times: int, then: bytes = b"") -> Callable[[socket.socket], None]:
    def handle(stream: socket.socket) -> None:
        for _ in range(times):
            stream.recv(65536)
            stream.sendall(ANSWER)
        if then:
            stream.recv(65536)
            stream.sendall(then)

    return handle


def reset(stream: socket.socket) -> None:
    """Answer once, read the next request, and close without an answer."""
    answer(1)(stream)
    stream.recv(65536)


@pytest.mark.parametrize("connections", [[answer(1)] * 3, [answer(2), answer(1)], [reset, answer(2)]])
def test_a_connection_closed_while_idle_is_opened_again(connections: list[Callable[[socket.socket], None]]) -> None:
    address, thread = serve(*connections)
    answers = ask(address, ["/"] * 3, {}, 20, "", verify=True)
    assert [(each["status"], each["length"]) for each in answers] == [(200, 2)] * 3
    thread.join(5)


@pytest.mark.parametrize("connections", [[answer(0)], [answer(1), answer(0)], [answer(1, ANSWER[:-1])]])
def test_a_service_that_does_not_answer_is_an_error(connections: list[Callable[[socket.socket], None]]) -> None:
    """A new connection that ends without an answer, or an answer that ends early."""
    address, _ = serve(*connections)
    with pytest.raises(RuntimeError, match=r"URL \d of 2"):
        ask(address, ["/"] * 2, {}, 20, "", verify=True)
