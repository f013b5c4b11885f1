"""A dataset of runs: DuckDB's figures are those of the analysis of each run, and the cells are the sample."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.meta_analysis import combine_effects
from synthetic_run import Row, Truth, failed, make_run, suspected

from analysis.bench.campaign import BUCKETS, CELLS, RUN_ROWS, make, measure
from analysis.campaign import campaign
from analysis.campaign.across import across
from analysis.campaign.page import write_page
from analysis.campaign.partition import holds, partition
from analysis.compare import compare, scenario_loop
from analysis.judge import INVALID, METAL_FASTER, NOT_DISTINGUISHABLE
from analysis.latency import merged
from analysis.load import AA_ARM, LoadError, load_run
from analysis.metrics import METRICS, TAIL, THROUGHPUT
from analysis.schema import fields, names

RATIOS = (0.90, 0.88, 0.93, 0.86, 0.91)  # of the guest's throughput, cell by cell


def refuse_one(row: Row) -> list[Row]:
    """Gates and accidents: an invalid trial, one that was tried twice, one that the client limited."""
    place = row["block"], row["environment"], row["server"], row["offered_load"]
    if place == (2, "kvm-default", "nginx", "closed:10"):
        return [failed(row, "fingerprint: nginx: config_sha256 differ")]
    if place == (3, "metal", "lighttz", "closed:10"):
        return [failed(row, "host-lost: metal"), row | {"attempt": 2}]
    if place == (4, "metal", "nginx", "closed:10"):
        return [suspected(row, "client-saturated: 99%")]
    return [row]


def cell_run(parent: Path, cell: str, ratio: float, **keys: Any) -> Path:
    """A run of one cell, with a run id of its own."""
    truth = Truth(
        {"nginx": ratio, "lighttz": ratio - 0.05},
        loads=("closed:10", "rate:1000"),
        latency_ratio=1 / ratio,
        change=refuse_one,
        seed=sum(map(ord, cell)),
    )
    for key, value in keys.items():
        setattr(truth, key, value)
    folder = make_run(parent / cell, truth)
    for file in ("run.json", "trials.csv"):
        path = folder / file
        path.write_text(path.read_text().replace("20260101T000000-synthetic", f"20260101T000000Z-{cell}"))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Five cells that differ, two of whose names would be numbers to who guesses types."""
    folder = tmp_path_factory.mktemp("runs")
    return {f"0{place}": cell_run(folder, f"0{place}", ratio, histograms=True) for place, ratio in enumerate(RATIOS)}


@pytest.fixture(scope="module")
def dataset(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data set's")
    for cell, run in runs.items():
        partition(run, folder, "spring", cell)
    return folder


@pytest.fixture(scope="module")
def figures(dataset: Path) -> dict[str, Any]:
    return campaign(str(dataset))


def entry(figures: dict[str, Any], metric: str, server: str, load: str) -> dict[str, Any]:
    (one,) = [
        one
        for one in figures["effects"]
        if (one["metric"], one["server"], one["offered_load"]) == (metric, server, load)
    ]
    found: dict[str, Any] = one
    return found


def test_a_partition_is_the_run_column_by_column(runs: dict[str, Path], dataset: Path) -> None:
    run = load_run(runs["00"])
    place = "campaign=spring/cell=00/experiment=synthetic/20260101T000000Z-00.parquet"
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
    attempts = run.attempts.sort_values(["block", "order", "attempt"], ignore_index=True)
    assert len(rows) == len(attempts)
    for column in (
        "throughput_rps",
        "service_time_p99_us",
        "response_time_p99_us",
        "host_cpu_us_per_request",
        "requests",
    ):
        np.testing.assert_array_equal(rows[column].astype(float), attempts[column].astype(float))
    for column in ("environment", "server", "verdict", "reasons", "accelerator"):
        assert rows[column].fillna("").tolist() == attempts[column].tolist()


def test_partitioning_twice_gives_the_same_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    run, data = cell_run(tmp_path, "one", 0.9), tmp_path / "data"
    files = partition(run, data, "spring", "one")
    before = [file.read_bytes() for file in files]
    assert holds(data, "spring", "one", run)
    assert not holds(data, "spring", "two", run)
    assert [file.read_bytes() for file in partition(run, data, "spring", "one")] == before
    assert sorted(path for path in data.rglob("*") if path.is_file()) == sorted(files)


def test_each_cells_effect_is_that_of_its_run(runs: dict[str, Path], figures: dict[str, Any]) -> None:
    compared = 0
    for cell, folder in runs.items():
        run = load_run(folder)
        for one in figures["effects"]:
            metric = next(metric for metric in METRICS if metric.name == one["metric"])
            scenario = one["server"], one["workload"], one["tool"], one["offered_load"]
            theirs = compare(run, scenario, one["environment"], metric, one["source"])
            (ours,) = [row for row in one["by_cell"] if row["cell"] == cell]
            assert theirs.effect is not None and theirs.effect.t is not None
            sign = -1 if metric.higher_is_better else 1
            assert math.log(ours["ratio"]) == pytest.approx(sign * theirs.effect.mean, abs=1e-12)
            ends = sorted(math.exp(sign * end) for end in (theirs.effect.t.low, theirs.effect.t.high))
            assert [ours["ratio_low"], ours["ratio_high"]] == pytest.approx(ends, rel=1e-12)
            assert (ours["blocks"], ours["limited"]) == (theirs.pairs, theirs.limited)
            assert scenario_loop(scenario) in metric.loops
            compared += 1
    assert compared == len(runs) * len(figures["effects"])
    assert len(figures["effects"]) == 2 * (4 + 3)  # two servers; the metrics of closed and of open loops


def test_the_campaigns_effect_is_the_mean_of_its_cells(figures: dict[str, Any]) -> None:
    one = entry(figures, "throughput", "lighttz", "closed:10")
    logs = np.log([cell["ratio"] for cell in one["by_cell"]])
    interval = scipy_stats.t.interval(0.95, len(logs) - 1, logs.mean(), scipy_stats.sem(logs))
    assert math.log(one["ratio"]) == pytest.approx(logs.mean())
    assert np.log([one["ratio_low"], one["ratio_high"]]) == pytest.approx(interval)
    assert one["effect"] == pytest.approx(1 - math.exp(logs.mean()))
    assert (one["cells"], one["kind"]) == (5, METAL_FASTER)
    assert one["prediction_low"] < one["ratio_low"] < one["ratio_high"] < one["prediction_high"]
    truth = np.std(np.log(np.array(RATIOS) - 0.05), ddof=1)
    assert one["between_sd"] == pytest.approx(truth, rel=0.15)


def test_the_spread_between_cells_is_the_usual_estimators_where_cells_are_alike() -> None:
    """With equal standard errors Hedges and Olkin's estimator is DerSimonian and Laird's, and all weights are one."""
    means, sd, blocks = np.array([0.20, 0.26, 0.17, 0.23, 0.31, 0.15]), 0.05, 8
    scenario = {"experiment": "e", "server": "s", "workload": "w", "tool": "t", "offered_load": "rate:100"}
    guest = {"environment": "kvm-default", "accelerator": "kvm", "metric": "tail", "source": "tool"}
    counts = {"sd": sd, "blocks": blocks, "limited_metal": 0, "limited_guest": 0}
    rows = [scenario | guest | counts | {"cell": f"c{place}", "mean": mean} for place, mean in enumerate(means)]
    (one,) = across(pd.DataFrame(rows), 0.02)
    theirs = combine_effects(means, np.full(len(means), sd**2 / blocks), method_re="dl")
    assert one["between_sd"] == pytest.approx(math.sqrt(theirs.tau2))
    assert math.log(one["ratio"]) == pytest.approx(theirs.mean_effect_re) == pytest.approx(means.mean())
    half = scipy_stats.t.ppf(0.975, 4) * math.sqrt(theirs.tau2 + means.var(ddof=1) / 6)
    ends = np.exp([means.mean() - half, means.mean() + half])
    assert (one["prediction_low"], one["prediction_high"]) == pytest.approx(tuple(ends))


def test_the_noise_floor_is_that_of_the_cells_aa_arms(runs: dict[str, Path], figures: dict[str, Any]) -> None:
    one = entry(figures, "throughput", "lighttz", "closed:10")
    means = []
    for folder in runs.values():
        effect = compare(
            load_run(folder), ("lighttz", "siege-site", "siege", "closed:10"), AA_ARM, THROUGHPUT, "tool"
        ).effect
        assert effect is not None
        means.append(effect.mean)
    low, high = scipy_stats.t.interval(0.95, len(means) - 1, np.mean(means), scipy_stats.sem(means))
    assert one["noise_floor"] == pytest.approx(math.expm1(max(abs(low), abs(high))))


def test_percentiles_are_those_of_the_added_histograms(runs: dict[str, Path], figures: dict[str, Any]) -> None:
    (row,) = [
        row
        for row in figures["percentiles"]
        if (row["server"], row["environment"], row["offered_load"]) == ("nginx", "kvm-default", "closed:10")
    ]
    counts: dict[int, int] = {}
    tails = []
    for folder in runs.values():
        run = load_run(folder)
        cell = run.cells["nginx", "siege-site", "siege", "closed:10"]
        valid = cell[(cell["environment"] == "kvm-default") & (cell["verdict"] != "invalid")]
        histogram = merged(folder, valid)
        tails.append(histogram.get_value_at_percentile(99))
        for bucket in histogram.get_recorded_iterator():
            value = bucket.value_iterated_to
            counts[value] = counts.get(value, 0) + bucket.count_at_value_iterated_to
    values = np.repeat(sorted(counts), [counts[value] for value in sorted(counts)])
    assert row["requests"] == len(values) == 5 * 5 * 2000
    for name, per_mille in (("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999)):
        assert row[f"{name}_us"] == values[-(-per_mille * len(values) // 1000) - 1]
    assert (row["p99_least_us"], row["p99_greatest_us"]) == pytest.approx((min(tails), max(tails)), rel=2e-3)
    assert (row["latency"], row["cells"]) == ("service time", 5)


def test_trials_are_counted_once(figures: dict[str, Any]) -> None:
    assert [row["cell"] for row in figures["cells"]] == [f"0{place}" for place in range(5)]
    for row in figures["cells"]:
        assert (row["runs"], row["blocks"], row["invalid"]) == (1, 6, 1)
        assert row["valid"] + row["suspect"] + row["invalid"] == 6 * 2 * 2 * 3


def test_guests_on_emulation_are_not_pooled_with_others(tmp_path: Path) -> None:
    for cell, accelerator in (("a", "kvm"), ("b", "kvm"), ("c", "tcg"), ("d", "tcg")):
        partition(cell_run(tmp_path, cell, 0.9, accelerator=accelerator), tmp_path / "d", "mixed", cell)
    found = campaign(str(tmp_path / "d"))
    assert found["emulated"] is True
    kinds = {(one["accelerator"], one["cells"], one["kind"]) for one in found["effects"]}
    assert kinds == {("kvm", 2, NOT_DISTINGUISHABLE), ("tcg", 2, NOT_DISTINGUISHABLE)}
    assert "2 of at least 3 cells" in found["effects"][0]["text"]


def test_where_the_client_set_the_pace_on_both_sides_nothing_is_decided(tmp_path: Path) -> None:
    def limited(row: Row) -> list[Row]:
        codes = ("client-saturated: 99%", "twin-client-saturated: 99%")
        return [suspected(row, *codes)] if row["offered_load"] == "closed:10" else [row]

    for cell in ("a", "b", "c"):
        partition(cell_run(tmp_path, cell, 0.8, change=limited), tmp_path / "d", "slow-client", cell)
    found = campaign(str(tmp_path / "d"))
    one = entry(found, "throughput", "nginx", "closed:10")
    assert (one["kind"], one["limited"], one["source"]) == (INVALID, 3 * 6 * 2, "twin")
    assert entry(found, "tail", "nginx", "rate:1000")["kind"] == METAL_FASTER


@pytest.mark.parametrize("batch", [1, 200])
def test_runs_that_are_older_than_a_column_are_read_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("analysis.campaign.dataset.BATCH", batch)
    data = tmp_path / "data"
    for cell in ("old", "new"):
        partition(cell_run(tmp_path, cell, 0.9), data, "spring", cell)
    old = next((data / "trials").rglob("*Z-old.parquet"))
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT * EXCLUDE (host_cpu_us_per_request) FROM '{old}') TO '{tmp_path}/old.parquet'")
    (tmp_path / "old.parquet").replace(old)
    found = campaign(str(data))
    assert entry(found, "cpu", "lighttz", "closed:10")["cells"] == 2
    assert entry(found, "host_cpu", "lighttz", "closed:10")["cells"] == 1


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    run, data = cell_run(tmp_path, "one", 0.9), tmp_path / "data"
    with pytest.raises(LoadError, match="no campaign: no file trials/"):
        campaign(str(data))
    for name in ("spring", "summer"):
        partition(run, data, name, "one")
    with pytest.raises(LoadError, match="it holds the campaigns spring, summer: name one"):
        campaign(str(data))
    assert campaign(str(data), "summer")["campaign"] == "summer"
    with pytest.raises(LoadError, match="it holds no campaign autumn"):
        campaign(str(data), "autumn")
    with pytest.raises(LoadError, match=r"cell '\.\./x': letters, digits"):
        partition(run, data, "spring", "../x")
    half = cell_run(tmp_path, "half", 0.9, status="running")
    with pytest.raises(LoadError, match="finish the run first"):
        partition(half, data, "spring", "half")


def test_the_page_says_what_the_figures_say(figures: dict[str, Any], tmp_path: Path) -> None:
    page = write_page(figures, tmp_path / "campaign.html").read_text()
    assert "5 cells, 360 trials" in page
    assert page.count("<svg") == 2  # throughput, tail
    assert entry(figures, "throughput", "lighttz", "closed:10")["text"] in page
    assert "Emulation" not in page
    assert json.loads(json.dumps(figures)) == figures


def test_the_benchmark_finds_what_it_made(tmp_path: Path) -> None:
    """Five cells of a run each, within 200 MB of memory."""
    assert make(tmp_path, CELLS * RUN_ROWS // 10) > 0
    seconds, cpu_s, _, found = measure(tmp_path, memory_mb=200)
    assert seconds > 0 < cpu_s
    tail = [one for one in found["effects"] if one["metric"] == TAIL.name]
    assert [one["ratio"] for one in tail] == pytest.approx([1.2] * 4, rel=0.01)
    assert {one["cells"] for one in tail} == {CELLS // 10}
    assert sum(row["requests"] for row in found["percentiles"]) > BUCKETS
