"""The analysis recovers the effect in synthetic readings, and reaches every kind of verdict."""

import json
import math
from pathlib import Path

import pytest

from tests.support.synthetic_run import CONTROL, Row, Truth, failed, found, limited, make_run
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse, keep
from vmtoll.model.finding import Code, Finding, Role, Validity
from vmtoll.model.trial import BASELINE, Accelerator, Arm
from vmtoll.model.verdict import Because, Bound, Kind, Limit, NoteCode, RunAnalysis, Verdict, from_json, to_json
from vmtoll.report import tables, words
from vmtoll.report.html import render

GUEST = Arm("kvm-default")


def judged(tmp_path: Path, truth: Truth) -> RunAnalysis:
    analysis = analyse(load_run(make_run(tmp_path, truth)))
    assert from_json(to_json(analysis)) == analysis
    return analysis


def verdict(analysis: RunAnalysis, metric: str = "throughput", server: str = "nginx", arm: Arm = GUEST) -> Verdict:
    (comparison,) = [c for c in analysis.comparisons if (c.scenario.server, c.arm) == (server, arm)]
    return comparison.verdicts[metric]


def codes(one: Verdict) -> set[NoteCode]:
    return {note.code for note in one.notes}


def estimate(one: Verdict) -> tuple[float, float, float]:
    """low, ratio, high."""
    assert one.estimate is not None and one.estimate.low is not None and one.estimate.high is not None
    return one.estimate.low, one.estimate.ratio, one.estimate.high


def test_recovers_the_truth(tmp_path: Path) -> None:
    analysis = judged(tmp_path, Truth({"nginx": 0.9}, latency_ratio=1.3, cpu_ratio=1.1, blocks=10))
    throughput = verdict(analysis)
    assert throughput.kind is Kind.SLOWER
    assert throughput.overhead is not None and throughput.overhead.low is not None
    assert throughput.overhead.low < 0.1 < (throughput.overhead.high or 0)
    assert throughput.overhead.ratio == pytest.approx(0.1, abs=0.01)
    assert throughput.hodges_lehmann is not None
    assert throughput.hodges_lehmann.ratio == pytest.approx(0.9, abs=0.01)
    assert (throughput.tool, throughput.role) == ("siege", Role.PRIMARY)
    assert (throughput.blocks, throughput.bound, throughput.blocks_needed) == (10, None, None)
    assert (throughput.baseline.requests, throughput.compared.requests) == ((20000,) * 20, (20000,) * 10)
    assert throughput.noise_floor is not None and 0 < throughput.noise_floor < 0.02
    latency = verdict(analysis, "latency_p99")
    assert (latency.tool, latency.role) == ("h2load", Role.CROSSCHECK)
    assert estimate(latency)[1] == pytest.approx(1.3, abs=0.02)
    assert estimate(verdict(analysis, "cpu"))[1] == pytest.approx(1.1, abs=0.02)
    assert estimate(verdict(analysis, "host_cpu"))[1] == pytest.approx(1.1 * 70 / 45, abs=0.03)


def test_the_guest_may_win(tmp_path: Path) -> None:
    assert verdict(judged(tmp_path, Truth({"nginx": 1.06}))).kind is Kind.FASTER


def test_equivalent(tmp_path: Path) -> None:
    throughput = verdict(judged(tmp_path, Truth({"nginx": 1.0}, noise=0.002, blocks=10)))
    assert (throughput.kind, throughput.margin) == (Kind.EQUIVALENT, 0.02)


def test_undecided_estimates_how_many_more_blocks(tmp_path: Path) -> None:
    throughput = verdict(judged(tmp_path, Truth({"nginx": 0.99}, noise=0.03)))
    assert throughput.kind is Kind.UNDECIDED
    assert throughput.blocks_needed is not None and throughput.blocks_needed > 0


def test_a_difference_no_larger_than_that_of_the_control_from_itself(tmp_path: Path) -> None:
    """A steady 4% is no finding in a lab whose A/A control is 10% off."""

    def change(row: Row) -> list[Row]:
        off = 1.1 if row["arm"] == CONTROL else 1.0
        return [row | {"throughput_rps": row["throughput_rps"] * off}]

    throughput = verdict(judged(tmp_path, Truth({"nginx": 0.96}, noise=0.001, change=change)))
    assert (throughput.kind, throughput.blocks_needed) == (Kind.UNDECIDED, None)
    assert throughput.because is Because.CONTROL_DIFFERS
    assert codes(throughput) == {NoteCode.CONTROL_DIFFERS}


def test_noise_floor_is_borrowed_where_only_one_server_has_a_control(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [] if row["arm"] == CONTROL and row["server"] != "nginx" else [row]

    analysis = judged(tmp_path, Truth({"nginx": 0.9, "lighttz": 0.9}, change=change))
    own, borrowed = verdict(analysis), verdict(analysis, server="lighttz")
    assert (own.noise_floor_server, borrowed.noise_floor_server) == (None, "nginx")
    assert own.noise_floor_arm == borrowed.noise_floor_arm == CONTROL
    assert codes(borrowed) == {NoteCode.NOISE_FLOOR_OF_OTHER_SERVER}


def test_no_control(tmp_path: Path) -> None:
    analysis = judged(tmp_path, Truth({"nginx": 0.9}, aa=False))
    assert analysis.noise_floor is None
    assert codes(verdict(analysis)) == {NoteCode.NO_NOISE_FLOOR}
    assert verdict(analysis).kind is Kind.SLOWER


def test_the_control_of_a_guest_is_no_guest_and_gives_its_noise(tmp_path: Path) -> None:
    """Where a guest repeats itself within 10% only, 4% between it and metal is no finding."""
    control = Arm("kvm-default", 2)

    def change(row: Row) -> list[Row]:
        off = 1.1 if row["arm"] == control else 1.0
        return [row | {"throughput_rps": row["throughput_rps"] * off}]

    truth = Truth({"nginx": 0.96}, noise=0.001, guest_control="kvm-default", change=change)
    run = load_run(make_run(tmp_path / "with", truth))
    assert run.arms == [BASELINE, CONTROL, GUEST, control]
    assert (run.guests, run.controls) == ([GUEST], [CONTROL, control])
    throughput = verdict(analyse(run))
    assert [comparison.arm for comparison in analyse(run).comparisons] == [GUEST]
    assert throughput.tests.family == 4
    assert throughput.noise_floor == pytest.approx(0.1, abs=0.01)
    assert (throughput.noise_floor_arm, throughput.kind) == (control, Kind.UNDECIDED)
    without = verdict(judged(tmp_path / "without", Truth({"nginx": 0.96}, noise=0.001)))
    assert (without.noise_floor_arm, without.kind) == (CONTROL, Kind.SLOWER)
    assert estimate(without)[1] == pytest.approx(0.96, abs=0.002)
    assert estimate(throughput)[1] == pytest.approx(0.96 * math.sqrt(1.1), abs=0.002)


def test_the_control_of_a_guest_serves_where_the_baseline_has_none(tmp_path: Path) -> None:
    throughput = verdict(judged(tmp_path, Truth({"nginx": 0.9}, aa=False, guest_control="kvm-default")))
    assert throughput.noise_floor is not None and 0 < throughput.noise_floor < 0.02
    assert (throughput.kind, throughput.noise_floor_arm) == (Kind.SLOWER, Arm("kvm-default", 2))


def test_failed_trials_are_left_out_and_counted(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        bad = row["arm"] == GUEST and row["block"] <= 2
        return [failed(row, Code.FAILED_REQUESTS)] if bad else [row]

    analysis = judged(tmp_path, Truth({"nginx": 0.9}, blocks=8, change=change))
    assert analysis.counts == {Validity.VALID: 22, Validity.SUSPECT: 0, Validity.INVALID: 2}
    assert (analysis.attempts, analysis.planned) == (24, 24)
    assert analysis.findings == {Code.FAILED_REQUESTS: 2}
    throughput = verdict(analysis)
    assert (throughput.kind, throughput.blocks) == (Kind.SLOWER, 6)
    assert (throughput.baseline.invalid, throughput.compared.invalid) == (0, 2)
    assert (throughput.baseline.used, throughput.compared.used) == (12, 6)
    assert throughput.compared.excluded_by == {Code.FAILED_REQUESTS: 2}


def test_no_valid_trial_is_invalid_with_its_findings(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed(row, Code.FINGERPRINT, "workers")] if row["arm"] == GUEST else [row]

    throughput = verdict(judged(tmp_path, Truth(change=change)))
    assert (throughput.kind, throughput.because) == (Kind.INVALID, Because.NO_VALID_PAIR)
    assert (throughput.baseline.trials, throughput.compared.trials, throughput.compared.invalid) == (12, 6, 6)
    assert throughput.compared.excluded_by == {Code.FINGERPRINT: 6}


def test_a_doubt_is_not_why_a_trial_was_refused(tmp_path: Path) -> None:
    """The gate that fired most often only makes a trial suspect."""

    def change(row: Row) -> list[Row]:
        why = {GUEST: Code.FINGERPRINT, BASELINE: Code.TOOL_FAILED}.get(row["arm"])
        if why and (row["arm"] == GUEST or row["block"] == 1):
            return [found(failed(row, why), Code.BACKGROUND_CPU, why)]
        return [row]

    analysis = judged(tmp_path, Truth(change=change))
    assert analysis.findings == {Code.BACKGROUND_CPU: 7, Code.FINGERPRINT: 6, Code.TOOL_FAILED: 1}
    throughput = verdict(analysis)
    assert throughput.because is Because.NO_VALID_PAIR
    assert throughput.compared.excluded_by == {Code.FINGERPRINT: 6}
    assert throughput.baseline.excluded_by == {Code.TOOL_FAILED: 1}


def test_only_the_last_attempt_counts_and_the_first_ones_are_known(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed(row, Code.HOST_LOST, "gone"), row | {"attempt": 2}]

    analysis = judged(tmp_path, Truth({"nginx": 0.9}, change=change))
    assert analysis.counts == {Validity.VALID: 18, Validity.SUSPECT: 0, Validity.INVALID: 0}
    assert (analysis.attempts, analysis.planned) == (36, 18)
    assert verdict(analysis).kind is Kind.SLOWER
    assert (verdict(analysis).baseline.retried, verdict(analysis).compared.retried) == (12, 6)


def saturated(*roles: Role, arms: tuple[Arm, ...] = (BASELINE, CONTROL)) -> Truth:
    return _limited(limited(Code.CLIENT_SATURATED, *roles), arms)


def _limited(findings: tuple[Finding, ...], arms: tuple[Arm, ...]) -> Truth:
    return Truth(change=lambda row: [found(row, *findings)] if row["arm"] in arms else [row])


def test_a_saturated_client_hands_over_to_the_crosscheck(tmp_path: Path) -> None:
    truth = saturated(Role.PRIMARY)
    truth.servers = {"nginx": 0.9}
    analysis = judged(tmp_path, truth)
    throughput = verdict(analysis)
    assert (throughput.tool, throughput.role, throughput.bound) == ("h2load", Role.CROSSCHECK, None)
    assert analysis.findings == {Code.CLIENT_SATURATED: 12}
    assert analysis.counts[Validity.SUSPECT] == 12


def test_saturated_clients_give_a_lower_bound(tmp_path: Path) -> None:
    truth = saturated(Role.PRIMARY, Role.CROSSCHECK)
    truth.servers = {"nginx": 0.5}
    analysis = judged(tmp_path, truth)
    throughput = verdict(analysis)
    assert (throughput.kind, throughput.bound) == (Kind.SLOWER, Bound.AT_LEAST)
    assert (throughput.limited_by, throughput.baseline.limited, throughput.compared.limited) == ((Limit.CLIENT,), 12, 0)
    assert codes(throughput) == {NoteCode.LIMITED, NoteCode.SUSPECT}
    assert verdict(analysis, "cpu").bound is None


def test_limits_on_both_sides_decide_nothing(tmp_path: Path) -> None:
    truth = _limited((Finding(Code.LINK_BOUND),), (BASELINE, CONTROL, GUEST))
    truth.servers, truth.link = {"nginx": 1.0}, "100mbit"
    throughput = verdict(judged(tmp_path, truth))
    assert (throughput.kind, throughput.because) == (Kind.INVALID, Because.LIMITED_ON_BOTH_SIDES)
    assert throughput.limited_by == (Limit.LINK,)


def test_a_limited_slower_side_decides_nothing(tmp_path: Path) -> None:
    truth = saturated(Role.PRIMARY, Role.CROSSCHECK, arms=(GUEST,))
    truth.servers = {"nginx": 0.5}
    throughput = verdict(judged(tmp_path, truth))
    assert (throughput.kind, throughput.because) == (Kind.INVALID, Because.LIMITED_ON_THE_SLOWER_SIDE)


def test_equality_under_a_limit_is_no_evidence(tmp_path: Path) -> None:
    truth = saturated(Role.PRIMARY, Role.CROSSCHECK, arms=(BASELINE,))
    truth.servers, truth.noise = {"nginx": 1.0}, 0.001
    throughput = verdict(judged(tmp_path, truth))
    assert (throughput.kind, throughput.because) == (Kind.INVALID, Because.LIMITED_SO_NO_EQUALITY)


def without_crosscheck(row: Row) -> Row:
    """The same trial by a tool that logs its own service times, and no cross-check."""
    own = {f"service_time_{p}_us": row[f"crosscheck_service_time_{p}_us"] for p in ("mean", "p50", "p90", "p99")}
    return {key: value for key, value in row.items() if not key.startswith("crosscheck_")} | own | {"tool": "oha"}


def test_p99_without_a_crosscheck_is_the_tools_own(tmp_path: Path) -> None:
    """With a saturated client on both sides, neither throughput nor p99 says anything of the server."""
    for name, findings, expected in (
        ("free", (), Kind.SLOWER),
        ("saturated", limited(Code.CLIENT_SATURATED, Role.PRIMARY), Kind.INVALID),
    ):

        def change(row: Row, findings: tuple[Finding, ...] = findings) -> list[Row]:
            return [found(without_crosscheck(row), *findings)]

        path = make_run(tmp_path / name, Truth({"nginx": 0.5}, change=change))
        meta = json.loads((path / "run.json").read_text())
        meta["workloads"]["siege-site"] |= {"tool": "oha", "crosscheck": None}
        (path / "run.json").write_text(json.dumps(meta))
        analysis = analyse(load_run(path))
        for metric in ("throughput", "latency_p99"):
            one = verdict(analysis, metric)
            assert (one.kind, one.tool, one.role) == (expected, "oha", Role.PRIMARY)
            if findings:
                assert one.because is Because.LIMITED_ON_BOTH_SIDES
                assert (one.baseline.limited, one.compared.limited) == (12, 6)
                assert one.limited_by == (Limit.CLIENT,)


def test_an_aborted_run_with_few_blocks(tmp_path: Path) -> None:
    analysis = judged(tmp_path, Truth({"nginx": 0.5}, blocks=2, status="running"))
    throughput = verdict(analysis)
    assert (throughput.kind, throughput.blocks_needed) == (Kind.UNDECIDED, 4)
    assert estimate(throughput)[1] == pytest.approx(0.5, abs=0.02)
    assert NoteCode.FEW_BLOCKS in codes(throughput)
    assert not analysis.complete


def test_no_trial_at_all(tmp_path: Path) -> None:
    analysis = judged(tmp_path, Truth(change=lambda row: [], status="running"))
    assert (analysis.comparisons, analysis.attempts, analysis.planned) == ((), 0, 18)


def test_emulation_is_known(tmp_path: Path) -> None:
    servers = {"lighttz": 0.045, "nginx": 0.05, "lighttpd": 0.06, "apache-prefork": 0.11}
    analysis = judged(tmp_path, Truth(servers, accelerator=Accelerator.TCG))
    assert analysis.emulated
    assert {comparison.accelerator for comparison in analysis.comparisons} == {Accelerator.TCG}
    assert math.isclose(estimate(verdict(analysis, server="lighttz"))[1], 0.045, abs_tol=0.002)


def test_each_guest_has_its_verdict(tmp_path: Path) -> None:
    analysis = judged(tmp_path, Truth({"nginx": 0.9}, guests=("kvm-default", "kvm-tuned")))
    assert [str(comparison.arm) for comparison in analysis.comparisons] == ["kvm-default", "kvm-tuned"]


def test_differences_are_counted(tmp_path: Path) -> None:
    undeclared = [{"fact": "sysctls: net.core.somaxconn", "values": {"metal": "4096", "kvm-default": "128"}}]
    assert judged(tmp_path, Truth({"nginx": 0.9}, undeclared=undeclared)).undeclared_differences == 1


def test_an_analysis_is_kept_with_its_run(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth()))
    analysis = analyse(run)
    file = keep(run, analysis)
    assert file == run.path / "analysis.json"
    assert from_json(file.read_bytes()) == analysis


def without_percentiles(row: Row) -> list[Row]:
    """As siege measures without a cross-check: throughput, no time of any request."""
    return [{key: value for key, value in row.items() if not key.startswith("crosscheck_")}]


def test_a_figure_that_the_tool_never_yields_is_not_measured(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth(change=without_percentiles)))
    (comparison,) = analyse(run).comparisons
    p99 = comparison.verdicts["latency_p99"]
    assert (p99.because, p99.applies) == (Because.NOT_MEASURED, False)
    assert words.verdict_text(p99) == "not measured (siege prints no percentiles)"
    assert "latency_p99" not in {row["metric"] for row in tables.verdicts(analyse(run))}
    page = render(run, analyse(run))
    assert '<td data-heading="p99" class="none"><small>not measured (siege prints no percentiles)</small></td>' in page


def test_a_figure_that_failed_trials_lack_is_not_called_unmeasured(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth(change=lambda row: [failed(row, Code.TOOL_FAILED)])))
    (comparison,) = analyse(run).comparisons
    p99 = comparison.verdicts["latency_p99"]
    assert (p99.kind, p99.because, p99.applies) == (Kind.INVALID, Because.NO_VALID_PAIR, True)
