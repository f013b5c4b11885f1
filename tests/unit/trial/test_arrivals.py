"""The schedule of random arrivals: exponential and independent gaps, by tests of fit."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from vmtoll.loadgen import OpenLoad
from vmtoll.loadgen.base import Output
from vmtoll.loadgen.vegeta import TOOL
from vmtoll.trial.arrivals import poisson_ns, seed_of
from vmtoll.trial.dealing import deal

RATE, REQUESTS = 500.0, 5000


def gaps_of(due_ns: tuple[int, ...]) -> NDArray[np.float64]:
    return np.diff(due_ns, prepend=0) / 1e9


def ljung_box(values: NDArray[np.float64], lags: int) -> float:
    """The p-value that no lag up to `lags` has an autocorrelation (Ljung and Box 1978)."""
    centred, n = values - values.mean(), len(values)
    r = [float(centred[lag:] @ centred[:-lag] / (centred @ centred)) for lag in range(1, lags + 1)]
    q = n * (n + 2) * sum(each**2 / (n - lag) for lag, each in enumerate(r, start=1))
    return float(stats.chi2.sf(q, lags))


def test_the_gaps_are_exponential() -> None:
    """By Kolmogorov and Smirnov, over 200 seeds; even intervals fail at once.

    The mean gap is not drawn but given, so that the test finds them too well fitting rather than not: less than one p
    in twenty lies below 5%.
    """
    ps = [stats.kstest(gaps_of(poisson_ns(1000, RATE, seed)), "expon", (0, 1 / RATE)).pvalue for seed in range(200)]
    assert np.mean(np.array(ps) < 0.05) <= 0.05
    even = np.full(1000, 1 / RATE)
    assert stats.kstest(even, "expon", (0, 1 / RATE)).pvalue < 1e-9


def test_times_follow_a_poisson_process_with_fixed_count() -> None:
    """Given their number they are uniform over the whole time: the p-values of 200 seeds are uniform themselves."""
    whole_ns = 1e9 * 1000 / RATE
    ps = [stats.kstest(np.array(poisson_ns(1000, RATE, seed)) / whole_ns, "uniform").pvalue for seed in range(200)]
    assert stats.kstest(ps, "uniform").pvalue > 0.01


def test_the_gaps_are_independent() -> None:
    ps = [ljung_box(gaps_of(poisson_ns(1000, RATE, seed)), 10) for seed in range(200)]
    assert np.mean(np.array(ps) < 0.05) < 0.11


def test_the_counts_of_a_second_are_as_scattered_as_poisson_counts() -> None:
    """Their variance is their mean: 500 seconds of 10 requests each, conditioned on their sum."""
    due = np.array(poisson_ns(REQUESTS, 10.0, 3)) / 1e9
    counts = np.histogram(due, bins=500, range=(0, 500))[0]
    assert counts.sum() == REQUESTS
    dispersion = counts.var(ddof=1) / counts.mean()
    assert stats.chi2.sf(499 * dispersion, 499) > 0.001 < stats.chi2.cdf(499 * dispersion, 499)


def test_a_schedule_takes_as_long_as_even_intervals_and_follows_from_its_seed() -> None:
    due = poisson_ns(REQUESTS, RATE, 7)
    assert len(due) == REQUESTS
    assert list(due) == sorted(due)
    assert 0 < due[0] < due[-1] < 1e9 * REQUESTS / RATE
    assert due == poisson_ns(REQUESTS, RATE, 7) != poisson_ns(REQUESTS, RATE, 8)


def test_the_seed_follows_from_the_block_and_not_from_the_process() -> None:
    assert seed_of(7, 1, ("nginx",)) == seed_of(7, 1, ("nginx",)) != seed_of(7, 2, ("nginx",))
    assert 0 <= seed_of("a") < 2**48


def test_several_clients_send_one_schedule_together() -> None:
    due = poisson_ns(9, RATE, 1)
    parts = deal(OpenLoad(["/"], RATE, 9, True, due_ns=due), 2, lockstep=False)
    dealt = [part.due_ns for part in parts if isinstance(part, OpenLoad) and part.due_ns]
    assert dealt == [due[::2], due[1::2]]
    assert sorted(ns for part in dealt for ns in part) == list(due)


def test_vegeta_gets_the_schedule_and_its_latency_counts_from_there() -> None:
    """Requests that are due after 1, 2 and 7 ms; the second leaves 3 ms late."""
    load = OpenLoad(["http://h/"], 300.0, 3, True, due_ns=(1_000_000, 2_000_000, 7_000_000))
    told = TOOL.command(load)
    assert told.files["schedule.txt"] == "1000000\n2000000\n7000000\n"
    assert "VEGETA_SCHEDULE=schedule.txt vegeta attack" in told.argv[2]
    assert "schedule.txt" in told.outputs
    start = 1_700_000_000_000_000_000
    rows = [(start + 1_000_000, 0), (start + 5_000_000, 1), (start + 7_000_000, 2)]
    log = "".join(f"{sent} 200 500000 {place}\n" for sent, place in rows)
    result = TOOL.parse(load, Output("", "", 0, files={"requests.log": log.encode(), "errors.log": b""}))
    assert result.latencies_us is not None and result.lateness_us is not None and result.sent_us is not None
    assert result.latencies_us.tolist() == [500, 3500, 500]
    assert result.lateness_us.tolist() == [0, 3000, 0]
    assert np.diff(result.sent_us).tolist() == [1000, 5000]


def test_even_intervals_need_no_schedule() -> None:
    told = TOOL.command(OpenLoad(["http://h/"], 300.0, 3, True))
    assert list(told.files) == ["urls.txt"]
    assert "VEGETA_SCHEDULE" not in told.argv[2]


@pytest.mark.parametrize("requests", [1, 2])
def test_a_few_requests_have_a_schedule_too(requests: int) -> None:
    assert len(poisson_ns(requests, 1.0, 1)) == requests
