"""Runs that would mislead: what disturbs one side, what is lost, and what a verdict must then not say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.records import BASELINE
from tests.support.synthetic_run import CONTROL, Row, Truth, failed_trial, rate_load, with_findings
from tests.support.verdicts import GUEST, ends, judge_run, notes, ratio, verdict
from vmtoll.model.finding import FINDINGS, Code, Finding, Influence, Role, Validity
from vmtoll.model.note import FailedRequests
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import DIFFERENT, Cause, Kind, VerdictReason
from vmtoll.trial.gates import failed_requests

pytestmark = pytest.mark.slow

RATES = ("throughput_rps", "crosscheck_throughput_rps")


def equal(**keys: Any) -> Truth:
    """Two sides that are equal, and quiet enough to be shown equal."""
    quiet: dict[str, Any] = {"servers": {"nginx": 1.0}, "noise": 0.001, "cpu_ratio": 1.0, "latency_ratio": 1.0}
    return Truth(**(quiet | keys))


# ---- CPU time that others took


def taken(share: float, blocks: range, arms: tuple[Arm, ...] = (GUEST,)) -> Truth:
    """Others take a share of the CPU in these arms and blocks, which makes them slower by as much."""

    def change(row: Row) -> list[Row]:
        if row["arm"] not in arms or row["block"] not in blocks:
            return [row]
        return [row | {"steal_pct": 100 * share} | {name: row[name] * (1 - share) for name in RATES}]

    return equal(change=change, blocks=10)


@pytest.mark.parametrize("share", [0.002, 0.004, 0.009, 0.11])
def test_cpu_taken_from_one_side_makes_no_difference(tmp_path: Path, share: float) -> None:
    """Equal sides, below every gate and far above it, in one block or in all: never called different."""
    for number, blocks in enumerate((range(1, 3), range(1, 11))):
        throughput = verdict(judge_run(tmp_path / str(number), taken(share, blocks)))
        assert throughput.kind not in DIFFERENT
        if share > 0.02 and len(blocks) > 2:
            assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS)
            doubt = throughput.doubts[0]
            assert (doubt.cause, doubt.baseline, doubt.compared) == (Code.STEAL, 0, 10)
            assert 1.1 < doubt.size < 1.3


def test_what_both_sides_went_through_is_a_condition(tmp_path: Path) -> None:
    """11% taken from all of them: nothing widens."""
    throughput = verdict(judge_run(tmp_path, taken(0.11, range(1, 11), (BASELINE, CONTROL, GUEST))))
    assert throughput.kind is Kind.EQUIVALENT
    assert all(doubt.size < 1.001 for doubt in throughput.doubts), "trials of unequal length lose unequal times"


@pytest.mark.parametrize("blocks", [0, 2, 3, 6])
def test_no_detail_of_a_disturbance_decides_on_ten_times(tmp_path: Path, blocks: int) -> None:
    """0.51% of the CPU in any number of the guest's trials: slower in every figure."""

    def change(row: Row) -> list[Row]:
        hit = row["arm"] == GUEST and row["block"] <= blocks
        return [with_findings(row | {"steal_pct": 0.51}, Finding(Code.STEAL, 0.51, 0.5)) if hit else row]

    analysis = judge_run(tmp_path, Truth({"nginx": 0.1}, 10.0, 10.0, noise=0.02, change=change))
    kinds = {name: one.kind for name, one in analysis.comparisons[0].verdicts.items() if one.applies}
    assert kinds == dict.fromkeys(("throughput", "latency_p99", "cpu", "host_cpu"), Kind.SLOWER)


def test_symptoms_stay_in(tmp_path: Path) -> None:
    """A guest that stalls is what was measured."""
    truth = Truth({"nginx": 0.9}, change=lambda row: [with_findings(row, Code.STALLED) if row["arm"] == GUEST else row])
    throughput = verdict(judge_run(tmp_path, truth))
    assert (throughput.kind, throughput.compared.suspect, throughput.doubts) == (Kind.SLOWER, 6, ())
    assert throughput.compared.findings == {Code.STALLED: 6}


def test_times_that_were_moved_do_not_move_cpu(tmp_path: Path) -> None:
    """A clock that stepped by a second on the guest; a clock source that changed leaves nothing to compare."""

    def change(code: Code, row: Row) -> list[Row]:
        return [with_findings(row | {"clock_step_ms": 1000.0}, code) if row["arm"] == GUEST else row]

    stepped = judge_run(tmp_path / "step", Truth({"nginx": 0.9}, change=lambda row: change(Code.CLOCK_STEPPED, row)))
    assert verdict(stepped).because is VerdictReason.FINDINGS
    assert verdict(stepped, "cpu").kind is Kind.SLOWER
    other = judge_run(tmp_path / "source", Truth({"nginx": 0.9}, change=lambda row: change(Code.CLOCK_SOURCE, row)))
    assert verdict(other).because is VerdictReason.NOT_COMPARABLE


def test_every_finding_has_its_influence() -> None:
    excluding = {code for code, kind in FINDINGS.items() if kind.influence is Influence.EXCLUDES}
    assert excluding == {code for code, kind in FINDINGS.items() if kind.severity is Validity.INVALID}


def test_users_that_are_not_in_flight_hand_over_to_the_crosscheck(tmp_path: Path) -> None:
    """Seven of ten users in flight: another load than ten users, by the client's doing."""

    def change(value: float) -> Truth:
        finding = Finding(Code.LITTLES_LAW, value, 10, Role.PRIMARY, "siege", "client")
        return Truth({"nginx": 0.9}, change=lambda row: [with_findings(row, finding)] if row["arm"] == GUEST else [row])

    assert verdict(judge_run(tmp_path / "short", change(7.0))).role is Role.CROSSCHECK
    assert verdict(judge_run(tmp_path / "over", change(11.0))).role is Role.PRIMARY


# ---- failures, lost trials, second attempts


def test_one_failed_request_of_twenty_thousand_does_not_void_a_trial(tmp_path: Path) -> None:
    (one,) = failed_requests(20_000, 20_000, 19_999, 1, Role.PRIMARY, "siege")
    (many,) = failed_requests(20_000, 20_000, 19_979, 21, Role.PRIMARY, "siege")
    assert (one.severity, many.severity) == (Validity.SUSPECT, Validity.INVALID)

    def change(row: Row) -> list[Row]:
        if row["arm"] != GUEST:
            return [row]
        return [with_findings(row | {"successful": 19_999, "failed": 1}, one)]

    throughput = verdict(judge_run(tmp_path, Truth({"nginx": 0.9}, change=change)))
    assert (throughput.kind, throughput.blocks, throughput.compared.lost) == (Kind.SLOWER, 6, 0)
    assert FailedRequests in notes(throughput)


def losing(arm: Arm, blocks: int, of: int, *, again: bool = False, **keys: Any) -> Truth:
    """An arm that fails in its first blocks; `again`: and succeeds at the second attempt."""

    def change(row: Row) -> list[Row]:
        if row["arm"] != arm or row["block"] > blocks:
            return [row]
        first = failed_trial(row, Code.TOOL_FAILED, "cut off")
        return [first, row | {"attempt": 2}] if again else [first]

    return equal(change=change, blocks=of, **keys)


@pytest.mark.parametrize("arm", [GUEST, BASELINE])
@pytest.mark.parametrize(("blocks", "of"), [(1, 6), (1, 10), (4, 10), (8, 20)])
def test_a_lost_trial_of_either_side_shows_no_equality(tmp_path: Path, arm: Arm, blocks: int, of: int) -> None:
    """The others are equal, and its slow trials may be the lost ones. (Metal's control is no substitute for metal.)"""
    throughput = verdict(judge_run(tmp_path, losing(arm, blocks, of)))
    assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS)
    lost = throughput.baseline.lost, throughput.compared.lost
    assert lost == ((blocks, 0) if arm == BASELINE else (0, blocks))
    causes = {doubt.cause for doubt in throughput.doubts}
    assert causes & {Cause.LOST, Cause.SECOND_ATTEMPTS}, "a lost trial beside its replicate, or a lost block"


@pytest.mark.parametrize(("arm", "lost"), [(GUEST, 1), (GUEST, 3), (BASELINE, 1), (BASELINE, 3)])
def test_lost_trials_do_not_hide_ten_times(tmp_path: Path, arm: Arm, lost: int) -> None:
    """The guest is ten times as slow: what it lost counts against it, what metal lost as twice as bad as its worst."""
    for aa in (True, False):
        truth = losing(arm, lost, 6, servers={"nginx": 0.1}, noise=0.02, aa=aa)
        assert verdict(judge_run(tmp_path / str(aa), truth)).kind is Kind.SLOWER


def test_second_attempts_are_not_free(tmp_path: Path) -> None:
    analysis = judge_run(tmp_path, losing(GUEST, 8, 8, again=True, drift=0.0))
    throughput = verdict(analysis)
    assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS)
    assert (throughput.baseline.second_attempts, throughput.compared.second_attempts) == (0, 8)
    doubt = throughput.doubts[0]
    assert (doubt.cause, doubt.baseline, doubt.compared) == (Cause.SECOND_ATTEMPTS, 0, 8)
    assert doubt.size == pytest.approx(2**0.5, abs=0.01), "the mean of a trial and of one twice as bad"
    reliability = analysis.comparisons[0].reliability
    assert reliability is not None
    assert (reliability.compared.trials, reliability.compared.at_first, reliability.compared.valid) == (8, 0, 8)
    assert reliability.compared.high == pytest.approx(1 - 0.025 ** (1 / 8))
    assert reliability.p == pytest.approx(2 / 2**8)


def test_a_side_that_lost_trials_is_not_the_faster_one(tmp_path: Path) -> None:
    """Its slow trials may be the lost ones. To be slower it needs no lost trial."""
    kinds = {
        server: verdict(judge_run(tmp_path / str(server), losing(GUEST, 4, 10, servers={"nginx": server}))).kind
        for server in (1.1, 0.9, 0.4)
    }  # fmt: skip
    assert kinds == {1.1: Kind.UNDECIDED, 0.9: Kind.SLOWER, 0.4: Kind.SLOWER}


def test_survivorship_is_never_read_as_equality(tmp_path: Path) -> None:
    """The guest is slower by 26% in a fifth of its trials, and each such trial is lost; the mean of what is left is
    that of equal sides.
    """
    rng, seen = np.random.default_rng(1), set()
    for experiment in range(30):
        slow = set((1 + np.flatnonzero(rng.random(10) < 0.2)).tolist())
        if not slow:
            continue  # nothing is lost, and nothing can be known

        def change(row: Row, slow: set[int] = slow) -> list[Row]:
            return [failed_trial(row, Code.TOOL_FAILED) if row["arm"] == GUEST and row["block"] in slow else row]

        truth = equal(change=change, blocks=10, seed=experiment, noise=0.002)
        seen.add(verdict(judge_run(tmp_path / str(experiment), truth)).kind)
    assert seen == {Kind.UNDECIDED}


# ---- the A/A control


def test_the_control_is_a_second_replicate_of_its_side(tmp_path: Path) -> None:
    """The log ratio is against the mean of both; its variance 1.5 instead of 2 times that of a trial."""
    figures: dict[Arm, list[float]] = {BASELINE: [], CONTROL: [], GUEST: []}

    def change(row: Row) -> list[Row]:
        figures[row["arm"]].append(row["throughput_rps"])
        return [row]

    throughput = verdict(judge_run(tmp_path, Truth({"nginx": 0.9}, noise=0.02, drift=0, blocks=10, change=change)))
    logs = {arm: np.log(values) for arm, values in figures.items()}
    expected = logs[GUEST] - (logs[BASELINE] + logs[CONTROL]) / 2
    assert [np.log(effect.mid or 0) for effect in throughput.effects] == pytest.approx(expected.tolist(), abs=1e-4)
    assert ratio(throughput) == pytest.approx(np.exp(expected.mean()), rel=0.01)
    assert throughput.noise_floor == pytest.approx(np.expm1(np.abs(logs[CONTROL] - logs[BASELINE]).max()), rel=0.01)


# ---- the shape of the figures


def test_a_state_of_some_blocks_is_seen_as_noise(tmp_path: Path) -> None:
    """Equal in most blocks, and 30% slower in two of twenty: not called equal."""

    def change(row: Row) -> list[Row]:
        slow = 0.7 if row["arm"] == GUEST and row["block"] in (4, 13) else 1.0
        return [row | {name: row[name] * slow for name in RATES}]

    throughput = verdict(judge_run(tmp_path, equal(change=change, blocks=20)))
    assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, VerdictReason.NOISE)
    assert throughput.blocks_range and throughput.blocks_range.low == pytest.approx(0.7, abs=0.01)


def test_a_slow_replicate_of_metal_does_not_make_the_guest_faster(tmp_path: Path) -> None:
    """One bad trial of the control in eight shifts the mean of all; the first replicates show no difference."""

    def change(row: Row) -> list[Row]:
        slow = 0.6 if row["arm"] == CONTROL and row["block"] == 5 else 1.0
        return [row | {name: row[name] * slow for name in RATES}]

    throughput = verdict(judge_run(tmp_path, equal(change=change, blocks=8, servers={"nginx": 1.004})))
    assert throughput.kind is not Kind.FASTER


def test_blocks_that_hang_together_widen_the_interval(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        slow = 0.97 if row["arm"] == GUEST and row["block"] > 6 else 1.0
        return [row | {name: row[name] * slow for name in RATES}]

    throughput = verdict(judge_run(tmp_path, equal(change=change, blocks=12, noise=0.002)))
    low, _, high = ends(throughput)
    independent = 2 * 2.201 * 0.0155 / np.sqrt(12)  # of six blocks at 0 and six at −3%
    assert np.log(high / low) > 1.4 * independent
    assert throughput.correlation > 0.3


# ---- percentiles


def with_requests(guest: int, metal: int = 4000, **keys: Any) -> Truth:
    def change(row: Row) -> list[Row]:
        n = guest if row["arm"] == GUEST else metal
        return [row | dict.fromkeys(("requests", "transactions", "successful"), n)]

    return Truth(loads=(rate_load(1000),), change=change, **keys)


@pytest.mark.parametrize(
    ("requests", "because"), [(99, VerdictReason.NO_FIGURE), (100, None), (367, None), (368, None)]
)
def test_a_percentile_needs_a_hundred_requests(tmp_path: Path, requests: int, because: VerdictReason | None) -> None:
    tail = verdict(judge_run(tmp_path, with_requests(requests, requests, latency_ratio=2.0)), "tail")
    assert tail.because is because
    assert because or tail.kind is Kind.SLOWER


def test_percentiles_out_of_order_are_none(tmp_path: Path) -> None:
    """What a tool prints below its own median counted something else."""

    def change(row: Row) -> list[Row]:
        return [row | {"response_time_p99_us": 0.5 * row["response_time_p50_us"]} if row["arm"] == GUEST else row]

    tail = verdict(judge_run(tmp_path, Truth(loads=(rate_load(1000),), change=change)), "tail")
    assert (tail.kind, tail.because, tail.compared.used) == (Kind.NOT_JUDGED, VerdictReason.NO_FIGURE, 0)


def test_percentiles_of_unequally_many_requests_have_a_set(tmp_path: Path) -> None:
    """4,000 against 3,400 is fair; against 1,000 the p99 of the 4,000 may be its p90, which is 0.66 of it."""
    near = verdict(judge_run(tmp_path / "near", with_requests(3400, latency_ratio=1.3)), "tail")
    assert (near.kind, near.doubts) == (Kind.SLOWER, ())
    fewer = verdict(judge_run(tmp_path / "fewer", with_requests(1000, latency_ratio=1.3)), "tail")
    assert fewer.kind is Kind.SLOWER, "metal, of more requests, would only be quicker"
    assert fewer.open_high or ends(fewer)[2] > 1.7
    more = verdict(judge_run(tmp_path / "more", with_requests(4000, 1000, latency_ratio=1.3)), "tail")
    assert (more.kind, more.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS)
    assert (more.doubts[0].cause, more.doubts[0].compared) == (Cause.UNEQUAL_REQUESTS, 6)
    logged = with_requests(4000, 1000, latency_ratio=1.3, histograms=True)
    assert verdict(judge_run(tmp_path / "logged", logged), "tail").kind is Kind.SLOWER


def test_each_percentile_has_its_requests_and_its_interval(tmp_path: Path) -> None:
    truth = Truth(loads=(rate_load(1000),), histograms=True, noise=0.0001, drift=0.0)
    tail = verdict(judge_run(tmp_path, truth), "tail")
    level = tail.baseline_percentile
    assert level is not None and level.low is not None and level.high is not None
    assert (level.requests, level.within) == (4000, True), "over trials there is next to no spread"
    assert level.low < level.value_us < level.high
    noisy = verdict(
        judge_run(tmp_path / "noisy", Truth(loads=(rate_load(1000),), noise=0.3)), "tail"
    ).baseline_percentile
    assert noisy is not None and not noisy.within


# ---- boots


def booted(ratios: tuple[float, ...], blocks: int = 4) -> Truth:
    """Groups of blocks with a boot before each, which sets the guest's ratio for all of them."""

    def change(row: Row) -> list[Row]:
        boot = (row["block"] - 1) // blocks + 1
        of_boot = ratios[boot - 1] if row["arm"] == GUEST else 1.0
        return [row | {"boot": boot} | {name: row[name] * of_boot for name in RATES}]

    return equal(change=change, blocks=blocks * len(ratios))


def test_boots_are_the_sample_if_there_are_several(tmp_path: Path) -> None:
    """3% slower in one boot of three: twelve blocks of one boot would be sure of a difference, three boots are not."""
    throughput = verdict(judge_run(tmp_path / "differ", booted((0.97, 1.0, 1.0))))
    assert (throughput.kind, throughput.boots, throughput.blocks) == (Kind.UNDECIDED, 3, 12)
    alike = verdict(judge_run(tmp_path / "alike", booted((0.9, 0.9, 0.9))))
    assert (alike.kind, alike.boots) == (Kind.SLOWER, 3)
    same = [verdict(judge_run(tmp_path / f"same-{n}", booted((1.0,) * n))).kind for n in (3, 4)]
    assert same == [Kind.UNDECIDED, Kind.EQUIVALENT]
