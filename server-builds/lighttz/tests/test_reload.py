"""Reloads that must not cost anything: races with edits, slow and failing successors, full disks."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from abuse import Load, cpu_ticks, ok, unread, until
from wire import (
    SANITIZED,
    Server,
    descendants,
    free_port,
    listening,
    parent,
    parse,
    read_all,
    read_responses,
    runs_a_loop,
)

SLOW = "local n = 0 for i = 1, {loops} do n = n + i end function handle() return 200, 'lua' end\n"


class Site:
    """A server with a configuration that the tests edit."""

    def __init__(self, root: Path, folder: Path, *lines: str):
        self.config = folder / "lighttz.conf"
        self.port = free_port()
        self.text = "\n".join([f"listen = 127.0.0.1:{self.port}", f"root = {root}", *lines, ""])
        self.write(self.text)
        self.server = Server(root, config=self.config)
        self.server.port = self.port

    def write(self, text: str) -> None:
        self.config.write_text(text)

    def reload(self) -> None:
        self.server.process.send_signal(signal.SIGHUP)

    def succeed(self, workers: list[int]) -> None:
        """Reload one worker's server, and add the new worker to `workers`. By then the former one has stopped to
        listen, which it does once all masters have heard of the new configuration."""
        former = workers[-1]
        self.reload()
        until(lambda: set(self.server.workers()) - set(workers))
        until(lambda: not Path(f"/proc/{former}").exists() or not listening(former, self.port))
        workers += set(self.server.workers()) - set(workers)

    def kept(self) -> int:
        """How many reloads have failed."""
        return self.server.messages().count("stay in force")

    def master(self, workers: int) -> int:
        """The master that serves, once nothing is left of others: a worker whose master was killed lives a moment
        longer, as a child of the first master, and looks like a worker of it."""
        first, masters = self.server.process.pid, set[int]()

        def settled() -> bool:
            masters.clear()
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                below = descendants(first)
                masters.update(parent(pid) for pid in below if runs_a_loop(pid))
                return len(masters) == 1 and len(below) == workers + (masters != {first})
            return False

        until(settled, 20)
        return masters.pop()

    def candidate(self, master: int) -> int:
        """The successor that `master` is starting, which has executed its binary; 0: none."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for pid in descendants(self.server.process.pid):
                if parent(pid) == master and not runs_a_loop(pid) and b"LIGHTTZ_HANDOVER_3" in environment(pid):
                    return pid
        return 0


def environment(pid: int) -> bytes:
    """What its program was started with."""
    return Path(f"/proc/{pid}/environ").read_bytes()


def new_workers(server: Server, before: set[int]) -> bool:
    workers = set(server.workers())
    return bool(workers) and not before & workers


def test_an_edit_right_after_the_signal(root: Path, tmp_path: Path) -> None:
    """What is checked is what runs: a file that changes meanwhile changes nothing, or is refused."""
    site = Site(root, tmp_path, "workers = 1")
    with site.server.ready() as server:
        for i in range(12):
            site.write(site.text)
            site.reload()
            time.sleep(0.001 * (i + 1))
            site.write("this is no setting\n")
            assert server.get("/ten.txt").status == 200
        time.sleep(0.3)
        assert server.process.poll() is None
        assert server.get("/ten.txt").status == 200


def test_a_reload_without_listen_is_refused(root: Path, tmp_path: Path) -> None:
    """As a start is; and the port of the status page does not come to serve the site."""
    site = Site(root, tmp_path, "workers = 1", f"status_listen = 127.0.0.1:{free_port()}")
    with site.server.ready() as server:
        site.write(f"root = {root}\nworkers = 1\n")
        site.reload()
        until(lambda: site.kept() == 1)
        assert "no listen is" in server.messages()
        assert server.get("/ten.txt").status == 200


def test_slow_workers_are_waited_for(root: Path, tmp_path: Path) -> None:
    """The former ones serve until theirs have loaded the script: no request waits for it."""
    script = tmp_path / "slow.lua"
    script.write_text(SLOW.format(loops=10))
    site = Site(root, tmp_path, "workers = 2", f"lua_script = {script}", "lua_time = 20s")
    with site.server.ready() as server:
        script.write_text(SLOW.format(loops=60_000_000))
        before = set(server.workers())
        site.reload()
        longest = loading = 0.0
        start = time.monotonic()
        last = 20  # requests after the new ones are all there is
        while last:
            begin = time.monotonic()
            assert server.get("/ten.txt").status == 200
            longest = max(longest, time.monotonic() - begin)
            if new_workers(server, before):
                last -= 1
            else:
                loading = begin - start
        assert loading > 0.2, "the script loads too fast to show anything"
        assert longest < loading / 2, (longest, loading)


def test_a_successor_without_a_worker(root: Path, tmp_path: Path) -> None:
    """A worker that does not come up ends the successor, not the service."""
    script = tmp_path / "site.lua"
    script.write_text(SLOW.format(loops=1))
    site = Site(root, tmp_path, "workers = 2", f"lua_script = {script}")
    with site.server.ready() as server:
        before = server.workers()
        script.write_text("function handle(")
        site.reload()
        until(lambda: site.kept() == 1)
        assert server.workers() == before
        assert server.get("/lua/").body == b"lua"
        script.write_text(SLOW.format(loops=1))
        site.reload()
        until(lambda: new_workers(server, set(before)))


def test_reloads_asked_for_at_once(root: Path, tmp_path: Path) -> None:
    """The last of them reads the last configuration; and what retired long ago is gone."""
    site = Site(root, tmp_path, "workers = 1")
    second = free_port()
    with site.server.ready() as server:
        for _ in range(20):
            site.reload()
        site.write(site.text + f"listen = 127.0.0.1:{second}\n")
        site.reload()
        until(lambda: _serves(server, second))
        until(lambda: len(descendants(server.process.pid)) == 2, 20)  # the master that serves and its worker


def test_a_reload_asked_for_during_another(root: Path, tmp_path: Path) -> None:
    """The successor has read the configuration before; its own successor reads the edit."""
    script = tmp_path / "site.lua"
    script.write_text(SLOW.format(loops=1))
    site = Site(root, tmp_path, "workers = 1", f"lua_script = {script}", "lua_time = 20s")
    second = free_port()
    with site.server.ready() as server:
        script.write_text(SLOW.format(loops=60_000_000))
        master = server.master()
        site.reload()
        until(lambda: (pid := site.candidate(master)) and descendants(pid))  # it has a worker, which reads the script
        site.write(site.text + f"listen = 127.0.0.1:{second}\n")
        site.reload()
        until(lambda: _serves(server, second))


def _serves(server: Server, port: int) -> bool:
    former, server.port = server.port, port
    try:
        return server.get("/ten.txt").status == 200
    except OSError:
        return False
    finally:
        server.port = former


def test_stop_during_a_reload(root: Path, tmp_path: Path) -> None:
    script = tmp_path / "site.lua"
    script.write_text(SLOW.format(loops=1))
    site = Site(root, tmp_path, "workers = 2", f"lua_script = {script}", "lua_time = 20s")
    server = site.server.ready()
    script.write_text(SLOW.format(loops=60_000_000))
    master = server.master()
    site.reload()
    until(lambda: site.candidate(master))
    below = descendants(server.process.pid)
    server.stop()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


def test_masters_wait_quietly_while_stopping(root: Path, tmp_path: Path) -> None:
    """After a reload, with a transfer that is not read: all of them block for most of the time."""
    site = Site(root, tmp_path, "workers = 1", "stop_timeout = 4s")
    (tmp_path / "f.bin").write_bytes(b"x" * 30_000_000)
    site.text = site.text.replace(str(root), str(tmp_path))
    site.write(site.text)
    with site.server.ready() as server:
        for _ in range(2):
            before = set(server.workers())
            site.reload()
            until(lambda: new_workers(server, before))  # noqa: B023
        with server.connect() as s:
            s.sendall(b"GET /f.bin HTTP/1.1\r\nHost: x\r\n\r\n")
            until(lambda: unread(s) > 30_000)
            masters = {server.process.pid, server.master()}
            server.process.send_signal(signal.SIGTERM)
            until(lambda: _refuses(server))
            spent, begin = sum(map(cpu_ticks, masters)), time.monotonic()
            time.sleep(1.5)
            share = (sum(map(cpu_ticks, masters)) - spent) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)
            assert len(masters) == 2 and share < 0.2


def _refuses(server: Server) -> bool:
    with contextlib.suppress(OSError):
        server.connect().close()
        return False
    return True


def test_a_reload_changes_stop_timeout(root: Path, tmp_path: Path) -> None:
    """Also for the masters before: a transfer has the time that was set last, whatever they still wait for."""
    (tmp_path / "f.bin").write_bytes(b"x" * 30_000_000)
    site = Site(tmp_path, tmp_path, "workers = 1", "stop_timeout = 0")
    clients: list[socket.socket] = []
    with site.server.ready() as server, contextlib.ExitStack() as stack:
        workers = server.workers()
        for timeout in ("1s", "60s"):
            site.write(site.text.replace("stop_timeout = 0", f"stop_timeout = {timeout}"))
            site.succeed(workers)
            clients.append(stack.enter_context(server.connect(60)))
            clients[-1].sendall(b"GET /f.bin HTTP/1.1\r\nHost: x\r\n\r\n")
            until(lambda: unread(clients[-1]) > 30_000)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(8)  # longer than former masters wait by what they had read
        assert server.process.poll() is None
        (response,) = parse(read_all(clients[-1]))
        assert len(response.body) == 30_000_000


def test_former_generations_are_bounded(root: Path, tmp_path: Path) -> None:
    """Each has a reader that never reads: the four latest keep it, those before end within stop_timeout."""
    (tmp_path / "f.bin").write_bytes(b"x" * 30_000_000)
    site = Site(tmp_path, tmp_path, "workers = 1", "stop_timeout = 1s")
    with site.server.ready() as server, contextlib.ExitStack() as stack:
        workers = server.workers()
        for _ in range(8):
            s = stack.enter_context(server.connect())
            s.sendall(b"GET /f.bin HTTP/1.1\r\nHost: x\r\n\r\n")
            until(lambda: unread(s) > 30_000)  # noqa: B023
            site.succeed(workers)
        until(lambda: sorted(server.workers()) == sorted(workers[-5:]), 20)
        until(lambda: len(descendants(server.process.pid)) == 10, 20)  # each worker and its master, which is no other's


def test_a_storm_of_reloads(root: Path, tmp_path: Path) -> None:
    """`former_generations` keep their readers, as many before them have stop_timeout, those before these nothing.
    Both logs tell what was cut; the others download on."""
    size, log = 30_000_000, tmp_path / "access.log"
    (tmp_path / "f.bin").write_bytes(b"x" * size)
    site = Site(
        tmp_path, tmp_path, "workers = 1", "former_generations = 3", "stop_timeout = 60s", f"access_log = {log}"
    )
    reloads, most = 12, 0
    with site.server.ready() as server, contextlib.ExitStack() as stack:
        clients, workers = list[socket.socket](), server.workers()
        for i in range(reloads):
            clients.append(stack.enter_context(server.connect(60)))
            clients[-1].sendall(b"GET /f.bin?%d HTTP/1.1\r\nHost: x\r\n\r\n" % i)
            until(lambda: unread(clients[-1]) > 30_000)
            site.succeed(workers)
            most = max(most, len(descendants(server.process.pid)))
        generations = 1 + 2 * 3
        until(lambda: len(server.workers()) == generations, 20)
        assert most <= 2 * (generations + 3), "the latest may have no work, some are just ending"
        for s in clients[:-6]:
            assert 0 < len(read_all(s)) < size
        for s in clients[-6:]:
            assert len(read_responses(s, 1)[0].body) == size
            s.close()
        until(lambda: len(server.workers()) == 1, 20)
        messages = server.messages()
        assert messages.count("has stop_timeout left") == reloads - 3
        assert messages.count("ends now") == messages.count("responses that were cut: 1") == reloads - 6
    logged = dict(re.findall(r"f\.bin\?(\d+) HTTP/1\.1\" 200 (\d+)", log.read_text()))
    assert len(logged) == reloads
    assert all((int(octets) == size) == (int(i) >= reloads - 6) for i, octets in logged.items())


def test_former_generations_without_work_do_not_count(root: Path, tmp_path: Path) -> None:
    """A download from before many reloads goes on if no other generation but its own has work."""
    (tmp_path / "f.bin").write_bytes(b"x" * 30_000_000)
    site = Site(tmp_path, tmp_path, "workers = 1", "former_generations = 1", "stop_timeout = 0")
    with site.server.ready() as server, server.connect(60) as s:
        s.sendall(b"GET /f.bin HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: unread(s) > 30_000)
        for _ in range(5):
            before = set(server.workers())
            site.reload()
            until(lambda: set(server.workers()) - before and len(server.workers()) == 2)  # noqa: B023
            until(lambda: len(descendants(server.process.pid)) == 3)  # both workers and the master that serves
        (response,) = read_responses(s, 1)
        assert len(response.body) == 30_000_000


def test_the_end_of_the_first_master_ends_all(root: Path, tmp_path: Path) -> None:
    """Also when others serve since, and by SIGKILL."""
    site = Site(root, tmp_path, "workers = 2")
    server = site.server.ready()
    for _ in range(2):
        before = set(server.workers())
        site.reload()
        until(lambda: new_workers(server, before))  # noqa: B023
    until(lambda: len(descendants(server.process.pid)) == 3, 20)  # the master that serves and its workers
    below = descendants(server.process.pid)
    server.process.kill()
    server.process.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


def test_the_end_of_the_serving_master_ends_the_first(root: Path, tmp_path: Path) -> None:
    """So that the service manager starts the service again."""
    site = Site(root, tmp_path, "workers = 1")
    server = site.server.ready()
    before = set(server.workers())
    site.reload()
    until(lambda: new_workers(server, before))
    os.kill(server.master(), signal.SIGKILL)
    assert server.process.wait(20) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few pages."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=16k,nr_inodes=4", "none", str(folder)]
    done = subprocess.run(["mount", *options], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_hundred_reloads_under_load(root: Path, tmp_path: Path, small_disk: Path, workers: int) -> None:
    """With good and broken files, edits after the signal, a full disk, and successors and workers of theirs
    that are killed at some moment: no connection is refused or reset, and the service goes on."""
    chance = random.Random(workers)
    script, log = tmp_path / "site.lua", small_disk / "access.log"
    script.write_text(SLOW.format(loops=1))
    site = Site(root, tmp_path, f"workers = {workers}", f"lua_script = {script}", "lua_time = 20s")

    def good() -> None:
        site.write(site.text)
        _reload_and_see(site, good=True)

    def broken() -> None:
        site.write(
            chance.choice(["", "root\n", site.text + "listen = 192.0.2.1:80\n", site.text + "root = /nowhere\n"])
        )
        _reload_and_see(site, good=False)

    def edited() -> None:
        site.write(site.text)
        before, kept = set(site.server.workers()), site.kept()
        site.reload()
        time.sleep(chance.random() * 0.012)
        site.write("nothing that it knows\n")
        until(lambda: site.kept() > kept or new_workers(site.server, before))

    def full() -> None:
        site.write(site.text + f"access_log = {log}\n")
        with contextlib.suppress(OSError):
            for i in range(10):  # inodes run out before the log is opened
                (small_disk / str(i)).write_bytes(b"x" * 4096)
        _reload_and_see(site, good=False)
        for path in small_disk.iterdir():
            path.unlink()

    def killed(victim: Callable[[int], int]) -> None:
        script.write_text(SLOW.format(loops=12_000_000 if SANITIZED else 120_000_000))
        site.write(site.text)
        master, kept = site.master(workers), site.kept()
        site.reload()
        candidates: list[int] = []
        until(lambda: candidates.append(site.candidate(master)) or candidates[-1])
        candidate = candidates[-1]
        time.sleep(chance.random() * 0.02)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim(candidate), signal.SIGKILL)
        until(lambda: site.kept() > kept)
        script.write_text(SLOW.format(loops=1))

    actions = [good, good, broken, edited, full, lambda: killed(lambda pid: pid), lambda: killed(_a_worker_of)]
    with site.server.ready() as server:
        loads = [Load(server, path, ok, keep) for path in ("/ten.txt", "/small.bin") for keep in (True, False)]
        for i in range(100 if workers == 2 else 30):
            actions[i % len(actions)]()
            assert server.process.poll() is None
            loads[i % len(loads)].proceed()
        good()
        for load in loads:
            load.finish()
        assert not [failure for load in loads for failure in load.failures]
        assert all(load.answers > 50 for load in loads)
        until(lambda: len(descendants(server.process.pid)) == 1 + workers, 20)
        server.killed = True


def _a_worker_of(master: int) -> int:
    until(lambda: descendants(master) or not Path(f"/proc/{master}").exists())
    return (descendants(master) or [master])[0]


def _of_the_serving_master(server: Server) -> set[int]:
    master = server.master()
    return {pid for pid in server.workers() if parent(pid) == master}


def _reload_and_see(site: Site, *, good: bool) -> None:
    before, kept = set(site.server.workers()), site.kept()
    serving = set[int]()
    until(lambda: serving.update(_of_the_serving_master(site.server)) or serving)
    site.reload()
    if good:
        until(lambda: new_workers(site.server, before))
    else:
        until(lambda: site.kept() > kept)
        assert set(site.server.workers()) >= serving  # others were retired, and may have ended


def test_a_worker_that_hangs_is_replaced(root: Path, tmp_path: Path) -> None:
    """A pattern that no hook interrupts; the watchdog sees that the worker's clock stands."""
    script = tmp_path / "hang.lua"
    script.write_text("""
        function handle() return 200, tostring(string.find(string.rep("a", 5000), string.rep(".-", 20) .. "b")) end
    """)
    flags = ["--lua-script", str(script), "--watchdog", "2s"]
    with Server(root, *flags) as server, server.connect() as client:
        server.killed = True
        (worker,) = server.workers()
        client.sendall(b"GET /lua/ HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: "does not respond" in server.messages(), 30)
        until(lambda: server.workers() not in ([], [worker]))
        assert server.get("/ten.txt").status == 200
        with server.connect() as second:
            second.sendall(b"GET /ten.txt HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_responses(second, 1)[0].status == 200
