"""Runs that would mislead: what is let into a verdict, what is left out of it, and what it must then not say."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.synthetic_run import CONTROL, Row, Truth, failed, found, limited, make_run, rate
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import FINDINGS, Code, Finding, Influence, Role, Validity
from vmtoll.model.trial import BASELINE, Arm
from vmtoll.model.verdict import Because, Bound, Kind, Note, NoteCode, RunAnalysis, Verdict, from_json, to_json
from vmtoll.report import words
from vmtoll.runner.gates import failed_requests

GUEST = Arm("kvm-default")


def judged(tmp_path: Path, truth: Truth) -> RunAnalysis:
    analysis = analyse(load_run(make_run(tmp_path, truth)))
    assert from_json(to_json(analysis)) == analysis
    return analysis


def verdict(analysis: RunAnalysis, metric: str = "throughput") -> Verdict:
    (comparison,) = analysis.comparisons
    return comparison.verdicts[metric]


def notes(verdict: Verdict) -> dict[NoteCode, Note]:
    return {note.code: note for note in verdict.notes}


def equal(**keys: object) -> Truth:
    """Two sides that are equal, and quiet enough to be shown equal."""
    return Truth(**({"servers": {"nginx": 1.0}, "noise": 0.001, "cpu_ratio": 1.0, "latency_ratio": 1.0} | keys))  # type: ignore[arg-type]


# ---- suspect trials


def distorting(arms: tuple[Arm, ...], blocks: int, slow: float) -> Truth:
    """Another process takes CPU in these arms and blocks, and makes them slower."""

    def change(row: Row) -> list[Row]:
        if row["arm"] not in arms or row["block"] > blocks:
            return [row]
        codes = (Code.HOST_BACKGROUND_CPU, Code.STEAL, Code.STALLED, Code.CLOCK_STEPPED)
        slower = {name: row[name] * slow for name in ("throughput_rps", "crosscheck_throughput_rps")}
        return [found(row | slower, *codes)]

    return equal(change=change, blocks=10)


def test_distortion_of_every_trial_of_one_side_vetoes(tmp_path: Path) -> None:
    """In all guest trials another process takes 11% of the CPU: nothing is known of the guest."""
    analysis = judged(tmp_path, distorting((GUEST,), 10, 0.89))
    throughput = verdict(analysis)
    assert (throughput.kind, throughput.because) == (Kind.INVALID, Because.DISTORTED)
    assert notes(throughput)[NoteCode.SUSPECT].values == {"suspect": 10, "trials": 30, "distorted": 10}
    assert "host-background-cpu in 10" in words.verdict_text(throughput)
    assert "10 of 30 trials suspect" in words.sentence(analysis)


def test_one_side_distorted_more_often_than_chance_vetoes(tmp_path: Path) -> None:
    """Three of ten pairs are no third; three of ten trials against none of twenty are no chance (Fisher, p = 0.03)."""
    assert verdict(judged(tmp_path / "few", distorting((GUEST,), 2, 0.89))).because is None
    assert verdict(judged(tmp_path / "one-sided", distorting((GUEST,), 3, 0.89))).because is Because.DISTORTED
    both = verdict(judged(tmp_path / "alike", distorting((GUEST, BASELINE, CONTROL), 3, 1.0)))
    assert both.kind is Kind.EQUIVALENT


def test_a_verdict_decided_by_distorted_pairs_is_marked(tmp_path: Path) -> None:
    """Equal but for two pairs of ten: the clean eight are equivalent, all ten are not."""
    throughput = verdict(judged(tmp_path, distorting((GUEST,), 2, 0.89)))
    assert throughput.kind is Kind.UNDECIDED
    assert notes(throughput)[NoteCode.DEPENDS_ON_SUSPECT].values == {"pairs": 2}
    assert throughput.clean is not None and throughput.clean.ratio == pytest.approx(1, abs=0.002)
    assert throughput.estimate is not None and throughput.estimate.ratio < 0.99


def test_symptoms_stay_in(tmp_path: Path) -> None:
    """A guest that stalls is what was measured."""
    truth = Truth({"nginx": 0.9}, change=lambda row: [found(row, Code.STALLED) if row["arm"] == GUEST else row])
    throughput = verdict(judged(tmp_path, truth))
    assert (throughput.kind, throughput.because, throughput.compared.distorted) == (Kind.SLOWER, None, 0)
    assert notes(throughput)[NoteCode.SUSPECT].values["suspect"] == 6


def test_distorted_times_do_not_distort_cpu(tmp_path: Path) -> None:
    truth = Truth({"nginx": 0.9}, change=lambda row: [found(row, Code.CLOCK_STEPPED)])
    analysis = judged(tmp_path, truth)
    assert verdict(analysis).because is Because.DISTORTED
    assert verdict(analysis, "cpu").because is None


def test_a_page_of_suspect_trials_states_that_first(tmp_path: Path) -> None:
    truth = Truth({"nginx": 0.9}, change=lambda row: [found(row, Code.STALLED)] if row["block"] < 5 else [row])
    text = words.sentence(judged(tmp_path, truth))
    assert text.startswith("Only 6 of 18 trials valid, so doubt every figure: the guest loses 10")
    assert "12 of 18 trials suspect" in text


def test_every_finding_has_its_influence() -> None:
    excluding = {code for code, kind in FINDINGS.items() if kind.influence is Influence.EXCLUDES}
    assert excluding == {code for code, kind in FINDINGS.items() if kind.severity is Validity.INVALID}


def test_users_that_are_not_in_flight_hand_over_to_the_crosscheck(tmp_path: Path) -> None:
    """Seven of ten users in flight: another load than ten users, by the client's doing."""

    def change(value: float) -> Truth:
        finding = Finding(Code.LITTLES_LAW, value, 10, Role.PRIMARY, "siege", "client")
        return Truth({"nginx": 0.9}, change=lambda row: [found(row, finding)] if row["arm"] == GUEST else [row])

    assert verdict(judged(tmp_path / "short", change(7.0))).role is Role.CROSSCHECK
    assert verdict(judged(tmp_path / "over", change(11.0))).role is Role.PRIMARY


# ---- failures, exclusions, second attempts


def test_one_failed_request_of_twenty_thousand_does_not_void_a_trial(tmp_path: Path) -> None:
    (one,) = failed_requests(20_000, 20_000, 19_999, 1, Role.PRIMARY, "siege")
    (many,) = failed_requests(20_000, 20_000, 19_979, 21, Role.PRIMARY, "siege")
    assert (one.severity, many.severity) == (Validity.SUSPECT, Validity.INVALID)
    assert "1 request failed, 19999 of 20000 succeeded (limit 20)" in words.finding_text(one)

    def change(row: Row) -> list[Row]:
        if row["arm"] != GUEST:
            return [row]
        return [found(row | {"successful": 19_999, "failed": 1}, one)]

    throughput = verdict(judged(tmp_path, Truth({"nginx": 0.9}, change=change)))
    assert (throughput.kind, throughput.blocks, throughput.compared.invalid) == (Kind.SLOWER, 6, 0)
    assert NoteCode.FAILED_REQUESTS in notes(throughput)


def losing(arm: Arm, blocks: int, of: int, *, again: bool = False) -> Truth:
    """An arm that fails in its first blocks; `again`: and succeeds at the second attempt."""

    def change(row: Row) -> list[Row]:
        if row["arm"] != arm or row["block"] > blocks:
            return [row]
        first = failed(row, Code.TOOL_FAILED, "cut off")
        return [first, row | {"attempt": 2}] if again else [first]

    return equal(change=change, blocks=of)


@pytest.mark.parametrize("arm", [GUEST, BASELINE])
def test_trials_that_one_side_lost_are_no_equivalence(tmp_path: Path, arm: Arm) -> None:
    """The guest fails in four of ten blocks, and the other six are equal. (Metal's control replaces metal.)"""
    analysis = judged(tmp_path, losing(arm, 4, 10))
    throughput = verdict(analysis)
    if arm == GUEST:
        assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, Because.UNEQUAL_LOSSES)
        assert "the guest 4 of 10 invalid" in words.verdict_text(throughput)
    else:
        assert throughput.kind is not Kind.EQUIVALENT
    assert notes(throughput)[NoteCode.EXCLUDED].values == {
        "baseline": 4 * (arm == BASELINE), "compared": 4 * (arm == GUEST),
    }  # fmt: skip


def test_a_single_lost_block_forbids_equality_unless_the_worst_case_allows_it(tmp_path: Path) -> None:
    few = verdict(judged(tmp_path / "few", losing(GUEST, 1, 10)))
    assert (few.kind, few.because) == (Kind.UNDECIDED, Because.LOSSES_DECIDE)
    assert verdict(judged(tmp_path / "many", losing(GUEST, 1, 12))).kind is Kind.EQUIVALENT


def test_second_attempts_of_one_side_are_counted_and_are_no_equivalence(tmp_path: Path) -> None:
    analysis = judged(tmp_path, losing(GUEST, 8, 8, again=True))
    throughput = verdict(analysis)
    assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, Because.UNEQUAL_LOSSES)
    assert notes(throughput)[NoteCode.RETRIED].values == {"baseline": 0, "compared": 8}
    assert "trials tried a second time: 0 of 16 on metal, 8 of 8 on kvm-default" in words.notes_text(
        throughput, "kvm-default"
    )
    reliability = analysis.comparisons[0].reliability
    assert reliability is not None
    assert (reliability.compared.trials, reliability.compared.at_first, reliability.compared.valid) == (8, 0, 8)
    assert reliability.compared.high == pytest.approx(1 - 0.025 ** (1 / 8))
    assert reliability.p == pytest.approx(2 / 2**8)


def test_a_side_that_lost_trials_is_not_the_faster_one(tmp_path: Path) -> None:
    """Its slow trials may be the lost ones. To be slower it needs no lost trial."""

    def lost(arm: Arm, ratio: float) -> Verdict:
        truth = losing(arm, 4, 10)
        truth.servers = {"nginx": ratio}
        return verdict(judged(tmp_path / f"{ratio}", truth))

    faster, slower = lost(GUEST, 1.1), lost(GUEST, 0.9)
    assert (faster.kind, faster.because) == (Kind.UNDECIDED, Because.UNEQUAL_LOSSES)
    assert slower.kind is Kind.SLOWER


def test_survivorship_is_rarely_read_as_equality(tmp_path: Path) -> None:
    """The guest is slower by 26% in a fifth of its trials, and each such trial is lost: at most 5% `equivalent`.

    Before, 97% of such runs were: the mean of what is left is that of equal sides.
    """
    rng = np.random.default_rng(1)
    said = 0
    for experiment in range(60):
        slow = set((1 + np.flatnonzero(rng.random(10) < 0.2)).tolist())
        if not slow:
            continue  # nothing is lost, and nothing can be known

        def change(row: Row, slow: set[int] = slow) -> list[Row]:
            return [failed(row, Code.TOOL_FAILED) if row["arm"] == GUEST and row["block"] in slow else row]

        truth = equal(change=change, blocks=10, seed=experiment, noise=0.002)
        said += verdict(judged(tmp_path / str(experiment), truth)).kind is Kind.EQUIVALENT
    assert said == 0


# ---- bounds


def test_limits_on_both_sides_give_no_bound(tmp_path: Path) -> None:
    """Metal is limited in all blocks, the guest in three of six: whose true rate is the higher one is unknown."""

    def change(row: Row) -> list[Row]:
        hit = row["arm"] != GUEST or row["block"] <= 3
        return [found(row, *limited(Code.CLIENT_SATURATED, *Role)) if hit else row]

    throughput = verdict(judged(tmp_path / "six", Truth({"nginx": 0.89}, change=change)))
    assert (throughput.kind, throughput.because) == (Kind.INVALID, Because.LIMITED_ON_BOTH_SIDES)
    free = verdict(judged(tmp_path / "ten", Truth({"nginx": 0.89}, blocks=10, change=change)))
    assert (free.kind, free.bound, free.blocks, free.compared.limited) == (Kind.SLOWER, Bound.AT_LEAST, 7, 0)


# ---- the A/A control


def test_the_control_is_a_second_replicate_of_its_side(tmp_path: Path) -> None:
    """The log ratio is against the mean of both; its variance 1.5 instead of 2 times that of a trial."""
    figures: dict[Arm, list[float]] = {BASELINE: [], CONTROL: [], GUEST: []}

    def change(row: Row) -> list[Row]:
        figures[row["arm"]].append(row["throughput_rps"])
        return [row]

    throughput = verdict(judged(tmp_path, Truth({"nginx": 0.9}, noise=0.02, drift=0, blocks=10, change=change)))
    logs = {arm: np.log(values) for arm, values in figures.items()}
    expected = (logs[GUEST] - (logs[BASELINE] + logs[CONTROL]) / 2).mean()
    assert throughput.estimate is not None
    assert np.log(throughput.estimate.ratio) == pytest.approx(expected)


def test_a_control_with_a_single_pair_gives_way_to_that_of_another_server(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [] if row["arm"] == CONTROL and row["server"] == "nginx" and row["block"] > 1 else [row]

    analysis = judged(tmp_path, Truth({"nginx": 0.9, "lighttz": 0.9}, change=change))
    (comparison,) = [c for c in analysis.comparisons if c.scenario.server == "nginx"]
    assert comparison.verdicts["throughput"].noise_floor_server == "lighttz"


# ---- the shape of the figures


def test_two_modes_are_shown_and_are_no_equality(tmp_path: Path) -> None:
    """Equal in most blocks, and 30% slower in two of twenty."""

    def change(row: Row) -> list[Row]:
        slow = 0.7 if row["arm"] == GUEST and row["block"] in (4, 13) else 1.0
        return [row | {name: row[name] * slow for name in ("throughput_rps", "crosscheck_throughput_rps")}]

    throughput = verdict(judged(tmp_path, equal(change=change, blocks=20)))
    assert throughput.kind is Kind.UNDECIDED
    values = notes(throughput)[NoteCode.TWO_MODES].values
    assert (values["n_low"], values["n_high"]) == (2, 18)
    assert (values["low"], values["high"]) == pytest.approx((0.7, 1.0), abs=0.01)
    assert "0.70 in 2 blocks and 1.00 in 18" in " ".join(words.notes_text(throughput))


def test_equality_needs_both_intervals(tmp_path: Path) -> None:
    """Two modes within the margin are too far apart to be called one thing."""

    def change(row: Row) -> list[Row]:
        high = 1.012 if row["arm"] == GUEST and row["block"] % 2 else 1.0
        return [row | {name: row[name] * high for name in ("throughput_rps", "crosscheck_throughput_rps")}]

    throughput = verdict(judged(tmp_path, equal(change=change, blocks=20, noise=0.0003)))
    assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, Because.TWO_MODES)


def test_blocks_that_hang_together_widen_the_interval(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        slow = 0.97 if row["arm"] == GUEST and row["block"] > 6 else 1.0
        return [row | {name: row[name] * slow for name in ("throughput_rps", "crosscheck_throughput_rps")}]

    throughput = verdict(judged(tmp_path, equal(change=change, blocks=12, noise=0.002)))
    note = notes(throughput)[NoteCode.AUTOCORRELATED]
    assert note.values["p"] < 0.05 and note.values["inflation"] > 1.5
    estimate = throughput.estimate
    assert estimate is not None and estimate.low is not None and estimate.high is not None
    independent = 2 * 2.201 * 0.0155 / np.sqrt(12)  # of six blocks at 0 and six at −3%
    assert np.log(estimate.high / estimate.low) > 1.4 * independent


# ---- percentiles


def with_requests(guest: int, metal: int = 4000) -> Truth:
    def change(row: Row) -> list[Row]:
        n = guest if row["arm"] == GUEST else metal
        return [row | dict.fromkeys(("requests", "transactions", "successful"), n)]

    return Truth(loads=(rate(1000),), change=change)


@pytest.mark.parametrize(("requests", "because"), [(367, Because.FEW_REQUESTS), (368, None)])
def test_a_percentile_of_too_few_requests_is_none(tmp_path: Path, requests: int, because: Because | None) -> None:
    tail = verdict(judged(tmp_path, with_requests(requests, requests)), "tail")
    assert tail.because is because
    assert tail.compared.few == (6 if because else 0)


def test_percentiles_of_unequally_many_requests_need_their_histograms(tmp_path: Path) -> None:
    assert verdict(judged(tmp_path / "near", with_requests(3400)), "tail").kind is Kind.SLOWER
    tail = verdict(judged(tmp_path / "far", with_requests(1000)), "tail")
    assert (tail.kind, tail.because) == (Kind.INVALID, Because.UNEQUAL_REQUESTS)


def test_each_percentile_has_its_requests_and_its_interval(tmp_path: Path) -> None:
    truth = Truth(loads=(rate(1000),), histograms=True, noise=0.0001, drift=0.0)
    tail = verdict(judged(tmp_path, truth), "tail")
    level = tail.baseline_percentile
    assert level is not None and level.low is not None and level.high is not None
    assert (level.requests, level.within) == (4000, True), "over trials there is next to no spread"
    assert level.low < level.value_us < level.high
    noisy = verdict(judged(tmp_path / "noisy", Truth(loads=(rate(1000),), noise=0.3)), "tail").baseline_percentile
    assert noisy is not None and not noisy.within


# ---- boots


def booted(ratios: tuple[float, ...], blocks: int = 4) -> Truth:
    """Groups of blocks with a boot before each, which sets the guest's ratio for all of them."""

    def change(row: Row) -> list[Row]:
        boot = (row["block"] - 1) // blocks + 1
        ratio = ratios[boot - 1] if row["arm"] == GUEST else 1.0
        return [row | {"boot": boot} | {n: row[n] * ratio for n in ("throughput_rps", "crosscheck_throughput_rps")}]

    return equal(change=change, blocks=blocks * len(ratios))


def test_boots_are_the_sample_if_there_are_several(tmp_path: Path) -> None:
    """3% slower in one boot of three: twelve blocks of one boot would be sure of a difference, three boots are not."""
    throughput = verdict(judged(tmp_path / "differ", booted((0.97, 1.0, 1.0))))
    assert (throughput.kind, throughput.boots, throughput.blocks) == (Kind.UNDECIDED, 3, 12)
    assert throughput.variance is not None and throughput.variance.boot is not None
    assert throughput.variance.boot > 0.95
    alike = verdict(judged(tmp_path / "alike", booted((0.9, 0.9, 0.9, 0.9))))
    assert (alike.kind, alike.boots) == (Kind.SLOWER, 4)
    single = judged(tmp_path / "single", equal(blocks=12))
    assert "one host, one boot" in words.sentence(single)
    shares = verdict(single).variance
    assert shares is not None and shares.boot is None and shares.trial is not None
    assert shares.block + shares.trial == pytest.approx(1)
