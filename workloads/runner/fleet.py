"""The clients of a trial send each load together: dealt out, begun at one instant, waited for as one."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.runner.bench import Bench
from workloads.runner.errors import AgentError, ExperimentError, HostLostError, InventoryError
from workloads.runner.experiment import Resolved
from workloads.runner.inventory import Inventory
from workloads.runner.joint import deal
from workloads.runner.load import Execution, Sending
from workloads.runner.schedule import Scenario
from workloads.runner.transport import AgentLine
from workloads.runner.workload import MailWorkload, RampWorkload, Workload
from workloads.tools import Adapter, AnyLoad, ToolError
from workloads.tools.base import require

# From the order to the instant at which all clients begin: every one must have its URL list by then.
LEAD_S = 0.25
# Looks at a client's clock; the quickest answer counts.
_LOOKS = 7
_LIMIT_S = 15.0


def sends_alone(workload: Workload) -> bool:
    """One machine sends: the machine under test itself, or, of mail and of a ramp, the first client."""
    return workload.client == "localhost" or isinstance(workload, MailWorkload | RampWorkload)


def senders(bench: Bench, scenario: Scenario) -> list[AgentLine]:
    """The lines to the machines that send this scenario's load; the first of them also checks the bodies."""
    workload = bench.resolved.workloads[scenario.workload]
    if workload.client == "localhost":
        return [bench.line(bench.sut(scenario))]
    return [bench.client] if sends_alone(workload) else bench.clients


def check_clients(resolved: Resolved, inventory: Inventory) -> None:
    """Every client has a part in every load, over a link like the others'. Raises ExperimentError, InventoryError."""
    first, *others = inventory.clients
    for other in others:
        for key in ("vmtoll_link", "vmtoll_link_mbit"):
            if other.get(key) != first.get(key):
                raise InventoryError(
                    f"{other.name}: {key} is {other.get(key)!r}, that of {first.name} is {first.get(key)!r}: "
                    "one load needs one link; choose clients with --limit"
                )
    for name, workload in resolved.workloads.items():
        loops = {"users": workload, "capacity.users": getattr(workload, "capacity", None)}
        for key, loop in loops.items():
            users = getattr(loop, "users", None)
            if users and users <= len(others) and not sends_alone(workload):
                raise ExperimentError(
                    f"workload {name}: {key}: {users} users are too few for {len(inventory.clients)} clients, each of "
                    "which needs one; choose fewer with --limit"
                )


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

    def require(self, what: str) -> None:
        """Raise ToolError when a client's tool was killed."""
        for part in self.parts:
            require(part.output, what if len(self.parts) == 1 else f"{what} on {part.client}")


def joint(parts: Sequence[Execution]) -> Joint:
    """What the clients' tools come to together."""
    begins_s = [part.started_at_s - part.ahead_s for part in parts]
    first_s = min(begins_s)
    return Joint(
        parts=parts,
        wall_s=max(begin_s - first_s + part.wall_s for begin_s, part in zip(begins_s, parts, strict=True)),
        cpu_s=sum(part.cpu_s for part in parts),
        cpu_share=max(part.cpu_share for part in parts),
        started_at_s=first_s,
    )


def clock_ahead_s(line: AgentLine) -> float:
    """How far a machine's clock is ahead of ours, off by half a round trip at most. Raises HostLostError."""

    def look() -> tuple[float, float]:
        asked_s, begin = time.time(), time.monotonic()
        told_s = float(line.call("ping", _LIMIT_S)["time_s"])
        trip_s = time.monotonic() - begin
        return trip_s, told_s - asked_s - trip_s / 2

    return min(look() for _ in range(_LOOKS))[1]


class Fleet:
    """The clients of one trial; `first` does what one machine does alone."""

    def __init__(self, lines: Sequence[AgentLine]) -> None:
        self.lines, self.first = lines, lines[0]

    def send(self, adapter: Adapter, load: AnyLoad, limit_s: float, watch: Sequence[AgentLine]) -> Joint:
        """Send a load; end it everywhere at once when a client or a watched machine is lost.

        Raises ToolError when a client could not run its part, HostLostError when a machine is lost.
        """
        loads = deal(load, len(self.lines), lockstep=adapter.LOCKSTEP)
        several = len(self.lines) > 1
        everybody = [*self.lines, *watch]
        try:
            ahead_s = [clock_ahead_s(line) if several else 0.0 for line in self.lines]
            start_at_s = time.time() + LEAD_S if several else None
            sendings = [
                Sending(line, adapter, own, limit_s, start_at_s, ahead)
                for line, own, ahead in zip(self.lines, loads, ahead_s, strict=True)
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
