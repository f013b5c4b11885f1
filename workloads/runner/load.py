"""One tool at work on one client: started, at once or at an instant, waited for within a bound, and what came of it."""

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workloads.runner.errors import AgentError
from workloads.runner.transport import AgentLine
from workloads.tools import Adapter, AnyLoad, Command, Output, ToolError

# Grace beyond a tool's own bound for the answer to travel, in seconds.
_TRAVEL_S = 15.0


@dataclass(frozen=True)
class Execution:
    """A finished tool: its client, what it was to send, its output, wall clock and CPU seconds, and the share of the
    CPU it could have had. It started at `started_at_s` by the client's clock, which is `ahead_s` ahead of ours.
    """

    client: str
    load: AnyLoad
    output: Output
    wall_s: float
    cpu_s: float
    cpu_share: float
    started_at_s: float
    packed: dict[str, bytes]
    ahead_s: float = 0.0


def bound_s(expected_s: float | None, users: int = 0) -> float:
    """When a tool is killed: far beyond what it should take, and never for ever.

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
        load: AnyLoad,
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
        """What came of it; by default within the tool's own bound.

        Raises ToolError when the client could not run it, HostLostError at once when a machine is lost.
        """
        try:
            done: dict[str, Any] = self.pending.wait((limit_s or self.limit_s) + _TRAVEL_S, watch)
        except AgentError as error:
            raise ToolError(str(error)) from error
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
