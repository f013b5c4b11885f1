"""Sockets that the server is passed, as by systemd, and those of its workers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from pathlib import Path

import pytest
from abuse import GET, open_files, until
from wire import BINARY, Server, free_port, listening, read_responses


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd-socket-activate is not here")
@pytest.mark.parametrize("listen", [True, False])
def test_socket_activation(root: Path, listen: bool) -> None:
    """A socket that systemd holds is served by all workers, and outlives a renewal."""
    port = free_port()
    command = [
        "systemd-socket-activate",
        f"--listen=127.0.0.1:{port}",
        str(BINARY),
        "--root",
        str(root),
        "--workers",
        "2",
    ]
    if listen:
        command += ["--listen", f"127.0.0.1:{port}"]
    server = Server(root, command=command)
    server.port = port
    with server.ready():
        until(lambda: len(server.workers()) == 2)
        before = server.workers()
        assert server.get("/ten.txt").status == 200
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(server.workers()) == 2 and not set(before) & set(server.workers()))
        assert server.get("/ten.txt").status == 200


def serve_on(root: Path, passed: list[socket.socket], *flags: str) -> Server:
    """A server that is passed these sockets, as by systemd."""
    held = range(100, 100 + len(passed))
    for fd, s in zip(held, passed, strict=True):
        os.dup2(s.fileno(), fd)
    moves = " ".join(f"{3 + i}<&{fd} {fd}<&-" for i, fd in enumerate(held))
    shell = f'exec {moves}; export LISTEN_FDS={len(passed)} LISTEN_PID=$$; exec "$@"'
    server = Server(root, command=["bash", "-c", shell, "bash", str(BINARY), *flags], pass_fds=tuple(held))
    for fd in held:
        os.close(fd)
    if passed[0].family == socket.AF_INET:
        server.port = passed[0].getsockname()[1]
    return server


def bound() -> socket.socket:
    """One that listens at a free port."""
    passed = socket.socket()
    passed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    passed.bind(("127.0.0.1", 0))
    passed.listen(100)
    return passed


def test_a_failed_reload_leaves_the_sockets_as_they_are(root: Path, tmp_path: Path) -> None:
    """They are those that serve, until the successor does."""
    so_incoming_cpu = 49
    options = ((socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT), (socket.SOL_SOCKET, so_incoming_cpu))
    config = tmp_path / "lighttz.conf"
    text = f"root = {root}\nworkers = 1\n"
    config.write_text(text)
    with bound() as passed:

        def values() -> list[int]:
            return [passed.getsockopt(*option) for option in options]

        with serve_on(root, [passed], "-c", str(config)) as server:
            until(lambda: values()[0] > 0)
            before = values()
            changed = text + "cpu_affinity = on\ndefer_accept = off\n"
            config.write_text(changed + "access_log = /nowhere/log\n")
            server.process.send_signal(signal.SIGHUP)
            until(lambda: "stay in force" in server.messages())
            assert values() == before and before[1] < 0
            config.write_text(changed)
            server.process.send_signal(signal.SIGHUP)
            until(lambda: values()[0] == 0 <= values()[1])


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("listen", [True, False])
def test_workers_of_a_passed_socket(root: Path, workers: int, listen: bool) -> None:
    """Each has a socket of its own beside it, so that a connection wakes up one of them; after a
    reload, too."""
    with bound() as passed:
        port = passed.getsockname()[1]
        flags = ["--root", str(root), "--workers", str(workers)]
        server = serve_on(root, [passed], *flags, *(["--listen", f"127.0.0.1:{port}"] if listen else []))
    with server.ready():
        for _ in range(2):
            until(lambda: len(server.workers()) == workers)
            until(lambda: all(listening(pid, port) for pid in server.workers()))
            sockets = [listening(pid, port) for pid in server.workers()]
            assert [len(own) for own in sockets] == [1] * workers
            assert len({own[0] for own in sockets}) == workers
            assert {server.get("/ten.txt").status for _ in range(10)} == {200}
            before = server.workers()
            server.process.send_signal(signal.SIGHUP)
            until(lambda: len(server.workers()) == workers and not set(before) & set(server.workers()))  # noqa: B023


@pytest.mark.parametrize("workers", [1, 2])
def test_passed_sockets_of_long_paths(root: Path, tmp_path: Path, workers: int) -> None:
    """Two that differ only at the end are two, also after a reload."""
    paths = [tmp_path / f"a-long-name-of-a-socket-{i}" for i in range(2)]
    with contextlib.ExitStack() as stack:
        passed = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in paths]
        for s, path in zip(passed, paths, strict=True):
            s.bind(str(path))
            s.listen(100)
        server = serve_on(root, passed, "--root", str(root), "--workers", str(workers))
        stack.callback(server.stop)
        for s in passed:
            s.close()
        for _ in range(2):
            until(lambda: len(server.workers()) == workers)
            for path in paths * 4:
                with socket.socket(socket.AF_UNIX) as client:
                    client.settimeout(10)
                    client.connect(str(path))
                    client.sendall(GET)
                    assert read_responses(client, 1)[0].status == 200
            before = server.workers()
            server.process.send_signal(signal.SIGHUP)
            until(lambda: len(server.workers()) == workers and not set(before) & set(server.workers()))  # noqa: B023


def test_cpu_affinity(root: Path) -> None:
    """Each worker on a CPU, and connections from that CPU (as on the loopback) come to it."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("there is but one CPU")
    with Server(root, "--workers", "2", "--cpu-affinity", "on") as server:
        until(lambda: len(server.workers()) == 2)
        workers = {next(iter(os.sched_getaffinity(pid))): pid for pid in server.workers()}
        assert sorted(workers) == cpus
        assert all(len(os.sched_getaffinity(pid)) == 1 for pid in workers.values())
        try:
            for cpu in cpus:
                os.sched_setaffinity(0, {cpu})
                until(lambda: server.counters()["connections"] == 1)  # those of the start are gone
                before = {c: open_files(pid) for c, pid in workers.items()}
                with contextlib.ExitStack() as stack:
                    for _ in range(8):
                        s = stack.enter_context(server.connect())
                        s.sendall(GET)
                        read_responses(s, 1)
                    growth = {c: open_files(pid) - before[c] for c, pid in workers.items()}
                assert growth[cpu] >= 8 > growth[cpus[cpus[0] == cpu]] + 6
                until(lambda: all(open_files(pid) <= before[c] + 1 for c, pid in workers.items()))  # noqa: B023
        finally:
            os.sched_setaffinity(0, set(cpus))
