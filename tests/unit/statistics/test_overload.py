"""Response times that grow within a trial: queues of known load."""

import numpy as np
import pytest
from scipy import stats

from vmtoll.statistics.overload import Growth, growth


def queue(rng: np.random.Generator, load: float, seconds: float, rate_rps: float = 2000.0) -> tuple[np.ndarray, ...]:
    """Send times in s and response times in µs of one server with exponential work and even arrivals (Lindley 1952)."""
    sent_s = np.arange(round(seconds * rate_rps)) / rate_rps
    work_s = rng.exponential(load / rate_rps, len(sent_s))
    ends = np.cumsum(work_s) + np.maximum.accumulate(sent_s - np.cumsum(work_s) + work_s)
    return sent_s, (ends - sent_s) * 1e6


def by_second(sent_s: np.ndarray, latencies_us: np.ndarray) -> tuple[np.ndarray, ...]:
    """As the runner stores them: whole seconds, ten bins to a decade."""
    edges = np.round(10 ** (np.floor(10 * np.log10(latencies_us)) / 10))
    cells, counts = np.unique(np.stack([np.floor(sent_s), edges]), axis=1, return_counts=True)
    return cells[0], cells[1], counts


def test_overload_is_detected_in_two_seconds() -> None:
    """Of a load 5% above the capacity, which a p99 of 150 ms would pass; 30% below it nothing grows."""
    rng = np.random.default_rng(1)
    over = [growth(*queue(rng, 1.05, 2.0)) for _ in range(40)]
    under = [growth(*queue(rng, 0.7, 2.0)) for _ in range(200)]
    assert sum(each is not None and each.is_overload for each in over) >= 38
    assert sum(each is not None and each.is_overload for each in under) <= 2


def test_overload_is_detected_in_the_records_of_a_run() -> None:
    rng = np.random.default_rng(2)
    over = [growth(*by_second(*queue(rng, 1.03, 10.0))) for _ in range(20)]
    under = [growth(*by_second(*queue(rng, 0.8, 10.0))) for _ in range(40)]
    assert sum(each is not None and each.is_overload for each in over) >= 19
    assert sum(each is not None and each.is_overload for each in under) <= 1
    assert growth(*by_second(*queue(rng, 1.2, 4.0))) is None, "four seconds cannot be put in an order"


def test_a_pause_at_the_end_is_no_growth() -> None:
    rng = np.random.default_rng(3)
    sent_s, latencies_us = queue(rng, 0.5, 2.0)
    latencies_us[-100:] += 50_000
    result = growth(sent_s, latencies_us)
    assert result is not None
    assert result.ratio > 1.5
    assert not result.is_overload


@pytest.mark.parametrize("values", [[1, 2, 3, 4, 5], [1, 3, 2, 5, 4, 6, 7], [5, 4, 3, 2, 1]])
def test_the_order_is_kendalls(values: list[float]) -> None:
    result = growth(range(len(values)), values)
    assert result is not None
    expected = stats.kendalltau(range(len(values)), values, alternative="greater", method="exact").pvalue
    assert result.p == pytest.approx(expected)


def test_without_requests_there_is_no_growth() -> None:
    assert growth([], []) is None
    assert growth([1.0, 1.0], [5.0, 6.0]) is None
    assert not Growth(2.0, 0.5).is_overload
