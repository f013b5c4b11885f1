"""The p99 of all planned requests: against the ranks of the requests themselves."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.support.records import make_record
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.tail import NEVER_US, log_p99, may_count, p99_of_planned_us
from vmtoll.model.trial import Measurement, Times, TrialRecord
from vmtoll.trial.latency import times


def measured(latencies_us: np.ndarray, planned: int) -> Measurement:
    """As the runner records it: percentiles of those that were answered."""
    return Measurement(
        role=Role.PRIMARY, tool="vegeta", requests=planned, successful=len(latencies_us),
        response_time=times(latencies_us),
    )  # fmt: skip


def with_primary(measurement: Measurement) -> TrialRecord:
    return replace(make_record(), measurements=(measurement,))


@pytest.mark.parametrize("failed", [0, 1, 10, 100, 150])
def test_it_is_that_of_the_requests_with_the_failed_ones_last(failed: int) -> None:
    rng = np.random.default_rng(failed)
    latencies_us = rng.lognormal(7, 0.55, 20_000 - failed).astype(np.int64)
    ranked = np.sort(np.concatenate([latencies_us.astype(float), np.full(failed, math.inf)]))
    expected = ranked[math.ceil(0.99 * len(ranked)) - 1]
    assert p99_of_planned_us(with_primary(measured(latencies_us, 20_000))) == pytest.approx(expected, rel=0.03)


def test_it_is_infinite_where_more_than_one_in_a_hundred_failed() -> None:
    latencies_us = np.full(1000, 500)
    assert p99_of_planned_us(with_primary(measured(latencies_us, 1010))) == 500
    assert p99_of_planned_us(with_primary(measured(latencies_us, 1011))) == math.inf
    assert log_p99(math.inf, 5000) == pytest.approx(math.log(NEVER_US))
    assert log_p99(math.inf, 5e6) == pytest.approx(math.log(5e7)), "far beyond any objective"
    assert log_p99(5000, 5000) == pytest.approx(math.log(5000))


def test_no_tail_without_figures() -> None:
    unlogged = Measurement(role=Role.PRIMARY, tool="siege", requests=10, successful=10)
    assert p99_of_planned_us(make_record()) is None
    assert p99_of_planned_us(with_primary(unlogged)) is None
    uncounted = Measurement(role=Role.PRIMARY, tool="vegeta", response_time=Times(p99_us=5.0), failed=3)
    assert p99_of_planned_us(with_primary(uncounted)) is None


def test_all_of_fewer_than_100_requests_must_be_answered() -> None:
    few = measured(np.arange(1, 61), 60)
    assert few.response_time.p99_us is None, "60 requests have no p99"
    assert p99_of_planned_us(with_primary(few)) == 60
    assert p99_of_planned_us(with_primary(replace(few, requests=61))) == math.inf


def test_a_load_that_was_not_answered_in_time_is_infinitely_slow() -> None:
    timed_out = make_record(findings=(Finding(Code.TIMED_OUT),))
    assert may_count(timed_out)
    assert p99_of_planned_us(timed_out) == math.inf


def test_failed_requests_alone_leave_a_trial_in() -> None:
    failures, lost = Finding(Code.FAILED_REQUESTS), Finding(Code.HOST_LOST)
    assert may_count(make_record(findings=(failures, Finding(Code.STALLED))))
    assert not may_count(make_record(findings=(failures, lost)))
