"""Cost of stopping early: `python -m benchmarks.until [PAGES]`.

Simulates pages of four servers with five figures each, as `benchmarks.verdicts` does, measured with `measure_until`:
with the looks, shares and stops of vmtoll. A block takes time only for the servers that are still measured. Compares
them with the same pages at a fixed number of blocks. Writes docs/until.csv and the table in docs/statistics.md. Equal
figures are never called equivalent here, which would stop a run earlier.
"""

import csv
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import verdicts, write_measured
from benchmarks.verdicts import FOLDER, SERVERS, Floats, Noise, trials
from vmtoll.model.until import Look, look_share, next_look
from vmtoll.model.verdict import DIFFERENT
from vmtoll.statistics.student import Interval

PAGES = 1000
NOISES = (Noise.NORMAL, Noise.HEAVY, Noise.DRIFTING, Noise.AUTOCORRELATED, Noise.PERSISTENT, Noise.BIMODAL)
FIRST = 6
MOST = 54  # blocks of all servers that fit in the time
HALF_WIDTHS = (0.02, 0.01)
DIFFERENCE = 0.03  # the first throughput of the guest is lower by this share, or equal
FIXED = (10, 24, 54)

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True)
class StoppedPage:
    """A page at its last look. `different`: whether each comparison is called different; `means`, `half_widths`: of the
    95% intervals by sampling alone, in logs; `decisive`: the interval that decided on the first comparison; `work`: the
    time spent, in blocks of all servers.
    """

    different: Bools
    means: Floats
    half_widths: Floats
    decisive: Interval | None
    work: float


@dataclass(frozen=True)
class Design:
    """Characteristics of one rule for the number of blocks. `half_width`: fraction at which a comparison is narrow
    enough, 0 with a fixed number of `blocks`; `work`: blocks of all servers that a page took on average.

    `wrong`: the share of pages with any wrong "faster" or "slower"; `coverage`: of the 95% intervals of equal figures;
    `coverage_different`: of the one that differs; `coverage_decisive`: of the interval that decided on it; `power`: the
    share of pages that found it.
    """

    noise: Noise
    half_width: float
    blocks: int
    pages: int
    work: float
    wrong: float
    coverage: float
    coverage_different: float
    coverage_decisive: float
    power: float


def judged_look(logs: Floats, blocks: Ints, shares: Floats, shift: float = 0.0) -> StoppedPage:
    """Judge a page, shape (comparisons, blocks, arms); each comparison has its own number of `blocks` and its own share
    of the 5%. `shift`: added to the guest's figures of the first comparison.
    """
    family = verdicts.judged_family(logs, shift=shift, share=shares.tolist(), measured=blocks.tolist())
    different = np.array([kind in DIFFERENT for kind in family.decide()])
    decisive = family.interval(0, family.difference[0].level)
    return StoppedPage(different, family.estimates, family.half_widths, decisive, float(blocks.mean()))


def measure_until(logs: Floats, half_width: float, shift: float = 0.0) -> StoppedPage:
    """Measure a page until every comparison differs or is narrow enough, or the time is spent."""
    figures = len(logs) // SERVERS
    active, blocks = np.ones(SERVERS, dtype=bool), np.zeros(SERVERS, dtype=np.intp)
    shares, looks, spent, n = np.ones(SERVERS), list[Look](), 0.0, 0
    while True:
        cost, next_blocks = float(active.mean()), next_look(n, FIRST)
        affordable_blocks = int((MOST - spent) / cost + 1e-9)
        step = min(next_blocks - n, affordable_blocks)
        n, spent = n + step, spent + step * cost
        last = spent + cost > MOST + 1e-9
        share = look_share(looks, spent / MOST, last=last)
        looks.append(Look(blocks=n, measured_s=spent, share=share))
        blocks[active], shares[active] = n, share
        look = judged_look(logs, blocks.repeat(figures), shares.repeat(figures), shift)
        is_settled = look.different | (np.expm1(look.half_widths) <= half_width)
        active &= ~is_settled.reshape(SERVERS, figures).all(axis=1)
        if last or not active.any():
            return look


def measure_fixed(logs: Floats, blocks: int, shift: float = 0.0) -> StoppedPage:
    """Judge a page with this number of blocks."""
    count = len(logs)
    return judged_look(logs, np.full(count, blocks, dtype=np.intp), np.ones(count), shift)


def designs(noise: Noise, pages: int) -> list[Design]:
    """Simulate `measure_until`, then the fixed designs, on the same pages; every call gives the same figures."""
    rng = np.random.default_rng([len(NOISES), list(Noise).index(noise)])
    most = next_look(MOST, FIRST) * SERVERS  # a single server that is left gets the time of all four
    logs = trials(rng, noise, pages, most)
    shift = math.log1p(-DIFFERENCE)
    sizes = [*((half_width, 0) for half_width in HALF_WIDTHS), *((0.0, blocks) for blocks in FIXED)]
    return [_design(noise, *size, logs, shift) for size in sizes]


def _design(noise: Noise, half_width: float, blocks: int, logs: Floats, shift: float) -> Design:
    def measure(page: Floats, by: float = 0.0) -> StoppedPage:
        return measure_fixed(page, blocks, by) if blocks else measure_until(page, half_width, by)

    equal, different = [measure(page) for page in logs], [measure(page, shift) for page in logs]

    def share(values: list[bool] | list[float]) -> float:
        return round(float(np.mean(values)), 4)

    return Design(
        noise=noise,
        half_width=half_width,
        blocks=blocks,
        pages=len(logs),
        work=round(float(np.mean([page.work for page in equal])), 1),
        wrong=share([bool(page.different.any()) for page in equal]),
        coverage=share([float((np.abs(page.means) <= page.half_widths).mean()) for page in equal]),
        coverage_different=share([abs(page.means[0] - shift) <= page.half_widths[0] for page in different]),
        coverage_decisive=share(
            [page.decisive is None or page.decisive.low <= shift <= page.decisive.high for page in different]
        ),
        power=share([bool(page.different[0]) for page in different]),
    )


def table(rows: list[Design]) -> str:
    """A Markdown table, a row for each noise and design."""
    lines = [
        "| noise | blocks | on average | wrong reports | 95% intervals, equal | 95% interval, different "
        "| deciding interval, different | finds 3% |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        shares = (row.wrong, row.coverage, row.coverage_different, row.coverage_decisive, row.power)
        cells = " | ".join(f"{100 * share:.1f}%" for share in shares)
        name = row.blocks or f"until ±{100 * row.half_width:g}%"
        lines.append(f"| {row.noise} | {name} | {row.work:.1f} | {cells} |")
    return "\n".join(lines)


def write(rows: list[Design], folder: Path = FOLDER) -> None:
    """Write the table, and the figures as CSV."""
    write_measured(folder / "statistics.md", "until", table(rows))
    with (folder / "until.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Design)])
        writer.writerows(astuple(row) for row in rows)


def read(file: Path = FOLDER / "until.csv") -> Iterator[Design]:
    """The published figures."""
    kinds: dict[str, Callable[[str], Any]] = {"noise": Noise, "blocks": int, "pages": int}
    with file.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            yield Design(**{name: kinds.get(name, float)(text) for name, text in row.items()})


def main() -> None:
    """Simulate, print, write."""
    rows = []
    for noise in NOISES:
        for row in designs(noise, int(sys.argv[1]) if len(sys.argv) > 1 else PAGES):
            name = row.blocks or f"until {row.half_width:g}"
            print(f"{noise}, {name}: {row.work:.1f} blocks, {100 * row.wrong:.1f}% wrong pages", flush=True)
            rows.append(row)
    write(rows)


if __name__ == "__main__":
    main()
