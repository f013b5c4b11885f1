"""Swapping the baseline of a run inverts every ratio and interval, swaps all that is of a side, and turns the verdict.

Through the public judge of a whole run: every metric, with lost, missing, suspect and repeated trials, blocks that only
one side has, failed requests, and an A/A control.
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.synthetic_run import (
    Row,
    Truth,
    closed_load,
    failed_trial,
    make_run,
    rate_load,
    role_findings,
    with_findings,
)
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.metric import METRICS
from vmtoll.model.note import Attained, ClientTime, CrosscheckDisagrees, Note, OwnRates
from vmtoll.model.verdict import BlockEffect, Comparison, Doubt, Estimate, Kind, Verdict

BROKEN, TIED = 5, 51  # see `mishaps`; a run with two causes of doubt of one size
SEEDS = (*range(16), TIED)
TURNED = {Kind.SLOWER: Kind.FASTER, Kind.FASTER: Kind.SLOWER}
PAIRS = (("metal", "kvm-default"), ("kvm-default", "kvm-tuned"), ("metal", "container"), ("metal", "tuned"))
RATES = (0.02, 0.2, 0.5)  # of trials with a mishap; the two sides of the first are alike
CHANGES = {"tuned": {"of": "metal", "apply": "true"}}
# Of both sides alike; all other fields of a verdict have a mirror below.
SAME = (
    "by_every_block", "also_different", "confidence", "widened", "half_width", "standard_error", "blocks", "boots",
    "blocks_needed", "detectable", "margin", "noise_floor", "correlation", "rho_weights", "because", "metric", "role",
    "tool", "open_in_every_block",
)  # fmt: skip
SWAPPED = ("", "_available", "_percentile", "_limiter")


def background(row: Row) -> list[Row]:
    """Background CPU, more of it the later the trial."""
    busy = Finding(Code.BACKGROUND_CPU, value=1.0 + row["order"], limit=1.0, role=Role.PRIMARY)
    return [with_findings(row, busy) | {"background_cpu_pct": busy.value}]


def failing(row: Row) -> list[Row]:
    failed = int(row["requests"] * 0.002)
    return [row | {"successful": row["successful"] - failed, "failed": failed}]


MISHAPS: tuple[Callable[[Row], list[Row]], ...] = (
    lambda row: [],
    lambda row: [failed_trial(row, Code.HOST_LOST)],
    lambda row: [failed_trial(row, Code.TOOL_FAILED), row | {"attempt": 2}],
    lambda row: [with_findings(row, *role_findings(Code.CLIENT_SATURATED, *Role))],
    lambda row: [with_findings(row, Code.STALLED)],
    background,
    failing,
)


def mishaps(rng: np.random.Generator, rate: float, pair: tuple[str, str], seed: int) -> Callable[[Row], list[Row]]:
    """What happens to this share of the trials. In every second run one side ends early; in one run none of the second
    side's closed loops works.
    """
    latest = {pair[int(rng.integers(0, 2))]: int(rng.integers(2, 9))} if seed % 2 else {}

    def change(row: Row) -> list[Row]:
        environment = row["arm"].environment
        if row["block"] > latest.get(environment, row["block"]):
            return []
        if seed == BROKEN and environment == pair[1] and not row["load"].is_open:
            return [failed_trial(row, Code.SERVER_FAILED)]
        return MISHAPS[int(rng.integers(0, len(MISHAPS)))](row) if rng.random() < rate else [row]

    return change


def with_baseline(run: Run, environment: str) -> Run:
    """The same trials, judged against another environment."""
    experiment = run.manifest.experiment.model_copy(update={"baseline": environment})
    return Run(run.path, run.manifest.model_copy(update={"experiment": experiment}), run.hosts, run.records)


def made(folder: Path, seed: int) -> tuple[Run, tuple[str, str]]:
    """A run of two environments, and their names."""
    rng = np.random.default_rng(seed)
    pair, is_alike = PAIRS[seed % len(PAIRS)], seed % len(RATES) == 0
    ratio, longer, cpu = (1.0, 1.0, 1.0) if is_alike else rng.uniform((0.2, 0.3, 0.5), (3.0, 4.0, 2.0))
    metal, rate = "metal" in pair, 0.45 if seed == TIED else RATES[seed % len(RATES)]
    truth = Truth(
        {"nginx": float(ratio)}, latency_ratio=float(longer), cpu_ratio=float(cpu),
        noise=0.004 if is_alike else float(rng.choice([0.004, 0.1, 0.6])), seed=seed, metal=metal,
        aa=bool(rng.integers(0, 2)), guests=pair[1:] if metal else pair, blocks=int(rng.integers(5, 12)),
        loads=(closed_load(), rate_load(500)), change=mishaps(rng, rate, pair, seed),
        changes={name: CHANGES[name] for name in pair if name in CHANGES},
    )  # fmt: skip
    return load_run(make_run(folder, truth)), pair


def inverse(ratio: float | None) -> float | None:
    return None if ratio is None else 1 / ratio


def mirrored_estimate(estimate: Estimate | None) -> Estimate | None:
    return estimate and Estimate(1 / estimate.value, inverse(estimate.high), inverse(estimate.low))


def mirrored_effect(effect: BlockEffect) -> BlockEffect:
    return BlockEffect(
        effect.block, effect.boot, inverse(effect.high), inverse(effect.mid), inverse(effect.low), effect.trials,
        inverse(effect.first_high), inverse(effect.first_low),
    )  # fmt: skip


def mirrored_note(note: Note) -> Note:
    match note:
        case OwnRates(baseline, compared):
            return OwnRates(compared, baseline)
        case Attained(baseline, compared):
            return Attained(compared, baseline)
        case ClientTime(baseline, compared):
            return ClientTime(compared, baseline)
        case CrosscheckDisagrees(tool, low, high):
            return CrosscheckDisagrees(tool, 1 / high, 1 / low)
    return note


def mirrored(verdict: Verdict) -> dict[str, Any]:
    """The fields of the verdict with the other side as the baseline."""
    fields = {name: getattr(verdict, name) for name in SAME}
    for end in SWAPPED:
        fields |= {f"baseline{end}": getattr(verdict, f"compared{end}")}
        fields |= {f"compared{end}": getattr(verdict, f"baseline{end}")}
    return fields | {
        "kind": TURNED.get(verdict.kind, verdict.kind),
        "estimate": mirrored_estimate(verdict.estimate), "blocks_range": mirrored_estimate(verdict.blocks_range),
        "open_low": verdict.open_high, "open_high": verdict.open_low,
        "mean_low": inverse(verdict.mean_high), "mean_high": inverse(verdict.mean_low),
        "tests": verdict.tests, "effects": tuple(map(mirrored_effect, verdict.effects)),
        "doubts": tuple(Doubt(d.cause, d.compared, d.baseline, d.size, d.value) for d in verdict.doubts),
        "notes": tuple(map(mirrored_note, verdict.notes)),
    }  # fmt: skip


def flat(value: Any, name: str) -> dict[str, Any]:
    """Every number and word of a value, by its place."""
    if dataclasses.is_dataclass(value):
        return flat({field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, name)
    if isinstance(value, dict):
        return {key: leaf for part, item in value.items() for key, leaf in flat(item, f"{name}.{part}").items()}
    if isinstance(value, (list, tuple)):
        return flat(dict(enumerate(value)), name)
    return {name: value}


def differences(seen: dict[str, Any], expected: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Place → what is seen there and what is expected; numbers may differ by a millionth."""
    both = {place: (seen.get(place), expected.get(place)) for place in seen.keys() | expected.keys()}
    return {place: (x, y) for place, (x, y) in both.items() if x != y and not is_close(x, y)}


def is_close(x: Any, y: Any) -> bool:
    return isinstance(x, float) and isinstance(y, float) and math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-9)


def assert_mirrored(one: Comparison, other: Comparison) -> None:
    assert one.arms == other.arms[::-1]
    assert one.verdicts.keys() == other.verdicts.keys() == METRICS.keys()
    for name, verdict in one.verdicts.items():
        turned = other.verdicts[name]
        assert {field.name for field in dataclasses.fields(verdict)} == mirrored(verdict).keys()
        expected = flat(mirrored(verdict), name)
        seen = flat({field: getattr(turned, field) for field in mirrored(verdict)}, name)
        assert differences(seen, expected) == {}
    if one.reliability is None:
        assert other.reliability is None
        return
    assert other.reliability is not None
    sides = (other.reliability.compared, other.reliability.baseline, other.reliability.p)
    assert (one.reliability.baseline, one.reliability.compared, one.reliability.p) == sides


Swapped = tuple[Run, RunAnalysis, RunAnalysis]


@pytest.fixture(scope="module")
def swapped(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Swapped]:
    """Each run with its analyses against the one environment and against the other."""
    runs = {seed: made(tmp_path_factory.mktemp("run"), seed) for seed in SEEDS}
    return {
        seed: (run, analyse(with_baseline(run, first)), analyse(with_baseline(run, second)))
        for seed, (run, (first, second)) in runs.items()
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_swapping_the_baseline_mirrors_the_whole_analysis(swapped: dict[int, Swapped], seed: int) -> None:
    _, one, other = swapped[seed]
    assert [c.scenario for c in one.comparisons] == [c.scenario for c in other.comparisons] != []
    for comparison, turned in zip(one.comparisons, other.comparisons, strict=True):
        assert_mirrored(comparison, turned)


def test_the_runs_have_every_verdict_metric_and_mishap(swapped: dict[int, Swapped]) -> None:
    """Else their mirrors would show little."""
    verdicts = [v for _, one, _ in swapped.values() for c in one.comparisons for v in c.verdicts.values() if v.applies]
    sides = [side for verdict in verdicts for side in (verdict.baseline, verdict.compared)]
    assert {verdict.kind for verdict in verdicts} == set(Kind)
    assert {verdict.metric.name for verdict in verdicts if verdict.estimate} == METRICS.keys()
    for field in ("lost", "second_attempts", "limited", "suspect", "findings", "excluded_by"):
        assert any(getattr(side, field) for side in sides), field
    assert any(v.baseline.trials != v.compared.trials for v in verdicts), "blocks that only one side has"
    assert any(v.open_low for v in verdicts) and any(v.doubts for v in verdicts)
    assert {bool(run.controls) for run, _, _ in swapped.values()} == {True, False}
