"""A percentile has the requests that it needs, in tables and bundles of records of any age."""

from pathlib import Path

import pytest

from tests.support.committed_run import committed
from vmtoll.model.percentiles import (
    FEWEST,
    PER_MILLE,
    columns_without_enough_requests,
    fewest_requests,
    out_of_order_columns,
)
from vmtoll.model.trial import TIME_COLUMNS, Measurement, from_json, without_thin_percentiles

LINES = committed("results/*/*/trials.jsonl")


@pytest.mark.parametrize(("percentile", "fewest"), [(0.5, 2), (0.9, 10), (0.99, 100), (0.999, 1000)])
def test_the_fewest_requests_of_a_percentile(percentile: float, fewest: int) -> None:
    """Of as many the nearest-rank percentile is for the first time not the slowest request, or just so."""
    assert fewest_requests(percentile) == fewest


def test_each_percentile_has_the_requests_that_it_needs() -> None:
    """So that it is not just the largest value."""
    assert FEWEST == {"p50": 2, "p90": 10, "p99": 100, "p999": 1000}
    figures = {f"service_time_{name}_us": 5.0 for name in PER_MILLE} | {"service_time_mean_us": 9.0, "p99_us": 1.0}
    assert columns_without_enough_requests(figures, 1) == {f"service_time_{name}_us" for name in PER_MILLE}
    assert columns_without_enough_requests(figures, 99) == {"service_time_p99_us", "service_time_p999_us"}
    assert columns_without_enough_requests(figures, 1000) == set()


def test_a_kind_that_does_not_rise_has_none() -> None:
    """Another kind keeps its own."""
    figures = {"service_time_p50_us": 9.0, "service_time_p99_us": 8.0, "response_time_p50_us": 1.0, "failed": 0.0}
    assert out_of_order_columns(figures) == {"service_time_p50_us", "service_time_p99_us"}


@pytest.mark.parametrize("file", LINES, ids=lambda file: file.parts[-3])
def test_tables_and_bundles_of_committed_records_are_without_them(file: Path) -> None:
    """Some of these records were made before the rule was."""
    for line in file.read_text().splitlines():
        record = from_json(line)
        for kept, written in zip(without_thin_percentiles(record).measurements, record.measurements, strict=True):
            before, after = times_of(written), times_of(kept)
            assert columns_without_enough_requests(after, kept.transactions or 0) == set()
            assert out_of_order_columns(after) == set()
            left_out = columns_without_enough_requests(before, written.transactions or 0)
            assert before.keys() - after.keys() == left_out


def times_of(measurement: Measurement) -> dict[str, float]:
    """Column → figure, of all kinds of times that were measured."""
    return {name: value for name in TIME_COLUMNS if (value := measurement.column(name)) is not None}
