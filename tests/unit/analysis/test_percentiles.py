"""Grouped percentiles by counting are those of numpy over all values."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from benchmarks.percentiles import PART, make, measure
from vmtoll.analysis.percentiles import grouped_percentiles

SHARES = (0.1, 50.0, 90.0, 99.0, 99.9, 99.999, 100.0)


def _write(folder: Path, samples: pd.DataFrame, name: str = "samples.parquet") -> Path:
    file = folder / name
    with duckdb.connect() as database:
        database.register("samples", samples)
        database.execute(f"COPY samples TO '{file}' (FORMAT parquet)")
    return file


def test_a_million_samples_in_two_files_are_numpys(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    samples = pd.DataFrame(
        {
            "server": rng.choice(["nginx", "lighttz", "apache"], 1_000_000),
            "environment": rng.choice(["metal", "kvm-default"], 1_000_000, p=[0.7, 0.3]),
            "latency_us": rng.lognormal(7, 1, 1_000_000).astype(np.int64),
        }
    )
    files = [_write(tmp_path, samples[:400_000], "a.parquet"), _write(tmp_path, samples[400_000:], "b.parquet")]
    found = grouped_percentiles(files, ["server", "environment"], percentiles=SHARES)
    assert len(found) == 6 * len(SHARES)
    for (server, environment), ours in found.groupby(["server", "environment"]):
        cell = (samples["server"] == server) & (samples["environment"] == environment)
        values = samples.loc[cell, "latency_us"].to_numpy()
        theirs = np.percentile(values, SHARES, method="inverted_cdf")
        assert ours["percentile"].tolist() == list(SHARES)
        assert ours["value_us"].tolist() == theirs.tolist()
        assert set(ours["samples"]) == {len(values)}


def test_ranks_are_exact_where_binary_fractions_are_not(tmp_path: Path) -> None:
    """99.9% of 1,000 is rank 999, though 0.999 is no binary fraction; empty cells are no samples."""
    values = pd.DataFrame({"g": 1, "latency_us": pd.array([*range(1, 1001), None, None], dtype="Int64")})
    found = grouped_percentiles(_write(tmp_path, values), ["g"], percentiles=(0.1, 29.0, 57.0, 99.9, 99.901))
    assert found["value_us"].tolist() == [1, 290, 570, 999, 1000]
    assert found["samples"].tolist() == [1000] * 5


def test_counted_values_are_as_many_samples(tmp_path: Path) -> None:
    """Rows of value and count, several of a value, as histograms of several trials have them."""
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(
        {
            "order": rng.integers(1, 4, 500),
            "latency_us": rng.integers(100, 200, 500),
            "count": rng.integers(1, 50, 500),
        }
    )
    found = grouped_percentiles(_write(tmp_path, rows), ["order"], percentiles=SHARES, count="count")
    spelt_out = rows.loc[rows.index.repeat(rows["count"]), ["order", "latency_us"]]
    pd.testing.assert_frame_equal(
        found, grouped_percentiles(_write(tmp_path, spelt_out, "b.parquet"), ["order"], percentiles=SHARES)
    )
    assert found["samples"].max() == rows.groupby("order")["count"].sum().max()


def test_uncountable_values_are_refused(tmp_path: Path) -> None:
    file = _write(tmp_path, pd.DataFrame({"g": ["a"], "latency_us": [1.5]}))
    with pytest.raises(ValueError, match=r"latency_us is DOUBLE, not "):
        grouped_percentiles(file, ["g"])
    for groups, percentiles in (([], (50.0,)), (["g"], (0.0,)), (["g"], (100.1,))):
        with pytest.raises(ValueError, match=r"one group .*percentiles above 0"):
            grouped_percentiles(file, groups, percentiles=percentiles)
    with pytest.raises(duckdb.Error, match=r"missing\.parquet"):
        grouped_percentiles(tmp_path / "missing.parquet", ["g"])
    with pytest.raises(duckdb.Error, match="nowhere"):
        grouped_percentiles(_write(tmp_path, pd.DataFrame({"latency_us": [1]})), ["nowhere"])


def test_the_benchmark_measures_what_it_makes(tmp_path: Path) -> None:
    files = make(tmp_path, 80_000)
    assert len(files) == 1 and PART > 80_000
    seconds, cpu_s, peak_mb, table = measure(files)
    assert seconds > 0 and cpu_s > 0 and peak_mb > 50
    assert table.count("10000") == 8  # eight groups of ten thousand
