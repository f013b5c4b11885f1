"""Verdicts under an open loop, and within a family."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.records import BASELINE
from tests.support.synthetic_run import (
    CONTROL,
    Row,
    Truth,
    closed_load,
    failed_trial,
    make_run,
    rate_load,
    share_load,
    with_findings,
)
from tests.support.verdicts import GUEST, ends, judge_run, notes, ratio, the_note, verdict
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.note import Answered, Attained, CrosscheckDisagrees, FailedRequests, OwnRates
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import DIFFERENT, Kind, VerdictReason

pytestmark = pytest.mark.slow

PAGES = 40


def test_the_tail_recovers_the_truth(tmp_path: Path) -> None:
    """At a quarter of the capacity the guest's p99 is 1.3 times metal's, and a little more for its own queue."""
    analysis = judge_run(tmp_path, Truth({"nginx": 0.99}, latency_ratio=1.3, blocks=10, loads=(rate_load(1000),)))
    tail = verdict(analysis, "tail", rate_load(1000))
    assert (tail.kind, tail.tool, tail.role, tail.applies) == (Kind.SLOWER, "vegeta", Role.PRIMARY, True)
    assert ratio(tail) == pytest.approx(1.3, abs=0.02)
    assert tail.noise_floor is not None and 0 < tail.noise_floor < 0.03
    assert ratio(verdict(analysis, "cpu", rate_load(1000))) == pytest.approx(1.1, abs=0.02)
    assert analysis.noise_floor == tail.noise_floor


def test_each_load_has_the_metrics_that_it_can_have(tmp_path: Path) -> None:
    analysis = judge_run(tmp_path, Truth(loads=(closed_load(), rate_load(1000))))
    applies = {
        comparison.scenario.load: {name for name, one in comparison.verdicts.items() if one.applies}
        for comparison in analysis.comparisons
    }
    assert applies == {
        closed_load(): {"throughput", "latency_p99", "cpu", "host_cpu"},
        rate_load(1000): {"tail", "cpu", "host_cpu"},
    }
    for metric, load, because in (
        ("tail", closed_load(), VerdictReason.CLOSED_LOOP_HAS_NO_TAIL),
        ("throughput", rate_load(1000), VerdictReason.LOAD_SETS_THE_RATE),
        ("latency_p99", rate_load(1000), VerdictReason.OPEN_LOOP_SEE_TAIL),
    ):
        one = verdict(analysis, metric, load)
        assert (one.kind, one.because, one.blocks, one.estimate) == (Kind.NOT_JUDGED, because, 0, None)


def test_an_offered_rate_is_no_capacity(tmp_path: Path) -> None:
    """2,000/s offered to 4,000/s and 1,000/s of capacity: the guest attains half, and that is all that is known."""
    analysis = judge_run(tmp_path, Truth({"nginx": 0.25}, drift=0.0, loads=(rate_load(500), rate_load(2000))))
    for rps, attained in ((500, 1.0), (2000, 0.5)):
        note = the_note(verdict(analysis, "throughput", rate_load(rps)), Attained)
        assert note == Attained(Answered(rps, 1.0), Answered(rps, attained))


def test_a_share_has_the_rate_of_each_side(tmp_path: Path) -> None:
    analysis = judge_run(tmp_path, Truth({"nginx": 0.5}, drift=0.0, loads=(share_load(0.5),)))
    note = the_note(verdict(analysis, "tail", share_load(0.5)), OwnRates)
    assert (note.baseline_rps, note.compared_rps) == pytest.approx((2000, 1000))


def test_the_noise_of_a_tail_is_that_of_the_worst_control_of_its_kind_of_loop(tmp_path: Path) -> None:
    """nginx has the control, and repeats itself badly near its end; its closed loop does not."""

    def change(row: Row) -> list[Row]:
        if row["arm"] == CONTROL and row["server"] != "nginx":
            return []
        rough = row["arm"] == CONTROL and row["load"] == rate_load(3000)
        return [row | {"response_time_p99_us": row["response_time_p99_us"] * 1.5} if rough else row]

    loads = (closed_load(), rate_load(500), rate_load(3000))
    analysis = judge_run(tmp_path, Truth({"nginx": 0.9, "lighttz": 0.9}, loads=loads, change=change))
    for server in ("nginx", "lighttz"):
        for load in (rate_load(500), rate_load(3000)):
            floor = verdict(analysis, "tail", load, server).noise_floor
            assert floor is not None and 0.45 < floor < 0.6
        floor = verdict(analysis, "latency_p99", closed_load(), server).noise_floor
        assert floor is not None and floor < 0.03


def _found(code: Code, arms: tuple[Arm, ...], blocks: int, value: float = 0.0, **keys: Any) -> Truth:
    def change(row: Row) -> list[Row]:
        hit = row["arm"] in arms and row["block"] <= blocks
        return [with_findings(row, Finding(code, value, role=Role.PRIMARY)) if hit else row]

    return Truth(loads=(rate_load(1000),), change=change, **keys)


def test_a_client_that_fell_behind_moves_a_tail_by_what_it_was_late(tmp_path: Path) -> None:
    """4,000 requests at 1,000/s: 99.99% reached is 0.4 ms late at most, of a p99 of 1.4 ms; 97% is 124 ms."""
    for reached, kind in ((0.9999, Kind.SLOWER), (0.97, Kind.UNDECIDED)):
        truth = _found(Code.RATE_NOT_REACHED, (GUEST,), 6, reached, latency_ratio=2.0)
        tail = verdict(judge_run(tmp_path / str(reached), truth), "tail", rate_load(1000))
        assert (tail.kind, tail.limited, tail.baseline.limited, tail.compared.limited) == (kind, 6, 0, 6)
        assert tail.doubts[0].cause is Code.RATE_NOT_REACHED
    assert tail.because is VerdictReason.FINDINGS


def test_a_starved_client_makes_no_tail_of_the_server(tmp_path: Path) -> None:
    tail = verdict(judge_run(tmp_path, _found(Code.CLIENT_STARVED, BOTH, 6)), "tail", rate_load(1000))
    assert (tail.kind, tail.because) == (Kind.UNDECIDED, VerdictReason.LIMIT)


def _late(arms: tuple[Arm, ...], delay: float, *, blocks: int = 99, most: float | None = None, **keys: Any) -> Truth:
    """A client that is late by a share of the p99, on these arms; `most`: at most by this share."""

    def change(row: Row) -> list[Row]:
        if row["arm"] not in arms or row["block"] > blocks:
            return [row]
        p99_us = row["response_time_p99_us"]
        late = {"lateness_p99_us": delay * p99_us} | ({"lateness_max_us": most * p99_us} if most else {})
        return [with_findings(row, Finding(Code.CLIENT_LATE, delay * p99_us, 0.1 * p99_us, Role.PRIMARY)) | late]

    return Truth(loads=(rate_load(1000),), change=change, **keys)


BOTH = (BASELINE, CONTROL, GUEST)


@pytest.mark.parametrize(
    ("arms", "most", "nearer"),
    [((), 0.25, 3.0), ((BASELINE, CONTROL), 0.25, 3.0), ((GUEST,), 0.25, 2.25), (BOTH, 0.25, 2.25)],
)
def test_the_largest_delay_of_a_late_client_is_a_bound(
    tmp_path: Path, arms: tuple[Arm, ...], most: float, nearer: float
) -> None:
    """Three times as slow: the slower side needed at least its p99 less the delay, the faster one at most its own."""
    truth = _late(arms, 0.2, most=most, latency_ratio=3.0)
    tail = verdict(judge_run(tmp_path, truth), "tail", rate_load(1000))
    assert tail.kind is Kind.SLOWER
    assert ratio(tail) == pytest.approx(3.0, rel=0.05), "as measured"
    assert ends(tail)[0] == pytest.approx(nearer, rel=0.05)


def test_a_late_client_claims_nothing_of_equal_servers(tmp_path: Path) -> None:
    """The client pauses on the guest's trials: the p99 of its delay is 4 ms, that of the response times 10 instead of
    1. What lies beyond the delay's own p99 may be the delay as well.
    """

    def change(row: Row) -> list[Row]:
        if row["arm"] != GUEST:
            return [row]
        slow = {"response_time_p99_us": 10_000.0, "response_time_p999_us": 20_000.0, "lateness_p99_us": 4000.0}
        return [with_findings(row | slow, Finding(Code.CLIENT_LATE, 4000.0, 1000.0, Role.PRIMARY))]

    truth = Truth({"nginx": 1.0, "lighttz": 1.0}, 1.0, 1.0, loads=(rate_load(1000),), change=change)
    analysis = judge_run(tmp_path, truth)
    for server in truth.servers:
        tail = verdict(analysis, "tail", rate_load(1000), server)
        assert (tail.kind, tail.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS)
        assert tail.doubts[0].cause is Code.CLIENT_LATE


def test_a_late_client_shows_no_equal_tails(tmp_path: Path) -> None:
    alike: dict[str, Any] = {"servers": {"nginx": 1.0}, "latency_ratio": 1.0, "blocks": 9, "noise": 0.001}
    truths = (_late((), 0.2, **alike), _late((BASELINE, CONTROL), 0.2, most=0.3, **alike))
    tails = [verdict(judge_run(tmp_path / str(n), truth), "tail", rate_load(1000)) for n, truth in enumerate(truths)]
    assert [tail.kind for tail in tails] == [Kind.EQUIVALENT, Kind.UNDECIDED]
    assert tails[1].because is VerdictReason.FINDINGS


def test_equal_tails_near_the_gate_are_hardly_ever_called_different(tmp_path: Path) -> None:
    """The gate fires where the delay is a tenth of the p99, so on the trials that happened to be fast."""
    rng, wrong = np.random.default_rng(3), 0
    for page in range(PAGES):

        def change(row: Row) -> list[Row]:
            p99_us = 1000 * math.exp(rng.normal(0, 0.15))
            row = row | {"response_time_p99_us": p99_us, "lateness_p99_us": 95.0}
            return [with_findings(row, Finding(Code.CLIENT_LATE, 95.0, role=Role.PRIMARY)) if p99_us < 950 else row]

        truth = Truth(loads=(rate_load(1000),), change=change, blocks=12, aa=False)
        wrong += verdict(judge_run(tmp_path / str(page), truth), "tail", rate_load(1000)).kind in DIFFERENT
    assert wrong <= 0.05 * PAGES


def test_a_cross_check_that_disagrees_is_named(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        off = 1.5 if row["arm"] == GUEST else 1.0
        return [row | {"crosscheck_response_time_p99_us": row["response_time_p99_us"] * off}]

    agreed = verdict(judge_run(tmp_path / "a", Truth(loads=(rate_load(1000),))), "tail", rate_load(1000))
    assert CrosscheckDisagrees not in notes(agreed)
    tail = verdict(judge_run(tmp_path / "b", Truth(loads=(rate_load(1000),), change=change)), "tail", rate_load(1000))
    note = the_note(tail, CrosscheckDisagrees)
    assert note.tool == "oha"
    assert 1.8 < note.low < note.high < 1.95


def test_failed_requests_are_shown_with_the_p99(tmp_path: Path) -> None:
    """Of 6 × 4,000 requests on the guest 240 failed: the rate and its Wilson interval, though the trials are out."""

    def change(row: Row) -> list[Row]:
        bad = row["arm"] == GUEST and row["block"] == 1
        lost = {"successful": 3760, "failed": 240, "findings": (Finding(Code.FAILED_REQUESTS, 240),)}
        return [row | lost if bad else row]

    tail = verdict(judge_run(tmp_path, Truth(loads=(rate_load(1000),), change=change)), "tail", rate_load(1000))
    guest = tail.compared_available
    assert guest is not None and tail.baseline_available is not None
    assert (guest.requests, guest.successful, guest.share) == (24000, 23760, 0.99)
    assert (guest.low, guest.high) == pytest.approx((0.98866, 0.99118), abs=5e-6)
    assert tail.baseline_available.share == 1.0
    assert FailedRequests in notes(tail)
    assert (tail.baseline.lost, tail.compared.lost) == (0, 1)
    assert [effect.mid is None for effect in tail.effects] == [True] + [False] * 5
    assert tail.effects[0].low is not None, "never quicker than measured"


def test_a_difference_that_does_not_survive_holm_is_none(tmp_path: Path) -> None:
    """One comparison alone finds it; among eight servers, seven of them without a difference, it drowns."""
    servers = {"nginx": 1.0} | {f"other-{i}": 1.0 for i in range(7)}

    # Throughput of the guest 5% lower, give or take.
    def change(row: Row) -> list[Row]:
        if row["server"] != "nginx":
            return [row]
        off = {1: 0.93, 2: 0.97, 3: 0.94, 4: 0.965, 5: 0.935, 6: 0.96, 7: 0.95, 8: 0.96}[row["block"]]
        return [row | {"throughput_rps": 5000.0 * (off if row["arm"] == GUEST else 1.0)}]

    alone, crowd = (
        verdict(judge_run(tmp_path / name, Truth(chosen, 1.0, 1.0, noise=0.05, blocks=8, seed=2, change=change)))
        for name, chosen in (("alone", {"nginx": 1.0}), ("crowd", servers))
    )
    assert (alone.tests.family, crowd.tests.family) == (4, 32)
    assert alone.tests.weight == pytest.approx(1 / 2) and crowd.tests.weight == pytest.approx(1 / 16)
    assert alone.kind is Kind.SLOWER
    assert crowd.tests.difference is not None and crowd.tests.difference_holm is not None
    assert crowd.tests.difference_holm == pytest.approx(crowd.tests.difference * 16, rel=0.6)
    crowded = Truth(servers, 1.0, 1.0, noise=0.05, blocks=5, seed=2, change=change)
    fewer = verdict(judge_run(tmp_path / "fewer", crowded))
    assert fewer.tests.difference is not None and fewer.tests.difference_holm is not None
    assert fewer.tests.difference < 0.05 < fewer.tests.difference_holm
    assert (fewer.kind, fewer.because) == (Kind.UNDECIDED, VerdictReason.NOISE)
    assert fewer.confidence is not None and fewer.confidence > 0.99, "at the level at which Holm stopped"
    assert fewer.blocks_needed is not None and fewer.blocks_needed > 0


def test_a_comparison_without_figures_takes_no_part_of_the_errors(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        bad = row["server"] == "lighttz" and row["arm"] == GUEST
        return [failed_trial(row, Code.SERVER_FAILED) if bad else row]

    analysis = judge_run(tmp_path, Truth({"nginx": 0.9, "lighttz": 0.9}, change=change))
    lost = verdict(analysis, "throughput", closed_load(), "lighttz")
    assert (lost.kind, lost.because, lost.tests.weight, lost.tests.difference) == (
        Kind.NOT_JUDGED, VerdictReason.NO_FIGURE, None, None,
    )  # fmt: skip
    tests = verdict(analysis, "throughput", closed_load()).tests
    assert (tests.family, tests.weight) == (4, 0.5)
    assert verdict(analysis, "cpu", closed_load()).tests.weight == pytest.approx(1 / 6)


def test_the_experiment_may_set_the_margin(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth({"nginx": 0.96}, noise=0.002, blocks=10))
    analysis = analyse(load_run(path))
    assert (analysis.margin, verdict(analysis, "throughput", closed_load()).kind) == (0.02, Kind.SLOWER)
    document = json.loads((path / "run.json").read_text())
    document["experiment"]["margin_pct"] = 5.0
    (path / "run.json").write_text(json.dumps(document))
    analysis = analyse(load_run(path))
    assert (analysis.margin, verdict(analysis, "throughput", closed_load()).kind) == (0.05, Kind.EQUIVALENT)
