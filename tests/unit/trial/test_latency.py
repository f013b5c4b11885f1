"""Rates of a load whose requests are known one by one."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vmtoll.trial.latency import SteadyPart, steady_part

USERS = 4


def steady_part_of(sent_us: NDArray[np.int64], latencies_us: NDArray[np.int64]) -> SteadyPart:
    part = steady_part(sent_us, latencies_us, USERS)
    assert part is not None
    return part


def closed_loop(service_us: int, each: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When each request was sent, and how long it took: each user sends the next one when it has its answer."""
    starts_us = np.tile(np.arange(each) * service_us, USERS) + np.repeat(np.arange(USERS) * 10, each)
    return starts_us.astype(np.int64), np.full(each * USERS, service_us)


def test_the_rate_of_a_closed_loop_is_that_while_all_users_are_at_work() -> None:
    sent_us, latencies_us = closed_loop(1000, 500)
    part = steady_part_of(sent_us, latencies_us)
    assert part.rps == pytest.approx(USERS / 1e-3, rel=0.01)
    assert part.in_flight == pytest.approx(USERS)


def test_the_end_of_a_short_load_is_not_fewer_users() -> None:
    """Three requests each of users of different speed: the fast ones end long before the slow ones."""
    service_us = np.repeat([1000, 1200, 1400, 1600], 3)
    sent_us = (service_us * np.tile(np.arange(3), USERS)).astype(np.int64)
    whole = service_us.sum() / (sent_us + service_us).max()
    assert whole < 0.85 * USERS
    assert steady_part_of(sent_us, service_us).in_flight == pytest.approx(USERS)


def test_users_who_pause_are_fewer() -> None:
    sent_us, latencies_us = closed_loop(1000, 500)
    part = steady_part_of(sent_us, np.minimum(latencies_us, 800))
    assert part.in_flight == pytest.approx(0.8 * USERS, rel=0.01)


@pytest.mark.parametrize("late_us", [1_000_000, 3_000_000])
def test_one_request_that_takes_seconds_costs_one_request(late_us: int) -> None:
    """The last one of 2,000 at 4,000/s: by the time to the last response it would leave 1,333/s, or 571/s."""
    sent_us, latencies_us = closed_loop(1000, 500)
    latencies_us[-1] = late_us
    whole_s = float((sent_us + latencies_us).max()) / 1e6
    assert len(sent_us) / whole_s < 1400
    assert steady_part_of(sent_us, latencies_us).rps == pytest.approx(4000, rel=0.01)


def test_a_stall_in_the_middle_counts() -> None:
    """All users are waiting, so that they are at work: 400 ms without an answer in half a second of them."""
    sent_us, latencies_us = closed_loop(1000, 500)
    later = sent_us >= 250_000
    sent_us[later] += 400_000
    latencies_us[(sent_us >= 249_000) & ~later] += 400_000
    assert steady_part_of(sent_us, latencies_us).rps == pytest.approx(2000 / 0.9, rel=0.02)


def test_no_such_rate_without_all_users() -> None:
    sent_us, latencies_us = closed_loop(1000, 500)
    assert steady_part(sent_us, latencies_us, USERS + 1) is None
    one_user = np.arange(500, dtype=np.int64) * 2000
    sent_us = np.append(one_user, one_user[:1])
    assert steady_part(sent_us, np.full(501, 1000), 2) is None, "two at once only for a moment"
