"""Every code has words, and the words say what the numbers mean."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.synthetic_run import Row, Truth, closed, failed, found, limited, make_run, rate, share
from vmtoll.analysis.published import Point, figures
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load, LoadKind, NeighbourLoad
from vmtoll.model.metric import CPU, HOST_CPU, LATENCY_P99, METRICS, TAIL, THROUGHPUT, Metric
from vmtoll.model.trial import Accelerator, Arm, Scenario
from vmtoll.model.verdict import (
    Because,
    Bound,
    ClaimResult,
    Disagreement,
    DisagreementSide,
    Estimate,
    EstimatorUsed,
    Gain,
    Kind,
    Level,
    Limit,
    Note,
    NoteCode,
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
)
from vmtoll.report import words
from vmtoll.runner import gates

CLIENT = (Limit.CLIENT,)
COUNTS = SideCounts(trials=6, used=4, invalid=2, empty=1, limited=3, excluded_by={Code.TOOL_FAILED: 2})
# What the notes of analysis carry, all of it together.
VALUES = {
    "p": 0.03, "holm": 0.12, "family": 4, "blocks": 4, "needed": 6, "floor": 0.021, "trials": 2, "baseline": 3000.0,
    "compared": 1500.0, "baseline_offered": 3000.0, "baseline_attained": 0.995, "compared_offered": 1500.0,
    "compared_attained": 0.9, "low": 1.5, "high": 2.0, "limit": 1.0, "most": 3, "about": 1, "had": 1, "used": 6,
    "suspect": 3, "distorted": 2, "pairs": 2, "n_low": 2, "n_high": 4, "r": 0.5, "inflation": 2.2,
}  # fmt: skip


def verdict(metric: Metric, kind: Kind, ratio: float | None = None, **keys: object) -> Verdict:
    estimate = None if ratio is None else Estimate(ratio, ratio * 0.98, ratio * 1.02)
    counted = {"blocks": 6, "limited_by": CLIENT, "baseline": COUNTS, "compared": COUNTS}
    available = Share(9900, 10000, 0.99, 0.988, 0.992)
    keys = counted | {"baseline_available": available, "compared_available": available} | keys
    return Verdict(metric=metric, kind=kind, estimate=estimate, **keys)  # type: ignore[arg-type]


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


@pytest.mark.parametrize("because", Because)
def test_every_reason_of_a_verdict_has_words(because: Because) -> None:
    assert is_text(words.because_text(verdict(THROUGHPUT, Kind.INVALID, because=because)))
    assert is_text(words.verdict_text(verdict(THROUGHPUT, Kind.INVALID, because=because)))


def test_the_answered_rate_is_shown_for_a_load_that_sets_the_rate() -> None:
    note = Note(NoteCode.ATTAINED, VALUES)
    one = verdict(THROUGHPUT, Kind.INVALID, because=Because.LOAD_SETS_THE_RATE, applies=False, notes=(note,))
    assert words.because_text(one) == "the load sets the rate; the guest answered 90% of 1,500/s"


@pytest.mark.parametrize("code", NoteCode)
def test_every_note_has_words(code: NoteCode) -> None:
    assert is_text(words.note_text(Note(code, VALUES, "nginx"), verdict(TAIL, Kind.SLOWER, 1.5), "kvm-default"))


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("kind", Kind)
def test_every_metric_and_kind_has_words(metric: Metric, kind: Kind) -> None:
    for ratio in (0.0001, 0.5, 0.99, 1.02, 1.9, 22.0):
        assert is_text(words.verdict_text(verdict(metric, kind, ratio)))
    assert is_text(words.METRIC_LABELS[metric.name].label)


@pytest.mark.parametrize(
    ("one", "text", "estimate"),
    [
        (verdict(THROUGHPUT, Kind.SLOWER, 0.045, bound=Bound.AT_LEAST),
         "the guest loses at least 95.5% of the requests per second", "overhead at least 95.50% [95.41, 95.59]"),
        (verdict(THROUGHPUT, Kind.SLOWER, 0.0001), "the guest loses more than 99.9% of the requests per second", None),
        (verdict(THROUGHPUT, Kind.FASTER, 1.05), "the guest serves 5% more requests per second", None),
        (verdict(THROUGHPUT, Kind.FASTER, 3.0), "the guest serves 3.0× the requests per second", None),
        (verdict(CPU, Kind.SLOWER, 34.2), "the guest uses 34× the CPU per request", "34.2× [33.5, 34.9]"),
        (verdict(CPU, Kind.FASTER, 0.9), "the guest uses 10% less CPU per request", None),
        (verdict(HOST_CPU, Kind.SLOWER, 1.12), "the guest costs its host 12% more CPU per request", None),
        (verdict(TAIL, Kind.SLOWER, 2.1), "p99 is 2.1× as long on the guest", "2.10× [2.06, 2.14]"),
        (verdict(TAIL, Kind.SLOWER, 2.1, bound=Bound.AT_LEAST), "p99 is at least 2.1× as long on the guest",
         "at least 2.10× [2.06, 2.14]"),
        (verdict(TAIL, Kind.FASTER, 0.5, bound=Bound.AT_LEAST), "p99 is at least 50% shorter on the guest",
         "at most 0.50× [0.49, 0.51]"),
        (verdict(LATENCY_P99, Kind.FASTER, 0.88), "p99 is 12% shorter on the guest", None),
        (verdict(TAIL, Kind.EQUIVALENT, 1.0), "equivalent within 2%", None),
        (verdict(TAIL, Kind.UNDECIDED, 1.0, blocks_needed=1), "undecided (1 more block needed)", None),
        (verdict(TAIL, Kind.UNDECIDED, 1.0, blocks_needed=14, detectable=0.062),
         "undecided (differences below 6.2% would not have been detected; 14 more blocks show 2%)", None),
        (verdict(TAIL, Kind.UNDECIDED, 1.0, detectable=0.5),
         "undecided (differences below 50% would not have been detected)", None),
        (verdict(TAIL, Kind.UNDECIDED, 1.0, detectable=1.5),
         "undecided (differences below 2.5× would not have been detected)", None),
        (verdict(TAIL, Kind.UNDECIDED, 1.0, detectable=61e6),
         "undecided (the blocks differ too much to show any difference)", None),
        (verdict(TAIL, Kind.UNDECIDED, 1.0, because=Because.SKEWED),
         "undecided: within the margin by one interval and not by the other", None),
        (verdict(TAIL, Kind.UNDECIDED, 1.0), "undecided (more blocks alone will not settle it)", None),
        (verdict(TAIL, Kind.INVALID, 1.0, because=Because.LIMITED_ON_BOTH_SIDES),
         "invalid: client-limited on both sides", None),
    ],
)  # fmt: skip
def test_a_verdict_in_words(one: Verdict, text: str, estimate: str | None) -> None:
    assert words.verdict_text(one) == text
    if estimate is not None:
        assert words.estimate_text(one) == estimate


def test_an_unknown_size_is_not_written_to_the_last_digit() -> None:
    one = replace(verdict(CPU, Kind.UNDECIDED, 5.0), estimate=Estimate(5.0, 0.1, 12345.0))
    assert words.estimate_text(one) == "5.00× [0.10, above 10,000]"
    assert words.estimate_text(replace(one, estimate=None)) == ""


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (closed(10), "10 users"),
        (closed(1), "1 user"),
        (rate(2000), "2,000 req/s"),
        (share(0.7), "70% of capacity"),
        (rate(300, guests=2), "300 req/s, 2 guests"),
        (closed(9, guests=1, neighbour=NeighbourLoad(LoadKind.SHARE, 0.5)),
         "9 users, 1 guest, neighbour at 50% of capacity"),
        (rate(9, neighbour=NeighbourLoad(LoadKind.RATE, 1500)), "9 req/s, neighbour at 1,500 req/s"),
    ],
)  # fmt: skip
def test_a_load_in_words(load: Load, text: str) -> None:
    assert words.load_text(load) == text


@pytest.mark.parametrize("kind", LoadKind)
def test_every_kind_of_load_has_words(kind: LoadKind) -> None:
    assert is_text(words.load_text(Load(kind, 5)))


def test_labels_are_as_short_as_uniqueness_allows() -> None:
    one, other = Scenario("nginx", "site", closed(10)), Scenario("lighttz", "site", closed(10))
    assert list(words.labels_of([one, other]).values()) == ["nginx", "lighttz"]
    heavy = Scenario("nginx", "site", closed(100))
    assert words.labels_of([one, other, heavy])[heavy] == "nginx · 100 users"
    page = Scenario("nginx", "page", closed(10))
    assert words.labels_of([one, page])[page] == "nginx · page"


@pytest.mark.parametrize("hardware", Hardware)
def test_every_hardware_has_words(hardware: Hardware) -> None:
    assert is_text(words.HARDWARE[hardware])
    assert (hardware in words.KVM_HARDWARE) is (hardware is not Hardware.NATIVE)
    assert bool(words.below_text(Accelerator.KVM, hardware)) is (hardware is not Hardware.NATIVE)


@pytest.mark.parametrize("accelerator", Accelerator)
def test_every_accelerator_has_words(accelerator: Accelerator) -> None:
    assert is_text(words.ACCELERATORS[accelerator])


def test_a_control_is_not_its_arm() -> None:
    assert [words.arm_text(arm) for arm in (Arm("metal"), Arm("metal", 2))] == ["metal", "metal again (A/A)"]


# ---- tuning steps and disagreements


def step(kind: Kind, gain: float | None, **keys: object) -> TuningStep:
    given = None if gain is None else Gain(gain, gain - 1, gain + 1)
    places = {"before": Arm("a"), "after": Arm("b"), "start": 8000.0}
    return TuningStep(step=StepKind.CUMULATIVE, kind=kind, gain=given, **(places | keys))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "metric", "text"),
    [
        (step(Kind.FASTER, 340.0, bound=Bound.AT_LEAST), THROUGHPUT, "gains at least 340 req/s (4.2%)"),
        (step(Kind.SLOWER, -12.0), TAIL, "costs 12 µs"),
        (step(Kind.UNDECIDED, 1.0, blocks_needed=3), TAIL, "undecided (3 more blocks needed)"),
        (step(Kind.INVALID, None, because=Because.NO_FIGURES), TAIL, "invalid: no block has a figure of both"),
    ],
)
def test_a_step_in_words(one: TuningStep, metric: Metric, text: str) -> None:
    assert words.step_text(one, metric) == text


@pytest.mark.parametrize("because", Because)
def test_every_reason_of_a_step_has_words(because: Because) -> None:
    assert is_text(words.step_text(step(Kind.INVALID, None, because=because), TAIL))


def test_a_disagreement_is_explained_by_the_data() -> None:
    undecided = verdict(TAIL, Kind.UNDECIDED, 1.1, baseline=SideCounts(), compared=SideCounts())
    first = DisagreementSide(
        scenario=Scenario("nginx", "site", closed(10)), verdict=verdict(LATENCY_P99, Kind.SLOWER, 1.4),
        baseline_rps=8000.0, compared_rps=4000.0,
    )  # fmt: skip
    second = DisagreementSide(
        scenario=Scenario("nginx", "sweep", rate(2000)), verdict=undecided, baseline_rps=2000.0, compared_rps=2000.0
    )
    text = words.disagreement_text(
        Disagreement(server="nginx", arm=Arm("kvm-default"), closed=first, open=second, stalled=1)
    )
    for part in (
        "1 open-loop trial was stalled",
        "2,000/s to metal, 25% of what the closed loop drew from it",
        "2,000/s to kvm-default, 50% of",
        "client-limited: 6 closed-loop trials",
        "the open loop is undecided after 6 blocks",
    ):
        assert part in text


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
        (Region.ABOVE, 1.0, "the ratio 1.42 [1.3, 1.55] lies above 1, 6 blocks"),
        (Region.WITHIN, 1.02, "the ratio 1.42 [1.3, 1.55] lies within ±2%: equal, 6 blocks"),
        (Region.ACROSS, 1.0, "the interval of the ratio 1.42 [1.3, 1.55] reaches across 1, 6 blocks"),
    ],
)
def test_an_interval_in_words(region: Region, limit: float, text: str) -> None:
    assert words.reasons_text(claim(region, Reason(ReasonCode.INTERVAL, {"limit": limit}))) == text


def test_a_published_figure_explains_its_shape() -> None:
    (figure, *_) = figures("small-servers-2003")
    point = Point(
        figure, ours=Level(1400.0, EstimatorUsed.MEDIAN, 6), shape=Shape.SAME, published_ratio=1.55,
        our_ratio=Estimate(1.42, 1.3, 1.55), blocks=6, region=Region.ABOVE,
        reasons=(Reason(ReasonCode.INTERVAL, {"limit": 1.0}), Reason(ReasonCode.EMULATED)),
    )  # fmt: skip
    assert words.point_text(point) == (
        "published 1.55; here the ratio 1.42 [1.3, 1.55] lies above 1, 6 blocks; median of 6;"
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


# ---- the headline


def headline(parent: Path, truth: Truth) -> str:
    return words.sentence(analyse(load_run(make_run(parent, truth))))


def test_the_headline_names_the_effect_and_its_basis(tmp_path: Path) -> None:
    text = headline(tmp_path, Truth({"nginx": 0.5}, noise=0.0005))
    assert re.fullmatch(
        r"The guest loses (50(?:\.\d)?%) \(nginx\) of the requests per second\."
        r" Evidence: nginx \1 \[\S+, \S+\]; 6 blocks, one host, one boot, noise floor [\d.]+%\.",
        text,
    )


def test_the_headline_puts_emulation_first(tmp_path: Path) -> None:
    text = headline(tmp_path, Truth({"nginx": 0.05, "lighttz": 0.04, "lighttpd": 0.1}, accelerator=Accelerator.TCG))
    assert text.startswith("Emulation (TCG), not KVM: the emulated guest loses ")
    assert "(lighttpd) to " in text and "(lighttz) of the requests per second. Evidence: " in text


def test_the_headline_has_throughput_and_tail(tmp_path: Path) -> None:
    text = headline(tmp_path, Truth({"nginx": 0.5}, loads=(closed(), rate(1000)), latency_ratio=2.0))
    assert " (nginx) of the requests per second. Under open load, p99 is " in text
    assert re.search(r" Evidence: nginx [\d.]+% \[.*?\]; nginx \d\.\d× \[.*?\]; 6 blocks, ", text)


def test_a_long_headline_counts(tmp_path: Path) -> None:
    servers = {f"a-server-with-a-name-as-long-as-this-{n}": 0.999 for n in range(8)}
    text = headline(tmp_path, Truth(servers, noise=0.05))
    assert len(text) <= words.SENTENCE_LIMIT
    assert text.startswith("Whether the guest differs from metal in requests per second is undecided")
    assert "a-server" not in text and "6 blocks, one host, one boot" in text


def test_an_incomplete_run_without_figures_is_marked(tmp_path: Path) -> None:
    truth = Truth(blocks=1, status="running", change=lambda row: [failed(row, Code.TOOL_FAILED, "killed")])
    text = headline(tmp_path, truth)
    assert text.startswith(
        "None of 3 trials valid, so doubt every figure: incomplete run (3 of 3 trials): this run has no valid"
        " comparison of requests per second. Evidence: no valid pair of trials; "
    )
    assert "3 invalid trials excluded" in text


def test_limited_sides_are_reported_in_the_notes(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        on_metal = row["arm"] == Arm("metal")
        return [found(row, *limited(Code.CLIENT_SATURATED, *Role)) if on_metal else row]

    (comparison,) = analyse(load_run(make_run(tmp_path, Truth({"nginx": 0.5}, change=change)))).comparisons
    notes = words.notes_text(comparison.verdicts[THROUGHPUT.name], "kvm-default")
    assert "client-limited: 6 of 12 trials on metal" in notes


def answers(parent: Path, truth: Truth) -> list[str]:
    return [answer.text for answer in words.headline(analyse(load_run(make_run(parent, truth)))).answers]


def test_the_last_answer_is_the_cpu_of_a_request_on_its_host(tmp_path: Path) -> None:
    result = words.headline(analyse(load_run(make_run(tmp_path, Truth({"nginx": 0.9}, noise=0.001)))))
    cost = result.answers[-1]
    assert cost.metric == HOST_CPU
    assert re.fullmatch(r"The guest costs its host 71\.\d% \(nginx\) more CPU per request\.", cost.text)
    assert re.fullmatch(r"nginx 71\.\d% \[\S+, \S+\]", cost.evidence)


@pytest.mark.parametrize(
    "truth",
    [
        Truth({"nginx": 0.5}),
        Truth({"nginx": 0.9, "lighttz": 1.1, "lighttpd": 1.0, "h2o": 1.2}, loads=(closed(), rate(1000))),
        Truth({"nginx": 0.05, "lighttz": 0.04}, accelerator=Accelerator.TCG, latency_ratio=30, cpu_ratio=20),
        Truth({"nginx": 0.9}, hardware=Hardware.EMULATED),
        Truth({"nginx": 1.0}, noise=0.0005),
        Truth({"nginx": 0.9}, noise=0.3),
    ],
)
def test_an_answer_is_short(tmp_path: Path, truth: Truth) -> None:
    for text in answers(tmp_path, truth):
        assert text.endswith(".") and is_text(text)
        assert len(text.split()) <= 25, text


def test_equal_figures_are_answered_with_the_margin(tmp_path: Path) -> None:
    first, *_ = answers(tmp_path, Truth({"nginx": 1.0}, noise=0.0005))
    assert first == "The guest serves as many requests per second as metal, within 2%."


def test_differences_among_servers_are_counted(tmp_path: Path) -> None:
    first, *_ = answers(tmp_path, Truth({"nginx": 0.8, "lighttz": 1.3, "apache": 0.5}, noise=0.001))
    assert re.fullmatch(
        r"In 3 comparisons of requests per second, the guest is slower in 2 \([\d.]+% to [\d.]+% less\),"
        r" faster in 1 \([\d.]+% more\)\.",
        first,
    )


def test_a_decided_answer_comes_first(tmp_path: Path) -> None:
    """Client-limited on both sides the throughput is invalid, the tail is not."""

    def change(row: Row) -> list[Row]:
        return [row if row["load"].is_open else found(row, *limited(Code.CLIENT_SATURATED, *Role))]

    truth = Truth({"nginx": 0.9}, loads=(closed(), rate(1000)), latency_ratio=2.0, noise=0.001, change=change)
    first, second, *_ = answers(tmp_path, truth)
    assert re.match(r"Under open load, p99 is [\d.]+× ", first)
    assert second == "This run has no valid comparison of requests per second."


def test_terms_of_the_headline_are_explained(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [found(row, *limited(Code.CLIENT_SATURATED, *Role)) if row["arm"].environment == "metal" else row]

    bounded = analyse(load_run(make_run(tmp_path / "bound", Truth({"nginx": 0.5}, change=change))))
    assert {"At least", "Noise floor, A/A arm"} <= {item.word for item in words.explanations(bounded)}
    noisy = analyse(load_run(make_run(tmp_path / "noisy", Truth({"nginx": 0.99}, noise=0.1, aa=False))))
    assert {"Undecided", "Noise floor unknown"} <= {item.word for item in words.explanations(noisy)}
    assert "At least" not in {item.word for item in words.explanations(noisy)}


def test_a_ratio_over_two_decades_is_called_vague() -> None:
    wide = replace(verdict(TAIL, Kind.SLOWER, 29.0), adjusted=Estimate(29.0, 2.05, 416.0))
    assert words.is_vague(wide)
    assert not words.is_vague(replace(wide, adjusted=Estimate(29.0, 10.2, 83.6)))
    assert not words.is_vague(verdict(THROUGHPUT, Kind.SLOWER, 0.9))


def test_correlated_blocks_are_said_with_the_corrected_coefficient() -> None:
    note = Note(NoteCode.AUTOCORRELATED, {"r": 0.03, "p": 0.018, "inflation": 2.27})
    assert words.note_text(note, verdict(THROUGHPUT, Kind.SLOWER, 0.9)) == (
        "successive blocks of this page are correlated (bias-corrected ρ = 0.39, p 0.018), so they count as 44% as many"
        " independent blocks"
    )
