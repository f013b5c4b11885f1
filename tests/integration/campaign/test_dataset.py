"""A dataset of runs: DuckDB's figures are those of the analysis of each run, and the test beds are the sample."""

import json
import math
import shutil
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from scipy import stats as scipy_stats
from statsmodels.stats.meta_analysis import combine_effects

from benchmarks.fleet import BUCKETS, RUNS, make, measure_figures
from tests.support.records import BASELINE
from tests.support.synthetic_run import Truth, make_run, rate_load
from tests.support.testbed_runs import CLOSED, GUEST, entry, run_of
from vmtoll.analysis.histograms import merged_histogram
from vmtoll.analysis.run import frame_of, load_run
from vmtoll.analysis.schema import fields, names
from vmtoll.analysis.verdict import analyse
from vmtoll.campaign.dataset import BedComparison, BedControl, Dataset
from vmtoll.campaign.effects import Effect, Figures, campaign_effects, campaign_figures
from vmtoll.campaign.facets import Fleet
from vmtoll.campaign.page import sentence, text, write_page
from vmtoll.campaign.store import add_run, has_run, partition
from vmtoll.model.columns import flat
from vmtoll.model.errors import LoadError
from vmtoll.model.finding import Role, Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import CPU, TAIL, THROUGHPUT, loop_of
from vmtoll.model.trial import Accelerator, Scenario
from vmtoll.model.verdict import Estimate, Kind, VerdictReason
from vmtoll.report.words import plural
from vmtoll.statistics.thresholds import MIN_TEST_BEDS

RATIOS = (0.90, 0.88, 0.93, 0.86, 0.91)  # of the guest's throughput, test bed by test bed


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Five test beds that differ, whose names would be numbers to who guesses types."""
    folder = tmp_path_factory.mktemp("runs")
    return {f"0{n}": run_of(folder, f"0{n}", ratio, histograms=True) for n, ratio in enumerate(RATIOS)}


@pytest.fixture(scope="module")
def dataset(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data set's")
    for testbed, run in runs.items():
        partition(run, folder, "spring", testbed)
    return folder


@pytest.fixture(scope="module")
def figures(dataset: Path) -> Figures:
    return campaign_figures(str(dataset))


def estimate(effect: Effect) -> Estimate:
    assert effect.verdict.estimate is not None
    return effect.verdict.estimate


def test_a_partition_is_the_run_column_by_column(runs: dict[str, Path], dataset: Path) -> None:
    run = load_run(runs["00"])
    place = "campaign=spring/testbed=00/experiment=synthetic/20260101T000000Z-00.parquet"
    with duckdb.connect() as database:
        for table in ("trials", "histograms", "seconds", "samples", "verdicts", "effects", "claims", "hosts"):
            found = database.execute(
                "DESCRIBE FROM read_parquet($file, hive_partitioning = false)", {"file": str(dataset / table / place)}
            ).fetchall()
            assert [column[0] for column in found] == names(table)
        file = {"file": str(dataset / "trials" / place)}
        rows = database.execute('FROM read_parquet($file) ORDER BY block, "order", attempt', file).df()
        kinds = dict(
            database.execute(
                "SELECT column_name, column_type FROM (DESCRIBE FROM read_parquet($file))", file
            ).fetchall()
        )
    assert {kinds[field["name"]] for field in fields("trials") if field["type"] == "datetime"} == {"TIMESTAMP"}
    attempts = [flat(record) for record in run.records]
    assert len(rows) == len(attempts)
    for column in names("trials"):
        if column != "started_at":
            values = [None if value == "" else value for value in (row[column] for row in attempts)]
            assert [None if pd.isna(value) else value for value in rows[column]] == values, column


def test_partitioning_twice_gives_the_same_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    run, data = run_of(tmp_path, "one", 0.9), tmp_path / "data"
    files = partition(run, data, "spring", "one")
    before = [file.read_bytes() for file in files]
    assert has_run(data, "spring", "one", run)
    assert not has_run(data, "spring", "two", run)
    assert [file.read_bytes() for file in partition(run, data, "spring", "one")] == before
    assert sorted(path for path in data.rglob("*") if path.is_file()) == sorted(files)


def test_a_dataset_holds_every_table_of_a_run(tmp_path: Path) -> None:
    """A run that an earlier version wrote lacks the verdicts: it is not there yet, and the figures say so."""
    run, data = run_of(tmp_path, "one", 0.9), tmp_path / "data"
    partition(run, data, "spring", "one")
    (file,) = (data / "verdicts").rglob("*.parquet")
    file.unlink()
    assert not has_run(data, "spring", "one", run)
    with pytest.raises(LoadError, match=r"data: trials/.*Z-one\.parquet .*table verdicts; .*`vmtoll part"):
        campaign_figures(str(data))
    add_run(run, data, "spring", "one")
    assert campaign_figures(str(data)).effects


def test_the_effect_on_a_testbed_is_that_of_its_run(runs: dict[str, Path], figures: Figures) -> None:
    compared = 0
    for testbed, folder in runs.items():
        analysis = analyse(load_run(folder))
        for effect in figures.effects:
            comparison = analysis.comparison(effect.scenario, effect.arm)
            assert comparison is not None
            theirs = comparison.verdicts[effect.verdict.metric.name]
            (ours,) = [bed for bed in effect.by_testbed if bed.testbed == testbed]
            assert theirs.estimate is not None and ours.estimate is not None
            assert ours.estimate.value == pytest.approx(theirs.estimate.value, rel=1e-12)
            assert (ours.estimate.low, ours.estimate.high) == (theirs.estimate.low, theirs.estimate.high)
            assert (ours.mean_low, ours.mean_high) == pytest.approx((theirs.mean_low, theirs.mean_high), rel=1e-12)
            assert ours.confidence == theirs.confidence
            assert (ours.kind, ours.because, ours.tool) == (theirs.kind, theirs.because, theirs.tool)
            assert (ours.blocks, ours.limited) == (theirs.blocks, theirs.limited)
            assert loop_of(effect.scenario.load) in theirs.metric.loops
            compared += 1
    assert compared == len(runs) * len(figures.effects)
    assert len(figures.effects) == 2 * (4 + 3)  # two servers; the metrics of closed and of open loops


def test_the_campaigns_effect_is_the_mean_of_its_testbeds(figures: Figures) -> None:
    effect = entry(figures, "throughput", "lighttz", CLOSED)
    ratio, wide = estimate(effect), effect.prediction
    lows, logs, highs = (
        np.log([value(bed) for bed in effect.by_testbed])
        for value in (attrgetter("mean_low"), attrgetter("estimate.value"), attrgetter("mean_high"))
    )
    assert (lows < logs).any() or (highs > logs).any(), "one trial is limited, one was tried twice"
    assert math.log(ratio.value) == pytest.approx(logs.mean())
    assert ratio.low is not None and ratio.high is not None and effect.verdict.confidence is not None
    ends = [
        scipy_stats.t.interval(effect.verdict.confidence, len(each) - 1, each.mean(), scipy_stats.sem(each))
        for each in (lows, highs)
    ]
    assert np.log([ratio.low, ratio.high]) == pytest.approx([ends[0][0], ends[1][1]])
    assert (effect.verdict.blocks, effect.verdict.kind) == (5, Kind.SLOWER)
    assert wide is not None and wide.low is not None and wide.high is not None
    assert wide.low < ratio.low < ratio.high < wide.high
    truth = np.std(np.log(np.array(RATIOS) - 0.05), ddof=1)
    assert effect.between_sd == pytest.approx(truth, rel=0.15)


def bed_figures(testbed: str, mean: float, error: float, **keys: Any) -> BedComparison:
    figures: dict[str, Any] = {
        "testbed": testbed, "experiment": "e", "scenario": Scenario("s", "w", rate_load(100)), "arm": GUEST,
        "accelerator": Accelerator.KVM, "hardware": Hardware.NATIVE,
        "metric": TAIL, "role": Role.PRIMARY, "tool": "t", "blocks": 6, "baseline": BASELINE,
        "mid": mean, "low": mean, "high": mean, "error": error,
    }  # fmt: skip
    return BedComparison(**figures | keys)


def bed_control(testbed: str, mean: float, **keys: Any) -> BedControl:
    control: dict[str, Any] = {
        "testbed": testbed, "experiment": "e", "scenario": Scenario("other", "w", rate_load(100)), "arm": BASELINE,
        "accelerator": Accelerator.NONE, "hardware": Hardware.NATIVE, "metric": TAIL, "mid": mean,
    }  # fmt: skip
    return BedControl(**control | keys)


def test_spread_between_similar_test_beds_equals_the_usual_estimate() -> None:
    """With equal standard errors Hedges and Olkin's estimator is DerSimonian and Laird's, and all weights are one."""
    means, sd, blocks = np.array([0.20, 0.26, 0.17, 0.23, 0.31, 0.15]), 0.05, 8
    error = sd / math.sqrt(blocks)
    (effect,) = campaign_effects([bed_figures(f"c{n}", float(mean), error) for n, mean in enumerate(means)], [], 0.02)
    theirs = combine_effects(means, np.full(len(means), error**2), method_re="dl")
    assert effect.between_sd == pytest.approx(math.sqrt(theirs.tau2))
    assert math.log(estimate(effect).value) == pytest.approx(theirs.mean_effect_re) == pytest.approx(means.mean())
    half = scipy_stats.t.ppf(0.975, 5) * means.std(ddof=1) * math.sqrt(1 + 1 / 6)
    ends = np.exp([means.mean() - half, means.mean() + half])
    assert effect.prediction is not None
    assert (effect.prediction.low, effect.prediction.high) == pytest.approx(tuple(ends))


@pytest.mark.parametrize("testbeds", [5, 10])
def test_one_further_testbed_lies_where_it_is_predicted(testbeds: int) -> None:
    """Hosts differ by 1%, a block by 2%: with the spread less the blocks' noise it was 86% at ten test beds."""
    rng, blocks, held, campaigns = np.random.default_rng(8), 6, 0, 300
    for _ in range(campaigns):
        hosts = rng.normal(0.1, 0.01, testbeds + 1)
        logs = hosts[:, None] + rng.normal(0, 0.02 * math.sqrt(2), (testbeds + 1, blocks))
        rows = [bed_figures(f"c{n}", float(own.mean()), 0.01) for n, own in enumerate(logs[:-1])]
        (effect,) = campaign_effects(rows, [], 0.02)
        assert effect.prediction is not None and effect.prediction.low and effect.prediction.high
        held += effect.prediction.low <= math.exp(logs[-1].mean()) <= effect.prediction.high
    assert held >= 0.93 * campaigns


@pytest.mark.parametrize("size", [0.2, 5.0])
def test_one_odd_host_of_four_claims_nothing(size: float) -> None:
    """Nor does the rule of every block, however large the difference."""
    rows = [bed_figures(f"c{n}", size + mean, 0.004) for n, mean in enumerate((0.0, 0.01, 0.0, -0.01))]
    (effect,) = campaign_effects(rows, [], 0.02)
    assert (effect.verdict.kind, effect.verdict.because) == (Kind.UNDECIDED, VerdictReason.FEW_BLOCKS)
    assert effect.verdict.estimate == Estimate(pytest.approx(math.exp(size)))  # type: ignore[arg-type]
    assert effect.prediction is None
    assert (effect.verdict.blocks, MIN_TEST_BEDS) == (4, 5)
    (effect,) = campaign_effects([*rows, bed_figures("c4", size, 0.004)], [], 0.02)
    assert (effect.verdict.kind, effect.verdict.blocks) == (Kind.SLOWER, 5)


def test_every_test_bed_counts_as_far_as_its_findings_allow(tmp_path: Path) -> None:
    """Two of seven test beds were limited: their highs are far off, and the interval reaches there."""
    keys = {"metric": THROUGHPUT, "scenario": Scenario("s", "w", CLOSED)}
    rows = [bed_figures(f"c{n}", -0.2 - n / 100, 0.004, **keys) for n in range(5)]
    limited_keys = {"limited_compared": 6, "open_high": True, **keys}
    limited_rows = [bed_figures(f"l{n}", -0.22, 0.004, high=0.5, **limited_keys) for n in range(2)]
    (alone,) = campaign_effects(rows, [], 0.02)
    assert alone.verdict.kind is Kind.SLOWER
    (effect,) = campaign_effects([*rows, *limited_rows], [], 0.02)
    assert (effect.verdict.kind, effect.verdict.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS)
    assert (effect.verdict.blocks, effect.blocks, effect.verdict.limited) == (7, 42, 12)
    assert (effect.verdict.open_low, effect.verdict.open_high) == (False, True)
    assert math.log(estimate(effect).value) == pytest.approx(-0.22)
    (none,) = campaign_effects(
        [bed_figures(f"l{n}", 0.0, 0.004, high=0.5, all_limited=True, **keys) for n in range(5)], [], 0.02
    )
    assert (none.verdict.kind, none.verdict.because) == (Kind.UNDECIDED, VerdictReason.LIMIT)
    figures = Figures(
        campaign="c", emulated=False, kvm_hardware=(), margin=0.02, testbeds=(), effects=(effect,), latencies=(),
        machines=(), failures=(), fleet=Fleet(),
    )  # fmt: skip
    page = write_page(figures, tmp_path / "campaign.html").read_text()
    assert [bed.limited for bed in effect.by_testbed] == [0] * 5 + [6] * 2
    assert page.count(f"<small>{plural(6, 'trial')} ") == 2


def test_the_hosts_of_a_run_are_a_table(runs: dict[str, Path], dataset: Path) -> None:
    """And the invalid trials are counted by cause."""
    run = load_run(runs["00"])
    file = dataset / "hosts/campaign=spring/testbed=00/experiment=synthetic/20260101T000000Z-00.parquet"
    with duckdb.connect() as database:
        rows = database.execute("SELECT host, kernel FROM read_parquet($file)", {"file": str(file)}).fetchall()
    assert dict(rows) == {name: facts.kernel for name, facts in run.hosts.items()}
    with Dataset(str(dataset), None, 500) as opened:
        hosts = opened.hosts()
        failures = opened.failures()
    assert set(hosts) == set(runs)
    (sut,) = [facts for facts in run.hosts.values() if facts.environment == "metal"]
    kvm_host = next((facts for facts in run.hosts.values() if facts.is_kvm_host), sut)
    assert hosts["00"]["kernel"] == kvm_host.kernel
    invalid = [record for record in run.records if record.validity is Validity.INVALID]
    assert bool(invalid) == bool(failures)


def test_a_test_bed_whose_metal_goes_by_another_name_is_known_by_it(tmp_path: Path) -> None:
    """Not by the guest of a host that was not seen."""
    changes = {"tuned": {"of": "metal", "apply": "true"}}
    run = make_run(tmp_path, Truth(blocks=2, metal=False, guests=("kvm-default", "tuned"), changes=changes))
    facts = json.loads((run / "hosts.json").read_text())
    (run / "hosts.json").write_text(json.dumps({name: each for name, each in facts.items() if name != "host"}))
    partition(run, tmp_path / "data", "spring", "one")
    with Dataset(str(tmp_path / "data"), None, 500) as opened:
        assert opened.hosts()["one"]["cpu_model"] == "Synthetic CPU"


def test_a_dataset_from_before_hosts_were_a_table_is_read(dataset: Path, tmp_path: Path) -> None:
    shutil.copytree(dataset, tmp_path / "old", ignore=shutil.ignore_patterns("hosts"))
    assert campaign_figures(str(tmp_path / "old")).fleet == Fleet()


def test_a_test_bed_whose_guest_gave_no_figure_is_listed() -> None:
    none: dict[str, Any] = {
        "mid": None,
        "low": None,
        "high": None,
        "error": None,
        "because": VerdictReason.NO_FIGURE,
        "blocks": 0,
    }
    rows = [bed_figures(f"c{n}", 0.2 + n / 1000, 0.004) for n in range(5)]
    (effect,) = campaign_effects([*rows, replace(rows[0], testbed="c5", **none)], [], 0.02)
    assert (effect.verdict.kind, effect.verdict.blocks) == (Kind.SLOWER, 5)
    assert (effect.by_testbed[-1].estimate, effect.by_testbed[-1].because) == (None, VerdictReason.NO_FIGURE)
    (effect,) = campaign_effects([replace(row, **none) for row in rows], [], 0.02)
    assert (effect.verdict.kind, effect.verdict.because) == (Kind.NOT_JUDGED, VerdictReason.NO_FIGURE)


def test_a_control_that_differs_from_itself_on_all_test_beds_widens_the_campaigns() -> None:
    """Each by too little for its own run; what a run has widened already is not added once more."""
    controls = [bed_control(f"c{n}", 0.05 + n / 10_000) for n in range(5)]
    mids = [0.04 + n / 10_000 for n in range(5)]
    rows = [bed_figures(f"c{n}", mid, 0.001) for n, mid in enumerate(mids)]
    assert campaign_effects(rows, [], 0.02)[0].verdict.kind is Kind.SLOWER
    (effect,) = campaign_effects(rows, controls, 0.02)
    assert (effect.verdict.kind, effect.verdict.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS)
    assert 0.04 < effect.verdict.widened < 0.051
    widened_rows = [
        replace(row, widened=0.03, low=mid - 0.03, high=mid + 0.03) for row, mid in zip(rows, mids, strict=True)
    ]
    (again,) = campaign_effects(widened_rows, controls, 0.02)
    assert again.verdict.widened == pytest.approx(effect.verdict.widened)
    assert (again.verdict.mean_low, again.verdict.mean_high) == pytest.approx(
        (effect.verdict.mean_low, effect.verdict.mean_high)
    )
    other = {"scenario": Scenario("other", "w", CLOSED), "metric": CPU}
    (effect,) = campaign_effects(rows, [bed_control(f"c{n}", 0.05 + n / 10_000, **other) for n in range(5)], 0.02)
    assert effect.verdict.kind is Kind.SLOWER, "a control of another figure, under another kind of loop"


@pytest.mark.parametrize("guest", [False, True])
def test_the_noise_floor_is_the_largest_of_the_testbeds(tmp_path: Path, guest: bool) -> None:
    """A control of the guest is no guest either."""
    keys = {"aa": False, "guest_control": "kvm-default"} if guest else {}
    floors = []
    for testbed in "abc":
        run = run_of(tmp_path, testbed, 0.9, **keys)
        partition(run, tmp_path / "d", "controlled", testbed)
        comparison = analyse(load_run(run)).comparison(Scenario("lighttz", "siege-site", CLOSED), GUEST)
        assert comparison is not None
        floors.append(comparison.verdicts["throughput"].noise_floor or 0.0)
    figures = campaign_figures(str(tmp_path / "d"))
    assert {effect.arm for effect in figures.effects} == {GUEST}
    effect = entry(figures, "throughput", "lighttz", CLOSED)
    assert effect.verdict.noise_floor == pytest.approx(max(floors))
    assert max(floors) > 0


def test_percentiles_are_those_of_the_added_histograms(runs: dict[str, Path], figures: Figures) -> None:
    scenario = Scenario("nginx", "siege-site", CLOSED)
    (row,) = [row for row in figures.latencies if (row.scenario, row.arm) == (scenario, GUEST)]
    counts: dict[int, int] = {}
    tails = []
    for folder in runs.values():
        trials = load_run(folder).trials_of(scenario, GUEST)
        histogram = merged_histogram(
            folder, frame_of([trial for trial in trials if trial.validity is not Validity.INVALID])
        )
        assert histogram is not None
        tails.append(histogram.get_value_at_percentile(99))
        for bucket in histogram.get_recorded_iterator():
            value = bucket.value_iterated_to
            counts[value] = counts.get(value, 0) + bucket.count_at_value_iterated_to
    values = np.repeat(sorted(counts), [counts[value] for value in sorted(counts)])
    assert row.requests == len(values) == 5 * 5 * 2000
    shown = {one.percentile: one for one in row.percentiles}
    for percentile, per_mille in ((50, 500), (90, 900), (99, 990), (99.9, 999)):
        assert shown[percentile].value_us == values[-(-per_mille * len(values) // 1000) - 1]
    assert (shown[99].least_us, shown[99].greatest_us) == pytest.approx((min(tails), max(tails)), rel=2e-3)
    assert row.testbeds == 5


def test_trials_are_counted_once(figures: Figures) -> None:
    assert [row.testbed for row in figures.testbeds] == [f"0{n}" for n in range(5)]
    for row in figures.testbeds:
        assert (row.runs, row.blocks, row.invalid) == (1, 6, 1)
        assert row.valid + row.suspect + row.invalid == 6 * 2 * 2 * 3


@pytest.mark.parametrize("columns", [1, 30_000])
def test_runs_that_are_older_than_a_column_are_read_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setattr("vmtoll.campaign.dataset.COLUMNS", columns)
    data = tmp_path / "data"
    for testbed in ("old", "new"):
        partition(run_of(tmp_path, testbed, 0.9), data, "spring", testbed)
    old = next((data / "trials").rglob("*Z-old.parquet"))
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT * EXCLUDE (host_cpu_us_per_request) FROM '{old}') TO '{tmp_path}/old.parquet'")
    (tmp_path / "old.parquet").replace(old)
    figures = campaign_figures(str(data))
    assert entry(figures, "cpu", "lighttz", CLOSED).verdict.blocks == 2
    assert [row.valid for row in figures.testbeds] == [figures.testbeds[0].valid] * 2


def test_unreadable_input_is_reported(tmp_path: Path) -> None:
    run, data = run_of(tmp_path, "one", 0.9), tmp_path / "data"
    with pytest.raises(LoadError, match=r"no campaign here \(trials/"):
        campaign_figures(str(data))
    for name in ("spring", "summer"):
        partition(run, data, name, "one")
    with pytest.raises(LoadError, match=r" spring, summer; .*--campaign"):
        campaign_figures(str(data))
    assert campaign_figures(str(data), "summer").campaign == "summer"
    with pytest.raises(LoadError, match="no campaign autumn"):
        campaign_figures(str(data), "autumn")
    with pytest.raises(LoadError, match=r"test bed '\.\./x': "):
        partition(run, data, "spring", "../x")
    half = run_of(tmp_path, "half", 0.9, status="running")
    with pytest.raises(LoadError, match="finish the run"):
        partition(half, data, "spring", "half")


def test_the_page_agrees_with_the_figures(figures: Figures, tmp_path: Path) -> None:
    page = write_page(figures, tmp_path / "campaign.html").read_text()
    assert sum(row.valid + row.suspect + row.invalid for row in figures.testbeds) == 360
    assert escape(sentence(figures)) in page
    assert page.count("<svg") == 2  # throughput, tail
    assert escape(text(entry(figures, "throughput", "lighttz", CLOSED))) in page
    assert "Emulation" not in page
    assert json.loads(figures.to_json())["campaign"] == "spring"


def test_the_benchmark_finds_what_it_made(tmp_path: Path) -> None:
    """Five test beds of three runs each, within 200 MB of memory."""
    beds = 5
    make(tmp_path, beds)
    measured, _, figures = measure_figures(tmp_path, memory_mb=200)
    assert measured.seconds > 0 < measured.cpu_s
    tail = [effect for effect in figures.effects if effect.verdict.metric is TAIL]
    assert [estimate(effect).value for effect in tail] == pytest.approx([1.2] * 2 * RUNS, rel=0.1)
    assert {effect.verdict.blocks for effect in tail} == {beds}
    assert sum(row.requests for row in figures.latencies) > BUCKETS
