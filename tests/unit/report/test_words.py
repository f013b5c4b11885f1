"""Every code has words, and the words say what the numbers mean."""

from dataclasses import fields
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from tests.support.synthetic_run import closed_load, rate_load, share_load
from vmtoll.analysis.published import Point, figures
from vmtoll.model.experiment import Change, ClaimSide
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load, LoadKind, NeighbourLoad
from vmtoll.model.metric import CPU, HOST_CPU, LATENCY_P99, METRICS, TAIL, THROUGHPUT, Metric
from vmtoll.model.note import Answered, Attained, Note
from vmtoll.model.trial import Accelerator, Arm, Scenario
from vmtoll.model.verdict import (
    Amount,
    Cause,
    ClaimResult,
    Doubt,
    Estimate,
    EstimatorUsed,
    Kind,
    Level,
    Outcome,
    Reason,
    ReasonCode,
    Region,
    Shape,
    Share,
    SideCounts,
    StepKind,
    TuningStep,
    Verdict,
    VerdictReason,
)
from vmtoll.report import words
from vmtoll.trial import gates

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
    assert is_text(words.finding_text(Finding(code)))
    full = Finding(code, 12.3, 10.0, role, "vegeta", "metal", "rcu_preempt (pid 15)", "10/20")
    assert is_text(words.finding_text(full))
    assert ("cross-check" in words.finding_text(full)) == (role is Role.CROSSCHECK)


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (
            Finding(Code.BACKGROUND_CPU, 2.6, 1.0, machine="metal", process="rcu_preempt (pid 15)"),
            "metal: background processes used 2.6% CPU (limit 1%), mainly rcu_preempt (PID 15)",
        ),
        (
            Finding(Code.CLIENT_SATURATED, 0.86, 0.85, Role.CROSSCHECK, "h2load", "client"),
            "client, h2load, cross-check: used 86% of the CPU time available to its threads (limit 85%)",
        ),
        (
            Finding(Code.RATE_NOT_REACHED, 0.93, 0.98, Role.PRIMARY, "vegeta", "client", detail="2000"),
            "client, vegeta: sent 93% of the 2000 requests per second planned (limit 98%)",
        ),
        (
            Finding(Code.CLOCK_SOURCE, machine="kvm-default", detail="tsc -> hpet"),
            "kvm-default: the clock source changed: tsc → hpet",
        ),
        (
            Finding(Code.FAILED_REQUESTS, 3, 0, Role.PRIMARY, "siege", detail="1997/2000"),
            "siege: 3 requests failed, 1997 of 2000 succeeded",
        ),
        (gates.stalled(2.3, 100, "h2load", "metal")[0], "metal: no response for 2.30 s (limit 0.25 s)"),
        (gates.clock_stepped(5.001, "h2load", "kvm")[0], "kvm: the clock was set by 5.001 s (limit 0.01 s)"),
        (
            gates.littles_law(8, 10, 6000, 60, 0, "siege", "client")[0],
            "client, siege: 8 requests in flight on average for 10 users",
        ),
        (gates.wrong_bodies(["a.html"])[0], "1 wrong body, first a.html"),
        (
            Finding(Code.CLIENT_SATURATED, 7, 0, Role.PRIMARY, "httperf", detail="unsent"),
            "httperf: could not send 7 requests: no descriptor or port was left",
        ),
    ],
)
def test_a_finding_names_where_what_and_the_limit(finding: Finding, text: str) -> None:
    assert words.finding_text(finding) == text


@pytest.mark.parametrize("because", VerdictReason)
def test_every_reason_of_a_verdict_has_words(because: VerdictReason) -> None:
    undecided = because in (
        VerdictReason.NO_LOOK_YET, VerdictReason.FEW_BLOCKS, VerdictReason.LIMIT, VerdictReason.FINDINGS,
        VerdictReason.NOISE,
    )  # fmt: skip
    judged = verdict(THROUGHPUT, Kind.UNDECIDED if undecided else Kind.NOT_JUDGED, 0.98, because=because)
    assert is_text(words.verdict_text(judged, SIDES))
    assert is_text(words.undecided_text(judged, SIDES) if undecided else words.because_text(judged, SIDES))


def test_the_answered_rate_is_shown_for_a_load_that_sets_the_rate() -> None:
    note = Attained(Answered(1500, 1.0), Answered(1500, 0.9))
    one = verdict(THROUGHPUT, Kind.NOT_JUDGED, because=VerdictReason.LOAD_SETS_THE_RATE, notes=(note,))
    assert words.because_text(one, SIDES) == "the load sets the rate; the guest answered 90% of 1,500/s"


@pytest.mark.parametrize("kind", get_args(get_args(Note)[0]))
def test_every_note_has_words(kind: type[Any]) -> None:
    values = {"size": 1.1, "blocks": 3, "baseline_rps": 900.0, "compared_rps": None, "baseline": None,
              "compared": Answered(1500, 0.9), "tool": "oha", "low": 0.8, "high": 0.9}  # fmt: skip
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


@pytest.mark.parametrize(
    ("judged", "text"),
    [
        (verdict(THROUGHPUT, Kind.SLOWER, 0.112),
         "the guest serves 8.9× fewer requests per second than metal (8.8 to 9.1×)"),
        (verdict(THROUGHPUT, Kind.SLOWER, 0.112, open_low=True),
         "the guest serves at least 8.8× fewer requests per second than metal (8.8 to 9.1× or more)"),
        (verdict(THROUGHPUT, Kind.SLOWER, 0.88),
         "the guest serves 12% fewer requests per second than metal (10.2 to 13.8%)"),
        (verdict(THROUGHPUT, Kind.FASTER, 1.05),
         "the guest serves 5% more requests per second than metal (2.9 to 7.1%)"),
        (verdict(THROUGHPUT, Kind.FASTER, 3.0),
         "the guest serves 3.0× the requests per second of metal (2.9 to 3.1×)"),
        (verdict(CPU, Kind.SLOWER, 34.2), "the guest uses 34× the CPU per request of metal (34 to 35×)"),
        (verdict(CPU, Kind.FASTER, 0.9), "the guest uses 10% less CPU per request than metal (8.2 to 11.8%)"),
        (verdict(HOST_CPU, Kind.SLOWER, 1.12),
         "the guest costs its host 12% more CPU per request than metal (9.76 to 14.2%)"),
        (verdict(TAIL, Kind.SLOWER, 2.1), "p99 is 2.1× as long on the guest as on metal (2.1 to 2.1×)"),
        (verdict(LATENCY_P99, Kind.FASTER, 0.88), "p99 is 12% shorter on the guest than on metal (10.2 to 13.8%)"),
        (verdict(TAIL, Kind.SLOWER, 50.0, by_every_block=True, estimate=Estimate(50.0),
                 blocks_range=Estimate(50.0, 10.0, 1100.0)),
         "p99 is 50× as long on the guest as on metal (each of 6 blocks: 10 to 1,100×)"),
        (verdict(TAIL, Kind.EQUIVALENT, 1.0, estimate=Estimate(1.0, 0.994, 1.007)),
         "equal within 2% (−0.6 to +0.7%); a state rarer than 39.3% of trials would have been missed"),
        (verdict(THROUGHPUT, Kind.EQUIVALENT, 0.99, estimate=Estimate(0.99, 0.987, 0.995), also_different=True),
         "slower by 1% (0.5 to 1.3%), within the margin of 2%"),
        (verdict(THROUGHPUT, Kind.UNDECIDED, 0.98, because=VerdictReason.NOISE, blocks_needed=36, detectable=0.07,
                 estimate=Estimate(0.98, 0.94, 1.03)),
         "0.98× undecided (−6 to +3%); differences below 7% would not have been seen; 36 more blocks show 2%"),
        (verdict(TAIL, Kind.UNDECIDED, 5.0, because=VerdictReason.NOISE, noise_floor=4.1,
                 estimate=Estimate(5.0, 0.5, 50.0), blocks_range=Estimate(5.0, 2.2, 16.0), blocks_needed=4),
         "longer in all 6 blocks (2.2 to 16×); not shown beyond chance: the A/A control differed from itself by up to"
         " 5.1×; 4 more blocks show 2%"),
        (verdict(THROUGHPUT, Kind.UNDECIDED, 0.77, because=VerdictReason.FINDINGS, doubts=(STEAL, RETRIED),
                 estimate=Estimate(0.77, 0.5, 1.1)),
         "0.77× undecided (−50 to +10%); 0.77× if nothing had disturbed; open because of steal on the guest (3 trials),"
         " second attempts: 2 on metal"),
        (verdict(THROUGHPUT, Kind.UNDECIDED, 0.996, because=VerdictReason.LIMIT, estimate=Estimate(0.996, 0.5, 2.0),
                 doubts=(Doubt(Code.LINK_BOUND, 6, 6, 2.0),)),
         "0.996× undecided (−50 to +100%); the link, not the server, set the figure in every block"),
        (verdict(THROUGHPUT, Kind.UNDECIDED, 0.1, because=VerdictReason.FEW_BLOCKS, blocks=2, estimate=Estimate(0.1),
                 blocks_range=Estimate(0.1, 0.09, 0.111)),
         "slower in both blocks (9.0 to 11×); a verdict needs 3 blocks"),
        (verdict(THROUGHPUT, Kind.NOT_JUDGED, because=VerdictReason.NO_FIGURE, compared=SideCounts(trials=6)),
         "not judged: the guest gave no figure in 6 of 6 trials"),
        (verdict(TAIL, Kind.NOT_JUDGED, because=VerdictReason.NOT_MEASURED, tool="siege"),
         "not measured (siege prints no percentiles)"),
    ],
)  # fmt: skip
def test_a_verdict_in_words(judged: Verdict, text: str) -> None:
    assert words.verdict_text(judged, SIDES) == text


def test_both_arms_are_named() -> None:
    text = words.verdict_text(verdict(THROUGHPUT, Kind.SLOWER, 0.88), words.Sides("kvm-default", "container"))
    assert text.startswith("kvm-default serves 12% fewer requests per second than container")


def test_doubts_are_told_by_what_they_can_explain() -> None:
    small = Doubt(Code.BACKGROUND_CPU, 2, 0, 1.03, 1.6)
    notes = words.notes_text(verdict(THROUGHPUT, Kind.SLOWER, 0.112, doubts=(small,), baseline=COUNTS), SIDES)
    assert notes[:2] == [
        "background-cpu on metal (2 trials) can explain at most 1.4% of the difference", "metal lost 2 of 6 trials",
    ]  # fmt: skip


def test_a_ratio_with_its_interval() -> None:
    assert words.estimate_text(verdict(CPU, Kind.SLOWER, 34.2)) == "34× (34 to 35)"
    assert words.estimate_text(verdict(THROUGHPUT, Kind.SLOWER, 0.112)) == "0.112× (0.11 to 0.114)"
    every = verdict(CPU, Kind.SLOWER, estimate=Estimate(30.0), by_every_block=True,
                    blocks_range=Estimate(30.0, 10.0, 90.0))  # fmt: skip
    assert words.estimate_text(every) == "30×, blocks from 10 to 90"
    assert words.estimate_text(verdict(CPU, Kind.UNDECIDED)) == ""


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (closed_load(10), "10 users"),
        (closed_load(1), "1 user"),
        (rate_load(2000), "2,000 req/s"),
        (share_load(0.7), "70% of capacity"),
        (rate_load(300, guests=2), "300 req/s, 2 guests"),
        (closed_load(9, guests=1, neighbour=NeighbourLoad(LoadKind.SHARE, 0.5)),
         "9 users, 1 guest, neighbour at 50% of capacity"),
        (rate_load(9, neighbour=NeighbourLoad(LoadKind.RATE, 1500)), "9 req/s, neighbour at 1,500 req/s"),
    ],
)  # fmt: skip
def test_a_load_in_words(load: Load, text: str) -> None:
    assert words.load_text(load) == text


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
    assert is_text(words.HARDWARE[hardware])
    assert (hardware in words.KVM_HARDWARE) is (hardware is not Hardware.NATIVE)
    assert bool(words.platform_text(Accelerator.KVM, hardware)) is (hardware is not Hardware.NATIVE)


@pytest.mark.parametrize("accelerator", Accelerator)
def test_every_accelerator_has_words(accelerator: Accelerator) -> None:
    assert is_text(words.ACCELERATORS[accelerator])


def test_a_control_is_not_its_arm() -> None:
    assert [words.arm_text(arm) for arm in (Arm("metal"), Arm("metal", 2))] == ["metal", "metal again (A/A)"]


# ---- tuning steps


def step(kind: Kind, gain: float | None, **keys: object) -> TuningStep:
    given = None if gain is None else Amount(gain, gain - 1, gain + 1)
    machine = {"accelerator": Accelerator.KVM, "hardware": Hardware.NATIVE}
    places = {"before": Arm("a"), "after": Arm("b"), "start": 8000.0, **machine}
    return TuningStep(step=StepKind.CUMULATIVE, kind=kind, gain=given, **(places | keys))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "metric", "text"),
    [
        (step(Kind.FASTER, 340.0, open_high=True, estimate=Estimate(1.04, 1.03, 1.1)), THROUGHPUT,
         "gains at least 340 req/s (4.2%)"),
        (step(Kind.SLOWER, -12.0), TAIL, "costs 12 µs"),
        (step(Kind.UNDECIDED, 1.0, because=VerdictReason.NOISE, blocks_needed=3, detectable=0.5), TAIL,
         "undecided (differences below 50% would not have been seen; 3 more blocks show 2%)"),
        (step(Kind.NOT_JUDGED, None, because=VerdictReason.NO_FIGURE), TAIL,
         "not judged: a gave no figure in 0 of 0 trials and b gave no figure in 0 of 0 trials"),
    ],
)  # fmt: skip
def test_a_step_in_words(one: TuningStep, metric: Metric, text: str) -> None:
    assert words.step_text(one, metric) == text


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


@pytest.mark.parametrize(
    ("region", "limit", "text"),
    [
        (Region.ABOVE, 1.0, "the ratio 1.42 (1.3 to 1.55) lies above 1, 6 blocks"),
        (Region.WITHIN, 1.02, "the ratio 1.42 (1.3 to 1.55) lies within ±2%: equal, 6 blocks"),
        (Region.ACROSS, 1.0, "the interval of the ratio 1.42 (1.3 to 1.55) reaches across 1, 6 blocks"),
    ],
)
def test_an_interval_in_words(region: Region, limit: float, text: str) -> None:
    assert words.reasons_text(claim(region, Reason(ReasonCode.INTERVAL, {"limit": limit}))) == text


def test_a_published_figure_explains_its_shape() -> None:
    (figure, *_) = figures("small-servers-2003")
    point = Point(
        figure, measured_level=Level(1400.0, EstimatorUsed.MEDIAN, 6), shape=Shape.SAME, published_ratio=1.55,
        measured_ratio=Estimate(1.42, 1.3, 1.55), blocks=6, region=Region.ABOVE,
        reasons=(Reason(ReasonCode.INTERVAL, {"limit": 1.0}), Reason(ReasonCode.EMULATED)),
    )  # fmt: skip
    assert words.point_text(point) == (
        "published 1.55; here the ratio 1.42 (1.3 to 1.55) lies above 1, 6 blocks; median of 6;"
        " the guest was emulated (TCG), so none of its figures is a KVM figure"
    )
    assert is_text(words.heading_text(figure))


def test_sides_are_named_by_what_differs() -> None:
    one = claim()
    assert [words.side_text(side, one.sides) for side in one.sides] == ["lighttz", "nginx"]
    few, many = (ClaimSide(server="nginx", environment="metal", workload="page", users=n) for n in (10, [100, 1000]))
    assert words.side_text(many, (few, many)) == "100 and 1000 users"
    assert words.side_text(few, (few,)) == "nginx, metal"


@pytest.mark.parametrize("used", EstimatorUsed)
def test_every_estimator_has_words(used: EstimatorUsed) -> None:
    assert is_text(words.estimator_text(used, 6))


def test_every_outcome_shape_and_kind_has_words() -> None:
    assert set(words.OUTCOMES) == set(Outcome)
    assert set(words.SHAPES) == set(Shape)
    assert set(words.KINDS) == set(Kind)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"sysctls": {"net.core.somaxconn": 64}}, "metal with net.core.somaxconn = 64"),
        ({"of": "kvm-default", "settings": {"ksm": "on"}}, "kvm-default with ksm = on on its host"),
        (
            {"of": "kvm-default", "apply": "virsh define x", "revert": "y", "on": "host", "boots": True},
            "kvm-default, after `virsh define x` on its host and a boot",
        ),
    ],
)
def test_a_change_is_named_by_what_it_changes(keys: dict[str, Any], text: str) -> None:
    assert words.change_text(Change(**keys)) == text
