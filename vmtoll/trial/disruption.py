"""What clients notice of an operation: the longest gap between answers, and for how long the tail was longer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LATE_US = 1_000_000
# Intended sends in a window, enough for a p99, and its least length in seconds.
_WINDOW_REQUESTS, _WINDOW_S = 100, 0.1
# What the tail was before: the highest p99 of the windows before the operation, of at most this many.
_WINDOWS_BEFORE = 20
# Windows in a row, after the operation, that must be as before to end the brownout.
_WINDOWS_GOOD = 3
# A window of which more requests than this share got no correct answer is late, whatever the others took.
_LOST = 0.01


@dataclass(frozen=True)
class Log:
    """The requests of an open loop, in µs on one clock. `planned`: all intended sends, in rising order, shape (m,);
    `sent`, shape (n,): those of the requests that were answered correctly, in rising order; `latencies`, shape (n,):
    their response times.
    """

    planned: NDArray[np.int64]
    sent: NDArray[np.int64]
    latencies: NDArray[np.int64]

    @property
    def window_us(self) -> float:
        """The length of a window."""
        span_us = float(self.planned[-1] - self.planned[0])
        return max(_WINDOW_S * 1e6, span_us * _WINDOW_REQUESTS / max(1, len(self.planned) - 1))


@dataclass(frozen=True)
class Windows:
    """Consecutive windows, shape (k,)."""

    begins: NDArray[np.float64]  # in µs
    p99: NDArray[np.float64]  # of the answers, NaN without any
    lost: NDArray[np.float64]  # the share of the planned requests without a correct answer


@dataclass(frozen=True, kw_only=True)
class Disruption:
    """`blackout_ms`: the longest time without an answer. `brownout_s`: from the operation's beginning to the end of the
    last window that is late, before three in a row after the operation that are not; 0 if none is. A window is late if
    its p99 is above the deadline and above every window's before the operation, or if more than one in a hundred of its
    requests was lost. `late`: answers later than a second after their intended send. `is_over`: the brownout ended
    before the load did; else it took longer.
    """

    blackout_ms: float
    brownout_s: float
    late: int
    is_over: bool = True


def windows(log: Log, begin_us: float) -> Windows:
    """The windows of a log, one of which begins at `begin_us`."""
    length_us = log.window_us

    def numbers_of(times_us: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers: NDArray[np.int64] = np.floor((times_us - begin_us) / length_us).astype(np.int64)
        return numbers

    planned, answered = numbers_of(log.planned), numbers_of(log.sent)
    first, count = int(planned[0]), int(planned[-1] - planned[0]) + 1
    asked = np.bincount(planned - first, minlength=count)
    ends = np.searchsorted(answered, np.arange(first, first + count), side="right")
    parts = np.split(log.latencies, ends[:-1])
    p99 = [float(np.percentile(part, 99, method="lower")) if len(part) else np.nan for part in parts]
    lost = [1 - len(part) / count if count else 0.0 for part, count in zip(parts, asked.tolist(), strict=True)]
    begins = np.array([begin_us + number * length_us for number in range(first, first + len(parts))])
    return Windows(begins, np.array(p99), np.array(lost))


def disruption(log: Log, begin_us: float, end_us: float, deadline_us: float) -> Disruption:
    """What a log shows of an operation from `begin_us` to `end_us`. Raises ValueError without answers."""
    if not len(log.sent):
        raise ValueError("no request was answered")
    answered_us = np.sort(log.sent + log.latencies)
    # No answer after the last one: a gap up to the last request that should have been sent.
    ends_us = np.append(answered_us, max(int(log.planned[-1]), int(answered_us[-1])))
    gaps_us = np.diff(ends_us, prepend=log.planned[0])
    brownout_us, is_over = _brownout(log, begin_us, end_us, deadline_us)
    return Disruption(
        blackout_ms=float(gaps_us.max()) / 1000,
        brownout_s=brownout_us / 1e6,
        late=int(np.count_nonzero(log.latencies > LATE_US)),
        is_over=is_over,
    )


def _brownout(log: Log, begin_us: float, end_us: float, deadline_us: float) -> tuple[float, bool]:
    """Its length in µs, and whether the log shows its end."""
    length_us, all_windows = log.window_us, windows(log, begin_us)
    begins = all_windows.begins
    # The last window before is not among them: its last requests may be answered during the operation.
    before = all_windows.p99[(begins < begin_us - length_us) & ~np.isnan(all_windows.p99)][-_WINDOWS_BEFORE:]
    limit_us = max(deadline_us, float(before.max()) if len(before) else 0.0)
    late = (all_windows.p99 > limit_us) | (all_windows.lost > _LOST)
    last_us, good = begin_us, 0
    for window_us, is_late in zip(begins, late, strict=True):
        if window_us < begin_us - length_us:
            continue
        if is_late:
            last_us, good = float(window_us) + length_us, 0
        elif window_us >= end_us:
            good += 1
        if good >= _WINDOWS_GOOD:
            break
    return max(0.0, last_us - begin_us), good >= _WINDOWS_GOOD or last_us <= begin_us
