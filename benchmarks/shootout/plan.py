"""The plan of a recording: written before it, and never changed after its first page."""

import hashlib
import json
import os
import platform
import random
import subprocess
import time
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from vmtoll.model.errors import UserError
from vmtoll.paths import PROJECT

FOLDER = PROJECT / "docs" / "shootout"
PARTS = 10  # rows of a page of ten
SEED = 1
# What decides an answer of `vmtoll judge`: with other code the recordings are used up.
ENGINE = ("vmtoll/analysis/judge.py", "vmtoll/analysis/pairs.py", "vmtoll/analysis/recorded.py",
          "vmtoll/statistics/*.py")  # fmt: skip


class Kind(StrEnum):
    """What a page has. TRUTH: all loads, to know their ratios; the pilot's pages are equal ones of three lengths."""

    EQUAL = "equal"
    DISTURBED = "equal, disturbed"
    ONE = "1%"
    TWO = "2%"
    FIVE = "5%"
    TEN = "ten equal rows"
    WEB = "web server, equal"
    TRUTH = "truth"
    PILOT_SHORT = "pilot, short"
    PILOT_MIDDLE = "pilot, middle"
    PILOT_LONG = "pilot, long"


EXTRA = {Kind.ONE: 1, Kind.TWO: 2, Kind.FIVE: 5}  # percent of the iterations that side B has more
SIDES_OF_TRUTH = {"A": 0, "a": 0, "1": 1, "2": 2, "5": 5}  # "a": the load of A once more
LENGTHS = {Kind.PILOT_SHORT: 1 / 3, Kind.PILOT_MIDDLE: 2 / 3, Kind.PILOT_LONG: 1.0}  # of the plan's iterations
COUNTS = {
    Kind.EQUAL: 500, Kind.DISTURBED: 500, Kind.ONE: 200, Kind.TWO: 200, Kind.FIVE: 200, Kind.TEN: 100, Kind.WEB: 60,
    Kind.TRUTH: 10,
}  # fmt: skip
PILOT_COUNTS = dict.fromkeys(LENGTHS, 10)
WEB_TRIAL_MS = 200.0
MARGINS = {Kind.TWO: 0.01}  # of equality; others have that of `vmtoll judge`


@dataclass(frozen=True)
class Page:
    """One page that is to be recorded. `number`: its place in the order of time, from 0."""

    number: int
    kind: Kind
    seed: int


@dataclass(frozen=True)
class Plan:
    """`iterations`: of the load, which take `trial_ms`; `cpu`: the only one that loads and disturbances run on, None:
    any; `web_requests`: of a trial of the web server; `truth_blocks`: of one page of truth; `rules`: name → threshold
    and source; `pilot`: what it measured.
    """

    seed: int
    iterations: int
    trial_ms: float
    blocks: int
    cpu: int | None
    web_requests: int
    web_blocks: int
    truth_blocks: int
    counts: dict[Kind, int]
    written: str = ""
    commit: str = ""
    engine: str = ""
    rules: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    pilot: list[dict[str, Any]] = field(default_factory=list)

    def pages(self) -> list[Page]:
        """All pages in the order in which they are recorded."""
        kinds = [kind for kind, count in self.counts.items() for _ in range(count)]
        random.Random(self.seed).shuffle(kinds)
        return [Page(number, kind, self.seed * 1_000_000 + number) for number, kind in enumerate(kinds)]

    def blocks_of(self, kind: Kind) -> int:
        """How many blocks a page has."""
        return {Kind.WEB: self.web_blocks, Kind.TRUTH: self.truth_blocks}.get(kind, self.blocks)

    def seconds_of(self, kind: Kind) -> float:
        """How long a page will take, before one was recorded."""
        trials = self.blocks_of(kind) * (len(SIDES_OF_TRUTH) if kind is Kind.TRUTH else 2)
        trial_ms = WEB_TRIAL_MS if kind is Kind.WEB else self.trial_ms * LENGTHS.get(kind, 1.0)
        return trials * (trial_ms + 3) / 1000

    @property
    def digest(self) -> str:
        """What the recordings name, so that they belong to this plan and to no other."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def write(self, file: Path) -> None:
        """Write the plan. Raises UserError if there is one already."""
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("x", encoding="utf-8") as stream:
                stream.write(json.dumps(asdict(self), indent=2) + "\n")
        except FileExistsError:
            raise UserError(f"{file}: is there already; a plan does not change") from None


def read_plan(file: Path) -> Plan:
    """Raises UserError."""
    try:
        keys = json.loads(file.read_text("utf-8"))
    except OSError:
        raise UserError(f"{file}: is not there; run `python -m benchmarks.shootout pilot` first") from None
    return Plan(**keys | {"counts": {Kind(kind): count for kind, count in keys["counts"].items()}})


def engine_digest() -> str:
    """A checksum of the code that decides an answer."""
    digest = hashlib.sha256()
    for file in sorted(file for pattern in ENGINE for file in PROJECT.glob(pattern)):
        digest.update(file.relative_to(PROJECT).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def now() -> str:
    """This second, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def commit() -> str:
    """The commit of this checkout, with `-dirty` where files differ from it."""
    argv = ["git", "-C", str(PROJECT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def machine() -> dict[str, Any]:
    """What the recordings were made on."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(": ")[2] if models else platform.machine()
    return {"cpu": model, "cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
