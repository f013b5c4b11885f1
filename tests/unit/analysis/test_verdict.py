"""The analysis recovers the effect in synthetic readings, and reaches every kind of verdict."""

import gc
import json
import math
import time
from dataclasses import replace
from pathlib import Path

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
    role_findings,
    with_findings,
)
from tests.support.verdicts import GUEST, ends, judge_run, notes, ratio, the_note, verdict
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse, write_analysis
from vmtoll.model.analysis import from_json, to_json
from vmtoll.model.finding import Code, Finding, Role, Validity
from vmtoll.model.note import ClientTime, ControlDiffers, FewBlocks, NoControl
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.model.verdict import Cause, Kind, VerdictReason

pytestmark = pytest.mark.slow


def test_recovers_the_truth(tmp_path: Path) -> None:
    analysis = judge_run(tmp_path, Truth({"nginx": 0.9}, latency_ratio=1.3, cpu_ratio=1.1, blocks=10))
    throughput = verdict(analysis)
    assert throughput.kind is Kind.SLOWER
    low, middle, high = ends(throughput)
    assert low < 0.9 < high and middle == pytest.approx(0.9, abs=0.01)
    assert (throughput.tool, throughput.role) == ("siege", Role.PRIMARY)
    assert (throughput.blocks, throughput.blocks_needed, throughput.because) == (10, None, None)
    assert (throughput.baseline.requests, throughput.compared.requests) == ((20000,) * 20, (20000,) * 10)
    assert throughput.noise_floor is not None and 0 < throughput.noise_floor < 0.03
    assert throughput.tests.family == 4 and throughput.confidence == pytest.approx(1 - 0.05 / 2, abs=0.0251)
    levels = throughput.baseline.level, throughput.compared.level
    assert levels[0] and levels[1] and levels[1] / levels[0] == pytest.approx(middle, rel=1e-3)
    effects = throughput.effects
    assert [effect.block for effect in effects] == list(range(1, 11))
    assert all(e.low is not None and e.mid and e.high and e.low <= e.mid <= e.high for e in effects)
    nearest = max(effect.high or 0 for effect in effects), min(effect.mid or 0 for effect in effects)
    assert throughput.blocks_range and (throughput.blocks_range.high, throughput.blocks_range.low) == nearest
    latency = verdict(analysis, "latency_p99")
    assert (latency.tool, latency.role) == ("h2load", Role.CROSSCHECK)
    assert ratio(latency) == pytest.approx(1.3, abs=0.02)
    assert ratio(verdict(analysis, "cpu")) == pytest.approx(1.1, abs=0.02)
    assert ratio(verdict(analysis, "host_cpu")) == pytest.approx(1.1 * 70 / 45, abs=0.03)


def test_the_guest_may_win(tmp_path: Path) -> None:
    assert verdict(judge_run(tmp_path, Truth({"nginx": 1.06}))).kind is Kind.FASTER


def test_equivalent(tmp_path: Path) -> None:
    throughput = verdict(judge_run(tmp_path, Truth({"nginx": 1.0}, noise=0.002, blocks=10)))
    assert (throughput.kind, throughput.margin) == (Kind.EQUIVALENT, 0.02)


def test_equivalence_does_not_hide_a_certain_difference(tmp_path: Path) -> None:
    """1.3 times as slow for sure, within a margin of 50%: the page says both."""
    path = make_run(tmp_path, Truth({"nginx": 1 / 1.3}, noise=0.004, blocks=10))
    document = json.loads((path / "run.json").read_text())
    document["experiment"]["margin_pct"] = 50.0
    (path / "run.json").write_text(json.dumps(document))
    throughput = verdict(analyse(load_run(path)))
    assert (throughput.kind, throughput.also_different, throughput.margin) == (Kind.EQUIVALENT, True, 0.5)
    assert 1 / 1.5 < ends(throughput)[0] < 1 / 1.3 < ends(throughput)[2] < 1


def test_undecided_estimates_how_many_more_blocks(tmp_path: Path) -> None:
    throughput = verdict(judge_run(tmp_path, Truth({"nginx": 0.99}, noise=0.03)))
    assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, VerdictReason.NOISE)
    assert throughput.blocks_needed is not None and throughput.blocks_needed > 0
    assert throughput.detectable is not None and 0.03 < throughput.detectable < 0.5


def test_the_worst_of_sure_differences_is_no_less_sure(tmp_path: Path) -> None:
    """Ten times as slow in each of six blocks, a thousand times in one; and 11 to 18 times, growing block by block."""

    def slower(factors: dict[int, float], default: float) -> Truth:
        def change(row: Row) -> list[Row]:
            if row["arm"] != GUEST:
                return [row]
            factor = factors.get(row["block"], default)
            longer = {key: row[key] * factor for key in row if "service_time" in key or "per_request" in key}
            rates = ("throughput_rps", "crosscheck_throughput_rps")
            return [row | longer | {name: row[name] / factor for name in rates}]

        return Truth({"nginx": 1.0, "lighttz": 1.0}, 1.0, 1.0, noise=0.02, change=change)

    for name, factors in (("ten", {}), ("wild", {4: 1000.0}), ("growing", {n: 10 * 1.1**n for n in range(1, 7)})):
        analysis = judge_run(tmp_path / name, slower(factors, 10.0))
        verdicts = [v for c in analysis.comparisons for v in c.verdicts.values() if v.applies]
        assert [v.kind for v in verdicts] == [Kind.SLOWER] * 8, name
        wild = [v for v in verdicts if v.by_every_block]
        assert bool(wild) == (name == "wild")
        for one in wild:
            assert one.estimate and one.estimate.low is one.estimate.high is one.confidence is None
            assert one.blocks_range and one.blocks_range.low and one.blocks_range.high
            assert one.blocks_range.high / one.blocks_range.low > 50


# ---- the control


def test_a_control_that_differs_from_itself_widens_every_comparison_of_its_figure(tmp_path: Path) -> None:
    """A steady 4% is no finding in a lab whose A/A control is 10% off; one of 60% is."""

    def change(row: Row) -> list[Row]:
        off = 1.1 if row["arm"] == CONTROL else 1.0
        return [row | {"throughput_rps": row["throughput_rps"] * off}]

    little = verdict(judge_run(tmp_path / "little", Truth({"nginx": 0.96}, noise=0.001, change=change)))
    assert (little.kind, little.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS)
    assert the_note(little, ControlDiffers).size == pytest.approx(1.095, abs=0.006)
    assert little.doubts[0].cause is Cause.CONTROL and little.doubts[0].size == pytest.approx(1.095, abs=0.006)
    assert little.noise_floor == pytest.approx(0.1, abs=0.01)
    large = verdict(judge_run(tmp_path / "large", Truth({"nginx": 0.4}, noise=0.001, change=change)))
    low, middle, high = ends(large)
    assert large.kind is Kind.SLOWER and middle == pytest.approx(0.4 / math.sqrt(1.1), abs=0.002)
    assert high / middle > 1.08 and middle / low > 1.08


def test_the_noise_of_a_control_is_that_of_every_server(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [] if row["arm"] == CONTROL and row["server"] != "nginx" else [row]

    analysis = judge_run(tmp_path, Truth({"nginx": 0.9, "lighttz": 0.9}, change=change))
    own, borrowed = verdict(analysis), verdict(analysis, server="lighttz")
    assert own.noise_floor == borrowed.noise_floor is not None
    assert NoControl not in notes(own) and NoControl not in notes(borrowed)


def test_no_control(tmp_path: Path) -> None:
    analysis = judge_run(tmp_path, Truth({"nginx": 0.9}, aa=False))
    assert analysis.noise_floor is None
    assert set(notes(verdict(analysis))) == {NoControl}
    assert verdict(analysis).kind is Kind.SLOWER


def test_the_control_of_a_guest_is_no_guest_and_shows_its_noise(tmp_path: Path) -> None:
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
    assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS)
    without = verdict(judge_run(tmp_path / "without", Truth({"nginx": 0.96}, noise=0.001)))
    assert without.kind is Kind.SLOWER
    assert ratio(without) == pytest.approx(0.96, abs=0.002)
    assert ratio(throughput) == pytest.approx(0.96 * math.sqrt(1.1), abs=0.002)


def test_the_control_of_a_guest_serves_where_the_baseline_has_none(tmp_path: Path) -> None:
    throughput = verdict(judge_run(tmp_path, Truth({"nginx": 0.9}, aa=False, guest_control="kvm-default")))
    assert throughput.noise_floor is not None and 0 < throughput.noise_floor < 0.03
    assert (throughput.kind, NoControl in notes(throughput)) == (Kind.SLOWER, False)


# ---- trials without a figure


def test_failed_trials_are_counted(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        bad = row["arm"] == GUEST and row["block"] <= 2
        return [failed_trial(row, Code.FAILED_REQUESTS)] if bad else [row]

    analysis = judge_run(tmp_path, Truth({"nginx": 0.1}, blocks=8, change=change))
    assert analysis.counts == {Validity.VALID: 22, Validity.SUSPECT: 0, Validity.INVALID: 2}
    assert (analysis.attempts, analysis.planned) == (24, 24)
    assert analysis.findings == {Code.FAILED_REQUESTS: 2}
    throughput = verdict(analysis)
    assert (throughput.kind, throughput.blocks) == (Kind.SLOWER, 6)
    assert (throughput.baseline.lost, throughput.compared.lost) == (0, 2)
    assert (throughput.baseline.used, throughput.compared.used) == (16, 6)
    assert throughput.compared.excluded_by == {Code.FAILED_REQUESTS: 2}
    assert [effect.mid is None for effect in throughput.effects] == [True] * 2 + [False] * 6
    assert throughput.effects[0].low is not None and throughput.effects[0].high is None


def test_sides_that_are_not_the_same_thing_are_not_judged(tmp_path: Path) -> None:
    for number, code in enumerate((Code.FINGERPRINT, Code.SYSCTL)):

        def change(row: Row, code: Code = code) -> list[Row]:
            return [with_findings(row, code)] if row["arm"] == GUEST else [row]

        throughput = verdict(judge_run(tmp_path / str(number), Truth(change=change)))
        assert (throughput.kind, throughput.because) == (Kind.NOT_JUDGED, VerdictReason.NOT_COMPARABLE)
        assert (throughput.applies, throughput.tests.family, throughput.estimate) == (True, 0, None)
        assert (throughput.compared.incomparable, throughput.compared.used) == (6, 0)
        assert throughput.compared.excluded_by == {code: 6}


def test_a_doubt_is_not_why_a_trial_was_refused(tmp_path: Path) -> None:
    """The gate that fired most often only makes a trial suspect."""

    def change(row: Row) -> list[Row]:
        why = {GUEST: Code.FINGERPRINT, BASELINE: Code.TOOL_FAILED}.get(row["arm"])
        if why and (row["arm"] == GUEST or row["block"] == 1):
            return [with_findings(failed_trial(row, why), Code.BACKGROUND_CPU, why)]
        return [row]

    analysis = judge_run(tmp_path, Truth(change=change))
    assert analysis.findings == {Code.BACKGROUND_CPU: 7, Code.FINGERPRINT: 6, Code.TOOL_FAILED: 1}
    throughput = verdict(analysis)
    assert throughput.because is VerdictReason.NOT_COMPARABLE
    assert throughput.compared.excluded_by == {Code.FINGERPRINT: 6}
    assert throughput.baseline.excluded_by == {Code.TOOL_FAILED: 1}


def test_only_the_last_attempt_counts_and_the_first_ones_are_known(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed_trial(row, Code.HOST_LOST, "gone"), row | {"attempt": 2}]

    analysis = judge_run(tmp_path, Truth({"nginx": 0.2}, change=change))
    assert analysis.counts == {Validity.VALID: 18, Validity.SUSPECT: 0, Validity.INVALID: 0}
    assert (analysis.attempts, analysis.planned) == (36, 18)
    assert verdict(analysis).kind is Kind.SLOWER
    assert (verdict(analysis).baseline.second_attempts, verdict(analysis).compared.second_attempts) == (12, 6)


def test_a_guest_that_never_answered_is_not_called_unmeasured(tmp_path: Path) -> None:
    """All its trials were lost; or it answered nothing in all of them, which is the least that a figure can be."""
    gone = judge_run(tmp_path / "gone", Truth(change=lambda row: [
        failed_trial(row, Code.SERVER_FAILED) if row["arm"] == GUEST else row
    ]))  # fmt: skip
    lost = verdict(gone)
    assert (lost.kind, lost.because, lost.applies) == (Kind.NOT_JUDGED, VerdictReason.NO_FIGURE, True)
    assert (lost.compared.lost, lost.compared.trials) == (6, 6)

    def nothing(row: Row) -> list[Row]:
        silent = {
            "throughput_rps": 0.0,
            "crosscheck_throughput_rps": 0.0,
            "transactions": 0,
            "crosscheck_transactions": 0,
        }
        return [row | silent] if row["arm"] == GUEST else [row]

    silent = verdict(judge_run(tmp_path / "silent", Truth(change=nothing)))
    assert (silent.kind, silent.blocks) == (Kind.SLOWER, 6)


def test_a_block_in_which_a_side_did_nothing_is_its_worst(tmp_path: Path) -> None:
    """Ten times as slow, and in block 2 the guest answers nothing: still slower, and the block is not left out."""

    def change(row: Row) -> list[Row]:
        silent = row["arm"] == GUEST and row["block"] == 2
        return [row | {"throughput_rps": 0.0, "transactions": 0} if silent else row]

    throughput = verdict(judge_run(tmp_path, Truth({"nginx": 0.1}, noise=0.02, change=change)))
    assert (throughput.kind, throughput.blocks, throughput.compared.lost) == (Kind.SLOWER, 6, 0)
    assert throughput.effects[1].mid is not None and throughput.effects[1].mid < 1e-3


def test_a_cpu_time_below_a_tick_is_the_cheapest_trial(tmp_path: Path) -> None:
    """Metal took less than a tick in two blocks: they are its cheapest, and the guest is dearer in them too."""

    def change(row: Row) -> list[Row]:
        cheap = row["arm"] in (BASELINE, CONTROL) and row["block"] <= 2
        return [row | {"server_cpu_us_per_request": 0.0} if cheap else row]

    cpu = verdict(judge_run(tmp_path, Truth(cpu_ratio=10.0, noise=0.02, change=change)), "cpu")
    assert (cpu.kind, cpu.blocks) == (Kind.SLOWER, 6)
    assert all(effect.mid and effect.mid > 9 for effect in cpu.effects)


# ---- limits


def saturated(*roles: Role, arms: tuple[Arm, ...] = (BASELINE, CONTROL), server: float = 0.9) -> Truth:
    return _limited(role_findings(Code.CLIENT_SATURATED, *roles), arms, server)


def _limited(findings: tuple[Finding, ...], arms: tuple[Arm, ...], server: float) -> Truth:
    return Truth({"nginx": server}, change=lambda row: [with_findings(row, *findings)] if row["arm"] in arms else [row])


def test_a_saturated_client_hands_over_to_the_crosscheck(tmp_path: Path) -> None:
    analysis = judge_run(tmp_path, saturated(Role.PRIMARY))
    throughput = verdict(analysis)
    assert (throughput.tool, throughput.role, throughput.kind) == ("h2load", Role.CROSSCHECK, Kind.SLOWER)
    assert analysis.findings == {Code.CLIENT_SATURATED: 12}
    assert analysis.counts[Validity.SUSPECT] == 12


def test_a_limited_faster_side_leaves_a_lower_bound(tmp_path: Path) -> None:
    """Metal would have answered more, the guest no more than it did: at least so much slower."""
    analysis = judge_run(tmp_path, saturated(Role.PRIMARY, Role.CROSSCHECK, server=0.5))
    throughput = verdict(analysis)
    assert (throughput.kind, throughput.is_at_least, throughput.open_low, throughput.open_high) == (
        Kind.SLOWER, True, True, False,
    )  # fmt: skip
    low, middle, high = ends(throughput)
    assert high == pytest.approx(0.5, abs=0.02) and low < middle / 1.9
    assert (throughput.baseline.limited, throughput.compared.limited, throughput.limited) == (12, 0, 12)
    assert Code.CLIENT_SATURATED not in [doubt.cause for doubt in throughput.doubts], "it could only make it slower"
    cpu = verdict(analysis, "cpu")
    assert (cpu.open_low, cpu.open_high, cpu.is_at_least) == (False, False, False)


def test_a_full_link_shows_nothing(tmp_path: Path) -> None:
    """Two full links are no evidence of equality: more blocks will not help."""
    truth = _limited((Finding(Code.LINK_BOUND),), (BASELINE, CONTROL, GUEST), 1.0)
    truth.link, truth.noise = "100mbit", 0.001
    throughput = verdict(judge_run(tmp_path, truth))
    assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, VerdictReason.LIMIT)
    assert throughput.limited == 18


@pytest.mark.parametrize("arms", [(GUEST,), (BASELINE,), (BASELINE, CONTROL, GUEST)])
def test_a_limit_may_hide_what_it_is_larger_than(tmp_path: Path, arms: tuple[Arm, ...]) -> None:
    """Half as slow, and the guest's client is at its limit: it may have been as fast. Nor do limits show equality."""
    for number, server in enumerate((0.55, 1.0)):
        throughput = verdict(judge_run(tmp_path / str(number), saturated(*Role, arms=arms, server=server)))
        if arms == (BASELINE,) and server < 1:
            assert throughput.kind is Kind.SLOWER
        else:
            assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, VerdictReason.LIMIT)
            assert throughput.doubts[0].cause is Code.CLIENT_SATURATED
            counts = throughput.doubts[0].baseline, throughput.doubts[0].compared
            assert counts == (6 * sum(arm != GUEST for arm in arms), 6 * (GUEST in arms))


def test_a_limit_of_a_few_blocks_counts_in_them_alone(tmp_path: Path) -> None:
    """Ten times as slow, metal limited in all blocks, the guest in one of six: it may have answered twice as much."""

    def change(row: Row) -> list[Row]:
        hit = row["arm"] != GUEST or row["block"] == 3
        return [with_findings(row, *role_findings(Code.CLIENT_SATURATED, *Role)) if hit else row]

    throughput = verdict(judge_run(tmp_path, Truth({"nginx": 0.1}, noise=0.02, change=change)))
    assert (throughput.kind, throughput.compared.limited) == (Kind.UNDECIDED, 1)
    assert throughput.because is VerdictReason.LIMIT, "an open end in every block, on one side or the other"
    many = verdict(judge_run(tmp_path / "many", Truth({"nginx": 0.1}, noise=0.02, blocks=20, change=change)))
    assert many.kind is Kind.SLOWER


def without_crosscheck(row: Row) -> Row:
    """The same trial by a tool that logs its own service times, and no cross-check."""
    own = {f"service_time_{p}_us": row[f"crosscheck_service_time_{p}_us"] for p in ("mean", "p50", "p90", "p99")}
    return {key: value for key, value in row.items() if not key.startswith("crosscheck_")} | own | {"tool": "oha"}


def test_p99_without_a_crosscheck_is_the_tools_own(tmp_path: Path) -> None:
    """With a saturated client on both sides, neither throughput nor p99 says anything of the server."""
    for name, findings, expected in (
        ("free", (), (Kind.SLOWER, None)),
        ("saturated", role_findings(Code.CLIENT_SATURATED, Role.PRIMARY), (Kind.UNDECIDED, VerdictReason.LIMIT)),
    ):

        def change(row: Row, findings: tuple[Finding, ...] = findings) -> list[Row]:
            return [with_findings(without_crosscheck(row), *findings)]

        path = make_run(tmp_path / name, Truth({"nginx": 0.6}, change=change))
        meta = json.loads((path / "run.json").read_text())
        meta["workloads"]["siege-site"] |= {"tool": "oha", "crosscheck": None}
        (path / "run.json").write_text(json.dumps(meta))
        analysis = analyse(load_run(path))
        for metric in ("throughput", "latency_p99"):
            one = verdict(analysis, metric)
            assert (one.kind, one.because, one.tool, one.role) == (*expected, "oha", Role.PRIMARY)
            assert (one.baseline.limited, one.compared.limited) == ((12, 6) if findings else (0, 0))


# ---- runs


def test_an_aborted_run_with_few_blocks(tmp_path: Path) -> None:
    analysis = judge_run(tmp_path, Truth({"nginx": 0.5}, blocks=2, status="running"))
    throughput = verdict(analysis)
    assert (throughput.kind, throughput.because) == (Kind.UNDECIDED, VerdictReason.FEW_BLOCKS)
    assert throughput.blocks_needed is not None and throughput.blocks_needed >= 4
    assert throughput.estimate is not None and throughput.estimate.low is throughput.confidence is None
    assert ratio(throughput) == pytest.approx(0.5, abs=0.02)
    assert throughput.blocks_range and throughput.blocks_range.high and throughput.blocks_range.high < 0.55
    assert the_note(throughput, FewBlocks) == FewBlocks(2)
    assert not analysis.complete


@pytest.mark.parametrize("blocks", [3, 5])
def test_three_blocks_show_a_difference_and_no_equality(tmp_path: Path, blocks: int) -> None:
    assert verdict(judge_run(tmp_path / "apart", Truth({"nginx": 0.5}, blocks=blocks))).kind is Kind.SLOWER
    equal = verdict(judge_run(tmp_path / "equal", Truth({"nginx": 1.0}, noise=0.0001, blocks=blocks)))
    assert (equal.kind, FewBlocks in notes(equal)) == (Kind.UNDECIDED, True)


def test_the_share_of_one_users_own_client_stands_beside_what_it_gets(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        on_metal = row["arm"].environment == "metal"
        return [row | {"client_cpu_s": (0.8 if on_metal else 0.2) * row["duration_s"]}]

    one = judge_run(tmp_path / "one", Truth({"nginx": 0.5}, loads=(closed_load(1),), change=change))
    note = the_note(verdict(one), ClientTime)
    assert (note.baseline_share, note.compared_share) == pytest.approx((0.8, 0.2))
    assert (verdict(one).kind, verdict(one).is_at_least) == (Kind.SLOWER, False), "nothing of it becomes open-ended"
    ten = judge_run(tmp_path / "ten", Truth({"nginx": 0.5}, loads=(closed_load(10),), change=change))
    assert ClientTime not in notes(verdict(ten))


def test_no_trial_at_all(tmp_path: Path) -> None:
    analysis = judge_run(tmp_path, Truth(change=lambda row: [], status="running"))
    assert (analysis.comparisons, analysis.attempts, analysis.planned) == ((), 0, 18)


def test_emulation_is_known(tmp_path: Path) -> None:
    servers = {"lighttz": 0.045, "nginx": 0.05, "lighttpd": 0.06, "apache-prefork": 0.11}
    analysis = judge_run(tmp_path, Truth(servers, accelerator=Accelerator.TCG))
    assert analysis.emulated
    assert {comparison.accelerator for comparison in analysis.comparisons} == {Accelerator.TCG}
    assert math.isclose(ratio(verdict(analysis, server="lighttz")), 0.045, abs_tol=0.002)


def test_each_guest_has_its_verdict(tmp_path: Path) -> None:
    analysis = judge_run(tmp_path, Truth({"nginx": 0.9}, guests=("kvm-default", "kvm-tuned")))
    assert [str(comparison.arm) for comparison in analysis.comparisons] == ["kvm-default", "kvm-tuned"]


def test_differences_are_counted(tmp_path: Path) -> None:
    undeclared = [{"fact": "sysctls: net.core.somaxconn", "values": {"metal": "4096", "kvm-default": "128"}}]
    assert judge_run(tmp_path, Truth({"nginx": 0.9}, undeclared=undeclared)).undeclared_differences == 1


def test_an_analysis_is_kept_with_its_run(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth()))
    analysis = analyse(run)
    file = write_analysis(run, analysis)
    assert file == run.path / "analysis.json"
    assert file.read_bytes() == to_json(analysis) == to_json(from_json(file.read_bytes()))


def test_a_figure_that_the_tool_never_yields_is_not_measured(tmp_path: Path) -> None:
    """As siege measures without a cross-check: throughput, no time of any request. It takes no part of the 5%."""

    def change(row: Row) -> list[Row]:
        return [{key: value for key, value in row.items() if not key.startswith("crosscheck_")}]

    analysis = judge_run(tmp_path, Truth(change=change))
    p99 = verdict(analysis, "latency_p99")
    assert (p99.kind, p99.because, p99.applies) == (Kind.NOT_JUDGED, VerdictReason.NOT_MEASURED, False)
    assert verdict(analysis).tests.family == 3
    assert verdict(analysis, "cpu").tests.weight == pytest.approx(1 / 4)


def test_a_figure_that_failed_trials_lack_is_not_called_unmeasured(tmp_path: Path) -> None:
    p99 = verdict(judge_run(tmp_path, Truth(change=lambda row: [failed_trial(row, Code.TOOL_FAILED)])), "latency_p99")
    assert (p99.kind, p99.because, p99.applies) == (Kind.NOT_JUDGED, VerdictReason.NO_FIGURE, True)


def test_the_time_of_an_analysis_grows_with_its_blocks(tmp_path: Path) -> None:
    """Fourteen comparisons of 500 blocks take at most twelve times as long as of 50; in one of three looks, because
    other users of the machine can only make it slower.

    Without the garbage collector, whose time is that of whatever else the process of the tests holds.
    """
    truth = Truth({"nginx": 0.97, "lighttz": 1.0}, noise=0.05, blocks=10, loads=(closed_load(), rate_load(1000)))
    run = load_run(make_run(tmp_path, truth))

    def seconds(times: int) -> float:
        records = tuple(replace(r, block=r.block + 10 * n) for n in range(times) for r in run.records)
        longer = replace(run, records=records)
        gc.collect()
        gc.disable()
        begin = time.process_time()
        try:
            analysis = analyse(longer)
        finally:
            gc.enable()
        took = time.process_time() - begin
        assert sum(v.applies for c in analysis.comparisons for v in c.verdicts.values()) == 14
        assert verdict(analysis, load=closed_load()).blocks == 10 * times
        return took

    assert any(seconds(50) <= 12 * min(seconds(5) for _ in range(2)) for _ in range(3))
