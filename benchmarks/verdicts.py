"""Error rate and power of a page: `python -m benchmarks.verdicts [EXPERIMENTS]`.

Simulates pages of two equal sides, with four servers and five figures each (eight of the twenty primary), under
several kinds of noise, and has `vmtoll.analysis.judge` judge them. Writes docs/operating-characteristics.csv and .svg
and the tables in docs/statistics.md. `python -m benchmarks.verdicts boots [EXPERIMENTS]` writes the one on boots alone.

The figures are independent of each other, which is the worst case for the errors of a page. Each block has metal, the
guest, and an A/A control of one server.
"""

import csv
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from benchmarks import timed, write_measured
from vmtoll.analysis.judge import Evidence, Family, control_differences
from vmtoll.analysis.pairs import Bounds
from vmtoll.model.metric import METRICS, Metric
from vmtoll.model.verdict import DIFFERENT
from vmtoll.paths import PROJECT
from vmtoll.statistics.series import Series
from vmtoll.statistics.thresholds import ALPHA, POWER

EXPERIMENTS = 2000
CEILING = 2.0  # log ratio (639%) where the search for the smallest difference found ends
BLOCKS = (3, 6, 10, 20, 40)
CV = 0.02  # of a trial
SERVERS = 4
BOOTS = 5
BOOT_SD = 0.01
SLOW = 0.7  # the second mode of the bimodal noise
SLOW_SHARE = 0.1
COMPARISONS = SERVERS * len(METRICS)
METAL, CONTROL, GUEST = range(3)
MISSED = (2.0, 3.0, 10.0)  # how many times as slow
MISSED_NOISE = (0.02, 0.1, 0.2)  # standard deviation of a trial
MISSED_BLOCKS = (6, 8, 10)
BOOT_COUNTS = (3, 4, 5, 6)  # of the table on boots
BLOCKS_A_BOOT = 2
BOOT_SEARCH = 100  # simulated pages of a step of the search for the smallest difference
BOOT_SDS = (0.0, 0.005, 0.01, 0.02)  # what a boot adds to each environment, standard deviation
FOLDER = PROJECT / "docs"

Floats = npt.NDArray[np.float64]


class Noise(StrEnum):
    """The noise of a trial; its standard deviation is CV unless stated otherwise.

    HEAVY: Student's t with 3 degrees of freedom. DRIFTING: normal noise, and a random walk over the trials of the run
    with a step of half a CV, in an order drawn for each block. AUTOCORRELATED, PERSISTENT: each arm has its own
    first-order process over blocks. BIMODAL: normal noise, and one trial in ten is slower by 30%, on both sides.
    ONE_BOOT: each environment has an effect of its boot, of 1%, in all blocks. BOOTS: the same, drawn again in each of
    five boots.
    """

    NORMAL = "normal"
    HEAVY = "heavy-tailed"
    DRIFTING = "drifting"
    AUTOCORRELATED = "autocorrelated, φ 0.5"
    PERSISTENT = "autocorrelated, φ 0.8"
    BIMODAL = "bimodal"
    ONE_BOOT = "one boot"
    BOOTS = "five boots"


PHI = {Noise.AUTOCORRELATED: 0.5, Noise.PERSISTENT: 0.8}


@dataclass(frozen=True)
class Characteristic:
    """Characteristics of pages with `blocks` blocks each. `false_alarms`: the share with any wrong "faster" or
    "slower".

    `detectable`: the smallest difference of one throughput that four of five pages find, a fraction. Infinite if they
    find none below CEILING; None if false alarms exceed twice ALPHA, because such pages are sure of differences that do
    not exist.
    """

    noise: Noise
    blocks: int
    experiments: int
    false_alarms: float
    detectable: float | None


def trials(rng: np.random.Generator, noise: Noise, experiments: int, blocks: int, sd: float = CV) -> Floats:
    """Log figures of equal sides, shape (experiments, comparisons, blocks, arms); `sd`: of a trial."""
    shape = (experiments, COMPARISONS, blocks, 3)
    if noise is Noise.HEAVY:
        return np.asarray(sd * rng.standard_t(3, shape) / np.sqrt(3))
    logs = rng.normal(0, sd, shape)
    if noise is Noise.DRIFTING:
        walk = rng.normal(0, sd / 2, (*shape[:2], 3 * blocks)).cumsum(axis=2).reshape(shape)
        return np.asarray(logs + rng.permuted(walk, axis=3))
    if phi := PHI.get(noise):
        for block in range(1, blocks):
            logs[:, :, block] = phi * logs[:, :, block - 1] + np.sqrt(1 - phi**2) * logs[:, :, block]
    if noise is Noise.BIMODAL:
        logs += np.log(SLOW) * (rng.random(shape) < SLOW_SHARE)
    if noise in (Noise.ONE_BOOT, Noise.BOOTS):
        boots = BOOTS if noise is Noise.BOOTS else 1
        effects = rng.normal(0, BOOT_SD, (*shape[:2], boots, 2))
        of_block = boot_of(blocks, boots)
        logs += effects[:, :, of_block][..., [0, 0, 1]]
    return logs


def boot_of(blocks: int, boots: int) -> npt.NDArray[np.intp]:
    """The boot of each block, from 0, in groups as equal as can be."""
    return np.arange(blocks) * boots // blocks


def judged_family(
    logs: Floats, boots: int = 1, shift: float = 0.0, share: Sequence[float] | None = None,
    measured: Sequence[int] | None = None,
) -> Family:  # fmt: skip
    """Judge these log figures, shape (comparisons, blocks, arms), as vmtoll judges a page. The A/A control is of the
    first server, in every block.

    `shift`: added to the guest's figures of the first comparison, a throughput; `share`: each comparison's share of
    ALPHA; `measured`: each comparison's number of blocks.
    """
    boot = dict(enumerate((boot_of(logs.shape[1], boots) + 1).tolist(), start=1))
    metrics = list(METRICS.values())
    rows = [row[:n] for row, n in zip(logs, measured or [logs.shape[1]] * len(logs), strict=True)]
    controls = [
        _evidence(metric, boot, row[:, CONTROL] - row[:, METAL]) for metric, row in zip(metrics, rows, strict=False)
    ]
    differences = control_differences(controls)
    noise = [max(map(abs, control.bounds.mid.values)) for control in controls]
    evidence_rows = []
    for index, row in enumerate(rows):
        figure, has_control = index % len(metrics), index < len(metrics)
        guest, metal = row[:, GUEST] + (shift if index == 0 else 0.0), row[:, METAL]
        evidence = _evidence(metrics[figure], boot, guest - ((metal + row[:, CONTROL]) / 2 if has_control else metal))
        first = _evidence(metrics[figure], boot, guest - metal).bounds if has_control else None
        evidence_rows.append(replace(
            evidence, bounds=evidence.bounds.widened(differences[figure]), noise=noise[figure],
            control_difference=differences[figure],
            first_replicates=first.widened(differences[figure]) if first else None,
            share=share[index] if share else 1.0,
        ))  # fmt: skip
    return Family(evidence_rows, None)


def _evidence(metric: Metric, boots: Mapping[int, int], logs: Floats) -> Evidence:
    series = Series(tuple(range(1, len(logs) + 1)), tuple(logs.tolist()))
    return Evidence(metric, Bounds(series, series, series), boots)


def differs(logs: Floats, boots: int = 1, shift: float = 0.0) -> npt.NDArray[np.bool_]:
    """Return whether pages call each comparison different, shape (experiments, comparisons); `logs`: (experiments,
    comparisons, blocks, arms).
    """
    return np.array([[kind in DIFFERENT for kind in judged_family(page, boots, shift).decide()] for page in logs])


def characteristic(noise: Noise, blocks: int, experiments: int) -> Characteristic:
    """Simulate one noise and number of blocks; every call gives the same figures."""
    rng = np.random.default_rng([blocks, list(Noise).index(noise)])
    logs, boots = trials(rng, noise, experiments, blocks), BOOTS if noise is Noise.BOOTS else 1
    alarms = float(differs(logs, boots).any(axis=1).mean())
    detectable = None if alarms > 2 * ALPHA else round(_detectable(logs, boots), 4)
    return Characteristic(noise, blocks, experiments, round(alarms, 4), detectable)


def _detectable(logs: Floats, boots: int, tolerance: float = 0.02) -> float:
    sample = logs[: max(200, len(logs) // 4)]

    def is_detected(difference: float) -> bool:
        return bool(differs(sample, boots, -difference)[:, 0].mean() >= POWER)

    low, high = 0.0, 0.02
    while high < CEILING and not is_detected(high):
        low, high = high, min(2 * high, CEILING)
    if high == CEILING and not is_detected(high):
        return math.inf
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_detected(middle) else (middle, high)
    return float(np.expm1(high))


def detectable_text(detectable: float | None) -> str:
    """The smallest difference found, in percent."""
    if detectable is None:
        return "–"
    return f"none below {100 * math.expm1(CEILING):.0f}%" if math.isinf(detectable) else f"{100 * detectable:.1f}%"


def characteristics(experiments: int) -> Iterator[Characteristic]:
    """Every kind of noise at every number of blocks that gives each boot at least one block."""
    for noise in Noise:
        for blocks in BLOCKS:
            if noise is not Noise.BOOTS or blocks >= BOOTS:
                yield characteristic(noise, blocks, experiments)


def table(rows: list[Characteristic]) -> str:
    """A Markdown table: a row for each noise, and both figures for each number of blocks."""
    head = " | ".join(f"{blocks} blocks" for blocks in BLOCKS)
    lines = [f"| noise | {head} |", "|---|" + "---|" * len(BLOCKS)]
    for noise in Noise:
        cells = []
        for blocks in BLOCKS:
            row = next(
                (candidate for candidate in rows if (candidate.noise, candidate.blocks) == (noise, blocks)), None
            )
            if row is None:
                cells.append("")
            else:
                cells.append(f"{100 * row.false_alarms:.1f}%, {detectable_text(row.detectable)}")
        lines.append(f"| {noise} | {' | '.join(cells)} |")
    return "\n".join(lines)


def chart(rows: list[Characteristic]) -> Figure:
    """False alarms, and the smallest difference found, over the number of blocks."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    alarm_axes, detectable_axes = figure.subplots(1, 2)
    for noise in Noise:
        of_noise = [row for row in rows if row.noise is noise]
        blocks = [row.blocks for row in of_noise]
        alarm_axes.plot(blocks, [100 * row.false_alarms for row in of_noise], marker="o", ms=4, label=str(noise))
        points = [
            (row.blocks, 100 * row.detectable) for row in of_noise
            if row.detectable is not None and math.isfinite(row.detectable)
        ]  # fmt: skip
        detectable_axes.plot([b for b, _ in points], [d for _, d in points], marker="o", ms=4)
    alarm_axes.axhline(100 * ALPHA, color="black", lw=0.8, ls="--")
    alarm_axes.set(ylabel="pages with a wrong difference, %", yscale="log")
    detectable_axes.set(ylabel="smallest difference found with 80% power, %", yscale="log")
    for axes in (alarm_axes, detectable_axes):
        axes.set(xlabel="blocks", xticks=BLOCKS)
    alarm_axes.legend(fontsize=8)
    return figure


def missed_table(pages: int) -> str:
    """A Markdown table: how often pages miss a difference of one throughput, at MISSED_BLOCKS blocks."""
    lines = ["| difference | " + " | ".join(f"noise {100 * cv:.0f}%" for cv in MISSED_NOISE) + " |"]
    lines.append("|---|" + "---|" * len(MISSED_NOISE))
    for noise in (Noise.NORMAL, Noise.AUTOCORRELATED, Noise.PERSISTENT):
        for factor in MISSED:
            cells = []
            for cv in MISSED_NOISE:
                rng = np.random.default_rng([int(factor), int(1000 * cv), list(Noise).index(noise)])
                shares = [
                    1 - differs(trials(rng, noise, pages, blocks, cv), shift=-math.log(factor))[:, 0].mean()
                    for blocks in MISSED_BLOCKS
                ]  # fmt: skip
                cells.append(" / ".join(f"{100 * share:.2f}%" for share in shares))
            lines.append(f"| {factor:g}x, {noise} | {' | '.join(cells)} |")
    return "\n".join(lines)


def boot_cell(sd: float, boots: int, drawn: int, pages: int) -> str:
    """Simulate pages of `boots` times BLOCKS_A_BOOT blocks in `drawn` boots, each of which adds an effect of `sd`.

    The share of wrong pages with its Monte Carlo standard error, and the smallest difference found as in
    Characteristic. Every call gives the same text.
    """
    blocks = boots * BLOCKS_A_BOOT
    rng = np.random.default_rng([int(10000 * sd), boots, drawn])
    logs = rng.normal(0, CV, (pages, COMPARISONS, blocks, 3))
    logs += rng.normal(0, sd, (pages, COMPARISONS, drawn, 2))[:, :, boot_of(blocks, drawn)][..., [0, 0, 1]]
    alarms = float(differs(logs, drawn).any(axis=1).mean())
    error = math.sqrt(alarms * (1 - alarms) / pages)
    detectable = None if alarms > 2 * ALPHA else _detectable(logs[:BOOT_SEARCH], drawn, tolerance=0.05)
    return f"{100 * alarms:.1f}% ± {100 * error:.1f}, {detectable_text(detectable)}"


def _numbered_cell(pages: int, number: int) -> str:
    """The cell of this number, row by row; printed when it is known, because the table takes long."""
    row, column = divmod(number, len(BOOT_SDS))
    boots, is_control = BOOT_COUNTS[row // 2], row % 2
    text = boot_cell(BOOT_SDS[column], boots, 1 if is_control else boots, pages)
    print(f"{_boot_head(row)}, a boot adds {100 * BOOT_SDS[column]:g}%: {text}", flush=True)
    return text


def _boot_head(row: int) -> str:
    boots = BOOT_COUNTS[row // 2]
    return f"{boots * BLOCKS_A_BOOT} in one boot" if row % 2 else f"{boots} boots of {BLOCKS_A_BOOT}"


def boots_table(pages: int) -> str:
    """A Markdown table: BOOT_COUNTS boots, and as a control the same blocks in one boot, at each of BOOT_SDS."""
    lines = ["| blocks | " + " | ".join(f"a boot adds {100 * sd:g}%" for sd in BOOT_SDS) + " |"]
    lines.append("|---|" + "---|" * len(BOOT_SDS))
    columns, rows = len(BOOT_SDS), 2 * len(BOOT_COUNTS)
    with ProcessPoolExecutor() as pool:
        cells = list(pool.map(partial(_numbered_cell, pages), range(rows * columns)))
    for row in range(rows):
        lines.append(f"| {_boot_head(row)} | {' | '.join(cells[row * columns :][:columns])} |")
    return "\n".join(lines)


def seconds_of(blocks: int, comparisons: int = 12) -> float:
    """CPU seconds to judge a page of this many blocks with all its figures."""
    logs = np.random.default_rng(1).normal(0, CV, (comparisons, blocks, 3))
    return timed(judged_family(logs).judge)[1]


def write(rows: list[Characteristic], folder: Path = FOLDER) -> None:
    """Write the table, the figures as CSV, and the chart."""
    write_measured(folder / "statistics.md", "operating characteristics", table(rows))
    with (folder / "operating-characteristics.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["noise", "blocks", "experiments", "false_alarms", "detectable"])
        for row in rows:
            detectable = "" if row.detectable is None else f"{row.detectable:.4f}"
            writer.writerow([row.noise, row.blocks, row.experiments, f"{row.false_alarms:.4f}", detectable])
    with mpl.rc_context({"svg.hashsalt": "verdicts"}):
        chart(rows).savefig(folder / "operating-characteristics.svg", metadata={"Date": None})


def main() -> None:
    """Simulate, print, write."""
    numbers = [argument for argument in sys.argv[1:] if argument != "boots"]
    pages = int(numbers[0]) if numbers else EXPERIMENTS
    write_measured(FOLDER / "statistics.md", "boots", boots_table(pages))
    if "boots" in sys.argv[1:]:
        return
    for blocks in (100, 1000):
        print(f"12 comparisons of {blocks} blocks are judged in {seconds_of(blocks):.2f} s", flush=True)
    missed = missed_table(pages)
    print(missed, flush=True)
    write_measured(FOLDER / "statistics.md", "differences missed", missed)
    rows = []
    for row in characteristics(pages):
        detectable = detectable_text(row.detectable)
        print(
            f"{row.noise}, {row.blocks} blocks: {100 * row.false_alarms:.1f}% wrong pages, finds {detectable}",
            flush=True,
        )
        rows.append(row)
    write(rows)


if __name__ == "__main__":
    main()
