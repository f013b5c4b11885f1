"""Trace the exits of a trial's guests on their KVM host while its measured load is sent."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from vmtoll.agent.protocol import ExitCount
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.session import Machines
from vmtoll.model.errors import AgentError, HostLostError, ToolError
from vmtoll.model.exits import ExitReason

_LIMIT_S = 60.0
_WRAPS = 1 << 64  # the kernel adds up in 64 bits


class ExitTracer:
    """`exits`: those of the load, by falling CPU time, once it has ended."""

    def __init__(self, machines: Machines) -> None:
        """`machines`: of a trial on guests whose KVM host is known."""
        self.machines = machines
        self.exits: tuple[ExitReason, ...] = ()

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace them in this context. Raises ToolError where the host's kernel refuses, HostLostError."""
        arguments = {key: value for key, value in self.machines.domain_args.items() if key in ("domains", "guests")}
        self._call("exits_start", **arguments)
        try:
            yield
        except BaseException:
            with contextlib.suppress(ToolError, HostLostError):
                self._call("exits_stop")
            raise
        self._call("exits_stop")

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Count the exits of the load that is sent in this context. Raises ToolError, HostLostError."""
        before: Sequence[ExitCount] = self._call("exits")
        yield
        self.exits = growth(before, self._call("exits"))

    def _call(self, op: str, **arguments: Any) -> Any:
        host: AgentLine | None = self.machines.host
        if host is None:
            raise ToolError("exits are traced on the guest's KVM host, which is not known")
        try:
            return host.call(op, _LIMIT_S, **arguments)
        except AgentError as error:
            raise ToolError(f"tracing exits: {error}", error.machine) from error


def growth(before: Sequence[ExitCount], after: Sequence[ExitCount]) -> tuple[ExitReason, ...]:
    """The exits between two readings of a trace, by falling CPU time."""
    none: ExitCount = {"reason": "", "count": 0, "ns": 0, "away_ns": 0}
    old = {row["reason"]: row for row in before}
    exits = []
    for row in after:
        earlier = old.get(row["reason"], none)
        if count := row["count"] - earlier["count"]:
            time_us, away_us = (
                (new_ns - old_ns) % _WRAPS / 1000
                for new_ns, old_ns in ((row["ns"], earlier["ns"]), (row["away_ns"], earlier["away_ns"]))
            )
            exits.append(ExitReason(reason=row["reason"], count=count, time_us=time_us, away_us=away_us))
    return tuple(sorted(exits, key=lambda each: -each.cpu_us))
