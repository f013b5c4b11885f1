"""Error rate and power of a page: `python -m vmtoll.benchmarks.verdicts [EXPERIMENTS]`.

Simulates pages of two equal sides, with four servers and five figures each (eight of the twenty primary), under
several kinds of noise, and judges them as `vmtoll.analysis.judge` does, all at once; a test compares the two. Writes
docs/operating-characteristics.csv and .svg and the table in docs/statistics.md.

The figures are independent of each other, which is the worst case for the errors of a page. Each block has metal, its
A/A control and the guest.
"""

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from scipy import special

from vmtoll.analysis.judge import weights_of
from vmtoll.analysis.statistics import ALPHA, autocorrelation, two_modes
from vmtoll.benchmarks import write_measured
from vmtoll.model.metric import METRICS
from vmtoll.paths import PROJECT

EXPERIMENTS = 2000
BLOCKS = (6, 10, 20, 40)
CV = 0.02  # of a trial
SERVERS = 4
PHI = 0.5
BOOTS = 5
BOOT_SD = 0.01
SLOW = 0.7  # the second mode of the bimodal noise
SLOW_SHARE = 0.1
WEIGHTS = np.array(weights_of([*METRICS.values()] * SERVERS))
METAL, CONTROL, GUEST = range(3)
FOLDER = PROJECT / "docs"

Floats = npt.NDArray[np.float64]


class Noise(StrEnum):
    """The noise of a trial, each of standard deviation CV where not said otherwise.

    HEAVY: Student's t with 3 degrees of freedom. DRIFTING: besides normal noise a random walk over the trials of the
    run, half a CV a trial, their order drawn in each block. AUTOCORRELATED: each arm its own first-order process over
    blocks, with φ = 0.5. BIMODAL: besides normal noise, one trial in ten is slower by 30%, on both sides. ONE_BOOT:
    each environment has an effect of its boot, of 1%, in all blocks. BOOTS: the same, drawn again in each of five
    boots.
    """

    NORMAL = "normal"
    HEAVY = "heavy-tailed"
    DRIFTING = "drifting"
    AUTOCORRELATED = "autocorrelated"
    BIMODAL = "bimodal"
    ONE_BOOT = "one boot"
    BOOTS = "five boots"


@dataclass(frozen=True)
class Characteristic:
    """Characteristics of pages with `blocks` blocks each. `false_alarms`: the share with any wrong "faster" or
    "slower".

    `detectable`: the smallest difference of one throughput that four of five pages find, a fraction; None where no page
    should be asked, because it is sure of differences that are none.
    """

    noise: Noise
    blocks: int
    experiments: int
    false_alarms: float
    detectable: float | None


def trials(rng: np.random.Generator, noise: Noise, experiments: int, blocks: int) -> Floats:
    """Log figures of equal sides, shape (experiments, comparisons, blocks, arms)."""
    shape = (experiments, len(WEIGHTS), blocks, 3)
    if noise is Noise.HEAVY:
        return np.asarray(CV * rng.standard_t(3, shape) / np.sqrt(3))
    logs = rng.normal(0, CV, shape)
    if noise is Noise.DRIFTING:
        walk = rng.normal(0, CV / 2, (*shape[:2], 3 * blocks)).cumsum(axis=2).reshape(shape)
        return np.asarray(logs + rng.permuted(walk, axis=3))
    if noise is Noise.AUTOCORRELATED:
        for block in range(1, blocks):
            logs[:, :, block] = PHI * logs[:, :, block - 1] + np.sqrt(1 - PHI**2) * logs[:, :, block]
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


def differs(logs: Floats, boots: int = 1, shift: float = 0.0) -> npt.NDArray[np.bool_]:
    """Return which comparisons a page calls different, shape (experiments, comparisons), as the engine does without a
    margin.

    `shift`: added to the guest's figures of the first comparison, a throughput.
    """
    pairs = logs[..., GUEST] - (logs[..., METAL] + logs[..., CONTROL]) / 2
    single = logs[..., GUEST] - logs[..., METAL]
    same, inflation = logs[..., CONTROL] - logs[..., METAL], np.ones((len(pairs), 1))
    of_block = boot_of(pairs.shape[2], boots)
    if boots > 1:
        pairs, same = (
            np.stack([each[..., of_block == boot].mean(axis=2) for boot in range(boots)], axis=2)
            for each in (pairs, same)
        )
        single = pairs
    else:
        correlations = [autocorrelation(page) for page in pairs]
        inflation = np.array([[each.inflation if each else 1.0] for each in correlations])
    p, means = p_values(pairs, inflation, shift)
    control_p, control = p_values(same, np.ones_like(inflation))
    holds, steps = survives(p)
    holds &= ~((control_p < ALPHA) & (np.abs(means) <= np.abs(control)))
    for page, comparison in np.argwhere(holds & (p_values(single, np.ones_like(inflation), shift)[0] * steps >= ALPHA)):
        holds[page, comparison] = two_modes(pairs[page, comparison]) is None
    return np.asarray(holds)


def p_values(pairs: Floats, inflation: Floats, shift: float = 0.0) -> tuple[Floats, Floats]:
    """Two-sided p-values of the means, and the means."""
    n, means = pairs.shape[2], pairs.mean(axis=2)
    means[:, 0] += shift
    freedom = np.where(inflation > 1, np.maximum(1.0, n / inflation - 1), n - 1)
    errors = pairs.std(axis=2, ddof=1) * np.sqrt(inflation / n)
    return np.asarray(2 * special.stdtr(freedom, -np.abs(means) / errors)), means


def survives(p: Floats) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Return which p-values weighted Holm leaves below 5%, and its factor for each; each row is a family."""
    ratios = p / WEIGHTS
    order = ratios.argsort(axis=1)
    remaining = WEIGHTS.sum() - np.cumsum(WEIGHTS[order], axis=1) + WEIGHTS[order]
    holds = np.maximum.accumulate(np.take_along_axis(ratios, order, axis=1) * remaining, axis=1) < ALPHA
    result, steps = np.zeros_like(holds), np.zeros_like(p)
    np.put_along_axis(result, order, holds, axis=1)
    np.put_along_axis(steps, order, remaining / WEIGHTS[order], axis=1)
    return result, steps


def characteristic(noise: Noise, blocks: int, experiments: int) -> Characteristic:
    """Simulate; the same figures each time."""
    rng = np.random.default_rng([blocks, list(Noise).index(noise)])
    logs, boots = trials(rng, noise, experiments, blocks), BOOTS if noise is Noise.BOOTS else 1
    alarms = float(differs(logs, boots).any(axis=1).mean())
    seen = None if alarms > 2 * ALPHA else round(_detectable(logs, boots), 4)
    return Characteristic(noise, blocks, experiments, round(alarms, 4), seen)


def _detectable(logs: Floats, boots: int) -> float:
    low, high = 0.0, 2.0
    some = logs[: max(200, len(logs) // 4)]
    while high - low > 5e-4:
        middle = (low + high) / 2
        detected = differs(some, boots, -middle)[:, 0].mean()
        low, high = (low, middle) if detected >= 0.8 else (middle, high)
    return float(np.expm1(high))


def characteristics(experiments: int) -> Iterator[Characteristic]:
    """Every kind of noise at every number of blocks."""
    for noise in Noise:
        for blocks in BLOCKS:
            yield characteristic(noise, blocks, experiments)


def table(rows: list[Characteristic]) -> str:
    """A Markdown table: a row for each noise, and of each number of blocks both figures."""
    head = " | ".join(f"{blocks} blocks" for blocks in BLOCKS)
    lines = [f"| noise | {head} |", "|---|" + "---|" * len(BLOCKS)]
    for noise in Noise:
        cells = []
        for row in rows:
            if row.noise is noise:
                seen = "–" if row.detectable is None else f"{100 * row.detectable:.1f}%"
                cells.append(f"{100 * row.false_alarms:.1f}%, {seen}")
        lines.append(f"| {noise} | {' | '.join(cells)} |")
    return "\n".join(lines)


def chart(rows: list[Characteristic]) -> Figure:
    """False alarms, and the smallest difference found, over the number of blocks."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    alarms, seen = figure.subplots(1, 2)
    for noise in Noise:
        of_noise = [row for row in rows if row.noise is noise]
        blocks = [row.blocks for row in of_noise]
        alarms.plot(blocks, [100 * row.false_alarms for row in of_noise], marker="o", ms=4, label=str(noise))
        points = [(row.blocks, 100 * row.detectable) for row in of_noise if row.detectable is not None]
        seen.plot([b for b, _ in points], [d for _, d in points], marker="o", ms=4)
    alarms.axhline(100 * ALPHA, color="black", lw=0.8, ls="--")
    alarms.set(ylabel="pages with a wrong difference, %", yscale="log")
    seen.set(ylabel="smallest difference found with 80% power, %", ylim=(0, None))
    for axes in (alarms, seen):
        axes.set(xlabel="blocks", xticks=BLOCKS)
    alarms.legend(fontsize=8)
    return figure


def write(rows: list[Characteristic], folder: Path = FOLDER) -> None:
    """The table, the figures as CSV, and the chart."""
    write_measured(folder / "statistics.md", "operating characteristics", table(rows))
    with (folder / "operating-characteristics.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["noise", "blocks", "experiments", "false_alarms", "detectable"])
        for row in rows:
            seen = "" if row.detectable is None else f"{row.detectable:.4f}"
            writer.writerow([row.noise, row.blocks, row.experiments, f"{row.false_alarms:.4f}", seen])
    with mpl.rc_context({"svg.hashsalt": "verdicts"}):
        chart(rows).savefig(folder / "operating-characteristics.svg", metadata={"Date": None})


def main() -> None:
    """Simulate, print, write."""
    rows = []
    for row in characteristics(int(sys.argv[1]) if len(sys.argv) > 1 else EXPERIMENTS):
        seen = "" if row.detectable is None else f", finds {100 * row.detectable:.1f}%"
        print(f"{row.noise}, {row.blocks} blocks: {100 * row.false_alarms:.1f}% wrong pages{seen}", flush=True)
        rows.append(row)
    write(rows)


if __name__ == "__main__":
    main()
