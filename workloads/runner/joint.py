"""A load dealt out to several clients, and what they saw added up: pure functions.

The clients' parts are together the one load: its users, its requests, its URLs. Percentiles come from all latencies
together, and a time axis is common to all: ours, to which each client's clock is reckoned back.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from workloads.runner.load import Execution
from workloads.tools import AnyLoad, Load, OpenLoad, ToolResult

# A log whose times are above eleven days, in µs, counts from the epoch; another one from about its tool's start.
_EPOCH_US = 1_000_000_000_000


def deal(load: AnyLoad, clients: int, *, lockstep: bool) -> list[AnyLoad]:
    """Each client's part. `lockstep`: the tool's users all begin at the first line of the list.

    Raises ValueError for more clients than users, and for a load that one machine alone sends.
    """
    if clients == 1:
        return [load]
    if isinstance(load, OpenLoad):
        return [_dealt(load, client, clients) for client in range(clients)]
    if isinstance(load, Load) and load.users >= clients:
        return [_shared(load, client, clients, lockstep=lockstep) for client in range(clients)]
    raise ValueError(f"{load} is no load for {clients} clients")


def _dealt(load: OpenLoad, client: int, clients: int) -> OpenLoad:
    """Every so manieth request of the one load, as cards are dealt: the same URLs in all, each as often."""
    lines = len(load.urls)
    urls = [load.urls[(client + turn * clients) % lines] for turn in range(lines // math.gcd(lines, clients))]
    requests = len(range(client, load.requests, clients))
    return replace(load, urls=urls, rate_rps=load.rate_rps / clients, requests=requests)


def _shared(load: Load, client: int, clients: int, *, lockstep: bool) -> Load:
    """So many of the users, with the requests of each, and that part of the list which they would walk through."""
    users_before, users_by_then = (load.users * number // clients for number in (client, client + 1))
    users = users_by_then - users_before
    urls = load.urls
    if not lockstep and len(urls) >= load.users:
        urls = urls[len(urls) * users_before // load.users : len(urls) * users_by_then // load.users]
    return replace(load, urls=urls, users=users, requests=math.ceil(load.requests / load.users) * users)


@dataclass(frozen=True)
class Part:
    """What one client did of a load; `who` is what messages call its tool. `result.sent_us` is on our clock."""

    who: str
    done: Execution
    result: ToolResult

    @property
    def client(self) -> str:
        return self.done.client

    @property
    def begin_s(self) -> float:
        """The first intended send, on our clock; of a tool that logs none, when the tool was started."""
        sent_us = self.result.sent_us
        if sent_us is None or not len(sent_us):
            return self.done.started_at_s - self.done.ahead_s
        return float(sent_us.min()) / 1e6

    @property
    def end_s(self) -> float:
        """The last response, or the tool's end where it answers nothing."""
        return self.begin_s + (self.result.elapsed_s or self.done.wall_s)


def on_our_clock(done: Execution, result: ToolResult) -> ToolResult:
    """The same result with `sent_us` in µs since the epoch, by our clock."""
    if result.sent_us is None or not len(result.sent_us):
        return result
    since_s = (0.0 if result.sent_us.min() > _EPOCH_US else done.started_at_s) - done.ahead_s
    return replace(result, sent_us=result.sent_us + round(since_s * 1e6))


def start_spread_s(parts: Sequence[Part]) -> float | None:
    """How far apart the clients began; None where there is one."""
    begins_s = [part.begin_s for part in parts]
    return max(begins_s) - min(begins_s) if len(parts) > 1 else None


def merged(parts: Sequence[Part]) -> ToolResult:
    """All clients' results as one. `elapsed_s`: from the first intended send to the last response of all.

    A tool's own percentiles are left out: they cannot be added up.
    """
    results = [part.result for part in parts]
    if len(parts) == 1:
        return results[0]
    elapsed_s = max(part.end_s for part in parts) - min(part.begin_s for part in parts)
    asked = [part.done.load.requests for part in parts]
    answered = [one.transactions for one in results]
    busy = _known(None if one.concurrency is None else one.concurrency * one.elapsed_s for one in results)
    longest, shortest = (_known(getattr(one, name) for one in results) for name in ("longest_ms", "shortest_ms"))
    transferred = _known(one.transferred_mb for one in results)
    return ToolResult(
        transactions=sum(answered),
        successful=sum(one.successful for one in results),
        failed=sum(one.failed for one in results),
        elapsed_s=elapsed_s,
        transferred_mb=sum(transferred) if transferred else None,
        availability_pct=_mean(_known(one.availability_pct for one in results), asked),
        response_time_mean_ms=_mean(_known(one.response_time_mean_ms for one in results), answered),
        concurrency=sum(busy) / elapsed_s if busy else None,
        longest_ms=max(longest, default=None),
        shortest_ms=min(shortest, default=None),
        latencies_us=_together(one.latencies_us for one in results),
        sent_us=_together(one.sent_us for one in results),
        lateness_us=_together(one.lateness_us for one in results),
        late=sum(one.late for one in results),
        unsent=sum(one.unsent for one in results),
        columns=_columns(results, answered),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    """The values, or none at all when one is missing."""
    found = list(values)
    there = [value for value in found if value is not None]
    return there if len(there) == len(found) else []


def _mean(values: Sequence[float], weights: Sequence[int]) -> float | None:
    return float(np.average(values, weights=weights)) if values and sum(weights) else None


def _together(logs: Iterable[NDArray[np.int64] | None]) -> NDArray[np.int64] | None:
    found = [log for log in logs if log is not None]
    return np.concatenate(found) if found else None


def _columns(results: Sequence[ToolResult], answered: Sequence[int]) -> dict[str, float]:
    """Of the columns that only the tool's own summary fills: the means, largest and smallest."""
    found: dict[str, float | None] = {}
    for name in results[0].columns:
        values = _known(one.columns.get(name) for one in results)
        if "_max_" in name:
            found[name] = max(values, default=None)
        elif "_min_" in name:
            found[name] = min(values, default=None)
        elif "_mean_" in name:
            found[name] = _mean(values, answered)
    return {name: value for name, value in found.items() if value is not None}
