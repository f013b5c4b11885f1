"""Ports for servers that a test starts."""

import random
import socket


def free_ports() -> int:
    """A free port; the port below it and the two above are free as well.

    All are below the ports that the kernel gives to clients: one of those that is free now may be a client's when the
    server starts. And a client that tries such a port again and again, to see whether a server listens, may be given
    the same port as its own, and connect to itself.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        if all(_is_free(port + offset) for offset in (-1, 0, 1, 2)):
            return port


def free_port() -> int:
    """A free port below those that the kernel gives to clients."""
    return free_ports()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
