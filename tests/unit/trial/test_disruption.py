"""What clients notice of an operation, from request logs of known gaps."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vmtoll.trial.disruption import Disruption, Log, disruption

Sent = tuple[NDArray[np.int64], NDArray[np.int64]]
BEGIN_US, END_US = 3_000_000, 3_400_000


def log(rate: int, latency_us: int = 2000, seconds: int = 10) -> Sent:
    """An open loop whose answers all take as long."""
    sent_us = np.arange(rate * seconds) * (1_000_000 // rate) + 7
    return sent_us, np.full(len(sent_us), latency_us)


def stalled(rate: int, begin_us: int, length_us: int) -> Sent:
    """The same beside a server that stands still for a while: what arrives then is answered right after it."""
    sent_us, latencies_us = log(rate)
    waits = (sent_us >= begin_us) & (sent_us < begin_us + length_us)
    return sent_us, np.where(waits, begin_us + length_us - sent_us + 2000, latencies_us)


def noticed(sent: Sent, deadline_us: float = 50_000, rate: int = 0) -> Disruption:
    """`rate`: of the requests that should have been sent; 0: all were answered."""
    planned_us = log(rate)[0] if rate else np.sort(sent[0])
    order = np.argsort(sent[0])
    return disruption(Log(planned_us, sent[0][order], sent[1][order]), BEGIN_US, END_US, deadline_us)


@pytest.mark.parametrize("rate", [100, 1000, 10_000])
@pytest.mark.parametrize("length_us", [400_000, 1_500_000])
def test_a_standstill_is_the_blackout(rate: int, length_us: int) -> None:
    found = noticed(stalled(rate, BEGIN_US, length_us))
    assert found.blackout_ms == pytest.approx(length_us / 1000, abs=1000 / rate + 3)
    window_s = max(0.1, 100 / rate)
    assert length_us / 1e6 <= found.brownout_s <= length_us / 1e6 + window_s
    assert found.late == pytest.approx(max(0, length_us - 1_000_000) / 1e6 * rate, abs=rate / 100 + 1)


def test_without_an_operation_nothing_is_noticed() -> None:
    found = noticed(log(100))
    assert found == Disruption(blackout_ms=10.0, brownout_s=0.0, late=0)


def test_a_tail_within_the_deadline_or_within_what_it_was_before_is_none() -> None:
    assert noticed(stalled(1000, BEGIN_US, 40_000)).brownout_s == 0
    sent_us, latencies_us = stalled(1000, BEGIN_US, 400_000)
    latencies_us = np.where(sent_us % 100_000 < 50_000, np.maximum(latencies_us, 500_000), latencies_us)
    assert noticed((sent_us, latencies_us)).brownout_s == 0, "as long before"


def test_the_tail_may_stay_long_after_the_operation() -> None:
    sent_us, latencies_us = stalled(1000, BEGIN_US, 400_000)
    warming = (sent_us >= BEGIN_US) & (sent_us < BEGIN_US + 2_000_000)
    found = noticed((sent_us, np.where(warming, np.maximum(latencies_us, 80_000), latencies_us)))
    assert found.brownout_s == pytest.approx(2.0, abs=0.11)


def test_a_tail_that_is_long_only_after_the_operation_is_its_brownout() -> None:
    """As of a server that reads again what its guest's memory has lost. Good windows in the operation end nothing."""
    sent_us, latencies_us = log(1000)
    late = (sent_us >= END_US + 200_000) & (sent_us < END_US + 700_000)
    found = noticed((sent_us, np.where(late, 80_000, latencies_us)))
    assert found.brownout_s == pytest.approx(1.1, abs=0.11)
    assert found.is_over


@pytest.mark.parametrize(("after_s", "is_over"), [(10, False), (6.8, False), (6.5, True)])
def test_a_load_that_ends_first_does_not_show_how_long_the_brownout_is(after_s: float, is_over: bool) -> None:
    sent_us, latencies_us = log(1000)
    late = (sent_us >= BEGIN_US) & (sent_us < BEGIN_US + after_s * 1e6)
    assert noticed((sent_us, np.where(late, 80_000, latencies_us))).is_over is is_over


def test_one_slow_request_long_after_is_no_brownout() -> None:
    sent_us, latencies_us = stalled(1000, BEGIN_US, 400_000)
    latencies_us = latencies_us.copy()
    latencies_us[8000:8050] = 500_000
    assert noticed((sent_us, latencies_us)).brownout_s == pytest.approx(0.4, abs=0.11)


def test_answers_that_never_come_are_a_gap_and_late() -> None:
    """Lost requests are not in the log."""
    sent_us, latencies_us = log(100)
    kept = (sent_us < BEGIN_US) | (sent_us > BEGIN_US + 2_000_000)
    found = noticed((sent_us[kept], latencies_us[kept]), rate=100)
    assert found.blackout_ms == pytest.approx(2000, abs=20)
    assert found.brownout_s == pytest.approx(2, abs=1.01)


def test_a_guest_that_does_not_come_back_is_a_gap_to_the_end() -> None:
    sent_us, latencies_us = log(100)
    kept = sent_us < BEGIN_US
    found = noticed((sent_us[kept], latencies_us[kept]), rate=100)
    assert found.blackout_ms == pytest.approx(7000, abs=20)
    assert found.brownout_s == pytest.approx(7, abs=1.01)
    with pytest.raises(ValueError, match="no request"):
        noticed((sent_us[:0], latencies_us[:0]), rate=100)
