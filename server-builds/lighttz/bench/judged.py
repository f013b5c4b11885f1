"""lighttz against the limit probe, judged by vmtoll's own engine.

Server and probe run in each block, in turn. For each cell the verdict is a difference, equal within the margin, or
neither. The probe's faster form is the limit.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench import PROBES, SIZES, Bench, Cell, Sample, make_site, quantile_us

from vmtoll.analysis.judge import Evidence, Family
from vmtoll.analysis.pairs import Bounds
from vmtoll.model.metric import CPU
from vmtoll.statistics.series import Series

CPU_MARGIN, TAIL_MARGIN = 0.05, 0.2
TRIES, LEAST_REQUESTS = 5, 100
TAIL_SHARES = (0.5, 0.8)  # of lighttz's own rate


class Row(NamedTuple):
    name: str
    ours: Sequence[float]  # by block; less is better
    theirs: Sequence[float]


def judge(title: str, rows: Sequence[Row], margin: float) -> None:
    """Print a table; all rows are one family."""
    evidence = []
    for row in rows:
        logs = [math.log(theirs / ours) for ours, theirs in zip(row.ours, row.theirs, strict=True)]
        series = Series(tuple(range(len(logs))), tuple(logs))
        evidence.append(Evidence(CPU, Bounds(series, series, series)))
    print(f"\n{title}\n\n| cell | blocks | lighttz, us | probe, us | ratio | interval | within {margin:.0%} |")
    print("|---|---|---|---|---|---|---|")
    for row, judgement in zip(rows, Family(evidence, margin).judge(), strict=True):
        ratio = judgement.estimate
        low, high = (ratio and ratio.ends) or (0.0, math.inf)
        found = f"{ratio.value if ratio else math.nan:.2f} | {low:.2f}–{high:.2f}"
        medians = " | ".join(f"{statistics.median(values):.2f}" for values in (row.ours, row.theirs))
        print(f"| {row.name} | {len(row.ours)} | {medians} | {found} | {judgement.kind} |")


def sample(bench: Bench, name: str, cell: Cell) -> Sample:
    """One that was not kept from running: on a shared machine a short one may see no request."""
    for _ in range(TRIES):
        measured = bench.load(bench.servers[name], cell, ms=bench.args.ms)
        if measured.requests >= LEAST_REQUESTS:
            return measured
    raise SystemExit(f"{name}: {cell}: fewer than {LEAST_REQUESTS} requests in {bench.args.ms} ms")


def cpu_rows(bench: Bench, cells: Sequence[Cell]) -> list[Row]:
    rows = []
    for cell in cells:
        names = ("lighttz", *(f"{probe} {cell.size}" for probe in PROBES))
        us: dict[str, list[float]] = {name: [] for name in names}
        for name in names:
            bench.load(bench.servers[name], cell, ms=50)
        for i in range(bench.args.blocks):
            for name in names[i % 3 :] + names[: i % 3]:
                us[name].append(sample(bench, name, cell).cpu_us)
        ours, *limits = us.values()
        rows.append(Row(str(cell), ours, min(limits, key=statistics.median)))
    return rows


def tail_rows(bench: Bench) -> list[Row]:
    rows = []
    cell, names = Cell("4 KB", "keep", "siege"), ("lighttz", "limit 4 KB")
    rate = statistics.median(bench.load(bench.servers["lighttz"], cell, ms=bench.args.ms).rps for _ in range(5))
    for share in TAIL_SHARES:
        times: dict[str, list[float]] = {name: [] for name in names}
        for i in range(bench.args.blocks):
            for name in names[i % 2 :] + names[: i % 2]:
                measured = bench.load(bench.servers[name], cell, ms=bench.args.tail_ms, rate=share * rate)
                times[name].append(quantile_us(measured.times_us, 0.999))
        rows.append(Row(f"{share * rate:.0f} requests/s, {share:.0%} of its rate", *times.values()))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--ms", type=int, default=100, help="of load per server, cell and block")
    parser.add_argument("--tail-ms", type=int, default=600, help="the same for the tail; 0: no tail")
    parser.add_argument("--server-cpu", type=int, default=0)
    parser.add_argument("--load-cpu", type=int, default=1)
    parser.add_argument("--modes", nargs="*", default=["keep", "close"], choices=["keep", "close"])
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--heads", nargs="*", default=["siege", "chrome"])
    args = parser.parse_args()
    args.only = []
    with tempfile.TemporaryDirectory(prefix="lighttz-bench-") as directory:
        base = Path(directory)
        bench = Bench(args, base, make_site(base))
        try:
            bench.start_all()
            cells = [Cell(size, mode, head) for head in args.heads for mode in args.modes for size in args.sizes]
            if cells:
                judge("CPU time per request", cpu_rows(bench, cells), CPU_MARGIN)
            if args.tail_ms:
                judge("p99.9 of 4 KB with keep-alive and siege's head", tail_rows(bench), TAIL_MARGIN)
        finally:
            bench.stop()


if __name__ == "__main__":
    main()
