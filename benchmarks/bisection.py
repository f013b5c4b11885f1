"""How often `vmtoll bisect` is right: `python -m benchmarks.bisection [--rules]`.

Simulates histories of 64 commits of a server, one of which, drawn at random, adds CPU time to each request, and bisects
them with the search, the looks, the shares and the judge of vmtoll; a block takes the same time for each arm. Writes
docs/bisection.csv and the table in docs/statistics.md; with --rules it compares three ways to judge a candidate.
"""

import csv
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import write_measured
from benchmarks.verdicts import FOLDER, PHI, SLOW, SLOW_SHARE, Floats, Noise
from vmtoll.analysis.anchors import PAIRS, answer_of, pages_of
from vmtoll.analysis.judge import Evidence, Family
from vmtoll.analysis.pairs import Bounds
from vmtoll.bisect import search
from vmtoll.model.bisection import (
    BAD,
    CANDIDATE,
    GOOD,
    Bisection,
    Contrast,
    Sitting,
    SittingAnswer,
    SittingResult,
    Task,
)
from vmtoll.model.metric import CPU
from vmtoll.model.until import Look, look_share, next_look
from vmtoll.model.verdict import Kind
from vmtoll.statistics.series import Series

BISECTIONS = 500
COMMITS = 64
ADDED_US = 20.0
BASE_US = (13.0, 50.0, 100.0)  # CPU of a request before the change: 20 µs make it 2.5×, 1.4× and 1.2×
CV = 0.1  # of a trial
LAYOUT = 0.003  # standard deviation of what the layout of its code makes of each build
FIRST, MOST = 8, 48  # blocks of three arms: up to the first look, and of a whole sitting
NOISES = (Noise.NORMAL, Noise.HEAVY, Noise.AUTOCORRELATED, Noise.PERSISTENT, Noise.BIMODAL)
CONFIDENCE = 0.95


class Rule(StrEnum):
    """How a candidate is judged. ANCHORS: worse than the good anchor, or better than the bad one, as vmtoll does.
    MIDPOINT: on which side of the anchors' mean. GOOD_ONLY: two arms; worse than the good anchor, or equal to it within
    half of what the anchors differed by at first.
    """

    ANCHORS = "known good and known bad"
    MIDPOINT = "the midpoint of known good and known bad"
    GOOD_ONLY = "the known good alone"


@dataclass(frozen=True)
class Characteristic:
    """Characteristics of bisections. `right`: the share that ended at the commit, and at it alone; `at_least`: its
    lower 95% limit; `several`: the share that ended at several commits, the right one among them; `wrong`: at others;
    `blocks`: of three arms, the mean of a whole bisection.
    """

    rule: Rule
    noise: Noise
    base_us: float
    bisections: int
    right: float
    at_least: float
    several: float
    wrong: float
    blocks: float


def series_of(values: Floats) -> Series:
    return Series(tuple(range(1, len(values) + 1)), tuple(values.tolist()))


def evidence(advantage: Floats, share: float) -> Evidence:
    series = series_of(advantage)
    return Evidence(CPU, Bounds(series, series, series), share=share)


class History:
    """A simulated history; `sit` measures a sitting of its commits. `blocks`: of three arms, measured so far."""

    def __init__(self, rng: np.random.Generator, noise: Noise, base_us: float, rule: Rule = Rule.ANCHORS) -> None:
        self.rng, self.noise, self.rule, self.blocks = rng, noise, rule, 0.0
        self.culprit = int(rng.integers(1, COMMITS + 1))
        costs_us = base_us + ADDED_US * (np.arange(COMMITS + 1) >= self.culprit)
        self.logs = np.log(costs_us) + rng.normal(0, LAYOUT, COMMITS + 1)
        self.apart = math.log((base_us + ADDED_US) / base_us)

    def trials(self, arms: Sequence[int], blocks: int) -> Floats:
        """The log CPU of each commit in each block, shape (blocks, arms)."""
        shape = (blocks, len(arms))
        logs = self.rng.standard_t(3, shape) / np.sqrt(3) if self.noise is Noise.HEAVY else self.rng.normal(0, 1, shape)
        if phi := PHI.get(self.noise):
            for block in range(1, blocks):
                logs[block] = phi * logs[block - 1] + np.sqrt(1 - phi**2) * logs[block]
        slow = -math.log(SLOW) * (self.rng.random(shape) < SLOW_SHARE) if self.noise is Noise.BIMODAL else 0.0
        return np.asarray(self.logs[list(arms)] + CV * logs + slow)

    def judge(self, sitting: Sitting, cost: dict[str, Floats], share: float) -> SittingAnswer:
        """Judge the blocks so far. `cost`: arm → its log CPU by block."""
        if sitting.task is not Task.STEP or self.rule is Rule.ANCHORS:
            pages = pages_of([evidence(cost[of] - cost[arm], share) for arm, of in PAIRS[sitting.task]])
            return answer_of(sitting.task, [page.decide()[0] for page in pages])
        if self.rule is Rule.MIDPOINT:
            middle = (cost[GOOD] + cost[BAD]) / 2
            kind = Family([evidence(middle - cost[CANDIDATE], share)], None).decide()[0]
            return {Kind.SLOWER: SittingAnswer.BAD, Kind.FASTER: SittingAnswer.GOOD}.get(kind, SittingAnswer.UNDECIDED)
        page = Family([evidence(cost[GOOD] - cost[CANDIDATE], share)], math.expm1(self.apart / 2))
        return {Kind.SLOWER: SittingAnswer.BAD, Kind.EQUIVALENT: SittingAnswer.GOOD}.get(
            page.decide()[0], SittingAnswer.UNDECIDED
        )

    def sit(self, sitting: Sitting) -> SittingResult:
        """Measure a sitting until it is decided or its time is over."""
        arms = {arm: int(commit) for arm, commit in sitting.arms.items()}
        if self.rule is Rule.GOOD_ONLY and sitting.task is Task.STEP:
            del arms[BAD]
        most = MOST * 3 // len(arms)
        trials = self.trials(list(arms.values()), most)
        looks, blocks = list[Look](), 0
        while True:
            blocks = min(next_look(blocks, FIRST), most)
            share = look_share(looks, blocks / most, last=blocks == most)
            looks.append(Look(blocks=blocks, measured_s=blocks, share=share))
            cost = {arm: trials[:blocks, column] for column, arm in enumerate(arms)}
            answer = self.judge(sitting, cost, share * sitting.share)
            if answer is not SittingAnswer.UNDECIDED or blocks == most:
                self.blocks += blocks * len(arms) / 3
                return SittingResult(sitting=sitting, answer=answer, contrasts=list[Contrast]())


def bisect(history: History) -> Bisection:
    """Bisect a history to its end."""
    bisection = Bisection(candidates=[str(commit) for commit in range(COMMITS + 1)])
    while (sitting := search.next_sitting(bisection)) is not None:
        finding = history.sit(sitting)
        bisection = bisection.model_copy(update={"findings": [*bisection.findings, finding]})
        if sitting.task is Task.ANCHORS and finding.answer is not SittingAnswer.BAD:
            break
    return bisection


def ended(bisection: Bisection) -> set[int]:
    """The commits that a bisection names: none if its anchors do not differ, or the confirmation contradicts."""
    confirmed = search.confirmation(bisection)
    if not search.anchors_differ(bisection) or (confirmed and confirmed.answer is not SittingAnswer.BAD):
        return set()
    return {int(commit) for commit in search.suspects(bisection)}


def characteristic(rule: Rule, noise: Noise, base_us: float, bisections: int) -> Characteristic:
    """Simulate; every call gives the same figures."""
    seed = [list(Rule).index(rule), list(Noise).index(noise), int(base_us)]
    histories = [History(np.random.default_rng([*seed, number]), noise, base_us, rule) for number in range(bisections)]
    named = [ended(bisect(history)) for history in histories]
    pairs = list(zip(named, histories, strict=True))
    right = sum(commits == {history.culprit} for commits, history in pairs)
    several = sum(len(commits) > 1 and history.culprit in commits for commits, history in pairs)
    wrong = sum(bool(commits) and history.culprit not in commits for commits, history in pairs)
    return Characteristic(
        rule=rule, noise=noise, base_us=base_us, bisections=bisections,
        right=right / bisections, at_least=round(lower_limit(right, bisections), 4),
        several=several / bisections, wrong=wrong / bisections,
        blocks=round(float(np.mean([history.blocks for history in histories])), 1),
    )  # fmt: skip


def lower_limit(right: int, of: int) -> float:
    """The lower end of the two-sided 95% interval of a share (Clopper and Pearson 1934)."""
    return float(stats.beta.ppf((1 - CONFIDENCE) / 2, right, of - right + 1)) if right else 0.0


def cells(*, rules: bool) -> Iterator[tuple[Rule, Noise, float]]:
    """What is simulated: vmtoll's rule under every noise; with `rules`, all rules at smaller differences instead."""
    if rules:
        yield from ((rule, Noise.NORMAL, base_us) for base_us in BASE_US[1:] for rule in Rule)
    else:
        yield from ((Rule.ANCHORS, noise, BASE_US[0]) for noise in NOISES)


def table(rows: Sequence[Characteristic]) -> str:
    """A Markdown table, a row for each cell."""
    lines = [
        "| 20 µs are | noise | judged by | right | at least | several commits | wrong commit | blocks |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        shares = " | ".join(f"{100 * share:.1f}%" for share in (row.right, row.at_least, row.several, row.wrong))
        more = (row.base_us + ADDED_US) / row.base_us
        lines.append(f"| {more:.2f}× | {row.noise} | {row.rule} | {shares} | {row.blocks:.0f} |")
    return "\n".join(lines)


def write(rows: Sequence[Characteristic], folder: Path = FOLDER) -> None:
    """Write the table, and the figures as CSV."""
    write_measured(folder / "statistics.md", "bisection", table(rows))
    with (folder / "bisection.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Characteristic)])
        writer.writerows(astuple(row) for row in rows)


def read(file: Path = FOLDER / "bisection.csv") -> Iterator[Characteristic]:
    """The published figures."""
    kinds: dict[str, Callable[[str], Any]] = {"rule": Rule, "noise": Noise, "bisections": int}
    with file.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            yield Characteristic(**{name: kinds.get(name, float)(text) for name, text in row.items()})


def main() -> None:
    """Simulate and print; without `--rules`, write."""
    rules, rows = "--rules" in sys.argv, []
    for rule, noise, base_us in cells(rules=rules):
        row = characteristic(rule, noise, base_us, BISECTIONS)
        print(f"{rule}, {noise}, {base_us:g} µs: {100 * row.right:.1f}% right, {row.blocks:.0f} blocks", flush=True)
        rows.append(row)
    if not rules:
        write(rows)


if __name__ == "__main__":
    main()
