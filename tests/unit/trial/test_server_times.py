"""Service time and loop lag, read from pages of metrics."""

import math
from itertools import accumulate

import pytest

from vmtoll.trial.server_times import Histogram, ServerTimes, growth, parse

BOUNDS_S = ("0.000001000", "0.000001500", "0.000002000", "0.000003000", "+Inf")


def page(service: list[int], loop_lag: list[int]) -> str:
    """What lighttz prints of these counts a bucket."""
    lines = ["# HELP lighttz_requests_total Requests answered.", "lighttz_requests_total 12"]
    for name, counts in (("service", service), ("loop_lag", loop_lag)):
        lines.append(f"# TYPE lighttz_{name}_seconds histogram")
        for bound, count in zip(BOUNDS_S, accumulate(counts), strict=True):
            lines.append(f'lighttz_{name}_seconds_bucket{{le="{bound}"}} {count}')
        lines += [f"lighttz_{name}_seconds_sum 0.1", f"lighttz_{name}_seconds_count {sum(counts)}"]
    return "\n".join(lines) + "\n"


def times(service: list[int], loop_lag: list[int]) -> ServerTimes:
    parsed = parse(page(service, loop_lag))
    assert parsed
    return parsed


def test_a_page_is_read() -> None:
    bounds_us = (1.0, 1.5, 2.0, 3.0, math.inf)
    read = times([1, 0, 2, 0, 3], [0, 0, 0, 5, 0])
    assert read.service.bounds_us == pytest.approx(bounds_us)
    assert (read.service.counts, read.loop_lag.counts) == ((1, 0, 2, 0, 3), (0, 0, 0, 5, 0))


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        "",
        "<html>404 Not Found</html>",
        page([1, 0, 2, 0, 3], [0, 0, 0, 5, 0])[:400],  # cut off
        page([1, 0, 2, 0, 3], [0, 0, 0, 5, 0]).replace('le="+Inf"', 'le="x"'),
        page([1, 0, 2, 0, 3], [0, 0, 0, 5, 0]).replace('le="0.000002000"', 'le="0.000001000"'),  # not ascending
        page([1, 0, 2, 0, 3], [0, 0, 0, 5, 0]).replace('le="0.000002000"', 'le="1.2.3"'),
        page([1, -1, 2, 0, 3], [0, 0, 0, 5, 0]),  # counts that sink
        page([1, 0, 2, 0, 3], [0, 0, 0, 5, 0]).replace("loop_lag", "lag"),
    ],
)
def test_a_missing_or_damaged_page_gives_no_figures(damaged: str | None) -> None:
    assert parse(damaged) is None


def test_counts_from_before_the_load_are_excluded() -> None:
    before, after = times([9, 9, 0, 0, 0], [9, 0, 0, 0, 0]), times([9, 9, 100, 0, 0], [9, 100, 0, 0, 0])
    load = growth([before], [after])
    assert load
    assert load.service.counts == (0, 0, 100, 0, 0)
    service, loop_lag = load.service.percentiles, load.loop_lag.percentiles
    assert (service.p50_us, service.p99_us) == pytest.approx((1.75, 1.995))
    assert (loop_lag.p50_us, loop_lag.p99_us) == pytest.approx((1.25, 1.495))
    assert service.p999_us is None, "100 requests have no p99.9"


def test_several_machines_are_one_histogram() -> None:
    empty = times([0] * 5, [0] * 5)
    load = growth([empty, empty], [times([10, 0, 0, 0, 0], [1] * 5), times([0, 0, 0, 30, 0], [1] * 5)])
    assert load and load.service.counts == (10, 0, 0, 30, 0) and load.loop_lag.counts == (2,) * 5


def test_a_silent_or_restarted_machine_gives_no_figure() -> None:
    less, more = times([1] * 5, [1] * 5), times([2] * 5, [2] * 5)
    assert growth([less], [more])
    assert growth([more], [less]) is None, "a server that was started again counts from zero"
    for before, after in (([None], [more]), ([less], [None]), ([less, None], [more, None]), ([], [])):
        assert growth(before, after) is None
    others = ServerTimes(*(Histogram((1.0, math.inf), (1, 1)) for _ in range(2)))
    assert growth([less], [others]) is None
    assert growth([less, others], [more, others]) is None, "other buckets cannot be added"


def test_percentiles_of_a_histogram() -> None:
    bounds_us = (1.0, 1.5, 2.0, 3.0, math.inf)
    assert Histogram(bounds_us, (0, 0, 0, 0, 0)).percentile_us(0.99) is None
    assert Histogram(bounds_us, (4, 0, 0, 0, 0)).percentile_us(0.5) == 0.5, "the first bucket begins at zero"
    assert Histogram(bounds_us, (0, 0, 0, 0, 4)).percentile_us(0.5) == 3.0, "the last one has no end"
    assert Histogram(bounds_us, (1, 0, 0, 1, 0)).percentile_us(0.5) == 1.0, "nothing lies in the empty buckets"
    assert Histogram(bounds_us, (98, 1, 0, 0, 1)).percentile_us(0.99) == 1.5
