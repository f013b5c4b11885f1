"""Histograms of many clients and blocks are merged; percentiles and goodput come from all requests at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from tests.support.records import BASELINE
from vmtoll.analysis.histograms import buckets, distribution, goodput_rps, merged_percentiles, read_histogram
from vmtoll.model.finding import Role
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import Accelerator, ClientPlace, Measurement, Scenario, TrialRecord
from vmtoll.trial.latency import histogram

Latencies = npt.NDArray[np.int64]
PRECISION = 0.001  # three significant digits


def _trials(blocks: int, requests: int, rate_rps: float) -> pd.DataFrame:
    made = [record(block, f"histograms/b{block:03d}-o001-a1.hdr") for block in range(1, blocks + 1)]
    return pd.DataFrame({"record": made, "requests": requests, "offered_rps": rate_rps})


def record(block: int, histogram: str | None) -> TrialRecord:
    """A trial whose measurement names this file of latencies."""
    return TrialRecord(
        run_id="synthetic", block=block, order=1, attempt=1, arm=BASELINE, accelerator=Accelerator.NONE,
        scenario=Scenario("nginx", "site", Load(LoadKind.RATE, 1000.0)), client=ClientPlace.REMOTE, clients=1, guests=1,
        started_at="2026-01-01T00:00:00Z",
        measurements=(Measurement(role=Role.PRIMARY, tool="oha", histogram=histogram),),
    )  # fmt: skip


def _write(run_dir: Path, blocks: list[list[Latencies]]) -> None:
    """One file per block, one line per client, as the runner encodes them."""
    (run_dir / "histograms").mkdir()
    for block, clients in enumerate(blocks, start=1):
        lines = b"".join(histogram(latencies) + b"\n" for latencies in clients)
        (run_dir / "histograms" / f"b{block:03d}-o001-a1.hdr").write_bytes(lines)


@pytest.fixture
def latencies() -> list[list[Latencies]]:
    """Six blocks of two clients, 2,000 requests each; every block a little slower, one client of one stalled."""
    rng = np.random.default_rng(11)
    blocks = [[rng.lognormal(7 + 0.1 * b, 0.5, 2000).astype(np.int64) for _ in range(2)] for b in range(6)]
    blocks[3][1][:400] += 400_000
    return blocks


def test_the_buckets_are_those_that_the_library_iterates(tmp_path: Path, latencies: list[list[Latencies]]) -> None:
    _write(tmp_path, [[*latencies[3], np.array([0, 1, 2047, 2048, 3_599_999_999])]])
    histogram_of_all = read_histogram(tmp_path / "histograms" / "b001-o001-a1.hdr")
    values, counts = buckets(histogram_of_all)
    steps = histogram_of_all.get_recorded_iterator()
    assert list(zip(values, counts, strict=True)) == [
        (step.value_iterated_to, step.count_at_value_iterated_to) for step in steps
    ]


def test_percentiles_are_of_all_requests(tmp_path: Path, latencies: list[list[Latencies]]) -> None:
    _write(tmp_path, latencies)
    found = merged_percentiles(tmp_path, _trials(6, 4000, 1000.0))
    everything = np.concatenate([client for block in latencies for client in block])
    truth = np.percentile(everything, (50, 90, 99, 99.9), method="inverted_cdf")
    assert found == pytest.approx(tuple(truth), rel=PRECISION)
    averaged = np.mean([np.percentile(np.concatenate(block), 99, method="inverted_cdf") for block in latencies])
    assert abs(averaged / truth[2] - 1) > 0.5  # what averaging would have said


def test_goodput_within_any_deadline(tmp_path: Path, latencies: list[list[Latencies]]) -> None:
    """24,000 requests in 24 s: good ones per second, by counting each latency."""
    _write(tmp_path, latencies)
    deadlines_ms = [0.1, 1.0, 2.5, 10.0, 100.0, 1000.0]
    found = goodput_rps(tmp_path, _trials(6, 4000, 1000.0), deadlines_ms)
    assert found is not None
    everything = np.concatenate([client for block in latencies for client in block])
    for rate, deadline_us in zip(found, np.array(deadlines_ms) * 1000, strict=True):
        least, most = (np.count_nonzero(everything <= deadline_us * (1 + e)) / 24 for e in (-PRECISION, 0))
        assert least <= rate <= most
    assert found[0] == 0.0
    assert found[-1] == 1000.0
    assert found[-2] == pytest.approx(1000 - 400 / 24)


def test_no_figure_without_every_file(tmp_path: Path, latencies: list[list[Latencies]]) -> None:
    _write(tmp_path, latencies[:5])
    trials = _trials(6, 4000, 1000.0)
    assert merged_percentiles(tmp_path, trials) is None
    assert distribution(tmp_path, trials) is None
    assert goodput_rps(tmp_path, trials, [10.0]) is None


@pytest.mark.parametrize("content", [b"", b"HISTFAAA", b"no histogram"])
def test_a_spoilt_file_is_named(tmp_path: Path, latencies: list[list[Latencies]], content: bytes) -> None:
    _write(tmp_path, latencies[:2])
    (tmp_path / "histograms" / "b002-o001-a1.hdr").write_bytes(content)
    with pytest.raises(ValueError, match=r"b002-o001-a1\.hdr: not an HdrHistogram"):
        merged_percentiles(tmp_path, _trials(2, 4000, 1000.0))
