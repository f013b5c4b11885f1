"""Merge several clients' results of one load.

Percentiles come from all latencies together. All times are on the controller's clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vmtoll.loadgen import ToolResult
from vmtoll.trial.execution import Execution

# A log whose times, in µs, are above 11 days counts from the epoch; any other from about its tool's start.
_EPOCH_US = 1_000_000_000_000


@dataclass(frozen=True)
class ClientPart:
    """One client's part of a load. `result.sent_us` is on our clock."""

    execution: Execution
    result: ToolResult

    @property
    def client(self) -> str:
        return self.execution.client

    @property
    def begin_s(self) -> float:
        """The first intended send, on our clock; for a tool that logs none, the tool's start."""
        sent_us = self.result.sent_us
        if sent_us is None or not len(sent_us):
            return self.execution.started_at_s - self.execution.ahead_s
        return float(sent_us.min()) / 1e6

    @property
    def end_s(self) -> float:
        """The last response; if there was none, `begin_s` plus the tool's duration."""
        return self.begin_s + (self.result.elapsed_s or self.execution.wall_s)


def on_our_clock(execution: Execution, result: ToolResult) -> ToolResult:
    """The result with `sent_us` and `due_us` in µs since the epoch, by our clock."""
    if result.sent_us is None or not len(result.sent_us):
        return result
    log_begin_s = (0.0 if result.sent_us.min() > _EPOCH_US else execution.started_at_s) - execution.ahead_s
    begin_us = round(log_begin_s * 1e6)
    due_us = None if result.due_us is None else result.due_us + begin_us
    return replace(result, sent_us=result.sent_us + begin_us, due_us=due_us)


def start_spread_s(parts: Sequence[ClientPart]) -> float | None:
    """Seconds between the first and the last client's start; None with one client."""
    begins_s = [part.begin_s for part in parts]
    return max(begins_s) - min(begins_s) if len(parts) > 1 else None


def merge(parts: Sequence[ClientPart]) -> ToolResult:
    """All clients' results as one. `elapsed_s`: from the first intended send to the last response of all.

    It has no percentiles from the tools' own summaries, because those cannot be merged.
    """
    results = [part.result for part in parts]
    if len(parts) == 1:
        return results[0]
    elapsed_s = max(part.end_s for part in parts) - min(part.begin_s for part in parts)
    planned = [part.execution.load.requests for part in parts]
    answered = [result.transactions for result in results]
    busy_s = _all_or_none(
        None if result.concurrency is None else result.concurrency * result.elapsed_s for result in results
    )
    longest, shortest = (
        _all_or_none(getattr(result, name) for result in results) for name in ("longest_ms", "shortest_ms")
    )
    transferred = _all_or_none(result.transferred_mb for result in results)
    return ToolResult(
        transactions=sum(answered),
        successful=sum(result.successful for result in results),
        failed=sum(result.failed for result in results),
        elapsed_s=elapsed_s,
        transferred_mb=sum(transferred) if transferred else None,
        availability_pct=_mean(_all_or_none(result.availability_pct for result in results), planned),
        response_time_mean_ms=_mean(_all_or_none(result.response_time_mean_ms for result in results), answered),
        concurrency=sum(busy_s) / elapsed_s if busy_s else None,
        longest_ms=max(longest, default=None),
        shortest_ms=min(shortest, default=None),
        latencies_us=_concatenate(result.latencies_us for result in results),
        sent_us=_concatenate(result.sent_us for result in results),
        due_us=_concatenate(result.due_us for result in results),
        lateness_us=_concatenate(result.lateness_us for result in results),
        late=sum(result.late for result in results),
        unsent=sum(result.unsent for result in results),
        columns=_columns(results, answered),
        dropped=sum(result.dropped for result in results),
    )


def _all_or_none(values: Iterable[float | None]) -> list[float]:
    """The values; empty if any is missing."""
    all_values = list(values)
    known = [value for value in all_values if value is not None]
    return known if len(known) == len(all_values) else []


def _mean(values: Sequence[float], weights: Sequence[int]) -> float | None:
    return float(np.average(values, weights=weights)) if values and sum(weights) else None


def _concatenate(logs: Iterable[NDArray[np.int64] | None]) -> NDArray[np.int64] | None:
    known = [log for log in logs if log is not None]
    return np.concatenate(known) if known else None


def _columns(results: Sequence[ToolResult], answered: Sequence[int]) -> dict[str, float]:
    """Mean, highest and lowest values of the columns that only the tools' own summaries fill."""
    columns: dict[str, float | None] = {}
    for name in results[0].columns:
        values = _all_or_none(result.columns.get(name) for result in results)
        if "_max_" in name:
            columns[name] = max(values, default=None)
        elif "_min_" in name:
            columns[name] = min(values, default=None)
        elif "_mean_" in name:
            columns[name] = _mean(values, answered)
    return {name: value for name, value in columns.items() if value is not None}
