"""Compare what `vmtoll judge --run A --run B` and hyperfine say of the same two commands.

Twenty pairs of loads at each of 0, 1, 2 and 5%, in random order. A pair is measured by both programs, one after the
other in an order that is drawn, with as many runs of each command.
"""

import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from benchmarks import write_measured
from benchmarks.shootout.plan import EXTRA, MARGINS, Kind, Plan, read_plan
from benchmarks.shootout.record import load, programs
from benchmarks.shootout.table import DOCUMENT
from vmtoll.model.errors import UserError
from vmtoll.statistics.thresholds import ALPHA, MARGIN

EXTRAS = (0, 1, 2, 5)
PAIRS = 20


def compare(folder: Path, minutes: float | None, say: Callable[[str], None], document: Path = DOCUMENT) -> bool:
    """Measure the pairs that `hyperfine.jsonl` lacks, and write the table when it has all; return whether it does."""
    program = shutil.which("hyperfine")
    if not program:
        raise UserError("hyperfine is needed: apt-get install hyperfine")
    plan, file = read_plan(folder / "plan.json"), folder / "hyperfine.jsonl"
    lines = [line for line in (file.read_text() if file.exists() else "").splitlines(keepends=True) if line[-1] == "\n"]
    file.write_text("".join(lines))  # without a line that a kill cut off
    pairs = [extra for extra in EXTRAS for _ in range(PAIRS)]
    rng = random.Random(plan.seed)
    rng.shuffle(pairs)
    orders = [rng.random() < 0.5 for _ in pairs]
    began = time.monotonic()
    with programs() as loads, file.open("a") as stream:
        for number in range(len(lines), len(pairs)):
            spent_s = time.monotonic() - began
            done = number - len(lines)
            pair_s = spent_s / done if done else 4 * plan.blocks * (plan.trial_ms + 3) / 1000
            if minutes is not None and spent_s + pair_s > 60 * minutes:
                say(f"stops: {number} of {len(pairs)} pairs; run the same command again to continue")
                return False
            if done % 5 == 0:
                say(f"{number} of {len(pairs)} pairs, {(len(pairs) - number) * pair_s / 60:.1f} minutes left")
            stream.write(json.dumps(_pair(plan, loads, program, pairs[number], ours_first=orders[number])) + "\n")
            stream.flush()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    text = table(rows)
    say(text)
    write_measured(document, "hyperfine", text)
    return True


def _pair(plan: Plan, loads: Path, program: str, extra: int, *, ours_first: bool) -> dict[str, Any]:
    commands = [load(loads, plan, 0), load(loads, plan, extra)]
    parts = [lambda: _ours(plan, extra, commands), lambda: _hyperfine(plan, loads, program, commands)]
    measured: dict[str, Any] = {"extra": extra, "began": round(time.time(), 1)}
    for part in parts if ours_first else reversed(parts):
        measured |= part()
    return measured


def _ours(plan: Plan, extra: int, commands: Sequence[str]) -> dict[str, Any]:
    """Both rows of `vmtoll judge`: the time and the CPU time."""
    argv = [sys.executable, "-m", "vmtoll", "judge", "--json", "--count", str(plan.blocks)]
    kinds = {percent: kind for kind, percent in EXTRA.items()}
    argv += ["--margin", f"{100 * MARGINS.get(kinds.get(extra, Kind.EQUAL), MARGIN):g}"]
    argv += [word for command in commands for word in ("--run", command)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 125):
        raise UserError(f"vmtoll judge: {done.stderr.strip()}")
    document = json.loads(done.stdout)
    return {"exit": document["exit"], "answers": {row["metric"]: row["answer"] for row in document["rows"]}}


def _hyperfine(plan: Plan, loads: Path, program: str, commands: Sequence[str]) -> dict[str, Any]:
    """Its summary's ratio and deviation, B over A, and Welch's p as its script scripts/welch_ttest.py computes it."""
    file = loads / "hyperfine.json"
    argv = [program, "-N", "--runs", str(plan.blocks), "--warmup", "1", "--style", "basic", "--export-json", str(file)]
    argv += [word for name, command in zip("AB", commands, strict=True) for word in ("-n", name, command)]
    printed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return read_hyperfine(printed, [result["times"] for result in json.loads(file.read_text())["results"]])


def read_hyperfine(printed: str, times: Sequence[Sequence[float]]) -> dict[str, Any]:
    """What hyperfine's summary says: which command is faster, by which ratio ± deviation."""
    summary = re.search(r"([AB])'? ran\s+([0-9.]+) ± ([0-9.]+) times faster", printed)
    if not summary:
        raise UserError(f"hyperfine printed no summary: {printed[-300:]}")
    p = float(stats.ttest_ind(*times, equal_var=False).pvalue)
    return {"faster": summary[1], "ratio": float(summary[2]), "deviation": float(summary[3]), "p": p}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown table: a row for each difference, what both programs say of its pairs."""
    lines = [
        '| B has more iterations | pairs | vmtoll, time: "worse" | "better" | "equal" | "undecided" '
        "| vmtoll, exit 1 | hyperfine calls A faster | calls B faster | calls one faster, by more than its ± "
        "| Welch's p < 0.05, A faster | B faster |",
        "|---|" + "---|" * 11,
    ]
    for extra in EXTRAS:
        of = [row for row in rows if row["extra"] == extra]
        answers = [row["answers"]["time"] for row in of]
        cells = [len(of), *(answers.count(answer) for answer in ("worse", "better", "equal", "undecided"))]
        cells.append(sum(row["exit"] == 1 for row in of))
        cells += [sum(row["faster"] == side for row in of) for side in "AB"]
        cells.append(sum(row["ratio"] - row["deviation"] > 1 for row in of))
        cells += [sum(row["p"] < ALPHA and row["faster"] == side for row in of) for side in "AB"]
        lines.append(f"| {extra}% | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
