"""Judge what other benchmarks recorded, by the family that judges a run: each metric of each benchmark, each side
against the baseline.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
from scipy import stats

from vmtoll.analysis.judge import Evidence, Family, control_differences
from vmtoll.analysis.pairs import LOG_NATURAL, Bounds, SideBlock, bounds_of, mean_of_block
from vmtoll.model.errors import UserError
from vmtoll.model.message import WithText
from vmtoll.model.metric import Metric
from vmtoll.model.verdict import Cause, Doubt, Estimate, Judged, Kind, SideCounts, VerdictReason
from vmtoll.recordings.rows import Better, Row, Value, name_of
from vmtoll.statistics.series import Series, fit
from vmtoll.statistics.thresholds import CONFIDENCE, MARGIN, MIN_BLOCKS, MIN_TEST_BEDS

MOST_FAILED = 0.001  # fraction of the requests; with more failed ones a value counts as lost, as in a run
ALL_HOSTS = "all hosts"
By = Mapping[int, Sequence[Value]]  # block → the values of a side


class Answer(StrEnum):
    """What a comparison says. HIGHER, LOWER: it differs, and nobody said which is better. IDENTICAL: zeros alone."""

    BETTER = "better"
    WORSE = "worse"
    HIGHER = "higher"
    LOWER = "lower"
    EQUAL = "equal"
    IDENTICAL = "identical"
    UNDECIDED = "undecided"
    NOT_JUDGED = "not judged"


class Blank(WithText):
    """Why nothing is judged. UNPAIRED: no block has both sides, so that drift looks like a difference. ALL_FAILED: a
    side has no value that counts; the compared side is worse for it where the baseline has three.
    """

    UNPAIRED = "unpaired", "no block has both sides, so drift looks like a difference"
    ALL_FAILED = "all-failed", "every run of a side failed"
    ZERO = "zero", "a zero has no ratio"
    NEGATIVE = "negative", "a negative value has no ratio"
    NOT_A_NUMBER = "not-a-number", "a value is not a finite number"


@dataclass(frozen=True)
class Subject:
    """What is compared with the baseline. `better`: None where nobody said it."""

    benchmark: str
    metric: str
    unit: str
    side: str
    better: Better | None
    host: str = ""

    @property
    def name(self) -> str:
        """`parse time`: the benchmark and its metric."""
        return name_of(self.benchmark, self.metric)

    def is_named(self, pattern: str) -> bool:
        """Return whether a pattern such as `parse*` matches the benchmark, the metric or both."""
        return any(fnmatchcase(name, pattern) for name in (self.name, self.benchmark, self.metric))


@dataclass(frozen=True)
class RecordedComparison:
    """One comparison. `is_gate`: it decides the exit code; `blank`: why it is not judged, `odd_block`: where that was
    seen first; `unpaired`: the ratio of two sides without a common block, true if nothing drifted; `detectable`: the
    least difference that these blocks show with 80% power, a fraction.
    """

    subject: Subject
    judged: Judged
    is_gate: bool = True
    answer: Answer = Answer.NOT_JUDGED
    blank: Blank | None = None
    odd_block: int | None = None
    unpaired: Estimate | None = None
    detectable: float | None = None


@dataclass(frozen=True)
class RecordedPage:
    """`lacking`: side → what the other sides have and it has not; `alike`: (benchmark of the baseline alone, one of
    compared sides alone), which may be one that was renamed.
    """

    baseline: str
    control: str
    comparisons: tuple[RecordedComparison, ...]
    hosts: tuple[str, ...]
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    alike: tuple[tuple[str, str], ...] = ()

    @property
    def gates(self) -> list[RecordedComparison]:
        """The comparisons that decide the exit code."""
        return [each for each in self.comparisons if each.is_gate]


def judge_rows(
    rows: Sequence[Row], *, baseline: str = "", control: str = "", better: Better | None = None,
    margin: float = MARGIN, gates: Sequence[str] = (), share: float = 1.0,
) -> RecordedPage:  # fmt: skip
    """Judge rows. `baseline`: by default the first side; `control`: a side that is the baseline once more; `better`: of
    metrics for which the rows do not say it; `gates`: patterns of the rows that decide, by default all; `share`: of the
    5%, as much as this look may spend.

    Raises UserError for sides that are not there, rows that contradict each other, and a pattern that matches nothing.
    """
    sides = list(dict.fromkeys(row.side for row in rows))
    baseline = baseline or sides[0]
    for option, side in (("--baseline", baseline), ("--control", control)):
        if side and side not in sides:
            raise UserError(f"{option} {side}: no row has this side; they have {', '.join(sides)}")
    compared = [side for side in sides if side not in (baseline, control)]
    if not compared or control == baseline:
        raise UserError(f"nothing is compared with {baseline}; give rows of two sides, one of them not the control")
    table = _table(rows, better)
    hosts = tuple(dict.fromkeys(row.host for row in rows))
    judged = [_Host(table, host, baseline, control, compared, gates, share) for host in hosts]
    comparisons = [each for host in judged for each in host.judge(margin)]
    if len(hosts) >= MIN_TEST_BEDS:
        comparisons = [replace(each, is_gate=False) for each in comparisons] + list(_over_hosts(judged, margin, gates))
    for pattern in gates:
        if not any(each.subject.is_named(pattern) for each in comparisons):
            names = ", ".join(dict.fromkeys(each.subject.name for each in comparisons))
            raise UserError(f"--gate {pattern}: matches no row; they are {names}")
    return RecordedPage(
        baseline, control, tuple(comparisons), hosts, _lacking(table, [baseline, *compared]),
        _alike(table, baseline, control),
    )  # fmt: skip


@dataclass
class _Values:
    unit: str
    better: Better | None
    by_side: dict[tuple[str, str], dict[int, list[Value]]]  # (host, side) → block → values
    boots: dict[tuple[str, int], int]  # (host, block) → boot


_Table = dict[tuple[str, str], _Values]  # (benchmark, metric) → what all rows have of it


def _table(rows: Sequence[Row], better: Better | None) -> _Table:
    """Raises UserError where rows of one metric have two units, or two of what is better, or a block two boots."""
    table: _Table = {}
    for row in rows:
        value = row.value
        key = value.benchmark, value.metric
        values = table.setdefault(key, _Values(value.unit, value.better, defaultdict(dict), {}))
        name = value.name
        if value.unit != values.unit:
            raise UserError(f"{name}: has the units {values.unit or 'none'} and {value.unit or 'none'}; give one")
        if value.better != values.better:
            raise UserError(f"{name}: rows contradict each other in what is better")
        if values.boots.setdefault((row.host, row.block), row.boot) != row.boot:
            raise UserError(f"{name}: block {row.block} has two boots; the sides of a block share one")
        values.by_side[row.host, row.side].setdefault(row.block, []).append(value)
    for values in table.values():
        values.better = values.better or better
    return table


def _lacking(table: _Table, sides: Sequence[str]) -> dict[str, tuple[str, ...]]:
    lacking: dict[str, list[str]] = defaultdict(list)
    for key, values in table.items():
        present = {side for _, side in values.by_side}
        for side in sides:
            if side not in present and present.intersection(sides):
                lacking[side].append(name_of(*key))
    return {side: tuple(names) for side, names in lacking.items()}


def _alike(table: _Table, baseline: str, control: str) -> tuple[tuple[str, str], ...]:
    """Benchmarks that the baseline alone has, and those that it lacks, with the same metrics and units, where each name
    is the most similar one to the other.
    """
    metrics: dict[str, set[tuple[str, str]]] = defaultdict(set)
    sides: dict[str, set[str]] = defaultdict(set)
    for (benchmark, metric), values in table.items():
        metrics[benchmark].add((metric, values.unit))
        sides[benchmark] |= {side for _, side in values.by_side}
    gone = [name for name, of in sides.items() if of <= {baseline, control}]
    new = [name for name, of in sides.items() if baseline not in of]

    def nearest(name: str, others: Sequence[str]) -> list[str]:
        return get_close_matches(name, [other for other in others if metrics[other] == metrics[name]], n=1)

    return tuple((old, found[0]) for old in gone if (found := nearest(old, new)) and nearest(found[0], gone) == [old])


@dataclass(frozen=True)
class _Sides:
    """What a judgement adds of its sides: `baseline`, `compared`: block → the mean log of a side."""

    doubts: tuple[Doubt, ...] = ()
    baseline: Mapping[int, float] = field(default_factory=dict)
    compared: Mapping[int, float] = field(default_factory=dict)

    def added(self, judged: Judged) -> Judged:
        """The judgement with its doubts, and with levels of which one over the other is the ratio."""
        common = sorted(self.baseline.keys() & self.compared.keys())
        if not common:
            return replace(judged, doubts=self.doubts)
        logs = fit(
            [Series(tuple(common), tuple(of[block] for block in common)) for of in (self.baseline, self.compared)]
        )
        levels = np.exp(logs.mean @ np.array(judged.rho_weights)).tolist()
        sides = [SideCounts(level=level) for level in levels]
        return replace(judged, doubts=self.doubts, baseline=sides[0], compared=sides[1])


class _Host:
    """The comparisons of one host: one family."""

    def __init__(
        self, table: _Table, host: str, baseline: str, control: str, compared: Sequence[str], gates: Sequence[str],
        share: float,
    ) -> None:  # fmt: skip
        self.host, self.gates, self.share = host, gates, share
        self.subjects: list[tuple[Subject, By, By, By, Mapping[int, int]]] = []
        for key, values in table.items():
            base, again = values.by_side.get((host, baseline)), values.by_side.get((host, control), {})
            boots = {block: boot for (of, block), boot in values.boots.items() if of == host}
            for side in compared:
                if base and (other := values.by_side.get((host, side))):
                    subject = Subject(*key, values.unit, side, values.better, host)
                    self.subjects.append((subject, base, other, again, boots))

    @cached_property
    def evidence(self) -> list[tuple[Subject, Evidence | RecordedComparison, _Sides]]:
        """For each comparison its evidence, or why there is none."""
        return list(self._evidence())

    def _evidence(self) -> Iterator[tuple[Subject, Evidence | RecordedComparison, _Sides]]:
        controls = self._controls()
        for subject, base, other, again, boots in self.subjects:
            if blank := _blank(subject, base, other):
                yield subject, blank, _Sides()
                continue
            metric = metric_of(subject, self.gates)
            sign = 1 if metric.higher_is_better else -1
            joined = {block: [*values, *again.get(block, ())] for block, values in base.items()}
            blocks = _side_blocks(joined, sign), _side_blocks(other, sign)
            bounds, capped = bounds_of(blocks)
            alone = bounds_of((_side_blocks(base, sign), _side_blocks(other, sign)))[0] if again else None
            noise, differs = controls.get((subject.benchmark, subject.metric), (None, 0.0))
            evidence = Evidence(
                metric, bounds.widened(differs), boots, first_replicates=alone and alone.widened(differs), noise=noise,
                control_difference=differs, share=self.share, capped=capped,
            )  # fmt: skip
            logs = [{block: sign * each.mid for block, each in of.items() if each.mid is not None} for of in blocks]
            yield subject, evidence, _Sides(_doubts(bounds, base, other, differs), logs[0], logs[1])

    def judge(self, margin: float) -> list[RecordedComparison]:
        return _judged(self.evidence, margin, self.gates)

    def _controls(self) -> dict[tuple[str, str], tuple[float, float]]:
        """(benchmark, metric) → the largest log ratio of an A/A block, and how far the control surely differs."""
        rows: dict[tuple[str, str], Evidence] = {}
        for subject, base, _, again, boots in self.subjects:
            if again and not _blank(subject, base, again):
                metric = metric_of(subject, self.gates)
                sign = 1 if metric.higher_is_better else -1
                bounds, _ = bounds_of((_side_blocks(base, sign), _side_blocks(again, sign)))
                rows[subject.benchmark, subject.metric] = Evidence(metric, bounds, boots)
        return {
            key: (max(map(abs, evidence.bounds.mid.values)), difference)
            for (key, evidence), difference in zip(rows.items(), control_differences([*rows.values()]), strict=True)
        }


def metric_of(subject: Subject, gates: Sequence[str]) -> Metric:
    """The metric by which the family knows a comparison; those that a pattern of `gates` names share half of the 5%."""
    is_gate = not gates or any(map(subject.is_named, gates))
    return Metric(subject.metric, subject.unit, subject.better is not Better.LOWER, (), "", is_primary=is_gate)


def _is_lost(value: Value) -> bool:
    return value.failed > MOST_FAILED * value.requests if value.requests else value.failed > 0


def _side_blocks(values: By, sign: int) -> dict[int, SideBlock]:
    """A side by block, in logs, the larger the better; a failed value counts as twice as bad as the side's worst."""
    logs = {
        block: [sign * math.log(each.value) for each in members if not _is_lost(each)]
        for block, members in values.items()
    }
    worst = min(log for each in logs.values() for log in each) - LOG_NATURAL
    blocks = {}
    for block, members in values.items():
        mid = mean_of_block(logs[block])
        bad = mean_of_block([*logs[block], *(worst for each in members if _is_lost(each))])
        blocks[block] = SideBlock(bad, mid, mid, (mid - bad) if mid is not None and bad is not None else 0.0)
    return blocks


def _blank(subject: Subject, base: By, other: By) -> RecordedComparison | None:
    """The comparison if it cannot be judged."""
    kept = [{block: [v for v in of if not _is_lost(v)] for block, of in side.items()} for side in (base, other)]
    nothing = RecordedComparison(subject, Judged(kind=Kind.NOT_JUDGED, because=VerdictReason.NO_FIGURE))
    if not all(any(side.values()) for side in kept):
        answered = sum(bool(of) for block, of in kept[0].items() if block in other)
        is_worse = answered >= MIN_BLOCKS and not any(kept[1].values())
        return replace(nothing, blank=Blank.ALL_FAILED, answer=Answer.WORSE if is_worse else Answer.NOT_JUDGED)
    values = [(block, each.value) for side in kept for block, members in side.items() for each in members]
    if all(value == 0 for _, value in values):
        return replace(nothing, answer=Answer.IDENTICAL)
    for blank, is_odd in (
        (Blank.NOT_A_NUMBER, lambda value: not math.isfinite(value)),
        (Blank.NEGATIVE, lambda value: value < 0),
        (Blank.ZERO, lambda value: value == 0),
    ):
        if odd := [block for block, value in values if is_odd(value)]:
            return replace(nothing, blank=blank, odd_block=min(odd))
    if base.keys().isdisjoint(other):
        return replace(nothing, blank=Blank.UNPAIRED, unpaired=_welch(*kept))
    return None


def _welch(base: By, other: By) -> Estimate:
    """The ratio of the geometric means, other ÷ base, with Welch's 95% interval of the logs."""
    logs = [np.log([each.value for members in side.values() for each in members]) for side in (other, base)]
    ratio = math.exp(float(logs[0].mean() - logs[1].mean()))
    if min(map(len, logs)) < 2:
        return Estimate(ratio)
    ends = stats.ttest_ind(*logs, equal_var=False).confidence_interval(CONFIDENCE)
    return Estimate(ratio, math.exp(ends.low), math.exp(ends.high))


def _doubts(bounds: Bounds, base: By, other: By, differs: float) -> tuple[Doubt, ...]:
    """What widens the comparison: failed values, and a control that differs from itself."""
    lost = [sum(_is_lost(value) for members in side.values() for value in members) for side in (base, other)]
    width = max(
        (abs(float(np.mean(each.values) - np.mean(bounds.mid.values))) for each in (bounds.low, bounds.high) if each.n),
        default=0.0,
    ) if bounds.mid.n else 0.0  # fmt: skip
    doubts = [Doubt(Cause.LOST, lost[0], lost[1], math.exp(width))] if any(lost) else []
    return tuple(doubts + ([Doubt(Cause.CONTROL, 0, 0, math.exp(differs))] if differs else []))


def _judged(
    rows: Sequence[tuple[Subject, Evidence | RecordedComparison, _Sides]], margin: float,
    gates: Sequence[str],
) -> list[RecordedComparison]:  # fmt: skip
    family = Family([evidence for _, evidence, _ in rows if isinstance(evidence, Evidence)], margin)
    verdicts = iter(enumerate(family.judge()))
    comparisons = []
    for subject, evidence, sides in rows:
        is_gate = metric_of(subject, gates).is_primary
        if isinstance(evidence, RecordedComparison):
            comparisons.append(replace(evidence, is_gate=is_gate))
            continue
        index, judged = next(verdicts)
        _, detectable = family.needed_and_detectable(index)
        comparisons.append(
            RecordedComparison(
                subject, sides.added(judged), is_gate, _answer(judged, subject.better), detectable=detectable
            )
        )
    return comparisons


def _answer(judged: Judged, better: Better | None) -> Answer:
    if judged.kind is Kind.EQUIVALENT:
        return Answer.EQUAL
    if judged.kind is Kind.UNDECIDED:
        return Answer.UNDECIDED
    is_faster = judged.kind is Kind.FASTER
    if better is None:  # the engine took higher for better
        return Answer.HIGHER if is_faster else Answer.LOWER
    return Answer.BETTER if is_faster else Answer.WORSE


def _over_hosts(hosts: Sequence[_Host], margin: float, gates: Sequence[str]) -> Iterator[RecordedComparison]:
    """Each comparison over hosts: their means are the units, as test beds are those of a campaign."""
    by_subject: dict[Subject, list[Evidence]] = defaultdict(list)
    for host in hosts:
        for subject, evidence, _ in host.evidence:
            if isinstance(evidence, Evidence) and evidence.bounds.mid.n:
                by_subject[replace(subject, host=ALL_HOSTS)].append(evidence)
    rows = [
        (
            subject,
            Evidence(
                members[0].metric,
                Bounds(*(_means([getattr(each.bounds, name) for each in members]) for name in ("low", "mid", "high"))),
                capped=(any(each.capped[0] for each in members), any(each.capped[1] for each in members)),
                fewest=(MIN_TEST_BEDS, MIN_TEST_BEDS),
                independent=True,
            ),
            _Sides(),
        )
        for subject, members in by_subject.items()
    ]  # fmt: skip
    yield from _judged(rows, margin, gates)


def _means(series: Sequence[Series]) -> Series:
    means = {number: math.fsum(each.values) / each.n for number, each in enumerate(series, start=1) if each.n}
    return Series(tuple(means), tuple(means.values()))


def loss_of(comparison: RecordedComparison) -> tuple[float, float]:
    """By which fraction the compared side is worse at best and at worst, by the interval, or by the blocks where every
    one of them decided; unbounded without either.
    """
    judged = comparison.judged
    ends = judged.blocks_range if judged.by_every_block else judged.estimate
    if ends is None or ends.low is None or ends.high is None:
        return -math.inf, math.inf
    if comparison.subject.better is Better.LOWER:
        return ends.low - 1, ends.high - 1
    return 1 - ends.high, 1 - ends.low
