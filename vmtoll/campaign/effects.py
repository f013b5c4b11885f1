"""Combine the effects of test beds into that of the campaign. The test bed is the sample, as the trial is in a run.

A test bed's effect is its mean over blocks; the campaign's is the plain mean of its test beds' with Student's interval
over test beds. It needs no model of the blocks within a test bed: their noise is part of the spread between the means.
Weights (DerSimonian and Laird 1986) would gain little where all test beds run one plan, and their interval is too short
with few test beds (IntHout, Ioannidis and Borm 2014). How far hosts of a kind really differ is the spread of the means
less what their own standard errors explain (Hedges and Olkin 1985, section 9.3): `between_sd`. The prediction interval
is that of one more mean, t(k − 1) · s · √(1 + 1/k) with the spread s of the k means: it has the noise of a further test
bed's own blocks in it. The usual one (Higgins, Thompson and Spiegelhalter 2009) takes `between_sd` instead, which ends
at zero: it held 86% of new hosts at ten test beds where it should hold 95 (Nagashima, Noma and Furukawa 2019 find the
same).

A test bed whose slower side was mostly limited by the client or the link has no effect to add: it is refused by itself
and shown, not averaged into a share of all trials.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import TypeAdapter

from vmtoll.analysis.judge import MIN_TEST_BEDS, Evidence, Judgement, in_ratio, judge, p_values, test
from vmtoll.analysis.pairs import Control, less_limited, noisiest
from vmtoll.analysis.statistics import Interval, Paired, Tested, half_width, noise_floor, paired
from vmtoll.campaign.dataset import BedFigures, BedTrials, Dataset, Latency, Machines
from vmtoll.model.finding import Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import LATENCY_P99, METRICS, THROUGHPUT, loop_of
from vmtoll.model.trial import METAL, Accelerator, Arm, Scenario
from vmtoll.model.verdict import Because, Estimate, Limit, SideCounts, Verdict

MEMORY_MB = 1000
MARGIN = 0.02


@dataclass(frozen=True)
class BedEffect:
    """The effect on one test bed, with the interval over its own blocks; `limited`: client-limited or
    link-limited trials; `refused`: why it is left out of the campaign's effect, None where it is in.
    """

    testbed: str
    blocks: int
    limited: int
    estimate: Estimate
    refused: Because | None = None


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One metric of a scenario on an arm, over all test beds. The unit of `verdict` is the test bed.

    `between_sd`: of the log ratio between test beds; `prediction`: the ratio with the interval for a further test bed.
    """

    experiment: str
    scenario: Scenario
    arm: Arm
    accelerator: Accelerator
    hardware: Hardware
    verdict: Verdict
    blocks: int
    between_sd: float | None
    prediction: Estimate | None
    by_testbed: tuple[BedEffect, ...]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """All figures of a campaign; `emulated`: any guest was; `kvm_hardware`: what the hosts of guests under KVM run on;
    `margin`: of practical equivalence, a fraction.
    """

    campaign: str
    emulated: bool
    kvm_hardware: tuple[Hardware, ...]
    margin: float
    testbeds: tuple[BedTrials, ...]
    effects: tuple[Effect, ...]
    latencies: tuple[Latency, ...]
    machines: tuple[Machines, ...]

    def to_json(self) -> bytes:
        """figures.json."""
        return _FIGURES.dump_json(self, indent=1)


_FIGURES = TypeAdapter(Figures)


def campaign_figures(
    location: str, name: str | None = None, *, memory_mb: int = MEMORY_MB, margin: float = MARGIN
) -> Figures:
    """Sum up and judge a campaign; writes nothing. Raises LoadError.

    `location`: the dataset's folder or its URL (`s3://bucket/folder`); `name`: the campaign, which may be left out
    where the dataset has one; `memory_mb`: what DuckDB may hold before it writes to the temporary folder.
    """
    with Dataset(location, name, memory_mb) as dataset:
        effects = across(dataset.effects(), margin)
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
        )


Compared = tuple[str, Scenario, Arm, Accelerator, Hardware]
Beds = Sequence[BedFigures]


def across(rows: Iterable[BedFigures], margin: float) -> list[Effect]:
    """One effect per experiment, scenario, guest and metric; Holm corrects within an experiment's metric.

    Guests of different accelerators, or on different kinds of hardware, are never pooled.
    """
    listed = sorted(rows, key=lambda row: (row.experiment, list(METRICS).index(row.metric.name)))
    roles = _roles(listed)
    return [
        effect
        for _, family in groupby(listed, key=lambda row: (row.experiment, row.metric.name))
        for effect in _family(list(family), roles, margin)
    ]


def _compared(row: BedFigures) -> Compared:
    return row.experiment, row.scenario, row.arm, row.accelerator, row.hardware


def _order(row: BedFigures) -> tuple[Any, ...]:
    return row.experiment, row.scenario.sort_key, str(row.arm), row.accelerator, row.hardware


def _grouped(rows: Beds) -> dict[Compared, list[BedFigures]]:
    groups: dict[Compared, list[BedFigures]] = {}
    for row in sorted(rows, key=_order):
        groups.setdefault(_compared(row), []).append(row)
    return groups


def _roles(rows: Beds) -> dict[Compared, Role]:
    """Roles whose figures count, on all test beds alike: the cross-check's where the primary was limited more."""
    roles = {}
    for compared, figures in _grouped([row for row in rows if row.metric is THROUGHPUT]).items():
        primary, crosscheck = ([row for row in figures if row.role is role] for role in Role)
        roles[compared] = less_limited(_pairs(primary), _pairs(crosscheck))
    return roles


def _pairs(rows: Beds) -> tuple[int, int]:
    """The pairs of a measurement, and how many of their trials are client-limited or link-limited."""
    return sum(row.blocks for row in rows), sum(map(_limited, rows))


def _limited(row: BedFigures) -> int:
    return row.limited_baseline + row.limited_compared


def _family(rows: Beds, roles: Mapping[Compared, Role], margin: float) -> list[Effect]:
    """One metric of an experiment: every scenario on every guest."""
    groups = {
        compared: _measured(figures, roles.get(compared, Role.PRIMARY))
        for compared, figures in _grouped([row for row in rows if not row.arm.is_control]).items()
    }
    groups = {compared: figures for compared, figures in groups.items() if figures}
    evidence = [_evidence(figures, rows) for figures in groups.values()]
    tests = test(evidence, margin)
    return [
        _effect(compared, figures, rows, item, judge(item, tested, margin), tested, len(groups), margin)
        for (compared, figures), item, tested in zip(groups.items(), evidence, tests, strict=True)
    ]


def _measured(rows: Beds, role: Role) -> list[BedFigures]:
    """The rows of one measurement; service times are the cross-check's where it logs them."""
    logged = {row.role for row in rows}
    if rows[0].metric is LATENCY_P99:
        role = Role.CROSSCHECK if Role.CROSSCHECK in logged else Role.PRIMARY
    return [row for row in rows if row.role is role]


def _evidence(figures: Beds, rows: Beds) -> Evidence:
    """Evidence of the test beds that are not refused; where all are, of all, so that the judge says why."""
    used, first = _accepted(figures), figures[0]
    blocks = sum(row.blocks for row in used)
    limited = [sum(getattr(row, side) for row in used) / blocks for side in ("limited_baseline", "limited_compared")]
    control = _control(first, rows)
    return Evidence(
        first.metric,
        paired([row.mean for row in used]),
        control.same if control else None,
        (limited[0], limited[1]),
        void=(limited[0], limited[1]),
        minimum=MIN_TEST_BEDS,
        whole_slower_side=min(limited) <= 0.5 and all(map(_refusal, used)),
    )


def _accepted(figures: Beds) -> Beds:
    return [row for row in figures if not _refusal(row)] or figures


def _refusal(row: BedFigures) -> Because | None:
    """Reason why the figures of one test bed decide nothing, by the rule of a run whose slower side was mostly limited.
    Of a tail, a late client counts like any other limit: the delay of each trial is not in the dataset.
    """
    limited = (row.limited_baseline / row.blocks, row.limited_compared / row.blocks)
    return Evidence(row.metric, paired([row.mean]), limited=limited, void=limited, whole_slower_side=True).refusal


def _control(row: BedFigures, rows: Beds) -> Control | None:
    """The A/A controls of the environment with the higher noise floor. They are of the scenario, else of other servers
    under the same load, else of the same kind of loop, as in a run.
    """
    return noisiest(_control_of(environment, row, rows) for environment in (METAL, row.arm.environment))


def _control_of(environment: str, row: BedFigures, rows: Beds) -> Control | None:
    target = row.scenario
    means: dict[Scenario, list[float]] = {}
    for bed in rows:
        if (bed.role, bed.arm) == (row.role, Arm(environment, 2)) and (
            environment == METAL or (bed.accelerator, bed.hardware) == (row.accelerator, row.hardware)
        ):
            means.setdefault(bed.scenario, []).append(bed.mean)
    pairs = {scenario: same for scenario, logs in means.items() if (same := paired(logs)).t}
    for near in (
        lambda other: other == target,
        lambda other: (other.workload, other.load) == (target.workload, target.load),
        lambda other: loop_of(other.load) is loop_of(target.load),
    ):
        controls = [
            Control(same, Arm(environment, 2), None if scenario == target else scenario.server)
            for scenario, same in pairs.items()
            if near(scenario)
        ]
        if controls:
            return noisiest(controls)
    return None


def _effect(
    compared: Compared,
    figures: Beds,
    rows: Beds,
    evidence: Evidence,
    judgement: Judgement,
    tested: Tested | None,
    family: int,
    margin: float,
) -> Effect:
    experiment, scenario, arm, accelerator, hardware = compared
    effect, floor = evidence.effect, noise_floor(evidence.same)
    assert effect is not None
    used, control = _accepted(figures), _control(figures[0], rows)
    by = {Limit.CLIENT: any(row.by_client for row in figures), Limit.LINK: any(row.by_link for row in figures)}
    return Effect(
        experiment=experiment,
        scenario=scenario,
        arm=arm,
        accelerator=accelerator,
        hardware=hardware,
        verdict=Verdict(
            metric=evidence.metric,
            role=figures[0].role,
            tool=figures[0].tool,
            estimate=in_ratio(effect.mean, effect.t),
            limited_by=tuple(limit for limit, applies in by.items() if applies),
            blocks=effect.n,
            margin=margin,
            noise_floor=None if floor is None else math.expm1(floor),
            noise_floor_server=control.server if control else None,
            noise_floor_arm=control.arm if control else None,
            tests=p_values(effect, tested, family),
            baseline=SideCounts(limited=sum(row.limited_baseline for row in figures)),
            compared=SideCounts(limited=sum(row.limited_compared for row in figures)),
            **vars(judgement),
        ),
        blocks=sum(row.blocks for row in used),
        between_sd=_between_sd(effect, used),
        prediction=_prediction(effect),
        by_testbed=tuple(_on_testbed(row) for row in figures),
    )


def _between_sd(effect: Paired, figures: Beds) -> float | None:
    """Standard deviation between test beds, less the standard errors of their means; log ratio."""
    errors = [row.sd**2 / row.blocks for row in figures if row.sd is not None]
    if effect.sd is None or len(errors) < len(figures):
        return None
    return math.sqrt(max(0.0, effect.sd**2 - math.fsum(errors) / len(errors)))


def _prediction(effect: Paired) -> Estimate | None:
    """95% prediction interval for the effect on one further test bed; from five test beds on."""
    if effect.sd is None or effect.n < MIN_TEST_BEDS:
        return None
    half = half_width(effect.sd, effect.n) * math.sqrt(effect.n + 1)  # t · s/√n · √(n + 1) = t · s · √(1 + 1/n)
    return in_ratio(effect.mean, Interval(effect.mean - half, effect.mean + half))


def _on_testbed(row: BedFigures) -> BedEffect:
    interval = None
    if row.sd is not None:
        half = half_width(row.sd, row.blocks)
        interval = Interval(row.mean - half, row.mean + half)
    return BedEffect(row.testbed, row.blocks, _limited(row), in_ratio(row.mean, interval), _refusal(row))
