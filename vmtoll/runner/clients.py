"""A load dealt out to several clients, and what they saw added up: pure functions.

The clients' parts are together the one load: its users, its requests, its URLs. Percentiles come from all latencies
together, and a time axis is common to all: the controller's, to which each client's clock is converted.
"""

import base64
import contextlib
import gzip
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vmtoll.agent.protocol import Done
from vmtoll.loadgen import Adapter, ClosedLoad, Command, OpenLoad, Output, ToolLoad, ToolResult
from vmtoll.loadgen.base import require
from vmtoll.model.errors import AgentError, ExperimentError, HostLostError, InventoryError, ToolError
from vmtoll.model.inventory import Inventory
from vmtoll.model.trial import TrialSpec
from vmtoll.model.workload import ClosedWorkload, MailWorkload, RampWorkload, Workload, listed
from vmtoll.runner.connection import AgentLine
from vmtoll.runner.session import Session
from vmtoll.spec.experiment import Resolved

# Grace beyond a tool's own bound for the answer to travel, in seconds.
_TRAVEL_S = 15.0


@dataclass(frozen=True)
class Execution:
    """A finished tool: its client, what it was to send, its output, wall clock and CPU seconds, and the share of the
    CPU it could have had. It started at `started_at_s` by the client's clock, which is `ahead_s` ahead of ours.
    """

    client: str
    load: ToolLoad
    output: Output
    wall_s: float
    cpu_s: float
    cpu_share: float
    started_at_s: float
    packed: dict[str, bytes]
    ahead_s: float = 0.0


def bound_s(expected_s: float | None, users: int = 0) -> float:
    """Seconds after which a tool is killed: far more than it should take, and never unlimited.

    A server with a process for each user takes its time to start them: Apache at most 32 a second
    (https://httpd.apache.org/docs/2.4/misc/perf-tuning.html, "Process Creation"), and half of that is allowed for.
    """
    return 120.0 if expected_s is None else 15.0 + 6.0 * expected_s + users / 16


def passes(lines: int, rate_rps: float, duration_s: float) -> int:
    """Requests that take about `duration_s` at this rate: whole passes of the list, at least one."""
    return max(1, round(rate_rps * duration_s / lines)) * lines


class Sending:
    """A tool that runs on a client, or begins there at `start_at_s` of our clock. Raises HostLostError."""

    def __init__(
        self,
        client: AgentLine,
        adapter: Adapter,
        load: ToolLoad,
        limit_s: float,
        start_at_s: float | None = None,
        ahead_s: float = 0.0,
        label: str = "",
    ) -> None:
        command: Command = adapter.command(load)
        self.client, self.load, self.limit_s, self.ahead_s = client, load, limit_s, ahead_s
        self.threads = command.threads
        self.pending = client.ask(
            "exec",
            argv=list(command.argv),
            files=dict(command.files),
            outputs=list(command.outputs),
            env=dict(command.env),
            limit_s=limit_s,
            finish=list(command.finish),
            label=label,
            start_at_s=None if start_at_s is None else start_at_s + ahead_s,
        )

    def wait(self, watch: Sequence[AgentLine], limit_s: float | None = None) -> Execution:
        """Wait for the tool's execution; by default within the tool's own bound.

        Raises ToolError when the client could not run it, HostLostError at once when a machine is lost.
        """
        try:
            done: Done = self.pending.wait((limit_s or self.limit_s) + _TRAVEL_S, watch)
        except AgentError as error:
            raise ToolError(str(error), error.machine) from error
        packed = {name: base64.b64decode(text) for name, text in done["files"].items()}
        output = Output(
            stdout=done["stdout"],
            stderr=done["stderr"],
            exit_status=done["exit_status"],
            files={name: gzip.decompress(data) for name, data in packed.items()},
            timed_out=done["timed_out"],
        )
        could_have_s = done["wall_s"] * min(self.threads, done["cpus"])
        return Execution(
            client=self.client.host.name,
            load=self.load,
            output=output,
            wall_s=done["wall_s"],
            cpu_s=done["cpu_s"],
            cpu_share=done["cpu_s"] / could_have_s if could_have_s > 0 else 0.0,
            started_at_s=done["started_at"],
            packed=packed,
            ahead_s=self.ahead_s,
        )


# A log whose times are above eleven days, in µs, counts from the epoch; another one from about its tool's start.
_EPOCH_US = 1_000_000_000_000


def deal(load: ToolLoad, clients: int, *, lockstep: bool) -> list[ToolLoad]:
    """Each client's part. `lockstep`: the tool's users all begin at the first line of the list.

    Raises ValueError for more clients than users, and for a load that one machine alone sends.
    """
    if clients == 1:
        return [load]
    if isinstance(load, OpenLoad):
        return [_dealt(load, client, clients) for client in range(clients)]
    if isinstance(load, ClosedLoad) and load.users >= clients:
        return [_shared(load, client, clients, lockstep=lockstep) for client in range(clients)]
    raise ValueError(f"{load} is no load for {clients} clients")


def _dealt(load: OpenLoad, client: int, clients: int) -> OpenLoad:
    """Assign requests round-robin, so that each client gets every n-th request: the same URLs in all, each as often."""
    lines = len(load.urls)
    urls = [load.urls[(client + turn * clients) % lines] for turn in range(lines // math.gcd(lines, clients))]
    requests = len(range(client, load.requests, clients))
    due_ns = None if load.due_ns is None else load.due_ns[client::clients]
    return replace(load, urls=urls, rate_rps=load.rate_rps / clients, requests=requests, due_ns=due_ns)


def _shared(load: ClosedLoad, client: int, clients: int, *, lockstep: bool) -> ClosedLoad:
    """One client's users, with the requests of each, and that part of the list which they would walk through."""
    users_before, users_by_then = (load.users * number // clients for number in (client, client + 1))
    users = users_by_then - users_before
    urls = load.urls
    if not lockstep and len(urls) >= load.users:
        urls = urls[len(urls) * users_before // load.users : len(urls) * users_by_then // load.users]
    return replace(load, urls=urls, users=users, requests=math.ceil(load.requests / load.users) * users)


@dataclass(frozen=True)
class Part:
    """One client's part of a load. `result.sent_us` is on our clock."""

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
    """Seconds between the first and the last client's begin; None with one client."""
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
    planned = [part.done.load.requests for part in parts]
    answered = [result.transactions for result in results]
    busy = _known(None if result.concurrency is None else result.concurrency * result.elapsed_s for result in results)
    longest, shortest = (_known(getattr(result, name) for result in results) for name in ("longest_ms", "shortest_ms"))
    transferred = _known(result.transferred_mb for result in results)
    return ToolResult(
        transactions=sum(answered),
        successful=sum(result.successful for result in results),
        failed=sum(result.failed for result in results),
        elapsed_s=elapsed_s,
        transferred_mb=sum(transferred) if transferred else None,
        availability_pct=_mean(_known(result.availability_pct for result in results), planned),
        response_time_mean_ms=_mean(_known(result.response_time_mean_ms for result in results), answered),
        concurrency=sum(busy) / elapsed_s if busy else None,
        longest_ms=max(longest, default=None),
        shortest_ms=min(shortest, default=None),
        latencies_us=_together(result.latencies_us for result in results),
        sent_us=_together(result.sent_us for result in results),
        lateness_us=_together(result.lateness_us for result in results),
        late=sum(result.late for result in results),
        unsent=sum(result.unsent for result in results),
        columns=_columns(results, answered),
        dropped=sum(result.dropped for result in results),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    """The values, or none at all when one is missing."""
    given = list(values)
    present = [value for value in given if value is not None]
    return present if len(present) == len(given) else []


def _mean(values: Sequence[float], weights: Sequence[int]) -> float | None:
    return float(np.average(values, weights=weights)) if values and sum(weights) else None


def _together(logs: Iterable[NDArray[np.int64] | None]) -> NDArray[np.int64] | None:
    present = [log for log in logs if log is not None]
    return np.concatenate(present) if present else None


def _columns(results: Sequence[ToolResult], answered: Sequence[int]) -> dict[str, float]:
    """Means, largest and smallest of the columns that only the tool's own summary fills."""
    columns: dict[str, float | None] = {}
    for name in results[0].columns:
        values = _known(result.columns.get(name) for result in results)
        if "_max_" in name:
            columns[name] = max(values, default=None)
        elif "_min_" in name:
            columns[name] = min(values, default=None)
        elif "_mean_" in name:
            columns[name] = _mean(values, answered)
    return {name: value for name, value in columns.items() if value is not None}


# From the order to the instant at which all clients begin: every one must have its URL list by then.
LEAD_S = 0.25
# Looks at a client's clock; the quickest answer counts.
_LOOKS = 7
_LIMIT_S = 15.0


def sends_alone(workload: Workload) -> bool:
    """One machine sends: the machine under test itself, or, of mail and of a ramp, the first client."""
    return workload.client == "localhost" or isinstance(workload, MailWorkload | RampWorkload)


def senders(session: Session, spec: TrialSpec) -> list[AgentLine]:
    """The lines to the machines that send this trial's load; the first of them also checks the bodies."""
    workload = session.resolved.workloads[spec.scenario.workload]
    if workload.client == "localhost":
        return [session.line(session.inventory.suts[spec.arm.environment])]
    return [session.client] if sends_alone(workload) else session.clients


def check_clients(resolved: Resolved, inventory: Inventory) -> None:
    """Every client has a part in every load, over a link like the others'. Raises ExperimentError, InventoryError."""
    first, *others = inventory.clients
    for other in others:
        links = {
            "vmtoll_link": (other.vars.link, first.vars.link),
            "vmtoll_link_mbit": (other.vars.link_mbit, first.vars.link_mbit),
        }
        for key, (its, firsts) in links.items():
            if its != firsts:
                raise InventoryError(
                    f"{other.name}: {key} is {its!r}, that of {first.name} is {firsts!r}: "
                    "one load needs one link; choose clients with --limit"
                )
    for name, workload in resolved.workloads.items():
        capacity = None if isinstance(workload, MailWorkload) else workload.capacity
        loops = {
            "users": min(listed(workload.users)) if isinstance(workload, ClosedWorkload) else None,
            "capacity.users": capacity.users if capacity else None,
        }
        for key, users in loops.items():
            if users and users <= len(others) and not sends_alone(workload):
                raise ExperimentError(
                    f"workload {name}: {key}: {users} users are too few for {len(inventory.clients)} clients, each of "
                    "which needs one; choose fewer with --limit"
                )


@contextlib.contextmanager
def on_client(name: str, prefix: str = "") -> Iterator[None]:
    """Name the client, and put `prefix` in front of the message, in a ToolError that is raised meanwhile."""
    try:
        yield
    except ToolError as error:
        raise type(error)(f"{prefix}{error}", name) from error


@dataclass(frozen=True)
class Joint:
    """One load that all clients have sent. `wall_s`: from the first start to the last end, on our clock.

    `cpu_s` is of all tools, `cpu_share` that of the client which was closest to its limit. `started_at_s` is by the
    client's clock where there is one, else by ours.
    """

    parts: Sequence[Execution]
    wall_s: float
    cpu_s: float
    cpu_share: float
    started_at_s: float

    def require(self, label: str) -> None:
        """Raise ToolError when a client's tool was killed."""
        for part in self.parts:
            with on_client(part.client):
                require(part.output, label if len(self.parts) == 1 else f"{label} on {part.client}")


def joint(parts: Sequence[Execution]) -> Joint:
    """Joint execution of the clients' tools."""
    begins_s = [part.started_at_s - part.ahead_s for part in parts]
    first_s = min(begins_s)
    return Joint(
        parts=parts,
        wall_s=max(begin_s - first_s + part.wall_s for begin_s, part in zip(begins_s, parts, strict=True)),
        cpu_s=sum(part.cpu_s for part in parts),
        cpu_share=max(part.cpu_share for part in parts),
        started_at_s=first_s,
    )


@dataclass(frozen=True, order=True)
class Offset:
    """A clock is `ahead_s` of ours, right to `error_s`: half of the shortest round trip."""

    error_s: float
    ahead_s: float


def clock_offset(line: AgentLine, looks: int = _LOOKS, limit_s: float = _LIMIT_S) -> Offset:
    """Ask a machine for the time a few times; the shortest round trip tells it best. Raises HostLostError."""

    def look() -> Offset:
        asked_s, begin_s = time.time(), time.monotonic()
        told_s = float(line.call("ping", limit_s)["time_s"])
        error_s = (time.monotonic() - begin_s) / 2
        return Offset(error_s, told_s - asked_s - error_s)

    return min(look() for _ in range(looks))


class Fleet:
    """The clients of one trial; `first` does what one machine does alone."""

    def __init__(self, lines: Sequence[AgentLine]) -> None:
        self.lines, self.first = lines, lines[0]

    def send(self, adapter: Adapter, load: ToolLoad, limit_s: float, watch: Sequence[AgentLine]) -> Joint:
        """Send a load; end it everywhere at once when a client or a watched machine is lost.

        Raises ToolError when a client could not run its part, HostLostError when a machine is lost.
        """
        loads = deal(load, len(self.lines), lockstep=adapter.lockstep)
        several = len(self.lines) > 1
        everybody = [*self.lines, *watch]
        try:
            ahead_s = [clock_offset(line).ahead_s if several else 0.0 for line in self.lines]
            start_at_s = time.time() + LEAD_S if several else None
            sendings = [
                Sending(line, adapter, load_of_client, limit_s, start_at_s, ahead)
                for line, load_of_client, ahead in zip(self.lines, loads, ahead_s, strict=True)
            ]
            return joint([sending.wait(everybody) for sending in sendings])
        except (ToolError, HostLostError):
            self.end()
            raise

    def end(self) -> None:
        """End what still runs, or waits to begin, on the clients that can be reached."""
        for line in self.lines:
            if not line.lost_because:
                with contextlib.suppress(AgentError, HostLostError):
                    line.call("kill", _LIMIT_S)
