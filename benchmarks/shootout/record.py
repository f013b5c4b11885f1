"""Record pages: append each to one file of gzip members, a JSON line each, and go on where a kill left it."""

import fcntl
import gzip
import json
import random
import re
import shutil
import socket
import statistics
import subprocess
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from benchmarks.shootout.plan import EXTRA, LENGTHS, PARTS, SIDES_OF_TRUTH, Kind, Page, Plan
from vmtoll.model.errors import UserError
from vmtoll.recordings.commands import Runner, Trial, WorseError, time_values
from vmtoll.recordings.rows import Better, Value

HERE = Path(__file__).parent
UNIT = 1e-7  # seconds: values are whole numbers of it
WEB_USERS = 8
STRETCH_S = (0.01, 1.0)  # mean length of a disturbance, drawn for each page
BUSY = (0.02, 0.5)  # share of the time that disturbances take, drawn for each page
SAYS_EVERY_S = 10.0


@dataclass(frozen=True)
class Recording:
    """A recorded page. `sides`: of its trials, a letter each, in the order of time; `values`: metric → a number for
    each trial, in units of 100 ns; `cpus`: how many CPUs of the machine were busy, on average.
    """

    page: int
    kind: Kind
    began: float
    seconds: float
    cpus: float
    sides: str
    values: dict[str, list[int]]


@contextmanager
def programs() -> Iterator[Path]:
    """A folder with the compiled load and disturbance."""
    with TemporaryDirectory(prefix="vmtoll-shootout-") as name:
        for program in ("load", "burn"):
            subprocess.run(["gcc", "-O2", "-Wall", "-o", f"{name}/{program}", HERE / f"{program}.c"], check=True)
        yield Path(name)


def load(folder: Path, plan: Plan, extra: int, parts: int = 1, length: float = 1.0) -> str:
    """The command of a load; those of one page differ in nothing but the digit of `extra`."""
    iterations = round(plan.iterations * length / (100 * PARTS)) * 100 * PARTS
    return f"{folder}/load {iterations:010d} {extra} {'-' if plan.cpu is None else plan.cpu} {parts:02d}"


def part_values(trial: Trial) -> list[Value]:
    """The times that the load printed: the rows of a page of ten."""
    times = trial.output.read_text().split()
    return [
        Value(f"part {part}", int(ns) / 1e9, Better.LOWER, unit="s") for part, ns in enumerate(times, start=1)
    ]  # fmt: skip


def wall_value(trial: Trial) -> list[Value]:
    """The time of a trial alone."""
    return time_values(trial)[:1]


def answered(requests: int) -> Callable[[Trial], list[Value]]:
    """A reader of the time of h2load. Raises UserError where an answer is missing."""

    def values(trial: Trial) -> list[Value]:
        if f"{requests} succeeded" not in trial.output.read_text():
            raise UserError(f"h2load: not all of {requests} requests were answered; {trial.said}")
        return wall_value(trial)

    return values


def stretches(seed: int, seconds: float) -> list[int]:
    """Alternately how long a disturbance sleeps and burns, in µs, for at least this many seconds."""
    rng = random.Random(f"{seed} stretches")
    mean_s = STRETCH_S[0] * (STRETCH_S[1] / STRETCH_S[0]) ** rng.random()
    busy = rng.uniform(*BUSY)
    ends: list[int] = []
    while sum(ends) < seconds * 1e6:
        ends.append(round(1e6 * rng.expovariate(busy / (mean_s * (1 - busy)))))
        ends.append(round(1e6 * rng.expovariate(1 / mean_s)))
    return ends


@contextmanager
def running(argv: list[str]) -> Iterator[None]:
    """A process that ends with the block, and with this process if it is killed."""
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


NGINX = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {folder}/body;
server {{ listen 127.0.0.1:{port}; root {folder}; }} }}
"""


@contextmanager
def web_server() -> Iterator[str]:
    """The URL of 1 KiB that nginx serves on the loopback interface. Raises UserError."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if not program or not shutil.which("h2load"):
        raise UserError("nginx and h2load are needed: apt-get install nginx-light nghttp2-client")
    with TemporaryDirectory(prefix="vmtoll-shootout-") as name, socket.create_server(("127.0.0.1", 0)) as free:
        folder, port = Path(name), free.getsockname()[1]
        free.close()
        (folder / "page.html").write_bytes(b"x" * 1024)
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
        with running([program, "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]):
            for _ in range(100):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            else:
                raise UserError(f"nginx does not answer: {(folder / 'error.log').read_text().strip()}")
            yield f"http://127.0.0.1:{port}/page.html"


def web_load(url: str, requests: int) -> str:
    """The command that requests the page this many times."""
    return f"h2load --h1 -n {requests} -c {WEB_USERS} -t 1 {url}"


def busy_cpu_s() -> float:
    """CPU time that the machine was not idle, since its boot."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / 100


def record(folder: Path, plan: Plan, page: Page) -> Recording:
    """Record one page. `folder`: of the programs."""
    began, stamp, busy_s = time.time(), time.monotonic(), busy_cpu_s()
    if page.kind is Kind.WEB:
        with web_server() as url:
            command = web_load(url, plan.web_requests)
            rows = _rows(Runner({"A": command, "B": command}, answered(plan.web_requests), seed=page.seed), plan, page)
    elif page.kind is Kind.DISTURBED:
        cpu = "-" if plan.cpu is None else str(plan.cpu)
        argv = [f"{folder}/burn", cpu, *map(str, stretches(page.seed, 4 * plan.seconds_of(page.kind)))]
        with running(argv):
            rows = _rows(_runner(folder, plan, page), plan, page)
    else:
        rows = _rows(_runner(folder, plan, page), plan, page)
    seconds = time.monotonic() - stamp
    values: dict[str, list[int]] = defaultdict(list)
    for _, value in rows:
        values[value.metric].append(round(value.value / UNIT))
    first = next(iter(values))
    sides = "".join(side for side, value in rows if value.metric == first)
    cpus = (busy_cpu_s() - busy_s) / seconds
    return Recording(page.number, page.kind, round(began, 1), round(seconds, 2), round(cpus, 2), sides, dict(values))


def _runner(folder: Path, plan: Plan, page: Page) -> Runner:
    if page.kind is Kind.TRUTH:
        sides = {side: load(folder, plan, extra) for side, extra in SIDES_OF_TRUTH.items()}
        return Runner(sides, wall_value, seed=page.seed)
    parts = PARTS if page.kind is Kind.TEN else 1
    commands = [load(folder, plan, extra, parts, LENGTHS.get(page.kind, 1.0)) for extra in (0, EXTRA.get(page.kind, 0))]
    return Runner(dict(zip("AB", commands, strict=True)), part_values if parts > 1 else wall_value, seed=page.seed)


def _rows(runner: Runner, plan: Plan, page: Page) -> list[tuple[str, Value]]:
    """What the trials measured, in the order of time. As in `vmtoll judge --run`, the first run of a side is lost."""
    try:
        for side in runner.sides:
            runner.trial(side)
        blocks = range(1, plan.blocks_of(page.kind) + 1)
        return [(row.side, row.value) for block in blocks for row in runner.block(block)]
    except WorseError as error:
        raise UserError(str(error)) from None


def read_pages(file: Path) -> list[Recording]:
    """The pages of a file that was recorded, without one that a kill cut off."""
    with file.open("rb") as stream:
        return [_recording(keys) for _, keys in _members(stream) if "page" in keys]


def _recording(keys: dict[str, Any]) -> Recording:
    return Recording(**keys | {"kind": Kind(keys["kind"])})


def _members(stream: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    """Where each whole gzip member ends, and its object."""
    data, end = stream.read(), 0
    while end < len(data):
        packed = zlib.decompressobj(wbits=31)
        try:
            text = packed.decompress(data[end:])
        except zlib.error:
            return
        if not packed.eof:
            return
        end = len(data) - len(packed.unused_data)
        yield end, json.loads(text)


def _append(stream: BinaryIO, keys: dict[str, Any]) -> None:
    stream.write(gzip.compress(json.dumps(keys, separators=(",", ":")).encode() + b"\n", mtime=0))
    stream.flush()


def record_all(plan: Plan, file: Path, minutes: float | None = None, say: Callable[[str], None] = print) -> bool:
    """Record the pages that the file lacks; return whether it has all of them then. `minutes`: stop before the page
    that would end later.

    Raises UserError for a file of another plan, and while another process records into it.
    """
    with programs() as folder, file.open("a+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{file}: another process records into it") from None
        stream.seek(0)
        members = list(_members(stream))
        stream.truncate(members[-1][0] if members else 0)
        if not members:
            _append(stream, {"plan": plan.digest})
        elif members[0][1] != {"plan": plan.digest}:
            raise UserError(f"{file}: was recorded by another plan")
        recorded = {keys["page"]: _recording(keys) for _, keys in members[1:]}
        return _continue(plan, folder, stream, recorded, minutes, say)


def _continue(
    plan: Plan, folder: Path, stream: BinaryIO, recorded: dict[int, Recording], minutes: float | None,
    say: Callable[[str], None],
) -> bool:  # fmt: skip
    pages = plan.pages()
    lacking = [page for page in pages if page.number not in recorded]
    began = reported = time.monotonic()
    for index, page in enumerate(lacking):
        left_s = _left_s(plan, lacking[index:], recorded.values())
        spent_s = time.monotonic() - began
        if minutes is not None and spent_s + _left_s(plan, [page], recorded.values()) > 60 * minutes:
            say(f"stops after {spent_s / 60:.1f} minutes: {len(recorded)} of {len(pages)} pages, {left_s / 60:.0f} "
                "minutes are left; run the same command again to continue")  # fmt: skip
            return False
        if not index or time.monotonic() - reported > SAYS_EVERY_S:
            reported = time.monotonic()
            end = time.strftime("%H:%M", time.localtime(time.time() + left_s))
            say(f"{len(recorded)} of {len(pages)} pages, {left_s / 60:.1f} minutes left, until {end}")
        recording = record(folder, plan, page)
        _append(stream, vars(recording))
        recorded[page.number] = recording
    say(f"all {len(pages)} pages are recorded: {sum(each.seconds for each in recorded.values()) / 60:.1f} minutes")
    return True


def _left_s(plan: Plan, pages: list[Page], recorded: Iterable[Recording]) -> float:
    """How long these pages will take: as others of their kind did."""
    seconds = defaultdict(list)
    for each in recorded:
        seconds[each.kind].append(each.seconds)
    return sum(statistics.median(seconds[page.kind]) if page.kind in seconds else plan.seconds_of(page.kind)
               for page in pages)  # fmt: skip


def iterations_of(folder: Path, cpu: int | None, trial_ms: float) -> int:
    """The iterations that take this long here: by the fastest of nine runs."""
    tried = 10_000_000
    argv = [f"{folder}/load", str(tried), "0", "-" if cpu is None else str(cpu), "01"]
    ns = min(int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout) for _ in range(9))
    return round(tried * trial_ms * 1e6 / ns / (100 * PARTS)) * 100 * PARTS


def web_requests_of(trial_s: float) -> int:
    """The requests that a trial of the web server can have in this time: by the median of five trials."""
    tried = 2000
    with web_server() as url:
        outputs = [
            subprocess.run(web_load(url, tried).split(), check=True, capture_output=True, text=True).stdout
            for _ in range(5)
        ]  # fmt: skip
    rates = [float(match[1]) for output in outputs if (match := re.search(r", ([0-9.]+) req/s", output))]
    if not rates:
        raise UserError(f"h2load printed no rate: {outputs[0]}")
    return max(WEB_USERS, round(statistics.median(rates) * trial_s))
