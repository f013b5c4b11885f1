"""Ours, the peers and the limit probe side by side: server on one core, load on another, interleaved.

Prints CPU time per request, ratios, requests per second, memory and the tail. It judges nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from heads import HEADS
from peers import LIGHTTZ, PEERS
from suite import Suite, make

HERE = Path(__file__).resolve().parent.parent
MODES = ["keep", "close", "pipe"]
SIZES = {"357 B": 357, "4 KB": 4096, "9 KB": 9216, "32 KB": 32768, "100 KB": 102400}
FILES = 2000  # of 4 KB, the site of many files
SPIN = "lighttz, spin"
PROBES = ("limit", "limit, sendfile")  # the faster one is the limit
LOOPS = ("epoll", "libev", "uring", "uring-receive")
TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Server:
    name: str
    argv: list[str]
    port: int
    many_files: bool = True
    process: subprocess.Popen[bytes] | None = None

    def pids(self) -> list[int]:
        assert self.process
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                todo += [int(child) for child in task.read_text().split()]
        return found

    def cpu(self) -> tuple[float, float]:
        """User and system seconds of all processes so far."""
        user = system = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            user += int(fields[11])
            system += int(fields[12])
        return user / TICK, system / TICK

    def cpu_ns(self) -> int:
        """All of it, in nanoseconds: /proc/PID/stat counts ticks."""
        total = 0
        for pid in self.pids():
            for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError):
                    total += int(path.read_text().split()[0])
        return total

    def pss_kib(self) -> int:
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):  # it may have ended meanwhile
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(text.partition("\nPss:")[2].split()[0])
        return total


@dataclass(frozen=True)
class Cell:
    """What is asked for, and how."""

    size: str
    mode: str
    head: str = "bench"
    files: int = 1

    def __str__(self) -> str:
        head = "" if self.head == "bench" else f", {self.head}'s head"
        return f"{self.size} {self.mode}{head}{f', {self.files} files' if self.files > 1 else ''}"


@dataclass
class Sample:
    cpu_us: float
    user_s: float
    system_s: float
    requests: float
    rps: float
    failures: int
    times_us: Counter[int]
    pss_kib: int


def quantile_us(times_us: Counter[int], q: float) -> int:
    """The smallest time, in us, that a share q of the requests took at most. Steps are 3% wide."""
    wanted, seen = q * times_us.total(), 0
    for us in sorted(times_us):
        seen += times_us[us]
        if seen >= wanted:
            return us
    return 0


@dataclass
class Bench:
    args: argparse.Namespace
    dir: Path
    root: Path
    suite: Suite | None = None
    servers: dict[str, Server] = field(default_factory=dict)
    port: int = 18300
    samples: dict[tuple[str, Cell], list[Sample]] = field(default_factory=dict)

    def start(
        self, name: str, argv: list[str], config: str = "", suite: Suite | None = None, *, many_files: bool = True
    ) -> None:
        self.port += 1
        file = self.dir / f"{name.replace(' ', '-')}.conf"
        values = {"dir": self.dir, "root": self.root, "port": self.port, "conf": file}
        file.write_text(config.format(**values))
        command = [a.format(**values) for a in argv]
        command = [
            "taskset",
            "-c",
            str(self.args.server_cpu),
            *(suite.command(self.dir, command) if suite else command),
        ]
        server = Server(name, command, self.port, many_files)
        log = (self.dir / f"{file.stem}.out").open("wb")
        path = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        server.process = subprocess.Popen(command, stdout=log, stderr=log, env=path)
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                self.servers[name] = server
                return
            time.sleep(0.05)
        server.process.terminate()
        print(f"{name} did not start and is left out: {Path(log.name).read_text()[:200]}")

    def start_all(self) -> None:
        self.start("lighttz", [str(HERE / "build/lighttz"), "-c", "{conf}"], LIGHTTZ)
        for size, octets in SIZES.items():
            self.start(f"limit {size}", [str(HERE / "build/limit"), "{port}", str(octets)])
            self.start(f"limit, sendfile {size}", [str(HERE / "build/limit"), "{port}", str(octets), "sendfile"])
        versions = self.suite.versions() if self.suite else {}
        for name, argv, config, package, many_files in PEERS:
            if self.args.only is not None and name not in self.args.only:
                continue
            if package in versions:
                self.start(f"{name} {versions[package]}", argv, config, self.suite, many_files=many_files)
            elif installed(argv):
                self.start(f"{name} of this machine", argv, config, many_files=many_files)
            else:
                print(f"{name} is not in the suite or installed here and is left out.")

    def load(self, server: Server, cell: Cell, *, ms: int, rate: float = 0, users: int = 100) -> Sample:
        argv = ["taskset", "-c", str(self.args.load_cpu), str(HERE / "build/load")]
        argv += ["-f", str(self.dir / f"{cell.head}.head"), "-n", str(cell.files)] + (["-r", str(rate)] if rate else [])
        path = f"/{SIZES[cell.size]}/%d.bin" if cell.files > 1 else f"/{SIZES[cell.size]}.bin"
        argv += [str(server.port), path, str(users), str(ms), cell.mode]
        before, before_ns = server.cpu(), server.cpu_ns()
        client = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        time.sleep(ms / 2000)
        pss = server.pss_kib()
        out, _ = client.communicate()
        if client.returncode:
            sys.exit(f"no load could be sent to {server.name}")
        after, after_ns = server.cpu(), server.cpu_ns()
        requests, failures, seconds, *times = out.split()
        n = max(float(requests), 1)
        return Sample(
            cpu_us=(after_ns - before_ns) / 1e3 / n,
            user_s=after[0] - before[0],
            system_s=after[1] - before[1],
            requests=n,
            rps=n / float(seconds),
            failures=int(failures),
            times_us=Counter({int(us): int(count) for us, count in (time.split(":") for time in times)}),
            pss_kib=pss,
        )

    def names(self) -> list[str]:
        return [n for n in self.servers if not n.startswith("limit") and n != SPIN]

    def run_cells(self, cells: list[Cell]) -> None:
        for cell in cells:
            # They answer each receive once.
            probes = [] if cell.mode == "pipe" else [f"{probe} {cell.size}" for probe in PROBES]
            every = [self.servers[n] for n in (*probes, *self.names())]
            every = [server for server in every if cell.files == 1 or server.many_files]
            for server in every:
                self.load(server, cell, ms=100)
            for i in range(self.args.rounds):
                for server in every[i % len(every) :] + every[: i % len(every)]:
                    name = server.name.removesuffix(f" {cell.size}")
                    self.samples.setdefault((name, cell), []).append(self.load(server, cell, ms=self.args.ms))

    def table(self, title: str, cells: list[Cell], value: Callable[[list[Sample]], float], digits: int = 1) -> None:
        print(f"\n{title}\n\n| server | " + " | ".join(map(str, cells)) + " |")
        print("|---" * (len(cells) + 1) + "|")
        for name in [*PROBES, *self.names()]:
            row = [self.samples.get((name, cell)) for cell in cells]
            texts = [f"{value(r):.{digits}f}" if r else "–" for r in row]
            print(f"| {name} | " + " | ".join(texts) + " |")

    def ratios(self, cells: list[Cell]) -> None:
        """Medians over the rounds of the ratio within a round: what drifts between rounds cancels."""
        print("\nCPU per request of lighttz as a multiple of each other's (median and range over rounds)\n")
        print("| against | " + " | ".join(map(str, cells)) + " |")
        print("|---" * (len(cells) + 1) + "|")
        for name in [*PROBES, *self.names()[1:]]:
            texts = []
            for cell in cells:
                ours, theirs = (self.samples.get((n, cell), []) for n in ("lighttz", name))
                r = sorted(a.cpu_us / b.cpu_us for a, b in zip(ours, theirs, strict=True)) if ours and theirs else []
                texts.append(f"{statistics.median(r):.2f} ({r[0]:.2f}–{r[-1]:.2f})" if r else "–")
            print(f"| {name} | " + " | ".join(texts) + " |")

    def tail(self) -> None:
        """All rounds of a server go into one histogram: p99.9 of a short round is whether a hiccup fell into it.
        The probe shows what the machine does to any server."""
        cell, probe = Cell("4 KB", "keep", "siege"), "limit 4 KB"
        names = [probe, *self.names()]
        self.start(SPIN, [str(HERE / "build/lighttz"), "-c", "{conf}"], LIGHTTZ + "spin = 100us\n")
        capacity = {
            name: statistics.median(self.load(self.servers[name], cell, ms=self.args.ms).rps for _ in range(3))
            for name in names
        }
        common = 0.7 * min(capacity.values())
        plan = list(
            dict.fromkeys(
                [(name, 0.7 * capacity[name]) for name in names] + [(name, common) for name in (*names, SPIN)]
            )
        )
        pooled = {key: Counter[int]() for key in plan}
        rounds = max(1, round(self.args.tail_s * 1000 / self.args.ms))
        for i in range(rounds):
            for name, rate in plan[i % len(plan) :] + plan[: i % len(plan)]:
                pooled[name, rate] += self.load(self.servers[name], cell, ms=self.args.ms, rate=rate).times_us
        print(
            f"\nThe tail: {cell}, open loop, {rounds} interleaved rounds of {self.args.ms} ms in one histogram (us)\n"
        )
        print("| server | rate/s | requests | p50 | p99 | p99.9 | p99.99 |\n|---|---|---|---|---|---|---|")
        for (name, rate), times_us in pooled.items():
            texts = [f"{quantile_us(times_us, q)}" for q in (0.5, 0.99, 0.999, 0.9999)]
            print(f"| {name} | {rate:.0f} | {times_us.total()} | " + " | ".join(texts) + " |")

    def loops(self) -> None:
        """The same work by three event loops: what libev costs, and what io_uring would gain."""
        print("\nEvent loops: CPU per request in us (median), as a multiple of raw epoll's (median of the rounds)\n")
        print("| loop | 357 B keep | 4 KB keep |\n|---|---|---|")
        texts: dict[str, list[str]] = {loop: [] for loop in LOOPS}
        for size in ("357 B", "4 KB"):
            us: dict[str, list[float]] = {}
            for loop in LOOPS:
                self.start(f"{loop} {size}", [str(HERE / "build/loops"), "{port}", str(SIZES[size]), loop])
            started = [loop for loop in LOOPS if f"{loop} {size}" in self.servers]
            for _ in range(self.args.rounds):
                for loop in started:
                    sample = self.load(self.servers[f"{loop} {size}"], Cell(size, "keep"), ms=self.args.ms)
                    us.setdefault(loop, []).append(sample.cpu_us)
            for loop in started:
                ratio = statistics.median(a / b for a, b in zip(us[loop], us["epoll"], strict=True))
                texts[loop].append(f"{statistics.median(us[loop]):.1f}, {ratio:.2f}")
        for loop, cells in texts.items():
            print(f"| {loop} | " + " | ".join(cells or ["–", "–"]) + " |")

    def system_calls(self) -> None:
        if shutil.which("strace") is None:
            print("\nstrace is not installed here: system calls are not counted.")
            return
        print("\nSystem calls per request, 4 KB\n\n| server | keep-alive | close |\n|---|---|---|")
        for name in ["limit 4 KB", *self.names()]:
            server, texts = self.servers[name], []
            for mode in ("keep", "close"):
                out = self.dir / "strace.out"
                pids = [a for p in server.pids() for a in ("-p", str(p))]
                tracer = subprocess.Popen(
                    ["strace", "-f", "-c", "-U", "calls", "-o", str(out), *pids], stderr=subprocess.DEVNULL
                )
                time.sleep(0.3)
                sample = self.load(server, Cell("4 KB", mode), ms=500)
                tracer.send_signal(signal.SIGINT)
                tracer.wait()
                total = [line for line in out.read_text().splitlines() if line.strip()][-1].split()[0]
                texts.append(f"{int(total) / max(sample.rps * 0.5, 1):.1f}")
            print(f"| {name} | " + " | ".join(texts) + " |")

    def idle_memory(self) -> None:
        print("\nMemory of all processes in KiB PSS: at 100 busy connections, at 1,000 and 10,000 idle ones\n")
        print("| server | 100 | 1,000 | 10,000 |\n|---|---|---|---|")
        for name in self.names():
            server = self.servers[name]
            texts = [f"{statistics.median(s.pss_kib for s in self.samples[name, Cell('4 KB', 'keep')]):.0f}"]
            clients: list[socket.socket] = []
            for count in (1000, 10000):
                with contextlib.suppress(OSError):
                    while len(clients) < count:
                        clients.append(idle_client(server.port, len(clients)))
                texts.append(str(server.pss_kib()) if len(clients) == count else f"– ({len(clients)} connections)")
            for client in clients:
                client.close()
            print(f"| {name} | " + " | ".join(texts) + " |")

    def stop(self) -> None:
        for server in self.servers.values():
            assert server.process
            server.process.terminate()
        for server in self.servers.values():
            assert server.process
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(10)
            if server.process.poll() is None:
                server.process.kill()


def installed(argv: list[str]) -> bool:
    program = next(a for a in argv if a != "env" and "=" not in a)
    return shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is not None


def median_of(name: str) -> Callable[[list[Sample]], float]:
    return lambda samples: statistics.median(getattr(s, name) for s in samples)


def user_share(samples: list[Sample]) -> float:
    """From ticks of the clock, too coarse for one round."""
    user, system = sum(s.user_s for s in samples), sum(s.system_s for s in samples)
    return 100 * user / max(user + system, 1e-9)


def idle_client(port: int, i: int) -> socket.socket:
    s = socket.socket()
    s.settimeout(2)
    s.bind((f"127.0.0.{2 + i % 100}", 0))
    s.connect(("127.0.0.1", port))
    s.sendall(b"GET /357.bin HTTP/1.1\r\nHost: bench\r\n\r\n")
    if not s.recv(4096):
        raise OSError
    return s


def make_site(base: Path) -> Path:
    """The files to serve, and beside them the heads to send."""
    base.chmod(0o755)
    root = base / "root"
    root.mkdir()
    for octets in SIZES.values():
        (root / f"{octets}.bin").write_bytes(os.urandom(octets))
    (root / "4096").mkdir()
    for i in range(FILES):
        (root / f"4096/{i}.bin").write_bytes(os.urandom(4096))
    for name, fields in HEADS.items():
        (base / f"{name}.head").write_text(fields, newline="")
    return root


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ms", type=int, default=600, help="of load per server, cell and round")
    parser.add_argument("--tail-s", type=float, default=6, help="of load per server and rate for the tail")
    parser.add_argument("--server-cpu", type=int, default=0)
    parser.add_argument("--load-cpu", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="these peers only")
    parser.add_argument(
        "--suite", default="unstable", help="of Debian, for the peers; installed: those of this machine"
    )
    parser.add_argument("--modes", nargs="*", default=MODES, choices=MODES, help="pipe is 16 deep")
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--heads", nargs="*", default=["siege", "chrome"], choices=HEADS, help="at 4 KB, keep-alive")
    parser.add_argument("--tail-only", action="store_true")
    parser.add_argument("--quick", action="store_true", help="CPU per request only")
    args = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        sys.exit("The bench needs two cores.")
    with tempfile.TemporaryDirectory(prefix="lighttz-bench-") as directory:
        base = Path(directory)
        root = make_site(base)
        suite = None if args.suite == "installed" else make(args.suite)
        bench = Bench(args, base, root, suite)
        if suite:
            print(f"Peers of Debian {suite.name}.")
        try:
            bench.start_all()
            if args.tail_only:
                bench.tail()
                return
            cells = [Cell(size, mode) for mode in args.modes if mode != "pipe" for size in args.sizes]
            cells += [Cell("4 KB", "keep", head) for head in args.heads]
            cells += [Cell("4 KB", "keep", "siege", FILES)] if args.heads else []
            cells += [Cell("357 B", "pipe")] if "pipe" in args.modes else []
            bench.run_cells(cells)
            bench.table("CPU per request in us (median of the rounds)", cells, median_of("cpu_us"))
            bench.ratios(cells)
            bench.table("user share of the CPU time in %, over all rounds", cells, user_share, 0)
            bench.table("requests per second", cells, median_of("rps"), 0)
            bench.table("failures", cells, median_of("failures"), 0)
            if not args.quick:
                bench.system_calls()
                bench.tail()
                bench.idle_memory()
                bench.loops()
        finally:
            bench.stop()


if __name__ == "__main__":
    main()
