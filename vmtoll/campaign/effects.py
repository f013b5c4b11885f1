"""Combine the effects of test beds into that of the campaign. The test bed is the sample, as the trial is in a run.

A test bed's effect is that of its run, as the run's own analysis estimates it. The campaign's effect is the plain mean
over its test beds, with Student's interval. As in a run, vmtoll judges three series: the effects as measured, and as
low and as high as findings and lost trials allow. Every test bed counts in them. No model of the blocks within a test
bed is needed: their noise is part of the spread between the means. Weights (DerSimonian and Laird 1986) would gain
little where all test beds run one plan, and their interval is too short with few test beds (IntHout, Ioannidis and Borm
2014).

`between_sd`, how far hosts of a kind really differ, is the spread of the means less what their own standard errors
explain (Hedges and Olkin 1985, section 9.3). The prediction interval is that of one more mean,
t(k − 1) · s · √(1 + 1/k) with the spread s of the k means, so it includes the noise of a further test bed's own blocks.
The usual one (Higgins, Thompson and Spiegelhalter 2009) takes `between_sd` instead, which is cut off at zero: with ten
test beds it covered 86% of new hosts instead of 95% (Nagashima, Noma and Furukawa 2019 find the same).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

from pydantic import TypeAdapter

from vmtoll.analysis.judge import Evidence, Family, control_differences, in_ratio
from vmtoll.analysis.pairs import Bounds
from vmtoll.campaign.dataset import (
    BedComparison,
    BedControl,
    BedTrials,
    Dataset,
    Failure,
    Latency,
    MachineLoad,
    Pairing,
    Subject,
)
from vmtoll.campaign.facets import Fleet, fleet
from vmtoll.model.finding import Code, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import METRICS, Loop, loop_of
from vmtoll.model.trial import Accelerator
from vmtoll.model.verdict import Cause, Doubt, Estimate, Judged, Kind, Ratio, SideCounts, Verdict, VerdictReason
from vmtoll.statistics.series import Series
from vmtoll.statistics.student import Interval, Mean, half_width, mean_of
from vmtoll.statistics.thresholds import MARGIN, MIN_TEST_BEDS

MEMORY_MB = 1000


@dataclass(frozen=True)
class BedEffect:
    """The effect on one test bed."""

    testbed: str
    blocks: int
    limited: int  # client-limited or link-limited trials
    # `role`, `tool`: whose figures its runs compared
    role: Role | None
    tool: str
    # with the interval that decided there, at the level `confidence`; without an interval if the test bed has several
    # runs
    estimate: Ratio | None = None
    confidence: float | None = None
    # `mean_low`, `mean_high`: as far as findings and lost trials allow
    mean_low: float | None = None
    mean_high: float | None = None
    kind: Kind | None = None  # of the only run
    because: VerdictReason | None = None  # why it has no figure, or is undecided


@dataclass(frozen=True, kw_only=True)
class Effect(Pairing):
    """One metric of a pairing, over all test beds."""

    verdict: Verdict  # with test beds in place of blocks
    blocks: int
    between_sd: float | None  # standard deviation of the log ratio between test beds
    prediction: Ratio | None  # the ratio with the interval for a further test bed
    by_testbed: tuple[BedEffect, ...]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """All figures of a campaign."""

    campaign: str
    emulated: bool  # software emulated a guest
    kvm_hardware: tuple[Hardware, ...]  # what the hosts of KVM guests run on
    margin: float  # of practical equivalence, a fraction
    testbeds: tuple[BedTrials, ...]
    effects: tuple[Effect, ...]
    latencies: tuple[Latency, ...]
    machines: tuple[MachineLoad, ...]
    failures: tuple[Failure, ...]
    fleet: Fleet

    def to_json(self) -> bytes:
        """figures.json."""
        return _FIGURES.dump_json(self, indent=1)


_FIGURES = TypeAdapter(Figures)


def campaign_figures(
    location: str, name: str | None = None, *, memory_mb: int = MEMORY_MB, margin: float = MARGIN
) -> Figures:
    """Summarize and judge a campaign; writes nothing. Raises LoadError.

    `location`: the dataset's folder or its URL (`s3://bucket/folder`); `name`: the campaign, optional if the dataset
    has only one; `memory_mb`: memory that DuckDB may use before it writes to the temporary folder.
    """
    with Dataset(location, name, memory_mb) as dataset:
        rows = dataset.effects()
        effects = campaign_effects(rows, dataset.controls(), margin)
        kinds = {effect.hardware for effect in effects if effect.accelerator is Accelerator.KVM}
        return Figures(
            campaign=dataset.campaign,
            emulated=any(effect.accelerator is Accelerator.TCG for effect in effects),
            kvm_hardware=tuple(kind for kind in Hardware if kind in kinds),
            margin=margin,
            testbeds=tuple(dataset.counts()),
            effects=tuple(effects),
            latencies=tuple(dataset.latencies()),
            machines=tuple(dataset.machines()),
            failures=tuple(dataset.failures()),
            fleet=fleet(rows, dataset.hosts(), margin),
        )


ControlKey = tuple[str, str, Loop]  # experiment, metric, kind of loop
Beds = Sequence[BedComparison]


def campaign_effects(rows: Iterable[BedComparison], controls: Iterable[BedControl], margin: float) -> list[Effect]:
    """One effect per experiment, scenario, pair of arms and metric. Holm's correction covers a metric of an experiment.

    It never pools guests of different accelerators, or on different kinds of hardware.
    """
    ordered = sorted(rows, key=lambda row: (row.experiment, list(METRICS).index(row.metric.name)))
    control_widening = _widening(controls)
    return [
        effect
        for _, rows_of_metric in groupby(ordered, key=lambda row: (row.experiment, row.metric.name))
        for effect in _judge_family(list(rows_of_metric), control_widening, margin)
    ]


def _sort_key(row: BedComparison) -> tuple[Any, ...]:
    return row.experiment, row.scenario.sort_key, str(row.baseline), str(row.arm), row.accelerator, row.hardware


def _widening(controls: Iterable[BedControl]) -> dict[ControlKey, float]:
    """How far the A/A controls differ from themselves for sure over test beds, in logs; the largest for each key.

    The controls of one experiment form one family, as those of a run do.
    """
    control_widening: dict[ControlKey, float] = {}
    by_experiment = sorted(controls, key=lambda control: control.experiment)
    for experiment, members_of_experiment in groupby(by_experiment, key=lambda control: control.experiment):
        groups: dict[tuple[Any, ...], list[BedControl]] = {}
        for control in members_of_experiment:
            platform = control.arm, control.accelerator, control.hardware
            groups.setdefault((control.scenario, *platform, control.metric.name), []).append(control)
        evidence = [_independent(members[0], _series([bed.mid for bed in members])) for members in groups.values()]
        for members, widening_log in zip(groups.values(), control_differences(evidence), strict=True):
            key = experiment, members[0].metric.name, loop_of(members[0].scenario.load)
            control_widening[key] = max(widening_log, control_widening.get(key, 0.0))
    return control_widening


def _independent(row: BedControl, mid: Series) -> Evidence:
    return Evidence(row.metric, Bounds(mid, mid, mid), fewest=(MIN_TEST_BEDS, MIN_TEST_BEDS), independent=True)


def _series(values: Sequence[float | None], sign: int = 1) -> Series:
    """The advantages by test bed, without test beds that have no figure; `sign`: −1 where less is better."""
    known = {bed: sign * value for bed, value in enumerate(values, start=1) if value is not None}
    return Series(tuple(known), tuple(known.values()))


def _judge_family(rows: Beds, control_widening: Mapping[ControlKey, float], margin: float) -> list[Effect]:
    """One metric of an experiment: every scenario on every arm."""
    groups: dict[Subject, list[BedComparison]] = {}
    for row in sorted(rows, key=_sort_key):
        groups.setdefault(row.subject, []).append(row)
    evidence = [_evidence(figures, control_widening) for figures in groups.values()]
    return [
        _effect(*group, judged) for group, judged in zip(groups.items(), Family(evidence, margin).judge(), strict=True)
    ]


def _evidence(figures: Beds, control_widening: Mapping[ControlKey, float]) -> Evidence:
    """The series over test beds.

    Test beds have already widened their figures for their own controls; only the rest of the campaign's widening is
    added here.
    """
    first = figures[0]
    sign = 1 if first.metric.higher_is_better else -1
    low, mid, high = (_series([getattr(row, name) for row in figures], sign) for name in ("low", "mid", "high")[::sign])
    key = first.experiment, first.metric.name, loop_of(first.scenario.load)
    mean_bed_widening = math.fsum(row.widened for row in figures) / len(figures)
    extra_widening = max(0.0, control_widening.get(key, 0.0) - mean_bed_widening)
    open_low, open_high = any(row.open_low for row in figures), any(row.open_high for row in figures)
    return Evidence(
        first.metric,
        Bounds(low, mid, high).widened(extra_widening),
        noise=max((row.noise for row in figures if row.noise is not None), default=None),
        control_difference=mean_bed_widening + extra_widening,
        limited=all(row.all_limited for row in figures),
        capped=(open_low, open_high) if sign > 0 else (open_high, open_low),
        excluded=None if low.n or high.n else first.because or VerdictReason.NO_FIGURE,
        fewest=(MIN_TEST_BEDS, MIN_TEST_BEDS),
        independent=True,
    )


def _effect(subject: Subject, figures: Beds, judged: Judged) -> Effect:
    logs = [row.mid for row in figures if row.mid is not None]
    mean = mean_of(logs) if logs else None
    roles, tools = {row.role for row in figures}, dict.fromkeys(row.tool for row in figures if row.tool)
    return Effect(
        **{field.name: getattr(subject, field.name) for field in fields(Pairing)},
        verdict=Verdict(
            metric=subject.metric,
            role=roles.pop() if len(roles) == 1 else None,
            tool=", ".join(tools),
            **vars(judged)
            | {
                "baseline": SideCounts(limited=sum(row.limited_baseline for row in figures)),
                "compared": SideCounts(limited=sum(row.limited_compared for row in figures)),
                "doubts": _doubts(figures),
            },
        ),
        blocks=sum(row.blocks for row in figures),
        between_sd=_between_sd(mean, figures),
        prediction=_prediction(mean),
        by_testbed=tuple(map(_bed_effect, figures)),
    )


def _doubts(figures: Beds) -> tuple[Doubt, ...]:
    """The doubts of the runs, the largest first: the sum of their trials, and the geometric mean of their sizes."""
    runs = sum(row.runs for row in figures)
    by_cause: dict[Code | Cause, list[Doubt]] = {}
    for row in figures:
        for doubt in row.doubts:
            by_cause.setdefault(doubt.cause, []).append(doubt)
    doubts = [
        Doubt(
            cause, sum(doubt.baseline for doubt in doubts_of_cause), sum(doubt.compared for doubt in doubts_of_cause),
            math.exp(math.fsum(math.log(doubt.size) for doubt in doubts_of_cause) / runs),
        )
        for cause, doubts_of_cause in by_cause.items()
    ]  # fmt: skip
    return tuple(sorted(doubts, key=lambda doubt: -doubt.size))


def _between_sd(mean: Mean | None, figures: Beds) -> float | None:
    """Standard deviation between test beds, less the standard errors of their means; log ratio."""
    errors = [row.error for row in figures if row.mid is not None]
    known = [error**2 for error in errors if error is not None]
    if mean is None or mean.sd is None or len(known) < len(errors):
        return None
    return math.sqrt(max(0.0, mean.sd**2 - math.fsum(known) / len(known)))


def _prediction(mean: Mean | None) -> Estimate | None:
    """95% prediction interval for the effect on one further test bed; None with fewer than MIN_TEST_BEDS."""
    if mean is None or mean.sd is None or mean.n < MIN_TEST_BEDS:
        return None
    half = half_width(mean.sd, mean.n) * math.sqrt(mean.n + 1)  # t · s/√n · √(n + 1) = t · s · √(1 + 1/n)
    return in_ratio(mean.mean, Interval(mean.mean - half, mean.mean + half))


def _bed_effect(row: BedComparison) -> BedEffect:
    low, mid, high = (None if log is None else math.exp(log) for log in (row.low, row.mid, row.high))
    return BedEffect(
        row.testbed, row.blocks, row.limited_baseline + row.limited_compared, row.role, row.tool,
        None if mid is None else Estimate(mid, row.interval_low, row.interval_high),
        None if row.level is None else 1 - row.level, low, high, row.kind, row.because,
    )  # fmt: skip
