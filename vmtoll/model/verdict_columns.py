"""The tables `verdicts`, `effects` and `claims`: each column once, with its description and where its value comes from.

Bundles, datasets and spreadsheets hold these rows. A reader can recompute every interval from them: from the blocks'
lows and highs, the weights of the autocorrelations, and the level.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any

from vmtoll.model.columns import Cell, Column, Schema, flat_scenario
from vmtoll.model.finding import Code, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.limiter import Limiter
from vmtoll.model.load import LoadKind
from vmtoll.model.metric import METRICS, Metric
from vmtoll.model.trial import Accelerator, Arm, Scenario
from vmtoll.model.verdict import (
    BlockEffect,
    Cause,
    ClaimResult,
    Doubt,
    Judged,
    Kind,
    Outcome,
    RunAnalysis,
    StepKind,
    VerdictReason,
)
from vmtoll.model.workload import listed

RHOS = tuple(tenth / 10 for tenth in range(10))  # the autocorrelations that a page weighs
WEIGHTS = tuple(f"weight_rho_{tenth}0" for tenth in range(10))


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """Two arms of a run in one scenario and metric. `tool`: the scenario's; `measured_by`: the tool that measured the
    figures; `step`: only for tuning steps; `verdict`: None for an A/A control, where `compared` is the second replicate
    of `baseline`.
    """

    run_id: str
    scenario: Scenario
    tool: str
    baseline: Arm
    compared: Arm
    accelerator: Accelerator
    hardware: Hardware
    metric: Metric
    role: Role | None
    measured_by: str | None
    effects: tuple[BlockEffect, ...]
    verdict: Judged | None = None
    step: StepKind | None = None


def comparisons(analysis: RunAnalysis) -> Iterator[ComparisonRow]:
    """All comparisons of a run: arms with the baseline, tuning steps, A/A controls."""
    for comparison in analysis.comparisons:
        for verdict in comparison.verdicts.values():
            yield ComparisonRow(
                run_id=analysis.run_id, scenario=comparison.scenario, tool=comparison.tool,
                baseline=comparison.baseline, compared=comparison.arm, accelerator=comparison.accelerator,
                hardware=comparison.hardware, metric=verdict.metric, role=verdict.role, measured_by=verdict.tool,
                effects=verdict.effects, verdict=verdict,
            )  # fmt: skip
    for step_scenario in analysis.tuning_steps.scenarios if analysis.tuning_steps else ():
        for step_metric in step_scenario.metrics.values():
            for step in step_metric.steps:
                yield ComparisonRow(
                    run_id=analysis.run_id, scenario=step_scenario.scenario, tool=step_scenario.tool,
                    baseline=step.before, compared=step.after, accelerator=step.accelerator, hardware=step.hardware,
                    metric=step_metric.metric, role=step_metric.role, measured_by=step_metric.tool,
                    effects=step.effects, verdict=step, step=step.step,
                )  # fmt: skip
    for control in analysis.controls:
        yield ComparisonRow(
            run_id=analysis.run_id, scenario=control.scenario, tool=control.tool,
            baseline=Arm(control.arm.environment), compared=control.arm, accelerator=control.accelerator,
            hardware=control.hardware, metric=control.metric, role=control.role, measured_by=control.measured_by,
            effects=control.effects,
        )  # fmt: skip


def verdict_rows(analysis: RunAnalysis, only: Collection[Judged] | None = None) -> Iterator[dict[str, Cell]]:
    """One row per verdict and tuning step to which its metric applies; `only`: only these."""
    only_ids = None if only is None else {id(verdict) for verdict in only}
    for row in comparisons(analysis):
        if row.verdict and row.verdict.applies and (only_ids is None or id(row.verdict) in only_ids):
            yield _identity(row) | {name: of(row.verdict) for name, *_, of in _VERDICT}


def effect_rows(analysis: RunAnalysis) -> Iterator[dict[str, Cell]]:
    """One row per block of each verdict, tuning step and A/A control."""
    for row in comparisons(analysis):
        verdict = row.verdict
        levels: dict[str, Cell] = {name: of(verdict) if verdict else None for name, *_, of in _LEVELS}
        for effect in row.effects:
            yield _identity(row) | {name: of(effect) for name, *_, of in _EFFECT} | levels


def claim_rows(analysis: RunAnalysis) -> Iterator[dict[str, Cell]]:
    """One row per published claim of the experiment."""
    for number, claim in enumerate(analysis.claims, 1):
        identity: dict[str, Cell] = {"run_id": analysis.run_id, "claim": number}
        yield identity | {name: of(claim) for name, *_, of in _CLAIM}


def claims_schema() -> Schema:
    """The Data Package schema of the table of claims."""
    return _schema(
        "claims",
        "One row per published claim of the experiment: confirmed, refuted or inconclusive here, and why. Ratios are"
        " of ÷ over; a claim about one side has levels in its unit instead.",
        [*_CLAIM_IDENTITY, *_CLAIM],
    )


def verdicts_schema() -> Schema:
    """The Data Package schema of the table of verdicts."""
    return _schema(
        "verdicts",
        "One row per scenario, environment and metric that applies to the kind of load, and per tuning step. It says"
        " whether the difference between the two sides is real, and how large it is. Ratios are compared ÷ baseline.",
        [*_IDENTITY, *_VERDICT],
    )


def effects_schema() -> Schema:
    """The Data Package schema of the table of effects."""
    return _schema(
        "effects",
        "One row per block of each row of verdicts, and of each A/A control: the effects that the block may have had."
        " Ratios are compared ÷ baseline. With verdicts they give every interval.",
        [*_IDENTITY, *_EFFECT, *_LEVELS],
    )


def _schema(table: str, description: str, columns: list[tuple[Any, ...]]) -> Schema:
    choices = _CHOICES if table == "claims" else _CHOICES | {"metric": METRICS}
    return {
        "$schema": "https://datapackage.org/profiles/2.0/tableschema.json",
        "title": f"{table}.csv",
        "description": description,
        "fields": [_column(name, kind, unit, text, choices) for name, kind, unit, text, *_ in columns],
        "missingValues": [""],
    }


def _column(name: str, kind: str, unit: str, text: str, choices: Mapping[str, Any]) -> Column:
    constraints: dict[str, Any] = {"required": name in _REQUIRED}
    if kind in ("integer", "number"):
        constraints["minimum"] = 1 if name in _FROM_ONE else 0
    if name in _TO_ONE:
        constraints["maximum"] = 1
    if name in choices:
        constraints["enum"] = [str(choice) for choice in choices[name]]
    return {"name": name, "type": kind, "unit": unit, "description": text, "constraints": constraints}


def _identity(row: ComparisonRow) -> dict[str, Cell]:
    return {"run_id": row.run_id, **flat_scenario(row.scenario)} | {name: _text(getattr(row, name)) for name in _NAMES}


def _text(value: object) -> str | None:
    return None if value is None else value.name if isinstance(value, Metric) else str(value)


# ---- columns: name, type, unit, description, and in the lists of figures the function that gives the value

_SCENARIO = (
    ("run_id", "string", "none", "the run"),
    ("server", "string", "none", "server under measurement"),
    ("workload", "string", "none", "what was sent, and how"),
    ("load_kind", "string", "none", "closed (users), rate (open loop), share (open loop, of the closed-loop capacity)"),
    ("load_value", "number", "1", "users, requests per second, or the share, by load_kind"),
    ("load_guests", "integer", "1", "guests that the workload spreads its load over; empty where it does not say"),
    ("neighbour_kind", "string", "none", "rate or share: the load on the neighbour; empty without one"),
    ("neighbour_value", "number", "1", "requests per second or the share, by neighbour_kind"),
)
_ARMS = (
    ("tool", "string", "none", "load tool of the workload"),
    ("baseline", "string", "none", "environment that `compared` is divided by; of a tuning step the guest before it"),
    ("compared", "string", "none", "environment that is compared; with #2 the A/A control, its own second measurement"),
    ("step", "string", "none", "cumulative or single: a tuning step; empty of other comparisons"),
    ("accelerator", "string", "none", "what ran the code of the compared machine: none (metal, container), kvm, tcg"
     " (emulation)"),
    ("hardware", "string", "none", "what the host of the compared machine runs on: native (the hardware itself), nested"
     " (another hypervisor), emulated (a CPU emulated in software), unknown"),
    ("metric", "string", "none", "what is compared: throughput, tail (open-loop p99), latency_p99 (closed-loop service"
     " time), cpu, host_cpu"),
    ("role", "string", "none", "the measurement whose values were compared"),
    ("measured_by", "string", "none", "tool of that measurement; empty where there is none"),
)  # fmt: skip
_IDENTITY = [*_SCENARIO, *_ARMS]
_NAMES = [name for name, *_ in _ARMS]

_Value = Callable[[Any], Cell]
_Figure = tuple[str, str, str, str, _Value]


def _number(name: str, text: str, source: str | _Value, unit: str = "1") -> _Figure:
    return name, "number", unit, text, attrgetter(source) if isinstance(source, str) else source


def _count(name: str, text: str, source: str | _Value) -> _Figure:
    return name, "integer", "1", text, attrgetter(source) if isinstance(source, str) else source


def _truth(name: str, text: str) -> _Figure:
    return name, "boolean", "none", text, attrgetter(name)


def _value_at(path: str) -> _Value:
    """A function that reads the value at a path of attributes; None where a part of the path is absent."""

    def value(item: Any) -> Cell:
        for name in path.split("."):
            item = getattr(item, name, None)
        return item.value if isinstance(item, StrEnum) else item

    return value


def _words(name: str, text: str, source: _Value) -> _Figure:
    return name, "string", "none", text, source


def _doubts(verdict: Judged) -> str:
    return " ".join(f"{doubt.cause}:{doubt.size!r}:{doubt.baseline}:{doubt.compared}" for doubt in verdict.doubts)


def doubts_of(cell: str | None) -> list[Doubt]:
    """Parse a cell of the column `doubts`; the gates' figures are not in it."""
    return [
        Doubt(Cause(cause) if cause in set(Cause) else Code(cause), int(baseline), int(compared), float(size))
        for cause, size, baseline, compared in (doubt.split(":") for doubt in (cell or "").split())
    ]


def _level(verdict: Judged) -> float | None:
    return None if verdict.confidence is None else 1 - verdict.confidence


_LEVELS = [
    _number("weight", "weight of this comparison in Holm's correction; all of a family add up to 1", "tests.weight"),
    _number("look", "share of the 5% that a comparison may spend at this look: 1 where the number of blocks was fixed,"
            " 0 before the first look", "tests.share"),
    _number("level", "probability at which the interval was made, 1 − confidence: 0.05 times weight and look, over the"
            " weight that Holm's correction left", _level),
]  # fmt: skip

_BOTH = (
    ("baseline", "of the baseline"),
    ("compared", "of the compared side"),
)
_COUNTS = (
    ("trials", "trials {}, those of its A/A control among them"),
    ("used", "trials {} that have a value"),
    ("suspect", "suspect trials {} among those used"),
    ("lost", "trials {} without a value, because something of this side failed"),
    ("second_attempts", "trials {} that have a value, after an attempt that failed"),
    ("incomparable", "trials {} left out, because a finding says that the sides are not the same thing"),
    ("limited", "trials {} that the client or the link limited"),
)


def _side_figures(side: str, whose: str) -> list[_Figure]:
    share = f"{side}_available"
    return [
        _number(f"{side}_mean", f"mean {whose} over the blocks in which both sides have a value, in the metric's unit",
                f"{side}.level", "of the metric"),
        *(_count(f"{side}_{name}", text.format(whose), f"{side}.{name}") for name, text in _COUNTS),
        _words(f"{side}_limiter", f"what kept most trials {whose} from answering more; nothing: the offered rate was"
               " reached", _value_at(f"{side}_limiter")),
        _number(f"{side}_availability", f"share of the requests {whose} that succeeded, all blocks together",
                _value_at(f"{share}.share")),
        _number(f"{side}_availability_low", "lower end of its 95% Wilson interval", _value_at(f"{share}.low")),
        _number(f"{side}_availability_high", "upper end of its 95% Wilson interval", _value_at(f"{share}.high")),
    ]  # fmt: skip


def _weight_of_rho(index: int) -> _Figure:
    def value(verdict: Judged) -> Cell:
        return verdict.rho_weights[index] if verdict.rho_weights else None

    return _number(WEIGHTS[index], f"weight of an autocorrelation of {RHOS[index]:g} in this interval", value)


_VERDICT: list[_Figure] = [
    _words("kind", "the compared side against its baseline: slower means fewer requests per second, or a higher time or"
           " cost", _value_at("kind")),
    _words("because", "why a verdict is undecided, or nothing is judged", _value_at("because")),
    _truth("by_every_block", "decided because every block shows it; there is no interval then, but a range of blocks"),
    _truth("also_different", "equivalent within the margin, and different for sure"),
    _number("ratio", "mean ratio as measured: exp of the mean of ln(mid), weighed by autocorrelation",
            _value_at("estimate.value")),
    _number("low", "lower end of the interval that decided", _value_at("estimate.low")),
    _number("high", "its upper end", _value_at("estimate.high")),
    *_LEVELS,
    _number("range_low", "least ratio of any block; the end nearer to 1 of a decided verdict as far as findings allow",
            _value_at("blocks_range.low")),
    _number("range_high", "largest ratio of any block, where every block shows it", _value_at("blocks_range.high")),
    _truth("open_low", "a natural limit made the lower end; the true one may lie below"),
    _truth("open_high", "a natural limit made the upper end; the true one may lie above"),
    _number("mean_low", "mean ratio as low as findings and lost trials allow", "mean_low"),
    _number("mean_high", "mean ratio as high as they allow", "mean_high"),
    _number("widened", "the part of either that is due to an A/A control that differs from itself, a fraction",
            "widened"),
    _number("half_width", "half of the 95% interval by sampling alone, a fraction", "half_width"),
    _number("standard_error", "standard error of ln(ratio) by sampling alone, the geometric mean over the"
            " autocorrelations", "standard_error"),
    _count("blocks", "blocks in which both sides have a value: the sample size", "blocks"),
    _count("boots", "boots of the machines under test that the blocks were measured in; the sample size, where they are"
           " two or more", "boots"),
    _count("blocks_needed", "of an undecided verdict: how many more blocks show a difference as large as the margin"
           " with 80% power. Empty where no number helps", "blocks_needed"),
    _number("detectable", "of an undecided verdict: the smallest difference that these blocks show with 80% power, a"
            " fraction", "detectable"),
    _number("margin", "margin of practical equivalence, a fraction; 0 where none applies", "margin"),
    _number("noise_floor", "largest difference of two A/A trials of a block, a fraction; empty without a control",
            "noise_floor"),
    _number("correlation", "expected autocorrelation of successive blocks of the report", "correlation"),
    *map(_weight_of_rho, range(len(RHOS))),
    _number("p", "two-sided p of no difference", "tests.difference"),
    _number("p_holm", "the same after Holm's correction within the family of the report", "tests.difference_holm"),
    _number("p_equivalence", "p of a difference beyond the margin", "tests.equivalence"),
    _number("p_equivalence_holm", "the same after Holm's correction", "tests.equivalence_holm"),
    _count("family", "comparisons in that family", "tests.family"),
    *(figure for side, whose in _BOTH for figure in _side_figures(side, whose)),
    _words("doubts", "what widens the end that counts against the verdict, the largest first, separated by spaces:"
           " code:factor that it can explain:trials of the baseline:trials of the compared side", _doubts),
    _words("notes", "codes of what to know with the verdict, separated by spaces",
           lambda verdict: " ".join(dict.fromkeys(note.code for note in getattr(verdict, "notes", ())))),
]  # fmt: skip

_EFFECT: list[_Figure] = [
    _count("block", "block, from 1", "block"),
    _count("boot", "boot of the machines under test, from 1; where a comparison has two or more, the mean of a boot"
           " counts as one block", "boot"),
    _number("low", "ratio as low as findings and lost trials allow; empty where the block is not in that series",
            "low"),
    _number("mid", "ratio as measured; empty where a side has no value", "mid"),
    _number("high", "ratio as high as findings and lost trials allow", "high"),
    _number("first_low", "the same as low by the first trial of each side alone, where a side has two and the blocks"
            " are skewed: with one boot, the interval of a verdict other than equivalent is the hull of both",
            "first_low"),
    _number("first_high", "the same as high by the first trial of each side alone", "first_high"),
    _count("n", "trials of both sides in the block, with a value or lost", "trials"),
]  # fmt: skip


def _side(index: int) -> _Value:
    """A function that writes the names of one side of a claim as key=name, with + between several; None without that
    side.
    """

    def value(claim: ClaimResult) -> Cell:
        if index >= len(claim.sides):
            return None
        names_by_key = claim.sides[index].model_dump(exclude_none=True)
        return " ".join(f"{key}={'+'.join(map(str, listed(names)))}" for key, names in names_by_key.items())

    return value


def _estimate_value(name: str) -> _Value:
    return lambda claim: getattr(claim.ratio or claim.level, name, None)


def _blocks(claim: ClaimResult) -> str:
    ends = ((effect.block, effect.low, effect.mid, effect.high) for effect in claim.effects)
    return " ".join(":".join("" if value is None else f"{value!r}" for value in values) for values in ends)


_CLAIM_IDENTITY = (
    ("run_id", "string", "none", "the run"),
    ("claim", "integer", "1", "number of the claim in the experiment, from 1"),
)
_CLAIM: list[_Figure] = [
    _words("says", "the claim in one sentence", attrgetter("says")),
    _words("metric", "column of trials, or value of a rate sweep", attrgetter("metric")),
    _words("unit", "of a claim about one side: of the level", attrgetter("unit")),
    _words("of", "whose values: server, environment, workload, users; + between several", _side(0)),
    _words("over", "the side that it is compared with; empty of a claim about one side", _side(1)),
    _words("outcome", "confirmed, refuted or inconclusive here", _value_at("outcome")),
    _words("reasons", "codes of why, the one that decided first, separated by spaces",
           lambda claim: " ".join(dict.fromkeys(reason.code.value for reason in claim.reasons))),
    _words("published", "values that the source printed, separated by spaces",
           lambda claim: " ".join(f"{value:g}" for value in claim.published)),
    _number("published_ratio", "their ratio", "published_ratio"),
    _number("value", "ratio as measured, or level", _estimate_value("value")),
    _number("low", "lower end of the interval of that", _estimate_value("low")),
    _number("high", "its upper end", _estimate_value("high")),
    _number("level", "probability at which the interval was made: 0.05, or what a look may spend", "alpha"),
    _truth("limited", "in every block the client or the link set a value"),
    _count("blocks", "blocks in which every side has a value", "blocks"),
    _words("effects", "of each block its number, the value as low as findings and lost trials allow, as measured, and"
           " as high, with colons; separated by spaces", _blocks),
    *map(_weight_of_rho, range(len(RHOS))),
]  # fmt: skip

_REQUIRED = {
    *("run_id", "server", "workload", "load_kind", "load_value", "tool", "baseline", "compared", "metric", "kind"),
    *("by_every_block", "also_different", "open_low", "open_high", "widened", "blocks", "boots", "margin"),
    *("correlation", "family", "block", "boot", "n", "claim", "says", "outcome"),
    *(f"{side}_{name}" for side, _ in _BOTH for name, _ in _COUNTS),
}
_FROM_ONE = {"load_guests", "block", "boot", "boots", "claim"}
_TO_ONE = {
    *("weight", "look", "level", "correlation", *WEIGHTS, "p", "p_holm", "p_equivalence", "p_equivalence_holm"),
    *(f"{side}_availability{end}" for side, _ in _BOTH for end in ("", "_low", "_high")),
}
_CHOICES: dict[str, Any] = {
    "load_kind": LoadKind, "neighbour_kind": LoadKind, "step": StepKind, "accelerator": Accelerator,
    "hardware": Hardware, "role": Role, "kind": Kind, "because": VerdictReason,
    "baseline_limiter": Limiter, "compared_limiter": Limiter, "outcome": Outcome,
}  # fmt: skip
