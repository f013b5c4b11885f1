"""Starting, renewing and stopping, also under load."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from abuse import GET, LARGE, Load, cpu_ticks, ok, unread, until
from wire import AS_WHO, BINARY, HERE, Server, free_port, parent, parse, read_all, read_responses


@pytest.mark.parametrize("keep", [True, False])
def test_reload_under_load(root: Path, keep: bool, workers: int) -> None:
    with Server(root, "--workers", str(workers)) as server:
        loads = [Load(server, path, ok, keep) for path in ("/ten.txt", "/large.bin", "/small.bin")]
        for _ in range(5):
            before = server.workers()
            server.process.send_signal(signal.SIGHUP)
            until(lambda: not set(before) & set(server.workers()) and server.workers())  # noqa: B023
            for load in loads:
                load.proceed()
        for load in loads:
            load.finish()
        assert not [failure for load in loads for failure in load.failures]
        assert all(load.answers > 5 for load in loads)


def test_upgrade_under_load(root: Path, tmp_path: Path, workers: int) -> None:
    """Another binary in the old one's place, then SIGHUP: master and workers run it, and not a request is lost."""
    binary, fresh = tmp_path / "lighttz", tmp_path / "fresh"
    shutil.copy(BINARY, binary)
    with Server(root, "--workers", str(workers), binary=binary) as server:
        loads = [Load(server, path, ok, keep) for path in ("/ten.txt", "/large.bin") for keep in (True, False)]
        for _ in range(3):
            shutil.copy(BINARY, fresh)
            fresh.replace(binary)
            server.process.send_signal(signal.SIGHUP)
            until(lambda: _all_run(server, binary))
        for load in loads:
            load.finish()
        assert not [failure for load in loads for failure in load.failures]
        assert all(load.answers > 5 for load in loads)
        until(lambda: server.counters()["connections"] == 1)


def _all_run(server: Server, binary: Path) -> bool:
    """Workers and their master run the file that lies there now, not one that was replaced."""
    workers = server.workers()
    pids = {*workers, *map(parent, workers)}
    return len(pids) > 1 and all(Path(f"/proc/{pid}/exe").stat().st_ino == binary.stat().st_ino for pid in pids)


@pytest.mark.parametrize("content", ["not a program", ""])
def test_upgrade_to_a_broken_binary(root: Path, tmp_path: Path, content: str) -> None:
    """What a shell would take for a script, an empty one too, is no binary."""
    binary = tmp_path / "lighttz"
    shutil.copy(BINARY, binary)
    with Server(root, binary=binary) as server:
        workers = server.workers()
        binary.unlink()
        binary.write_text(content)
        binary.chmod(0o755)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "stay in force" in server.messages())
        assert server.get("/ten.txt").status == 200
        assert server.workers() == workers


def test_a_reload_lets_a_long_transfer_finish(tmp_path: Path) -> None:
    """Longer than a stop would; and SIGTERM does not wait so long."""
    size = 30_000_000
    (tmp_path / "f.bin").write_bytes(b"x" * size)
    server = Server(tmp_path, "--stop-timeout", "1s").ready()
    with server.connect() as slow, server.connect() as stuck:
        for s in (slow, stuck):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            s.sendall(b"GET /f.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        until(lambda: unread(slow) > 30_000 and unread(stuck) > 30_000)
        (former,) = server.workers()
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(server.workers()) == 2)
        time.sleep(2)  # longer than stop_timeout, which is what must not matter
        (response,) = parse(read_all(slow))
        assert len(response.body) == size
        assert former in server.workers()
        server.stop()
    assert not Path(f"/proc/{former}").exists()


def test_a_configuration_that_is_never_read_through(root: Path, tmp_path: Path) -> None:
    """Looking at it ends some time, and the server hears signals again."""
    config, port = tmp_path / "lighttz.conf", free_port()
    config.write_text(f"listen = 127.0.0.1:{port}\nroot = {root}\n")
    server = Server(root, config=config)
    server.port = port
    with server.ready():
        config.unlink()
        os.mkfifo(config)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "stay in force" in server.messages(), 60)
        assert server.get("/ten.txt").status == 200


def test_what_it_was_started_with(root: Path) -> None:
    """A parent's ignored SIGCHLD, and a signal that is for workers."""
    port = free_port()
    flags = f"--root {root} --listen 127.0.0.1:{port} --workers 1"
    server = Server(root, command=["sh", "-c", f"trap '' CHLD; exec {BINARY} {flags} \"$@\"", "sh"])
    server.port = port
    with server.ready():
        server.process.send_signal(signal.SIGUSR1)
        assert server.get("/ten.txt").status == 200


def test_closed_standard_streams(root: Path, tmp_path: Path) -> None:
    """Messages do not go to the client whose socket would have their number."""
    script = tmp_path / "site.lua"
    script.write_text("function handle() error('on purpose') end")
    flags = ["--root", str(root), "--workers", "1", "--lua-script", str(script)]
    port = free_port()
    shell = 'exec "$@" 0<&- 1>&- 2>&-'
    server = Server(root, command=["sh", "-c", shell, "sh", str(BINARY), "--listen", f"127.0.0.1:{port}", *flags])
    server.port = port
    with server.ready():
        (worker,) = server.workers()
        assert {str(Path(f"/proc/{worker}/fd/{fd}").readlink()) for fd in range(3)} == {"/dev/null"}
        assert [r.status for r in server.ask(b"GET /lua/ HTTP/1.1\r\nHost: x\r\n\r\n" * 3)] == [500] * 3


def test_stop_finishes_what_is_in_flight(root: Path, workers: int) -> None:
    server = Server(root, "--workers", str(workers)).ready()
    with server.connect() as half, server.connect() as slow, server.connect() as idle:
        idle.sendall(GET)
        assert read_responses(idle, 1)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.sendall(LARGE * 20)
        half.sendall(GET[:-2])
        until(lambda: server.counters()["connections"] == 4 and unread(slow) > 30_000)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: _refuses(server))
        idle.sendall(GET)  # raced with the signal: still answered, and told to go
        assert parse(read_all(idle))[0]["Connection"] == "close"
        half.sendall(GET[-2:])
        assert parse(read_all(half))[0].status == 200
        response = read_responses(slow, 1)[0]
        assert response.status == 200 and len(response.body) == 300_000
    server.stop()


def _refuses(server: Server) -> bool:
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # the socket was closed while this connection was being made
        return False
    return False


def test_stop_under_load(root: Path, workers: int) -> None:
    """SIGTERM: what was asked for is answered; afterwards, and only then, nobody is let in."""
    server = Server(root, "--workers", str(workers)).ready()
    loads = [Load(server, path, ok, keep) for path in ("/ten.txt", "/large.bin") for keep in (True, False)]
    until(lambda: all(load.answers > 20 for load in loads))
    server.stop()
    for load in loads:
        load.finish()
    assert not [loss for load in loads for loss in load.losses]
    failures = {failure.partition("(")[0] for load in loads for failure in load.failures}
    assert failures <= {"ConnectionRefusedError", "ConnectionResetError"}  # reset: new, still in the queue


def test_more_and_fewer_workers(root: Path, tmp_path: Path) -> None:
    """Sockets come and go with the workers, and no request that was let in is lost. (A connection in the
    middle of its handshake is reset by the kernel when the socket that it came to goes.)"""
    config = tmp_path / "lighttz.conf"
    port = free_port()
    text = f"listen = 127.0.0.1:{port}\nroot = {root}\n"
    config.write_text(text + "workers = 1\n")
    server = Server(root, config=config)
    server.port = port
    with server.ready():
        loads = [Load(server, path, ok, keep) for path in ("/ten.txt", "/large.bin") for keep in (True, False)]
        for count in (3, 1, 2):
            before = set(server.workers())
            config.write_text(text + f"workers = {count}\n")
            server.process.send_signal(signal.SIGHUP)
            until(lambda: len(server.workers()) == count and not before & set(server.workers()))  # noqa: B023
        for load in loads:
            load.finish()
        assert not [loss for load in loads for loss in load.losses]
        assert {f.partition("(")[0] for load in loads for f in load.failures} <= {"ConnectionResetError"}


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_workers_of_another_user_go_with_the_master() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder), "--user", "65534").ready()
        workers = server.workers()
        server.process.kill()
        server.process.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_spinning_before_blocking(root: Path) -> None:
    """A worker that spins does not block between requests that follow within the time; then it does."""
    blocks: dict[str, int] = {}
    for spin in ("0", "10ms"):
        with Server(root, "--spin", spin) as server, server.connect() as s:
            (worker,) = server.workers()
            s.sendall(GET)
            read_responses(s, 1)
            before = _voluntary_switches(worker)
            for _ in range(200):
                time.sleep(0.001)
                s.sendall(GET)
                read_responses(s, 1)
            blocks[spin] = _voluntary_switches(worker) - before
            time.sleep(0.05)
            ticks = cpu_ticks(worker)
            time.sleep(1)
            assert cpu_ticks(worker) - ticks <= 20  # of 100: it spins 10 ms for each of its own two timers
    assert blocks["0"] >= 150
    assert blocks["10ms"] <= 50


def _voluntary_switches(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_a_worker_that_dies_is_replaced(root: Path) -> None:
    with Server(root) as server:
        (worker,) = server.workers()
        server.killed = True
        os.kill(worker, signal.SIGKILL)
        until(lambda: worker not in server.workers())  # until then it may still accept
        assert server.get("/ten.txt").status == 200
        assert server.workers() != [worker]


def test_reload_of_a_wrong_configuration(root: Path, tmp_path: Path) -> None:
    config = tmp_path / "lighttz.conf"
    port = free_port()
    text = f"listen = 127.0.0.1:{port}\nroot = {root}\nworkers = 2\n"
    config.write_text(text)
    server = Server(root, config=config)
    server.port = port
    with server.ready():
        until(lambda: len(server.workers()) == 2)
        workers = server.workers()
        seen: list[str] = []
        for wrong in ("workers = none", "access_log = /nowhere/log", "root = /nowhere", "listen = 192.0.2.1:80"):
            config.write_text(text + wrong + "\n")
            server.process.send_signal(signal.SIGHUP)
            until(lambda: server.messages().count("stay in force") == len(seen) + 1)
            seen.append(wrong)
            assert server.workers() == workers
        second = free_port()
        config.write_text(text + f"workers = 1\nlisten = 127.0.0.1:{second}\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(server.workers()) == 1)
        assert server.get("/ten.txt").status == 200
        server.port = second
        assert server.get("/ten.txt").status == 200


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("root = /\nlisten\n", ":2: listen: expected 'key = value'"),
        ("# c\n\nroots = /\n", ":3: roots: unknown setting"),
        ("workers = 0\n", ":1: workers: expected a value from 1 to 64"),
        ("listen = localhost:80\n", ":1: listen: expected ADDRESS:PORT with a numeric address"),
        ("listen = 127.0.0.1:0\n", ":1: listen: expected ADDRESS:PORT with a numeric address and a port from 1"),
        ("listen = 8080\nstatus_listen = 8080\nroot = /\n", "8080: listen and status_listen are the same"),
        ("spin = 11ms\n", ":1: spin: expected a value from 0 to 10000"),
        ("idle_timeout = 5 minutes\n", ":1: idle_timeout: expected a time"),
        ("root = /\n", "no listen is set"),
        ("user = 4294967296\n", ":1: user: expected a numeric UID"),
        ("header = X-A\n", ":1: header: expected 'Name: value'"),
        ("header = X A: b\n", ":1: header: expected 'Name: value'"),
        ("header = content-length: 5\n", ":1: header: expected 'Name: value'"),
        ("header = ETag: x\n", ":1: header: lighttz sends this field itself"),
        ("header = A: 1\nheader = a: 2\n", ":2: header: this field is set already"),
        ("header = A: " + "x" * 2048, ":1: header: too many fields"),
        ("user = 1:4294967295\n", ":1: user: expected a numeric UID"),
        ("listen = 8080\nroot = /nowhere\n", "/nowhere: No such file or directory"),
    ],
)
def test_check_config(tmp_path: Path, text: str, wrong: str) -> None:
    config = tmp_path / "c.conf"
    config.write_text(text)
    done = subprocess.run(
        [BINARY, "-c", config, "--check-config", *AS_WHO], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert wrong in done.stderr


def test_the_example_of_the_readme(root: Path, tmp_path: Path) -> None:
    (example,) = re.findall(r"^```ini\n(.*?)^```", (HERE / "README.md").read_text(), re.M | re.S)
    config = tmp_path / "c.conf"
    config.write_text(example.replace("/srv/www", str(root)).replace("/var/log/lighttz", str(tmp_path)))
    subprocess.run([BINARY, "-c", config, "--check-config", *AS_WHO], check=True)


def test_command_line(tmp_path: Path) -> None:
    assert "keepalive_requests" in subprocess.check_output([BINARY, "--help"], text=True)
    assert subprocess.check_output([BINARY, "--version"], text=True).startswith("lighttz ")
    flags = ["--root", str(tmp_path), "--listen=8080", *AS_WHO]
    assert subprocess.run([BINARY, *flags, "--check-config"], check=False).returncode == 0
    assert subprocess.run([BINARY, *flags, "--nothing"], check=False).returncode == 2
    twice = subprocess.run([BINARY, "-c", "/dev/null", "-c", "/dev/null"], capture_output=True, text=True, check=False)
    assert (twice.returncode, twice.stderr) == (2, "-c: only one file is read\n")


def test_port_in_use(root: Path, server: Server) -> None:
    flags = ["--root", str(root), "--listen", f"127.0.0.1:{server.port}", *AS_WHO]
    done = subprocess.run([BINARY, *flags], capture_output=True, text=True, check=False, timeout=5)
    assert done.returncode == 1 and os.strerror(errno.EADDRINUSE) in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be refused as root")
def test_root_only_when_asked_for(root: Path) -> None:
    flags = ["--root", str(root), "--listen", f"127.0.0.1:{free_port()}"]
    for more in ([], ["--check-config"]):
        done = subprocess.run([BINARY, *flags, *more], capture_output=True, text=True, check=False, timeout=10)
        assert done.returncode == 1 and "run as root" in done.stderr
    with Server(root, "--user", "0:0") as server:
        assert server.get("/ten.txt").status == 200


def test_stop_does_not_wait_for_who_is_silent(root: Path) -> None:
    """Also behind one who has sent half of a head, and is waited for."""
    with Server(root, "--defer-accept", "off") as server, server.connect() as half, server.connect() as silent:
        half.sendall(GET[:-2])
        until(lambda: server.counters()["connections"] == 3)
        server.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        assert silent.recv(1) == b""
        assert time.monotonic() - begin < 5, "half of the time for a head"
        half.sendall(GET[-2:])
        assert parse(read_all(half))[0].status == 200
