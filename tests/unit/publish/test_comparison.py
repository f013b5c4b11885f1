"""Reproduced, not reproduced, not comparable: on synthetic readings, and the interval against scipy's Welch test."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.support.synthetic_run import Row, Truth, make_run, with_findings
from vmtoll.analysis.judge import in_ratio
from vmtoll.analysis.run import load_run
from vmtoll.model.agreement import AgreementReason, RunComparison, Status, to_json
from vmtoll.model.finding import Code
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import THROUGHPUT
from vmtoll.model.trial import Accelerator
from vmtoll.model.verdict import BlockEffect, Kind, Verdict
from vmtoll.publish.comparison import agreement, compare_runs
from vmtoll.statistics.student import mean_of

pytestmark = pytest.mark.slow

QUIET = Truth(drift=0.0, noise=0.003, blocks=8)


def _verdict(logs: Any, kind: Kind = Kind.SLOWER, margin: float = 0.02, **keys: Any) -> Verdict:
    effect = mean_of(logs)
    error = None if effect.sd is None else effect.sd / math.sqrt(effect.n)
    figures = {"estimate": in_ratio(effect.mean, effect.t), "blocks": effect.n, "standard_error": error, **keys}
    return Verdict(metric=THROUGHPUT, kind=kind, margin=margin, **figures)


def test_the_interval_is_welchs() -> None:
    rng = np.random.default_rng(5)
    first, second = rng.normal(-0.10, 0.02, 6), rng.normal(-0.11, 0.05, 10)
    change = agreement(_verdict(first), _verdict(second)).change
    expected = stats.ttest_ind(second, first, equal_var=False).confidence_interval(0.95)
    assert change is not None and change.low is not None and change.high is not None
    assert np.log([change.low, change.high]) == pytest.approx([expected.low, expected.high])
    assert np.log(change.value) == pytest.approx(second.mean() - first.mean())


def _share(status: Status, truths: tuple[float, float], sd: float, blocks: int, margin: float = 0.02) -> float:
    """How often two runs of these true log ratios come to a status, of 200 pairs."""
    rng = np.random.default_rng(11)
    draws = rng.normal(0, sd, (200, 2, blocks)) + np.array(truths)[:, None]
    results = [agreement(_verdict(first, margin=margin), _verdict(second)) for first, second in draws]
    return sum(result.status is status for result in results) / len(results)


@pytest.mark.parametrize(("sd", "blocks"), [(0.02, 6), (0.05, 10), (0.005, 6), (0.002, 20)])
def test_half_an_effect_is_not_reproduced(sd: float, blocks: int) -> None:
    """10% published, 5% in truth: by the overlap of intervals a third of such pairs passed."""
    truths = math.log(0.9), math.log(0.95)
    assert _share(Status.REPRODUCED, truths, sd, blocks) <= 0.025
    assert _share(Status.NOT_REPRODUCED, truths, 0.005, 6) > 0.95, "where the runs are precise enough to tell"


def test_one_truth_is_refuted_by_chance_in_less_than_five_percent() -> None:
    truths = -0.05, -0.05
    for sd, blocks in ((0.02, 6), (0.05, 6), (0.02, 20)):
        assert _share(Status.NOT_REPRODUCED, truths, sd, blocks, margin=0.0) <= 0.05
    assert _share(Status.REPRODUCED, truths, 0.005, 6) > 0.95, "precise runs"
    assert _share(Status.INCONCLUSIVE, truths, 0.05, 6) > 0.95, "noisy ones claim neither"


def test_a_change_at_the_tolerance_passes_in_less_than_five_percent() -> None:
    tolerated = math.log1p(0.02)
    assert _share(Status.REPRODUCED, (-0.05, -0.05 - tolerated), 0.005, 10) <= 0.05


def test_the_blocks_that_are_asked_for_are_enough() -> None:
    """Four of five second runs of that many blocks decide, where nothing has changed."""
    rng = np.random.default_rng(3)
    first = _verdict(rng.normal(-0.05, 0.005, 40))
    second = _verdict(np.array([-0.08, -0.05, -0.02] * 2))
    result = agreement(first, second)
    assert (result.status, result.why) == (Status.INCONCLUSIVE, AgreementReason.IMPRECISE)
    assert result.blocks_needed is not None
    total, sd = result.blocks_needed + second.blocks, float(np.std([-0.08, -0.05, -0.02] * 2, ddof=1))
    assert first.estimate is not None
    truth = math.log(first.estimate.value)
    results = [agreement(first, _verdict(rng.normal(truth, sd, total))) for _ in range(200)]
    assert 0.75 <= sum(each.status is Status.REPRODUCED for each in results) / 200 <= 0.9
    imprecise = agreement(_verdict(np.array([-0.2, -0.1, 0.0] * 2)), second)
    assert (imprecise.status, imprecise.blocks_needed) == (Status.INCONCLUSIVE, None), "the first run is the noisy one"


def test_the_interval_includes_the_spread_between_runs_of_one_machine() -> None:
    """Two honest runs of one truth whose boots differ by 2%: without that spread 46% were called not reproduced."""
    rng, blocks, boot_sd = np.random.default_rng(13), 20, 0.02
    refuted = dict.fromkeys((0.0, boot_sd), 0)
    for boots in rng.normal(-0.1, boot_sd, (200, 2)):
        first, second = (_verdict(rng.normal(boot, 0.005, blocks)) for boot in boots)
        for known in refuted:
            refuted[known] += agreement(first, second, known).status is Status.NOT_REPRODUCED
    assert refuted[0.0] > 0.2 * 200
    assert refuted[boot_sd] <= 0.05 * 200


NEAR = np.array([-0.001, 0.0, 0.001, -0.001, 0.0, 0.001])


def test_a_change_beyond_the_tolerance_is_not_reproduced() -> None:
    first = _verdict(NEAR - 0.10)
    assert agreement(first, _verdict(NEAR - 0.115)).status is Status.REPRODUCED, "1.5%, within the margin of 2%"
    result = agreement(first, _verdict(NEAR - 0.14))
    assert (result.status, result.why) == (Status.NOT_REPRODUCED, AgreementReason.SIZE_CHANGED)
    assert result.tolerance == pytest.approx(0.02)
    assert agreement(replace(first, margin=0.05), _verdict(NEAR - 0.14)).status is Status.REPRODUCED
    floor = replace(first, noise_floor=0.05)
    assert agreement(floor, _verdict(NEAR - 0.14)).status is Status.NOT_REPRODUCED, "noise widens no tolerance"
    assert agreement(_verdict(NEAR - 1.0), _verdict(NEAR - 1.09)).status is Status.REPRODUCED, "a tenth of the effect"
    assert agreement(_verdict(NEAR - 1.0), _verdict(NEAR - 1.11)).status is Status.NOT_REPRODUCED


def test_the_size_decides_and_not_the_kind() -> None:
    faster = _verdict(NEAR + math.log(1.021), Kind.FASTER)
    equal = _verdict(NEAR + math.log(1.015), Kind.EQUIVALENT)
    for first, second in ((faster, equal), (equal, faster), (faster, replace(equal, kind=Kind.UNDECIDED))):
        result = agreement(first, second)
        assert (result.status, result.why) == (Status.REPRODUCED, AgreementReason.SAME)
    slower = _verdict(NEAR - 0.001, Kind.SLOWER, margin=0.1)
    opposite = agreement(replace(faster, margin=0.1), slower)
    assert (opposite.status, opposite.why) == (Status.NOT_REPRODUCED, AgreementReason.CLAIM_CHANGED)


def test_no_claim_without_a_result_or_an_interval() -> None:
    claim, none = _verdict(NEAR - 0.03), _verdict(NEAR - 0.03, Kind.UNDECIDED)
    for second, status, why in (
        (_verdict(NEAR - 0.02, Kind.NOT_JUDGED), Status.NOT_COMPARABLE, AgreementReason.NO_RESULT),
        (_verdict([-0.03]), Status.INCONCLUSIVE, AgreementReason.NO_INTERVAL),
        (claim, Status.REPRODUCED, AgreementReason.SAME),
    ):
        result = agreement(claim, second)
        assert (result.status, result.why) == (status, why)
    assert agreement(none, claim).why is AgreementReason.CLAIMS_NOTHING


@pytest.mark.parametrize("kind", [Kind.FASTER, Kind.SLOWER])
@pytest.mark.parametrize(
    ("again", "status", "why"),
    [
        (1.031, Status.NOT_REPRODUCED, AgreementReason.BOUND_BROKEN),
        (30.0, Status.REPRODUCED, AgreementReason.BOUND_HOLDS),
        (21.9, Status.REPRODUCED, AgreementReason.BOUND_HOLDS),
    ],
)
def test_an_open_end_is_refuted_from_its_side(kind: Kind, again: float, status: Status, why: AgreementReason) -> None:
    """Published: at least 22 times."""
    sign = 1 if kind is Kind.FASTER else -1
    open_end = "open_high" if kind is Kind.FASTER else "open_low"
    first = _verdict(NEAR + sign * math.log(22.0), kind, **{open_end: True})
    result = agreement(first, _verdict(NEAR + sign * math.log(again), kind))
    assert (result.status, result.why) == (status, why)


def test_what_findings_allow_widens_the_change() -> None:
    first = _verdict(NEAR - 0.10)
    assert agreement(first, _verdict(NEAR - 0.14)).status is Status.NOT_REPRODUCED
    effects = tuple(BlockEffect(block, 1, 0.80, 0.87, 0.95) for block in range(1, 7))
    assert agreement(first, _verdict(NEAR - 0.14, effects=effects)).why is AgreementReason.IMPRECISE


def test_a_wide_interval_across_a_bound_is_inconclusive() -> None:
    first = _verdict(NEAR + math.log(1.1), Kind.FASTER, open_high=True)
    second = _verdict(np.array([-0.2, 0.0, 0.2] * 2) + math.log(1.1), Kind.UNDECIDED)
    assert agreement(first, second).why is AgreementReason.IMPRECISE


def compare(tmp_path: Path, first: Truth, second: Truth, edit: Callable[[Path], None] | None = None) -> RunComparison:
    runs = [make_run(tmp_path / name, truth) for name, truth in (("first", first), ("second", second))]
    if edit:
        edit(runs[1])
    result = compare_runs(load_run(runs[0]), load_run(runs[1]))
    assert json.loads(to_json(result))["counts"] == {status.value: count for status, count in result.counts.items()}
    return result


def test_the_same_truth_is_reproduced(tmp_path: Path) -> None:
    result = compare(tmp_path, QUIET, replace(QUIET, seed=2))
    (scenario,) = result.scenarios
    assert (scenario.status, result.counts) == (Status.REPRODUCED, {Status.REPRODUCED: 1})
    assert set(scenario.metrics) == {"throughput", "latency_p99", "cpu", "host_cpu"}
    assert scenario.absolute is not None
    assert scenario.absolute["metal"]["throughput_rps"] == pytest.approx(1, abs=0.01)


def test_another_truth_is_not(tmp_path: Path) -> None:
    result = compare(tmp_path, QUIET, replace(QUIET, seed=2, servers={"nginx": 0.7}))
    (scenario,) = result.scenarios
    assert (scenario.status, scenario.why) == (Status.NOT_REPRODUCED, AgreementReason.METRICS)
    by_status = {name: metric.agreement.status for name, metric in scenario.metrics.items()}
    assert [name for name, status in by_status.items() if status is Status.NOT_REPRODUCED] == ["throughput"]
    assert by_status["cpu"] is Status.REPRODUCED
    change = scenario.metrics["throughput"].agreement.change
    assert change is not None and change.value == pytest.approx(0.7 / 0.9, rel=0.01)


def edited(document: str, *path: str, value: Any) -> Callable[[Path], None]:
    def edit(run_dir: Path) -> None:
        content = json.loads((run_dir / document).read_text())
        here = content
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = value
        (run_dir / document).write_text(json.dumps(content))

    return edit


@pytest.mark.parametrize(
    ("edit", "fact"),
    [
        (edited("run.json", "lab", value="hosts"), "lab"),
        (edited("run.json", "link", value="1gbit"), "link"),
        (edited("run.json", "versions", "siege", value="4.1"), "version of siege"),
        (edited("hosts.json", "metal", "cpu_model", value="Another CPU"), "cpu model on metal"),
        (edited("hosts.json", "kvm-default", "workers", value=2), "workers on kvm-default"),
        (
            edited("hosts.json", "metal", "servers", "nginx", "binary_sha256", value="00"),
            "server binary sha256 on metal",
        ),
        (edited("hosts.json", "metal", "servers", "nginx", "version", value="2.0"), "server version on metal"),
        (edited("run.json", "workloads", "siege-site", "keep_alive", value=True), "workload keep_alive"),
        (edited("run.json", "site", "seed", value=3), "site seed"),
    ],
)  # fmt: skip
def test_the_fact_that_differs_is_named(tmp_path: Path, edit: Callable[[Path], None], fact: str) -> None:
    result = compare(tmp_path, QUIET, QUIET, edit)
    (scenario,) = result.scenarios
    assert (scenario.status, scenario.why) == (Status.NOT_COMPARABLE, AgreementReason.FACTS_DIFFER)
    assert [one.fact for one in scenario.facts] == [fact]
    assert {one.agreement.status for one in scenario.metrics.values()} == {Status.NOT_COMPARABLE}
    assert scenario.absolute is None


def test_emulation_is_not_kvm(tmp_path: Path) -> None:
    (scenario,) = compare(tmp_path, QUIET, replace(QUIET, accelerator=Accelerator.TCG)).scenarios
    assert (scenario.status, [one.fact for one in scenario.facts]) == (Status.NOT_COMPARABLE, ["accelerator"])


def test_kvm_on_other_hardware_is_not_comparable(tmp_path: Path) -> None:
    (scenario,) = compare(tmp_path, QUIET, replace(QUIET, hardware=Hardware.NESTED)).scenarios
    assert (scenario.status, [one.fact for one in scenario.facts]) == (Status.NOT_COMPARABLE, ["hardware"])


def test_on_another_kernel_ratios_are_compared_and_absolute_figures_are_not(tmp_path: Path) -> None:
    edit = edited("hosts.json", "metal", "kernel", value="6.2")
    (scenario,) = compare(tmp_path, QUIET, replace(QUIET, seed=2), edit).scenarios
    assert scenario.status is Status.REPRODUCED
    assert [one.fact for one in scenario.other_differences] == ["kernel on metal"]
    assert scenario.absolute is None


def test_a_copy_of_a_run_is_identical_however_noisy_it_is(tmp_path: Path) -> None:
    """As its bundle does: the same trials differ by nothing."""
    noisy = replace(QUIET, noise=0.02)
    (scenario,) = compare(tmp_path, noisy, noisy).scenarios
    assert scenario.status is Status.IDENTICAL
    (other,) = compare(tmp_path / "b", noisy, replace(noisy, seed=2)).scenarios
    assert other.status is Status.INCONCLUSIVE


def test_noise_is_inconclusive_and_the_blocks_needed_are_given(tmp_path: Path) -> None:
    noisy = replace(QUIET, noise=0.02)
    result = compare(tmp_path, QUIET, replace(noisy, seed=2))
    (scenario,) = result.scenarios
    assert (scenario.status, result.counts) == (Status.INCONCLUSIVE, {Status.INCONCLUSIVE: 1})
    throughput = scenario.metrics["throughput"].agreement
    assert (throughput.status, throughput.why) == (Status.INCONCLUSIVE, AgreementReason.IMPRECISE)
    assert throughput.blocks_needed is not None
    assert throughput.blocks_needed > QUIET.blocks, "noise of seven times the size needs many more"


def test_a_scenario_of_one_run_only(tmp_path: Path) -> None:
    result = compare(tmp_path, replace(QUIET, servers={"nginx": 0.9, "lighttz": 0.8}), QUIET)
    by_server = {scenario.scenario.server: scenario for scenario in result.scenarios}
    assert (by_server["lighttz"].status, by_server["lighttz"].why) == (
        Status.NOT_COMPARABLE,
        AgreementReason.ONLY_IN_THE_FIRST,
    )


def test_invalid_trials_are_no_evidence(tmp_path: Path) -> None:
    def spoil(row: Row) -> list[Row]:
        return [with_findings(row, Code.WRONG_BODY)]

    result = compare(tmp_path, QUIET, replace(QUIET, change=spoil))
    (scenario,) = result.scenarios
    assert (scenario.status, scenario.why) == (Status.NOT_COMPARABLE, AgreementReason.NO_RESULT)
