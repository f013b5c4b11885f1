"""A dataset of runs: DuckDB's figures are those of the analysis of each run, and the test beds are the sample."""

import json
import math
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.meta_analysis import combine_effects

from tests.support.synthetic_run import CONTROL, Row, Truth, closed, failed, found, limited, make_run, rate
from vmtoll.analysis.histograms import merged
from vmtoll.analysis.pairs import pair_arms
from vmtoll.analysis.run import frame_of, load_run
from vmtoll.analysis.schema import fields, names
from vmtoll.benchmarks.campaign import BUCKETS, RUN_ROWS, TESTBEDS, make, measure
from vmtoll.campaign.dataset import BedFigures
from vmtoll.campaign.effects import Effect, Figures, across, campaign_figures
from vmtoll.campaign.page import text, write_page
from vmtoll.campaign.store import holds, partition
from vmtoll.model.columns import flat
from vmtoll.model.errors import LoadError
from vmtoll.model.finding import Code, Finding, Role, Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load
from vmtoll.model.metric import TAIL, THROUGHPUT, loop_of
from vmtoll.model.trial import BASELINE, Accelerator, Arm, Scenario
from vmtoll.model.verdict import Because, Estimate, Kind, Limit

GUEST = Arm("kvm-default")
CLOSED, OPEN = closed(10), rate(1000)
RATIOS = (0.90, 0.88, 0.93, 0.86, 0.91)  # of the guest's throughput, test bed by test bed


def refuse_one(row: Row) -> list[Row]:
    """Gates and failures: an invalid trial, one that was tried twice, one that the client limited."""
    place = row["block"], row["arm"], row["server"], row["load"]
    if place == (2, GUEST, "nginx", CLOSED):
        return [failed(row, Code.FINGERPRINT)]
    if place == (3, BASELINE, "lighttz", CLOSED):
        return [failed(row, Code.HOST_LOST), row | {"attempt": 2}]
    if place == (4, BASELINE, "nginx", CLOSED):
        return [found(row, *limited(Code.CLIENT_SATURATED, Role.PRIMARY))]
    return [row]


def run_of(parent: Path, testbed: str, ratio: float, **keys: Any) -> Path:
    """A run on one test bed, with a run id of its own."""
    truth = Truth(
        {"nginx": ratio, "lighttz": ratio - 0.05},
        loads=(CLOSED, OPEN),
        latency_ratio=1 / ratio,
        change=refuse_one,
        seed=sum(map(ord, testbed)),
    )
    for key, value in keys.items():
        setattr(truth, key, value)
    folder = make_run(parent / testbed, truth)
    for file in ("run.json", "trials.jsonl"):
        path = folder / file
        path.write_text(path.read_text().replace("20260101T000000-synthetic", f"20260101T000000Z-{testbed}"))
    return folder


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


def entry(figures: Figures, metric: str, server: str, load: Load) -> Effect:
    (effect,) = [
        one
        for one in figures.effects
        if (one.verdict.metric.name, one.scenario.server, one.scenario.load) == (metric, server, load)
    ]
    return effect


def estimate(effect: Effect) -> Estimate:
    assert effect.verdict.estimate is not None
    return effect.verdict.estimate


def test_a_partition_is_the_run_column_by_column(runs: dict[str, Path], dataset: Path) -> None:
    run = load_run(runs["00"])
    place = "campaign=spring/testbed=00/experiment=synthetic/20260101T000000Z-00.parquet"
    with duckdb.connect() as database:
        for table in ("trials", "histograms", "seconds", "samples"):
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
            assert rows[column].astype(object).where(rows[column].notna(), None).tolist() == values, column


def test_partitioning_twice_gives_the_same_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    run, data = run_of(tmp_path, "one", 0.9), tmp_path / "data"
    files = partition(run, data, "spring", "one")
    before = [file.read_bytes() for file in files]
    assert holds(data, "spring", "one", run)
    assert not holds(data, "spring", "two", run)
    assert [file.read_bytes() for file in partition(run, data, "spring", "one")] == before
    assert sorted(path for path in data.rglob("*") if path.is_file()) == sorted(files)


def test_the_effect_on_a_testbed_is_that_of_its_run(runs: dict[str, Path], figures: Figures) -> None:
    compared = 0
    for testbed, folder in runs.items():
        run = load_run(folder)
        for effect in figures.effects:
            metric, role = effect.verdict.metric, effect.verdict.role
            assert role is not None
            theirs = pair_arms(run, effect.scenario, effect.arm, metric, role)
            (ours,) = [bed for bed in effect.by_testbed if bed.testbed == testbed]
            assert theirs.effect is not None and theirs.effect.t is not None
            assert math.log(ours.estimate.ratio) == pytest.approx(theirs.effect.mean, abs=1e-12)
            ends = math.exp(theirs.effect.t.low), math.exp(theirs.effect.t.high)
            assert (ours.estimate.low, ours.estimate.high) == pytest.approx(ends, rel=1e-12)
            assert (ours.blocks, ours.limited) == (theirs.n, sum(theirs.limited))
            assert loop_of(effect.scenario.load) in metric.loops
            compared += 1
    assert compared == len(runs) * len(figures.effects)
    assert len(figures.effects) == 2 * (4 + 3)  # two servers; the metrics of closed and of open loops


def test_the_campaigns_effect_is_the_mean_of_its_testbeds(figures: Figures) -> None:
    effect = entry(figures, "throughput", "lighttz", CLOSED)
    ratio, wide = estimate(effect), effect.prediction
    logs = np.log([bed.estimate.ratio for bed in effect.by_testbed])
    interval = scipy_stats.t.interval(0.95, len(logs) - 1, logs.mean(), scipy_stats.sem(logs))
    assert math.log(ratio.ratio) == pytest.approx(logs.mean())
    assert ratio.low is not None and ratio.high is not None
    assert np.log([ratio.low, ratio.high]) == pytest.approx(interval)
    assert (effect.verdict.blocks, effect.verdict.kind) == (5, Kind.SLOWER)
    assert wide is not None and wide.low is not None and wide.high is not None
    assert wide.low < ratio.low < ratio.high < wide.high
    truth = np.std(np.log(np.array(RATIOS) - 0.05), ddof=1)
    assert effect.between_sd == pytest.approx(truth, rel=0.15)


def bed_figures(testbed: str, mean: float, sd: float, blocks: int, **keys: Any) -> BedFigures:
    figures: dict[str, Any] = {
        "testbed": testbed, "experiment": "e", "scenario": Scenario("s", "w", rate(100)), "arm": GUEST,
        "accelerator": Accelerator.KVM, "hardware": Hardware.NATIVE,
        "metric": TAIL, "role": Role.PRIMARY, "tool": "t", "blocks": blocks,
        "mean": mean, "sd": sd, "limited_baseline": 0, "limited_compared": 0, "by_client": False, "by_link": False,
    }  # fmt: skip
    return BedFigures(**figures | keys)


def test_spread_between_similar_test_beds_equals_the_usual_estimate() -> None:
    """With equal standard errors Hedges and Olkin's estimator is DerSimonian and Laird's, and all weights are one."""
    means, sd, blocks = np.array([0.20, 0.26, 0.17, 0.23, 0.31, 0.15]), 0.05, 8
    (effect,) = across([bed_figures(f"c{n}", float(mean), sd, blocks) for n, mean in enumerate(means)], 0.02)
    theirs = combine_effects(means, np.full(len(means), sd**2 / blocks), method_re="dl")
    assert effect.between_sd == pytest.approx(math.sqrt(theirs.tau2))
    assert math.log(estimate(effect).ratio) == pytest.approx(theirs.mean_effect_re) == pytest.approx(means.mean())
    half = scipy_stats.t.ppf(0.975, 5) * means.std(ddof=1) * math.sqrt(1 + 1 / 6)
    ends = np.exp([means.mean() - half, means.mean() + half])
    assert effect.prediction is not None
    assert (effect.prediction.low, effect.prediction.high) == pytest.approx(tuple(ends))


def moments(logs: Any) -> tuple[float, float]:
    return float(logs.mean()), float(logs.std(ddof=1))


@pytest.mark.parametrize("testbeds", [5, 10])
def test_one_further_testbed_lies_where_it_is_predicted(testbeds: int) -> None:
    """Hosts differ by 1%, a block by 2%: with the spread less the blocks' noise it was 86% at ten test beds."""
    rng, blocks, held, campaigns = np.random.default_rng(8), 6, 0, 300
    for _ in range(campaigns):
        hosts = rng.normal(0.1, 0.01, testbeds + 1)
        logs = hosts[:, None] + rng.normal(0, 0.02 * math.sqrt(2), (testbeds + 1, blocks))
        rows = [bed_figures(f"c{n}", *moments(own), blocks) for n, own in enumerate(logs[:-1])]
        (effect,) = across(rows, 0.02)
        assert effect.prediction is not None and effect.prediction.low and effect.prediction.high
        held += effect.prediction.low <= math.exp(logs[-1].mean()) <= effect.prediction.high
    assert held >= 0.93 * campaigns


def test_one_odd_host_of_four_claims_nothing() -> None:
    rows = [bed_figures(f"c{n}", mean, 0.01, 6) for n, mean in enumerate((0.2, 0.21, 0.2, 0.19))]
    (effect,) = across(rows, 0.02)
    assert (effect.verdict.kind, effect.verdict.blocks_needed, effect.prediction) == (Kind.UNDECIDED, 1, None)
    (effect,) = across([*rows, bed_figures("c4", 0.2, 0.01, 6)], 0.02)
    assert (effect.verdict.kind, effect.verdict.blocks) == (Kind.SLOWER, 5)


@pytest.mark.parametrize(
    ("metric", "load", "because"),
    [
        (THROUGHPUT, CLOSED, Because.LIMITED_ON_THE_SLOWER_SIDE),
        (TAIL, rate(100), Because.LIMITED_TAIL),
    ],
)
def test_only_the_limited_test_bed_is_refused(metric: Any, load: Load, because: Because, tmp_path: Path) -> None:
    """Two of seven were limited in every trial of the slower side; of all trials together that is less than half."""
    sign = -1 if metric is THROUGHPUT else 1
    keys = {"metric": metric, "scenario": Scenario("s", "w", load)}
    rows = [bed_figures(f"c{n}", sign * (0.2 + n / 100), 0.01, 6, **keys) for n in range(5)]
    limited_rows = [
        bed_figures(f"l{n}", sign * 2.0, 0.01, 6, limited_compared=6, by_client=True, **keys) for n in range(2)
    ]
    (effect,) = across([*rows, *limited_rows], 0.02)
    assert {bed.testbed: bed.refused for bed in effect.by_testbed if bed.refused} == {"l0": because, "l1": because}
    assert (effect.verdict.kind, effect.verdict.blocks, effect.blocks) == (Kind.SLOWER, 5, 30)
    assert math.log(estimate(effect).ratio) == pytest.approx(sign * 0.22)
    (few,) = across([*rows[:4], *limited_rows], 0.02)
    assert (few.verdict.kind, few.verdict.blocks_needed) == (Kind.UNDECIDED, 1)
    (none,) = across(limited_rows, 0.02)
    assert (none.verdict.kind, none.verdict.because) == (Kind.INVALID, because)
    page = write_page(
        Figures(
            campaign="c",
            emulated=False,
            kvm_hardware=(),
            margin=0.02,
            testbeds=(),
            effects=(effect,),
            latencies=(),
            machines=(),
        ),
        tmp_path / "campaign.html",
    ).read_text()
    assert page.count("left out: client-limited") == 2
    assert "5 of 7" in page


def test_the_noise_floor_of_another_server_is_better_than_none() -> None:
    """Only nginx has an A/A arm, with a floor of about a tenth; 3% of lighttpd are then no finding, as in its runs."""
    wide = (0.08, -0.08, 0.07, -0.06, 0.09, -0.05)
    arm, server = {"arm": CONTROL, "accelerator": Accelerator.NONE}, {"scenario": Scenario("nginx", "w", rate(100))}
    rows = [bed_figures(f"c{n}", mean, 0.01, 6, **arm, **server) for n, mean in enumerate(wide)]
    rows += [bed_figures(f"c{n}", 0.03 + mean / 100, 0.01, 6) for n, mean in enumerate(wide)]
    (effect,) = [one for one in across(rows, 0.02) if one.scenario.server == "s"]
    assert (effect.verdict.noise_floor_server, effect.verdict.noise_floor_arm) == ("nginx", CONTROL)
    assert effect.verdict.noise_floor is not None and effect.verdict.noise_floor > 0.05
    assert abs(math.log(estimate(effect).ratio)) < effect.verdict.noise_floor
    own = bed_figures("c0", 0.0, 0.01, 6, **arm)
    (effect,) = [one for one in across([*rows, own], 0.02) if one.scenario.server == "s"]
    assert effect.verdict.noise_floor_server == "nginx", "a control on one test bed has no interval"


def control_means(runs: dict[str, Path], arm: Arm, baseline: Arm) -> list[float]:
    means = []
    for folder in runs.values():
        scenario = Scenario("lighttz", "siege-site", CLOSED)
        effect = pair_arms(load_run(folder), scenario, arm, THROUGHPUT, Role.PRIMARY, baseline).effect
        assert effect is not None
        means.append(effect.mean)
    return means


def floor_of(means: list[float]) -> float:
    low, high = scipy_stats.t.interval(0.95, len(means) - 1, np.mean(means), scipy_stats.sem(means))
    return math.expm1(max(abs(low), abs(high)))


def test_the_noise_floor_is_that_of_the_testbeds_controls(runs: dict[str, Path], figures: Figures) -> None:
    effect = entry(figures, "throughput", "lighttz", CLOSED)
    assert effect.verdict.noise_floor == pytest.approx(floor_of(control_means(runs, CONTROL, BASELINE)))


def test_a_control_of_the_guest_is_no_guest_and_gives_a_noise_floor(tmp_path: Path) -> None:
    runs = {bed: run_of(tmp_path, bed, 0.9, aa=False, guest_control="kvm-default") for bed in "abcde"}
    for testbed, run in runs.items():
        partition(run, tmp_path / "d", "controlled", testbed)
    figures = campaign_figures(str(tmp_path / "d"))
    assert {effect.arm for effect in figures.effects} == {GUEST}
    effect = entry(figures, "throughput", "lighttz", CLOSED)
    assert effect.verdict.noise_floor == pytest.approx(floor_of(control_means(runs, Arm("kvm-default", 2), GUEST)))


def test_percentiles_are_those_of_the_added_histograms(runs: dict[str, Path], figures: Figures) -> None:
    scenario = Scenario("nginx", "siege-site", CLOSED)
    (row,) = [row for row in figures.latencies if (row.scenario, row.arm) == (scenario, GUEST)]
    counts: dict[int, int] = {}
    tails = []
    for folder in runs.values():
        trials = load_run(folder).trials_of(scenario, GUEST)
        histogram = merged(folder, frame_of([trial for trial in trials if trial.validity is not Validity.INVALID]))
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


def test_guests_on_emulation_are_not_pooled_with_others(tmp_path: Path) -> None:
    for testbed, accelerator in (("a", "kvm"), ("b", "kvm"), ("c", "tcg"), ("d", "tcg")):
        run = run_of(tmp_path, testbed, 0.9, accelerator=Accelerator(accelerator))
        partition(run, tmp_path / "d", "mixed", testbed)
    figures = campaign_figures(str(tmp_path / "d"))
    assert figures.emulated is True
    kinds = {
        (one.accelerator, one.verdict.blocks, one.verdict.kind, one.verdict.blocks_needed) for one in figures.effects
    }
    assert kinds == {(accelerator, 2, Kind.UNDECIDED, 3) for accelerator in (Accelerator.KVM, Accelerator.TCG)}
    assert text(figures.effects[0]) == "undecided (3 more test beds needed)"


def test_guests_on_different_hardware_are_not_pooled_which_the_page_states(tmp_path: Path) -> None:
    for testbed, hardware in (("a", "native"), ("b", "native"), ("c", "nested"), ("d", "emulated")):
        run = run_of(tmp_path, testbed, 0.9, hardware=Hardware(hardware))
        partition(run, tmp_path / "d", "mixed", testbed)
    figures = campaign_figures(str(tmp_path / "d"))
    assert figures.kvm_hardware == (Hardware.NATIVE, Hardware.NESTED, Hardware.EMULATED)
    beds = {(one.hardware, one.verdict.blocks) for one in figures.effects}
    assert beds == {(Hardware.NATIVE, 2), (Hardware.NESTED, 1), (Hardware.EMULATED, 1)}
    page = write_page(figures, tmp_path / "campaign.html").read_text(encoding="utf-8")
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'\bid="([^"]+)"', page))
    top, tables = page.split("<h1>", 1)
    assert "KVM on emulated hardware: shows that the path works, not what KVM costs." in top
    assert "Nested KVM: its cost includes what the hypervisor below the KVM host adds." in top
    assert "kvm-default, nested KVM, by" in tables
    assert "kvm-default, KVM on emulated hardware, by" in tables
    assert "(KVM on emulated hardware) against metal" in tables


def test_a_dataset_of_before_hardware_was_recorded_is_of_unknown_hardware(tmp_path: Path) -> None:
    partition(run_of(tmp_path, "a", 0.9), tmp_path / "d", "old", "a")
    (file,) = (tmp_path / "d" / "trials").rglob("*.parquet")
    older = tmp_path / "older.parquet"
    duckdb.sql(
        f"COPY (SELECT * EXCLUDE (hardware) FROM read_parquet('{file}', hive_partitioning = false)) TO '{older}'"
    )
    older.replace(file)
    assert campaign_figures(str(tmp_path / "d")).kvm_hardware == (Hardware.UNKNOWN,)


@pytest.mark.parametrize(
    ("code", "roles", "limit"),
    [
        (Code.CLIENT_SATURATED, (Role.PRIMARY, Role.CROSSCHECK), Limit.CLIENT),
        (Code.LINK_BOUND, (None,), Limit.LINK),
    ],
)
def test_no_verdict_when_both_sides_are_client_or_link_limited(
    tmp_path: Path, code: Code, roles: tuple[Role | None, ...], limit: Limit
) -> None:
    def limit_closed(row: Row) -> list[Row]:
        return [row if row["load"].is_open else found(row, *(Finding(code, role=role) for role in roles))]

    for testbed in "abcde":
        partition(run_of(tmp_path, testbed, 0.8, change=limit_closed), tmp_path / "d", "slow-client", testbed)
    figures = campaign_figures(str(tmp_path / "d"))
    verdict = entry(figures, "throughput", "nginx", CLOSED).verdict
    assert (verdict.kind, verdict.because) == (Kind.INVALID, Because.LIMITED_ON_BOTH_SIDES)
    assert (verdict.limited, verdict.limited_by, verdict.role) == (5 * 6 * 2, (limit,), Role.CROSSCHECK)
    assert entry(figures, "tail", "nginx", OPEN).verdict.kind is Kind.SLOWER


def test_the_crosscheck_counts_where_the_client_limited_the_tool(tmp_path: Path) -> None:
    def limit_primary(row: Row) -> list[Row]:
        return [found(row, *limited(Code.CLIENT_SATURATED, Role.PRIMARY))]

    for testbed in "abcde":
        partition(run_of(tmp_path, testbed, 0.8, change=limit_primary), tmp_path / "d", "slow-tool", testbed)
    verdict = entry(campaign_figures(str(tmp_path / "d")), "throughput", "nginx", CLOSED).verdict
    assert (verdict.kind, verdict.role, verdict.tool, verdict.limited) == (Kind.SLOWER, Role.CROSSCHECK, "h2load", 0)


@pytest.mark.parametrize("batch", [1, 200])
def test_runs_that_are_older_than_a_column_are_read_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("vmtoll.campaign.dataset.BATCH", batch)
    data = tmp_path / "data"
    for testbed in ("old", "new"):
        partition(run_of(tmp_path, testbed, 0.9), data, "spring", testbed)
    old = next((data / "trials").rglob("*Z-old.parquet"))
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT * EXCLUDE (host_cpu_us_per_request) FROM '{old}') TO '{tmp_path}/old.parquet'")
    (tmp_path / "old.parquet").replace(old)
    figures = campaign_figures(str(data))
    assert entry(figures, "cpu", "lighttz", CLOSED).verdict.blocks == 2
    assert entry(figures, "host_cpu", "lighttz", CLOSED).verdict.blocks == 1


def test_unreadable_input_is_reported(tmp_path: Path) -> None:
    run, data = run_of(tmp_path, "one", 0.9), tmp_path / "data"
    with pytest.raises(LoadError, match=r"no campaign here \(trials/"):
        campaign_figures(str(data))
    for name in ("spring", "summer"):
        partition(run, data, name, "one")
    with pytest.raises(LoadError, match="holds the campaigns spring, summer; choose one with --campaign"):
        campaign_figures(str(data))
    assert campaign_figures(str(data), "summer").campaign == "summer"
    with pytest.raises(LoadError, match="no campaign autumn here; choose another"):
        campaign_figures(str(data), "autumn")
    with pytest.raises(LoadError, match=r"test bed '\.\./x': letters, digits"):
        partition(run, data, "spring", "../x")
    half = run_of(tmp_path, "half", 0.9, status="running")
    with pytest.raises(LoadError, match="finish the run first"):
        partition(half, data, "spring", "half")


def test_the_page_agrees_with_the_figures(figures: Figures, tmp_path: Path) -> None:
    page = write_page(figures, tmp_path / "campaign.html").read_text()
    assert "5 test beds, 360 trials" in page
    assert page.count("<svg") == 2  # throughput, tail
    assert text(entry(figures, "throughput", "lighttz", CLOSED)) in page
    assert "Emulation" not in page
    assert json.loads(figures.to_json())["campaign"] == "spring"


def test_the_benchmark_finds_what_it_made(tmp_path: Path) -> None:
    """Five test beds of a run each, within 200 MB of memory."""
    assert make(tmp_path, TESTBEDS * RUN_ROWS // 10) > 0
    seconds, cpu_s, _, figures = measure(tmp_path, memory_mb=200)
    assert seconds > 0 < cpu_s
    tail = [effect for effect in figures.effects if effect.verdict.metric is TAIL]
    assert [estimate(effect).ratio for effect in tail] == pytest.approx([1.2] * 4, rel=0.01)
    assert {effect.verdict.blocks for effect in tail} == {TESTBEDS // 10}
    assert sum(row.requests for row in figures.latencies) > BUCKETS
