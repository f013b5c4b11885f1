"""Every code has words, and the words say what the numbers mean."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from tests.support.snapshots import assert_snapshot
from tests.support.synthetic_run import closed_load, rate_load, share_load
from vmtoll.analysis.published import Point, figures
from vmtoll.capacity.limits import Limit
from vmtoll.capacity.planner import Assumption
from vmtoll.model.change import Change
from vmtoll.model.claim import ClaimResult, EstimatorUsed, Level, Outcome, Reason, ReasonCode, Shape
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load, LoadKind, NeighbourLoad
from vmtoll.model.message import WithText
from vmtoll.model.metric import CPU, HOST_CPU, LATENCY_P99, METRICS, TAIL, THROUGHPUT, Metric
from vmtoll.model.note import Answered, Attained, Note
from vmtoll.model.trial import Accelerator, Arm, Scenario
from vmtoll.model.until import Stop
from vmtoll.model.verdict import (
    Cause,
    Doubt,
    Estimate,
    Kind,
    Region,
    Share,
    SideCounts,
    StepKind,
    TuningStep,
    Verdict,
    VerdictReason,
)
from vmtoll.report import words
from vmtoll.trial import gates

SNAPSHOTS = Path(__file__).with_name("snapshots")
SIDES = words.Sides("the guest", "metal")
COUNTS = SideCounts(trials=6, used=4, lost=2, limited=3, excluded_by={Code.TOOL_FAILED: 2})
# What the notes of analysis carry, all of it together.
VALUES = {
    "blocks": 4, "needed": 6, "trials": 2, "baseline": 3000.0, "compared": 1500.0, "baseline_offered": 3000.0,
    "baseline_attained": 0.995, "compared_offered": 1500.0, "compared_attained": 0.9, "low": 1.5, "high": 2.0,
    "limit": 1.0, "most": 3, "about": 1, "had": 1, "used": 6, "size": 1.03,
}  # fmt: skip


def verdict(metric: Metric, kind: Kind, ratio: float | None = None, **keys: object) -> Verdict:
    """A verdict with an interval of ±2% of its ratio, unless it is given."""
    estimate = None if ratio is None else Estimate(ratio, ratio * 0.98, ratio * 1.02)
    available = Share(9900, 10000, 0.99, 0.988, 0.992)
    defaults = {"blocks": 6, "baseline": COUNTS, "compared": COUNTS, "estimate": estimate}
    keys = defaults | {"baseline_available": available, "compared_available": available} | keys
    return Verdict(metric=metric, kind=kind, **keys)  # type: ignore[arg-type]


def is_text(text: str) -> bool:
    return bool(text) and "{" not in text and "None" not in text and "nan" not in text


@pytest.mark.parametrize("code", Code)
@pytest.mark.parametrize("role", [None, *Role])
def test_every_finding_has_words(code: Code, role: Role | None) -> None:
    assert is_text(Finding(code).text)
    full = Finding(code, 12.3, 10.0, role, "vegeta", "metal", "rcu_preempt (pid 15)", "10/20")
    assert is_text(full.text)
    assert ("cross-check" in full.text) == (role is Role.CROSSCHECK)


FINDINGS = {
    "of a machine and a process": Finding(
        Code.BACKGROUND_CPU, 2.6, 1.0, machine="metal", process="rcu_preempt (pid 15)"
    ),
    "of a tool in a role, as a share": Finding(Code.CLIENT_SATURATED, 0.86, 0.85, Role.CROSSCHECK, "h2load", "client"),
    "of a rate that was planned": Finding(
        Code.RATE_NOT_REACHED, 0.93, 0.98, Role.PRIMARY, "vegeta", "client", detail="2000"
    ),
    "of a change": Finding(Code.CLOCK_SOURCE, machine="kvm-default", detail="tsc -> hpet"),
    "of requests among all": Finding(Code.FAILED_REQUESTS, 3, 0, Role.PRIMARY, "siege", detail="1997/2000"),
    "of a stall": gates.stalled(2.3, 100, "h2load", "metal")[0],
    "of a clock that stepped": gates.clock_stepped(5.001, "h2load", "kvm")[0],
    "of users that are not in flight": gates.littles_law(8, 10, 6000, 60, 0, "siege", "client")[0],
    "of one wrong body": gates.wrong_bodies(["a.html"])[0],
    "of requests that could not be sent": Finding(
        Code.CLIENT_SATURATED, 7, 0, Role.PRIMARY, "httperf", detail="unsent"
    ),
}


UNDECIDED = (
    VerdictReason.NO_LOOK_YET, VerdictReason.FEW_BLOCKS, VerdictReason.LIMIT, VerdictReason.FINDINGS,
    VerdictReason.NOISE,
)  # fmt: skip


@pytest.mark.parametrize("because", VerdictReason)
def test_every_reason_of_a_verdict_has_words(because: VerdictReason) -> None:
    undecided = because in UNDECIDED
    judged = verdict(THROUGHPUT, Kind.UNDECIDED if undecided else Kind.NOT_JUDGED, 0.98, because=because)
    assert is_text(words.verdict_text(judged, SIDES))
    assert is_text(words.undecided_text(judged, SIDES) if undecided else words.because_text(judged, SIDES))


@pytest.mark.parametrize("kind", get_args(get_args(Note)[0]))
def test_every_note_has_words(kind: type[Any]) -> None:
    values = {"size": 1.1, "blocks": 3, "baseline_rps": 900.0, "compared_rps": None, "baseline": None,
              "compared": Answered(1500, 0.9), "tool": "oha", "low": 0.8, "high": 0.9,
              "baseline_share": 0.88, "compared_share": None}  # fmt: skip
    note = kind(**{field.name: values[field.name] for field in fields(kind) if field.name != "code"})
    assert is_text(words.note_text(note, verdict(TAIL, Kind.SLOWER, 1.5), SIDES))
    adapter: TypeAdapter[Note] = TypeAdapter(Note)
    assert adapter.validate_json(adapter.dump_json(note, exclude_none=True)) == note


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("kind", Kind)
def test_every_metric_and_kind_has_words(metric: Metric, kind: Kind) -> None:
    for ratio in (0.0001, 0.5, 0.99, 1.02, 1.9, 22.0):
        assert is_text(words.verdict_text(verdict(metric, kind, ratio), SIDES))
    assert is_text(words.METRIC_LABELS[metric.name].label)


STEAL = Doubt(Code.STEAL, 0, 3, 1.2, 0.8)
RETRIED = Doubt(Cause.SECOND_ATTEMPTS, 2, 0, 1.1)


VERDICTS = {
    "many times slower": verdict(THROUGHPUT, Kind.SLOWER, 0.112),
    "slower by at least": verdict(THROUGHPUT, Kind.SLOWER, 0.112, open_low=True),
    "slower by a share": verdict(THROUGHPUT, Kind.SLOWER, 0.88),
    "faster by a share": verdict(THROUGHPUT, Kind.FASTER, 1.05),
    "many times faster": verdict(THROUGHPUT, Kind.FASTER, 3.0),
    "more CPU, many times": verdict(CPU, Kind.SLOWER, 34.2),
    "less CPU": verdict(CPU, Kind.FASTER, 0.9),
    "more CPU of the host": verdict(HOST_CPU, Kind.SLOWER, 1.12),
    "a longer tail": verdict(TAIL, Kind.SLOWER, 2.1),
    "a shorter p99": verdict(LATENCY_P99, Kind.FASTER, 0.88),
    "beyond chance by every block": verdict(
        TAIL, Kind.SLOWER, 50.0, by_every_block=True, estimate=Estimate(50.0), blocks_range=Estimate(50.0, 10.0, 1100.0)
    ),
    "equal": verdict(TAIL, Kind.EQUIVALENT, 1.0, estimate=Estimate(1.0, 0.994, 1.007)),
    "different within the margin": verdict(
        THROUGHPUT, Kind.EQUIVALENT, 0.99, estimate=Estimate(0.99, 0.987, 0.995), also_different=True
    ),
    "noise": verdict(
        THROUGHPUT,
        Kind.UNDECIDED,
        0.98,
        because=VerdictReason.NOISE,
        blocks_needed=36,
        detectable=0.07,
        estimate=Estimate(0.98, 0.94, 1.03),
    ),
    "noise, and longer in every block": verdict(
        TAIL,
        Kind.UNDECIDED,
        5.0,
        because=VerdictReason.NOISE,
        noise_floor=4.1,
        estimate=Estimate(5.0, 0.5, 50.0),
        blocks_range=Estimate(5.0, 2.2, 16.0),
        blocks_needed=4,
    ),
    "findings and second attempts": verdict(
        THROUGHPUT,
        Kind.UNDECIDED,
        0.77,
        because=VerdictReason.FINDINGS,
        doubts=(STEAL, RETRIED),
        estimate=Estimate(0.77, 0.5, 1.1),
    ),
    "the link": verdict(
        THROUGHPUT,
        Kind.UNDECIDED,
        0.996,
        because=VerdictReason.LIMIT,
        estimate=Estimate(0.996, 0.5, 2.0),
        doubts=(Doubt(Code.LINK_BOUND, 6, 6, 2.0),),
    ),
    "few blocks": verdict(
        THROUGHPUT,
        Kind.UNDECIDED,
        0.1,
        because=VerdictReason.FEW_BLOCKS,
        blocks=2,
        estimate=Estimate(0.1),
        blocks_range=Estimate(0.1, 0.09, 0.111),
    ),
    "no figure": verdict(THROUGHPUT, Kind.NOT_JUDGED, because=VerdictReason.NO_FIGURE, compared=SideCounts(trials=6)),
    "a tool without percentiles": verdict(TAIL, Kind.NOT_JUDGED, because=VerdictReason.NOT_MEASURED, tool="siege"),
}
BOTH_NAMED = words.Sides("kvm-default", "container")
ANSWERED = verdict(
    THROUGHPUT, Kind.NOT_JUDGED, because=VerdictReason.LOAD_SETS_THE_RATE,
    notes=(Attained(Answered(1500, 1.0), Answered(1500, 0.9)),),
)  # fmt: skip
DOUBTED = verdict(
    THROUGHPUT, Kind.SLOWER, 0.112, doubts=(Doubt(Code.BACKGROUND_CPU, 2, 0, 1.03, 1.6),), baseline=COUNTS
)
RATIOS = {
    "34": verdict(CPU, Kind.SLOWER, 34.2),
    "a ninth": verdict(THROUGHPUT, Kind.SLOWER, 0.112),
    "by every block": verdict(
        CPU, Kind.SLOWER, estimate=Estimate(30.0), by_every_block=True, blocks_range=Estimate(30.0, 10.0, 90.0)
    ),
    "none": verdict(CPU, Kind.UNDECIDED),
}


LOADS = {
    "of users": closed_load(10),
    "of one user": closed_load(1),
    "of a rate": rate_load(2000),
    "of a share": share_load(0.7),
    "of a rate for two guests": rate_load(300, guests=2),
    "with a neighbour at a share": closed_load(9, guests=1, neighbour=NeighbourLoad(LoadKind.SHARE, 0.5)),
    "with a neighbour at a rate": rate_load(9, neighbour=NeighbourLoad(LoadKind.RATE, 1500)),
}


@pytest.mark.parametrize("kind", LoadKind)
def test_every_kind_of_load_has_words(kind: LoadKind) -> None:
    assert is_text(words.load_text(Load(kind, 5)))


def test_labels_are_as_short_as_uniqueness_allows() -> None:
    one, other = Scenario("nginx", "site", closed_load(10)), Scenario("lighttz", "site", closed_load(10))
    assert list(words.labels_of([one, other]).values()) == ["nginx", "lighttz"]
    heavy = Scenario("nginx", "site", closed_load(100))
    assert words.labels_of([one, other, heavy])[heavy] == "nginx · 100 users"
    page = Scenario("nginx", "page", closed_load(10))
    assert words.labels_of([one, page])[page] == "nginx · page"


@pytest.mark.parametrize("hardware", Hardware)
def test_every_hardware_has_words(hardware: Hardware) -> None:
    assert is_text(hardware.text)
    assert (hardware in words.KVM_HARDWARE) is (hardware is not Hardware.NATIVE)
    assert bool(words.platform_text(Accelerator.KVM, hardware)) is (hardware is not Hardware.NATIVE)


@pytest.mark.parametrize("accelerator", Accelerator)
def test_every_accelerator_has_words(accelerator: Accelerator) -> None:
    assert is_text(accelerator.text)


def test_a_control_is_not_its_arm() -> None:
    assert [words.arm_text(arm) for arm in (Arm("metal"), Arm("metal", 2))] == ["metal", "metal again (A/A)"]


# ---- tuning steps


def step(kind: Kind, gain: float | None, **keys: object) -> TuningStep:
    given = None if gain is None else Estimate(gain, gain - 1, gain + 1)
    machine = {"accelerator": Accelerator.KVM, "hardware": Hardware.NATIVE}
    places = {"before": Arm("a"), "after": Arm("b"), "start": 8000.0, **machine}
    return TuningStep(step=StepKind.CUMULATIVE, kind=kind, gain=given, **(places | keys))  # type: ignore[arg-type]


TUNING_STEPS = {
    "gains at least": (
        step(Kind.FASTER, 340.0, open_high=True, estimate=Estimate(1.04, 1.03, 1.1)), THROUGHPUT
    ),
    "costs": (step(Kind.SLOWER, -12.0), TAIL),
    "undecided": (
        step(Kind.UNDECIDED, 1.0, because=VerdictReason.NOISE, blocks_needed=3, detectable=0.5), TAIL
    ),
    "without a figure": (step(Kind.NOT_JUDGED, None, because=VerdictReason.NO_FIGURE), TAIL),
}  # fmt: skip


@pytest.mark.parametrize("because", VerdictReason)
def test_every_reason_of_a_step_has_words(because: VerdictReason) -> None:
    assert is_text(words.step_text(step(Kind.NOT_JUDGED, None, because=because), TAIL))


# ---- claims


def claim(region: Region | None = None, *reasons: Reason) -> ClaimResult:
    sides = tuple(ClaimSide(server=s, environment="metal", workload="page") for s in ("lighttz", "nginx"))
    return ClaimResult(
        says="lighttz is faster", metric="throughput_rps", unit="1/s", sides=sides, published=(14719.0, 9512.0),
        levels=(), published_ratio=1.55, ratio=Estimate(1.42, 1.3, 1.55), blocks=6, outcome=Outcome.CONFIRMED,
        region=region, reasons=reasons,
    )  # fmt: skip


@pytest.mark.parametrize("code", ReasonCode)
@pytest.mark.parametrize("region", Region)
def test_every_reason_of_a_claim_has_words(code: ReasonCode, region: Region) -> None:
    reason = Reason(code, VALUES | {"side": 0}, ("nginx", "siege"), (Code.CLIENT_SATURATED,))
    assert is_text(words.reason_text(reason, claim(region)))


INTERVALS = ((Region.ABOVE, 1.0), (Region.WITHIN, 1.02), (Region.ACROSS, 1.0))


def published_figure() -> Point:
    (figure, *_) = figures("small-servers-2003")
    return Point(
        figure, measured_level=Level(1400.0, EstimatorUsed.MEDIAN, 6), shape=Shape.SAME, published_ratio=1.55,
        measured_ratio=Estimate(1.42, 1.3, 1.55), blocks=6, region=Region.ABOVE,
        reasons=(Reason(ReasonCode.INTERVAL, {"limit": 1.0}), Reason(ReasonCode.EMULATED)),
    )  # fmt: skip


def test_a_published_figure_has_a_heading() -> None:
    assert is_text(words.heading_text(published_figure().figure))


def test_sides_are_named_by_what_differs() -> None:
    one = claim()
    assert [words.side_text(side, one.sides) for side in one.sides] == ["lighttz", "nginx"]
    few, many = (ClaimSide(server="nginx", environment="metal", workload="page", users=n) for n in (10, [100, 1000]))
    assert words.side_text(many, (few, many)) == "100 and 1000 users"
    assert words.side_text(few, (few,)) == "nginx, metal"


@pytest.mark.parametrize("used", EstimatorUsed)
def test_every_estimator_has_words(used: EstimatorUsed) -> None:
    assert is_text(words.estimator_text(used, 6))


@pytest.mark.parametrize("code", [*Outcome, *Kind, *ReasonCode, *Assumption, *Limit, *Stop])
def test_every_code_has_words(code: WithText) -> None:
    assert code.text


CHANGES: dict[str, dict[str, Any]] = {
    "of a sysctl": {"sysctls": {"net.core.somaxconn": 64}},
    "of a setting of its host": {"of": "kvm-default", "settings": {"ksm": "on"}},
    "by a command and a boot": {
        "of": "kvm-default", "apply": "virsh define x", "revert": "y", "on": "host", "boots": True,
    },
}  # fmt: skip


WAITS_US: dict[str, float | None] = {
    "server_wait_us_per_request": 0.5, "server_cpu_us_per_request": 50.0,
    "host_vcpu_wait_us_per_request": 21.0, "host_vcpu_cpu_us_per_request": 47.0,
}  # fmt: skip


def test_the_sentences() -> None:
    """Each code in a sentence of its own: what it names, which figures it gives, and in which order."""
    sections: dict[str, dict[str, Iterable[str]]] = {
        "A finding": {name: finding.text for name, finding in FINDINGS.items()},
        "A verdict": {name: words.verdict_text(judged, SIDES) for name, judged in VERDICTS.items()},
        "More on a verdict": {
            "both arms are named": words.verdict_text(verdict(THROUGHPUT, Kind.SLOWER, 0.88), BOTH_NAMED),
            "the answered rate, of a load that sets the rate": words.because_text(ANSWERED, SIDES),
            "what its doubts can explain, and what was lost": words.notes_text(DOUBTED, SIDES),
        },
        "Not judged": {
            because: words.because_text(verdict(THROUGHPUT, Kind.NOT_JUDGED, because=because), SIDES)
            for because in VerdictReason
            if because not in UNDECIDED
        },
        "A ratio with its interval": {name: words.estimate_text(judged) for name, judged in RATIOS.items()},
        "A load": {name: words.load_text(load) for name, load in LOADS.items()},
        "A tuning step": {name: words.step_text(*given) for name, given in TUNING_STEPS.items()},
        "The interval of a claim": {
            f"{region} {limit:g}": words.reasons_text(claim(region, Reason(ReasonCode.INTERVAL, {"limit": limit})))
            for region, limit in INTERVALS
        },
        "A published figure": {"with its shape, from an emulated guest": words.point_text(published_figure())},
        "A wait for a CPU": {
            "of virtual CPUs": words.wait_text(WAITS_US, "kvm-default"),
            "of a server": words.wait_text(WAITS_US | {"server_wait_us_per_request": 50.0}, "metal"),
            "next to none": words.wait_text(WAITS_US | {"host_vcpu_wait_us_per_request": 0.5}, "metal"),
        },
        "A change": {name: words.change_text(Change(**keys)) for name, keys in CHANGES.items()},
    }
    assert_snapshot(SNAPSHOTS / "words.txt", sections)
