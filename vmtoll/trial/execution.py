"""Load tools that run on clients: one alone, or several that send one load together."""

import base64
import contextlib
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtoll.agent.protocol import Done
from vmtoll.loadgen import Adapter, Command, Output, ToolLoad
from vmtoll.loadgen.base import raise_if_killed
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError, ToolError

# Seconds beyond a tool's own bound, for the answer to travel.
_TRAVEL_S = 15.0


@dataclass(frozen=True)
class Execution:
    """A finished tool. `cpu_share`: its CPU time, as a fraction of what its threads could have used. `packed`: its
    files, gzipped. It started at `started_at_s` by the client's clock, which is `ahead_s` ahead of ours.
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
    """Seconds after which the agent kills a tool: far more than it should take, and never unlimited.

    A server with a process for each user needs time to start them: Apache starts at most 32 a second
    (https://httpd.apache.org/docs/2.4/misc/perf-tuning.html, "Process Creation"); the bound assumes half of that.
    """
    return 120.0 if expected_s is None else 15.0 + 6.0 * expected_s + users / 16


class Sending:
    """A tool that a client runs, now or from `start_at_s` by our clock. Raises HostLostError."""

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
        """Wait until the tool has ended, for `limit_s` at most; by default for the tool's own bound.

        Raises ToolError when the client could not run it, HostLostError as soon as a machine is lost.
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
        available_cpu_s = done["wall_s"] * min(self.threads, done["cpus"])
        return Execution(
            client=self.client.host.name,
            load=self.load,
            output=output,
            wall_s=done["wall_s"],
            cpu_s=done["cpu_s"],
            cpu_share=done["cpu_s"] / available_cpu_s if available_cpu_s > 0 else 0.0,
            started_at_s=done["started_at"],
            packed=packed,
            ahead_s=self.ahead_s,
        )


@contextlib.contextmanager
def on_client(name: str, prefix: str = "") -> Iterator[None]:
    """Add the client's name, and `prefix` before the message, to a ToolError raised in this context."""
    try:
        yield
    except ToolError as error:
        raise type(error)(f"{prefix}{error}", name) from error


@dataclass(frozen=True)
class JointExecution:
    """One load that all clients have sent."""

    parts: Sequence[Execution]
    wall_s: float  # from the first start to the last end, on our clock
    cpu_s: float  # of all tools together
    cpu_share: float  # that of the client closest to its limit
    started_at_s: float  # by the client's clock with one client, else by ours

    def raise_if_killed(self, label: str) -> None:
        """Raise ToolError when a client's tool was killed."""
        for part in self.parts:
            with on_client(part.client):
                raise_if_killed(part.output, label if len(self.parts) == 1 else f"{label} on {part.client}")


def combine(parts: Sequence[Execution]) -> JointExecution:
    """Combine the executions of the clients' tools."""
    begins_s = [part.started_at_s - part.ahead_s for part in parts]
    first_s = min(begins_s)
    return JointExecution(
        parts=parts,
        wall_s=max(begin_s - first_s + part.wall_s for begin_s, part in zip(begins_s, parts, strict=True)),
        cpu_s=sum(part.cpu_s for part in parts),
        cpu_share=max(part.cpu_share for part in parts),
        started_at_s=first_s,
    )
