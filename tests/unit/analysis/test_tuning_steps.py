"""What each step gives back: known sizes are found, nothing is found where nothing is, what is missing is named."""

import json
import math
from pathlib import Path

import pytest

from tests.support.synthetic_run import Truth, make_run, role_findings
from tests.support.tuning_run import LEVELS, TuningTruth, make_tuning
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.tuning_steps import tuning_steps
from vmtoll.analysis.verdict import analyse
from vmtoll.model.analysis import from_json, to_json
from vmtoll.model.finding import Code, Role
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.model.verdict import Kind, StepKind, StepMetric, TuningResult, TuningStep, VerdictReason

pytestmark = pytest.mark.slow

TRUTH = {"throughput": "rps", "tail": "p99_us", "host_cpu": "host_us"}
STEPS = [
    (StepKind.CUMULATIVE, "kvm-2009", "kvm-default"), (StepKind.CUMULATIVE, "kvm-default", "kvm-step-pinned"),
    (StepKind.CUMULATIVE, "kvm-step-pinned", "kvm-tuned"), (StepKind.SINGLE, "kvm-default", "kvm-pinned"),
    (StepKind.SINGLE, "kvm-default", "kvm-halt-poll"),
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(make_tuning(tmp_path_factory.mktemp("tuning"), TuningTruth()))


def result_of(run: Run) -> TuningResult:
    result = tuning_steps(run)
    assert result is not None
    return result


def metrics_of(run: Run) -> dict[str, StepMetric]:
    """Metric → its steps: rates of the closed loop, tails of the open one, CPU of the open one."""
    return {name: metric for scenario in result_of(run).scenarios for name, metric in scenario.metrics.items()}


def named(step: TuningStep) -> tuple[StepKind, str, str]:
    return step.step, str(step.before), str(step.after)


def true_gain(metric: str, step: TuningStep) -> float:
    before, after = (getattr(LEVELS[arm.environment], TRUTH[metric]) for arm in (step.before, step.after))
    return float(after - before) * (1 if metric == "throughput" else -1)


def ends(step: TuningStep) -> tuple[float, float, float]:
    """low, gain, high."""
    assert step.gain is not None and step.gain.low is not None and step.gain.high is not None
    return step.gain.low, step.gain.value, step.gain.high


def test_known_steps_are_recovered(run: Run) -> None:
    metrics = metrics_of(run)
    better, unknown, worse = Kind.FASTER, Kind.UNDECIDED, Kind.SLOWER
    kinds = {
        "throughput": [better, unknown, better, unknown, better],
        "tail": [better, unknown, better, unknown, better],
        "host_cpu": [better, unknown, worse, unknown, worse],
    }
    for name, expected in kinds.items():
        steps = metrics[name].steps
        assert [named(step) for step in steps] == STEPS
        assert [step.kind for step in steps] == expected, name
        for step in steps:
            truth, (low, gain, high) = true_gain(name, step), ends(step)
            assert step.start is not None
            assert gain == pytest.approx(truth, abs=0.05 * abs(truth) + 0.02 * step.start)
            assert low < gain < high
            assert (low > 0, high < 0) == (step.kind is better, step.kind is worse)
            assert step.tests.family == 30
            assert step.tests.difference is not None and step.tests.difference_holm is not None
            assert step.tests.difference_holm >= step.tests.difference


def test_steps_add_up_to_the_whole(run: Run) -> None:
    metrics = metrics_of(run)
    for name in TRUTH:
        levels, cumulative = metrics[name].levels, metrics[name].steps[:3]
        whole = (levels["kvm-tuned"] - levels["kvm-2009"]) * (1 if name == "throughput" else -1)
        assert sum(ends(step)[1] for step in cumulative) == pytest.approx(whole, rel=0.02), "means weighted alike"
    levels = metrics["throughput"].levels
    ratios = [step.estimate.value if step.estimate else 0 for step in metrics["throughput"].steps[:3]]
    assert math.prod(ratios) == pytest.approx(levels["kvm-tuned"] / levels["kvm-2009"], rel=0.01)
    assert levels["metal"] == pytest.approx(LEVELS["metal"].rps, rel=0.1)


def test_intervals_cover_the_truth(tmp_path: Path) -> None:
    """Of 8 servers with 5 steps each: each interval has the level that Holm left to it."""
    servers = tuple(f"server-{n}" for n in range(8))
    result = result_of(load_run(make_tuning(tmp_path, TuningTruth(servers=servers, blocks=6, noise=0.02))))
    covered = []
    for name, metric in ((name, metric) for one in result.scenarios for name, metric in one.metrics.items()):
        for step in metric.steps if name in TRUTH else ():
            truth, (low, _, high) = true_gain(name, step), ends(step)
            if name == "throughput":  # of a rate the ratio is known: blocks drift
                truth *= (step.start or 0) / LEVELS[step.before.environment].rps
            covered.append(low <= truth <= high)
    assert len(covered) == 8 * 5 * 4
    assert sum(covered) >= 0.95 * len(covered)


WHY = "the inventory has no such guest; it needs hugepages"


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A profile lacks, the guests are emulated, and of one guest the host counted exits all the same."""
    guests = tuple(name for name in TuningTruth().guests if name != "kvm-step-pinned")
    skipped = [{"environment": "kvm-step-pinned", "why": WHY}, {"server": "thttpd", "why": "no source"}]
    tuning = TuningTruth(guests=guests, blocks=6, skipped=skipped, accelerator=Accelerator.TCG)
    loaded = load_run(make_tuning(tmp_path_factory.mktemp("lacking"), tuning))
    (loaded.path / "telemetry").mkdir()
    trials = [trial for trial in loaded.trials if trial.arm == Arm("kvm-2009") and trial.scenario.load.is_open]
    for index, trial in enumerate(trials):
        kvm = {"exits": 5000, "io_exits": 3000, "halt_exits": 1000, "halt_poll_success_ns": 10**9}
        if index % 2:
            kvm["mmio_exits"] = 10
        content = {"primary": {"requests": 1000, "kvm": kvm}}
        (loaded.path / "telemetry" / f"{trial.name}.json").write_text(json.dumps(content))
    return loaded


def test_a_profile_that_was_not_measured_is_skipped_and_named(lacking: Run) -> None:
    result = result_of(lacking)
    assert result.skipped == {"kvm-step-pinned": WHY}
    assert result.profiles == ("kvm-2009", "kvm-default", "kvm-tuned", "kvm-pinned", "kvm-halt-poll")
    steps = result.scenarios[0].metrics["throughput"].steps
    assert [(str(step.before), str(step.after), step.over) for step in steps[:2]] == [
        ("kvm-2009", "kvm-default", ()), ("kvm-default", "kvm-tuned", ("kvm-step-pinned",)),
    ]  # fmt: skip


def test_without_the_base_nothing_is_compared_with_it(tmp_path: Path) -> None:
    guests = tuple(name for name in TuningTruth().guests if name != "kvm-default")
    metrics = metrics_of(load_run(make_tuning(tmp_path, TuningTruth(guests=guests))))
    assert [named(step) for step in metrics["tail"].steps] == [
        (StepKind.CUMULATIVE, "kvm-2009", "kvm-step-pinned"), (StepKind.CUMULATIVE, "kvm-step-pinned", "kvm-tuned"),
    ]  # fmt: skip


def test_two_blocks_decide_nothing_and_three_do(tmp_path: Path) -> None:
    for step in metrics_of(load_run(make_tuning(tmp_path / "two", TuningTruth(blocks=2))))["throughput"].steps:
        assert (step.kind, step.because) == (Kind.UNDECIDED, VerdictReason.FEW_BLOCKS)
        assert step.gain is not None and step.gain.low is None
    first = metrics_of(load_run(make_tuning(tmp_path / "three", TuningTruth(blocks=3, noise=0.002))))[
        "throughput"
    ].steps[0]
    assert first.kind is Kind.FASTER, "three times the rate"


def test_a_client_at_its_limit_is_no_finding_of_the_guest(tmp_path: Path) -> None:
    limit = role_findings(Code.CLIENT_SATURATED, Role.PRIMARY, Role.CROSSCHECK)
    metrics = metrics_of(load_run(make_tuning(tmp_path, TuningTruth(findings={"kvm-tuned": limit}))))
    step = metrics["throughput"].steps[2]
    assert (step.kind, step.is_at_least) == (Kind.FASTER, True)
    tail = metrics["tail"].steps[2]
    assert (tail.kind, tail.is_at_least) == (Kind.FASTER, True), "without the client's delay it would be shorter"
    metrics = metrics_of(load_run(make_tuning(tmp_path / "slow", TuningTruth(findings={"kvm-2009": limit}))))
    step = metrics["throughput"].steps[0]
    assert (step.kind, step.because) == (Kind.UNDECIDED, VerdictReason.LIMIT)


def test_figures_of_the_host_are_shown_with_the_step(lacking: Run) -> None:
    host = {view.arm.environment: view for view in result_of(lacking).scenarios[1].host}
    view = host["kvm-2009"]
    assert (view.exits, view.vcpu_us, view.qemu_us) == (40, 200, None)
    assert view.exit_kinds == {"io": 3.0, "halt": 1.0, "mmio": 0.005}, "half of the trials had no mmio"
    assert host["kvm-tuned"].exit_kinds == {}


def test_an_analysis_has_the_steps_of_its_run(run: Run, tmp_path: Path) -> None:
    analysis = analyse(run)
    assert analysis.tuning_steps == result_of(run)
    assert to_json(from_json(to_json(analysis))) == to_json(analysis)
    assert analyse(load_run(make_run(tmp_path, Truth(blocks=2)))).tuning_steps is None
