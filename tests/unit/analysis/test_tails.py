"""Verdicts under an open loop, within a family, and where closed and open loop disagree."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.synthetic_run import CONTROL, Row, Truth, closed, failed, found, make_run, rate, share
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.load import Load
from vmtoll.model.trial import BASELINE, Arm
from vmtoll.model.verdict import Because, Bound, Kind, Limit, Note, NoteCode, RunAnalysis, Verdict, from_json, to_json

GUEST = Arm("kvm-default")
PAGES = 40


def judged(tmp_path: Path, truth: Truth) -> RunAnalysis:
    analysis = analyse(load_run(make_run(tmp_path, truth)))
    assert from_json(to_json(analysis)) == analysis
    return analysis


def verdict(analysis: RunAnalysis, metric: str, load: Load, server: str = "nginx") -> Verdict:
    (comparison,) = [c for c in analysis.comparisons if (c.scenario.server, c.scenario.load) == (server, load)]
    return comparison.verdicts[metric]


def note_of(one: Verdict, code: NoteCode) -> Note:
    (note,) = [note for note in one.notes if note.code is code]
    return note


def ratio(one: Verdict) -> float:
    assert one.estimate is not None
    return one.estimate.ratio


def test_the_tail_recovers_the_truth(tmp_path: Path) -> None:
    """At a quarter of the capacity the guest's p99 is 1.3 times metal's, and a little more for its own queue."""
    analysis = judged(tmp_path, Truth({"nginx": 0.99}, latency_ratio=1.3, blocks=10, loads=(rate(1000),)))
    tail = verdict(analysis, "tail", rate(1000))
    assert (tail.kind, tail.tool, tail.role, tail.applies) == (Kind.SLOWER, "vegeta", Role.PRIMARY, True)
    assert ratio(tail) == pytest.approx(1.3, abs=0.02)
    assert tail.noise_floor is not None and 0 < tail.noise_floor < 0.02
    assert ratio(verdict(analysis, "cpu", rate(1000))) == pytest.approx(1.1, abs=0.02)
    assert analysis.noise_floor == tail.noise_floor


def test_each_load_has_the_metrics_that_it_can_have(tmp_path: Path) -> None:
    analysis = judged(tmp_path, Truth(loads=(closed(), rate(1000))))
    applies = {
        comparison.scenario.load: {name for name, one in comparison.verdicts.items() if one.applies}
        for comparison in analysis.comparisons
    }
    assert applies == {
        closed(): {"throughput", "latency_p99", "cpu", "host_cpu"},
        rate(1000): {"tail", "cpu", "host_cpu"},
    }
    for metric, load, because in (
        ("tail", closed(), Because.CLOSED_LOOP_HAS_NO_TAIL),
        ("throughput", rate(1000), Because.LOAD_SETS_THE_RATE),
        ("latency_p99", rate(1000), Because.OPEN_LOOP_SEE_TAIL),
    ):
        one = verdict(analysis, metric, load)
        assert (one.kind, one.because, one.blocks, one.estimate) == (Kind.INVALID, because, 0, None)


def test_an_offered_rate_is_no_capacity(tmp_path: Path) -> None:
    """2,000/s offered to 4,000/s and 1,000/s of capacity: the guest attains half, and that is all that is known."""
    analysis = judged(tmp_path, Truth({"nginx": 0.25}, drift=0.0, loads=(rate(500), rate(2000))))
    for rps, attained in ((500, 1.0), (2000, 0.5)):
        values = note_of(verdict(analysis, "throughput", rate(rps)), NoteCode.ATTAINED).values
        assert values == pytest.approx(
            {
                "baseline_offered": rps, "baseline_attained": 1.0,
                "compared_offered": rps, "compared_attained": attained,
            }
        )  # fmt: skip


def test_a_share_has_the_rate_of_each_side(tmp_path: Path) -> None:
    analysis = judged(tmp_path, Truth({"nginx": 0.5}, drift=0.0, loads=(share(0.5),)))
    note = note_of(verdict(analysis, "tail", share(0.5)), NoteCode.OWN_RATES)
    assert note.values == pytest.approx({"baseline": 2000, "compared": 1000})


def test_a_noise_floor_is_borrowed_under_the_same_load(tmp_path: Path) -> None:
    """nginx has the control, and repeats itself badly near its end: that says nothing of a light load."""

    def change(row: Row) -> list[Row]:
        if row["arm"] == CONTROL and row["server"] != "nginx":
            return []
        rough = row["arm"] == CONTROL and row["load"] == rate(3000)
        return [row | {"response_time_p99_us": row["response_time_p99_us"] * 1.5} if rough else row]

    analysis = judged(tmp_path, Truth({"nginx": 0.9, "lighttz": 0.9}, loads=(rate(500), rate(3000)), change=change))
    for load, low, high in ((rate(500), 0, 0.02), (rate(3000), 0.5, 1)):
        own, borrowed = (verdict(analysis, "tail", load, server) for server in ("nginx", "lighttz"))
        assert borrowed.noise_floor_server == "nginx"
        assert borrowed.noise_floor is not None and low < borrowed.noise_floor < high
        assert borrowed.noise_floor == own.noise_floor


def _limit(code: Code, arms: tuple[Arm, ...], blocks: int) -> Truth:
    def change(row: Row) -> list[Row]:
        hit = row["arm"] in arms and row["block"] <= blocks
        return [found(row, Finding(code, role=Role.PRIMARY)) if hit else row]

    return Truth(loads=(rate(1000),), change=change)


@pytest.mark.parametrize(("blocks", "kind"), [(4, Kind.INVALID), (3, Kind.SLOWER)])
def test_a_client_that_lags_changes_the_load(tmp_path: Path, blocks: int, kind: Kind) -> None:
    analysis = judged(tmp_path, _limit(Code.RATE_NOT_REACHED, (GUEST,), blocks))
    tail = verdict(analysis, "tail", rate(1000))
    assert (tail.kind, tail.bound, tail.limited) == (kind, None, blocks)
    assert (tail.baseline.limited, tail.compared.limited, tail.limited_by) == (0, blocks, (Limit.CLIENT,))
    assert note_of(tail, NoteCode.LIMITED)


def test_a_starved_client_makes_no_tail_of_the_server(tmp_path: Path) -> None:
    analysis = judged(tmp_path, _limit(Code.CLIENT_STARVED, (BASELINE, CONTROL, GUEST), 6))
    tail = verdict(analysis, "tail", rate(1000))
    assert (tail.kind, tail.because, tail.limited_by) == (Kind.INVALID, Because.LIMITED_TAIL, (Limit.CLIENT,))


def _late(arms: tuple[Arm, ...], share: float, *more: Code, blocks: int = 99, **keys: Any) -> Truth:
    """A client that is late by a share of the p99, on these arms; `more`: additional findings of the first block."""

    def change(row: Row) -> list[Row]:
        if row["arm"] not in arms or row["block"] > blocks:
            return [row]
        codes = (Code.CLIENT_LATE, *(more if row["block"] == 1 else ()))
        delay = {"lateness_p99_us": share * row["response_time_p99_us"]}
        return [found(row, *(Finding(code, role=Role.PRIMARY) for code in codes)) | delay]

    return Truth(loads=(rate(1000),), change=change, **keys)


BOTH = (BASELINE, CONTROL, GUEST)


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        (_late((), 0.5, latency_ratio=2.0), 2.0),
        (_late((BASELINE, CONTROL), 0.5, latency_ratio=2.0), 2.0),
        (_late((GUEST,), 0.25, latency_ratio=2.0), 1.5),
        (_late(BOTH, 0.25, latency_ratio=2.0), 1.5),
        (_late(BOTH, 0.25, Code.RATE_NOT_REACHED, latency_ratio=2.0), 1.5),
        (_late((GUEST,), 0.25, blocks=3, latency_ratio=2.0), 2.0 * 0.75**0.5),
    ],
)
def test_a_late_client_leaves_a_lower_bound_of_the_difference(tmp_path: Path, truth: Truth, expected: float) -> None:
    """The slower side needed at least its p99 less the delay, the faster one at most what was measured."""
    tail = verdict(judged(tmp_path, truth), "tail", rate(1000))
    assert (tail.kind, tail.bound) == (Kind.SLOWER, Bound.AT_LEAST if tail.limited else None)
    assert ratio(tail) == pytest.approx(expected, rel=0.05)


def test_no_tail_verdict_where_the_delay_decides_which_side_is_slower(tmp_path: Path) -> None:
    tail = verdict(judged(tmp_path, _late((GUEST,), 0.3)), "tail", rate(1000))
    assert (tail.kind, tail.because) == (Kind.INVALID, Because.LIMITED_TAIL)


def test_a_late_client_shows_no_equal_tails(tmp_path: Path) -> None:
    equal = {"servers": {"nginx": 1.0}, "latency_ratio": 1.0, "blocks": 9, "noise": 0.001}
    truths = (_late((), 0.0, **equal), _late((BASELINE, CONTROL), 0.0, **equal))
    tails = [verdict(judged(tmp_path / str(n), truth), "tail", rate(1000)) for n, truth in enumerate(truths)]
    assert [tail.kind for tail in tails] == [Kind.EQUIVALENT, Kind.INVALID]
    assert tails[1].because is Because.LIMITED_SO_NO_EQUALITY


def test_equal_tails_near_the_gate_are_hardly_ever_called_different(tmp_path: Path) -> None:
    """The gate fires where the delay is a tenth of the p99, so on the trials that happened to be fast."""
    rng, wrong = np.random.default_rng(3), 0
    for page in range(PAGES):

        def change(row: Row) -> list[Row]:
            p99_us = 1000 * math.exp(rng.normal(0, 0.15))
            row = row | {"response_time_p99_us": p99_us, "lateness_p99_us": 95.0}
            return [found(row, Finding(Code.CLIENT_LATE, role=Role.PRIMARY)) if p99_us < 950 else row]

        truth = Truth(loads=(rate(1000),), change=change, blocks=12, aa=False)
        tail = verdict(judged(tmp_path / str(page), truth), "tail", rate(1000))
        wrong += tail.kind in (Kind.SLOWER, Kind.FASTER)
    assert wrong <= 0.05 * PAGES


def test_a_cross_check_that_disagrees_is_named(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        off = 1.5 if row["arm"] == GUEST else 1.0
        return [row | {"crosscheck_response_time_p99_us": row["response_time_p99_us"] * off}]

    agreed = verdict(judged(tmp_path / "a", Truth(loads=(rate(1000),))), "tail", rate(1000))
    assert NoteCode.CROSSCHECK_DISAGREES not in {note.code for note in agreed.notes}
    tail = verdict(judged(tmp_path / "b", Truth(loads=(rate(1000),), change=change)), "tail", rate(1000))
    note = note_of(tail, NoteCode.CROSSCHECK_DISAGREES)
    assert note.subject == "oha"
    assert 1.8 < note.values["low"] < note.values["high"] < 1.95


def test_failed_requests_are_shown_with_the_p99(tmp_path: Path) -> None:
    """Of 6 × 4,000 requests on the guest 240 failed: the rate and its Wilson interval, though the trials are out."""

    def change(row: Row) -> list[Row]:
        bad = row["arm"] == GUEST and row["block"] == 1
        lost = {"successful": 3760, "failed": 240, "findings": (Finding(Code.FAILED_REQUESTS, 240),)}
        return [row | lost if bad else row]

    tail = verdict(judged(tmp_path, Truth(loads=(rate(1000),), change=change)), "tail", rate(1000))
    guest = tail.compared_available
    assert guest is not None and tail.baseline_available is not None
    assert (guest.requests, guest.successful, guest.share) == (24000, 23760, 0.99)
    assert (guest.low, guest.high) == pytest.approx((0.98866, 0.99118), abs=5e-6)
    assert tail.baseline_available.share == 1.0
    assert note_of(tail, NoteCode.FAILED_REQUESTS)
    assert note_of(tail, NoteCode.EXCLUDED).values == {"baseline": 0, "compared": 1}
    assert (tail.baseline.invalid, tail.compared.invalid) == (0, 1)


def test_the_estimator_of_2009_is_shown_with_the_interval(tmp_path: Path) -> None:
    figures: dict[Arm, list[float]] = {BASELINE: [], GUEST: [], CONTROL: []}

    def change(row: Row) -> list[Row]:
        figures[row["arm"]].append(row["throughput_rps"])
        return [row]

    throughput = verdict(judged(tmp_path, Truth(blocks=8, change=change)), "throughput", closed())
    for value, arm in ((throughput.baseline_trimmed, BASELINE), (throughput.compared_trimmed, GUEST)):
        assert value == pytest.approx(sum(sorted(figures[arm][:6])[1:5]) / 4)
    assert throughput.baseline_trimmed and throughput.compared_trimmed
    assert throughput.compared_trimmed / throughput.baseline_trimmed == pytest.approx(0.9, abs=0.01)


def test_a_difference_that_does_not_survive_holm_is_none(tmp_path: Path) -> None:
    """One comparison alone finds it; among eight servers, seven of them without a difference, it drowns."""
    servers = {"nginx": 1.0} | {f"other-{i}": 1.0 for i in range(7)}

    # Throughput of the guest 5% lower, give or take: p = 0.016 whatever the noise of the run.
    def change(row: Row) -> list[Row]:
        if row["server"] != "nginx":
            return [row]
        off = {1: 0.90, 2: 0.98, 3: 0.93, 4: 0.99, 5: 0.91, 6: 0.99}[row["block"]]
        return [row | {"throughput_rps": 5000.0 * (off if row["arm"] == GUEST else 1.0)}]

    # With this seed the blocks do not look autocorrelated, which would widen the intervals of the crowd alone.
    alone, crowd = (
        verdict(judged(tmp_path / name, Truth(chosen, seed=2, change=change)), "throughput", closed())
        for name, chosen in (("alone", {"nginx": 1.0}), ("crowd", servers))
    )
    assert (alone.tests.family, crowd.tests.family) == (4, 32)
    assert crowd.tests.difference is not None and crowd.tests.difference_holm is not None
    assert alone.tests.difference == crowd.tests.difference is not None
    # The other three figures of the one server differ beyond doubt, and leave it all of the 5%.
    assert alone.tests.difference_holm == pytest.approx(crowd.tests.difference)
    assert crowd.tests.difference < 0.05
    assert alone.kind is Kind.SLOWER
    assert crowd.tests.difference_holm > 0.05
    assert crowd.kind is Kind.UNDECIDED
    assert crowd.blocks_needed is not None and crowd.blocks_needed > 0
    note = note_of(crowd, NoteCode.DIFFERENCE_LOST_TO_HOLM)
    assert note.values == {"p": crowd.tests.difference, "holm": crowd.tests.difference_holm, "family": 32}


def test_a_comparison_without_figures_stays_in_the_family(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        bad = row["server"] == "lighttz" and row["arm"] == GUEST
        return [failed(row, Code.SERVER_FAILED) if bad else row]

    analysis = judged(tmp_path, Truth({"nginx": 0.9, "lighttz": 0.9}, change=change))
    lost = verdict(analysis, "throughput", closed(), "lighttz")
    assert (lost.kind, lost.tests.difference, lost.tests.difference_holm, lost.tests.family) == (
        Kind.INVALID, None, None, 8,
    )  # fmt: skip
    tests = verdict(analysis, "throughput", closed()).tests
    assert tests.difference is not None and tests.difference_holm is not None
    # Half of the 5% is for the two throughputs, half for the six other figures; those of lighttz keep their parts.
    others = [verdict(analysis, name, closed()).tests.difference for name in ("latency_p99", "cpu", "host_cpu")]
    sooner = sum(p is not None and 12 * p < 4 * tests.difference for p in others)
    assert tests.difference_holm == pytest.approx((1 - sooner / 12) / (1 / 4) * tests.difference, abs=1e-15)


def test_the_experiment_may_set_the_margin(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth({"nginx": 0.96}, noise=0.002, blocks=10))
    analysis = analyse(load_run(path))
    assert (analysis.margin, verdict(analysis, "throughput", closed()).kind) == (0.02, Kind.SLOWER)
    document = json.loads((path / "run.json").read_text())
    document["experiment"]["margin_pct"] = 5.0
    (path / "run.json").write_text(json.dumps(document))
    analysis = analyse(load_run(path))
    assert (analysis.margin, verdict(analysis, "throughput", closed()).kind) == (0.05, Kind.EQUIVALENT)


def test_loops_that_disagree_are_shown_side_by_side(tmp_path: Path) -> None:
    """The guest stalls; the closed loop sees nothing of it, the open loop waits."""

    def change(row: Row) -> list[Row]:
        if row["tool"] != "vegeta" or row["arm"] != GUEST:
            return [row]
        late = row | {"response_time_p99_us": row["response_time_p99_us"] * 3}
        return [found(late, Code.STALLED) if row["block"] <= 2 else late]

    truth = Truth({"nginx": 1.0}, latency_ratio=1.0, cpu_ratio=1.1, noise=0.002, drift=0.0, blocks=8)
    truth.loads, truth.change = (closed(), rate(2100)), change
    (disagreement,) = judged(tmp_path, truth).disagreements
    assert (disagreement.server, disagreement.arm, disagreement.stalled) == ("nginx", GUEST, 2)
    first, second = disagreement.closed, disagreement.open
    assert (first.scenario.load, first.verdict.metric.name, first.verdict.kind) == (
        closed(), "latency_p99", Kind.EQUIVALENT,
    )  # fmt: skip
    assert (second.scenario.load, second.verdict.metric.name, second.verdict.kind) == (rate(2100), "tail", Kind.SLOWER)
    assert ratio(second.verdict) == pytest.approx(3, abs=0.05)
    assert first.baseline_rps and second.baseline_rps == 2100
    assert second.baseline_rps / first.baseline_rps == pytest.approx(0.26, abs=0.005)


def test_loops_that_agree_or_have_no_verdict_are_not_listed(tmp_path: Path) -> None:
    assert judged(tmp_path / "a", Truth(loads=(closed(), rate(1000)))).disagreements == ()

    def change(row: Row) -> list[Row]:
        bad = row["tool"] == "vegeta" and row["arm"] == GUEST
        return [failed(row, Code.TOOL_FAILED) if bad else row]

    assert judged(tmp_path / "b", Truth(loads=(closed(), rate(1000)), change=change)).disagreements == ()
