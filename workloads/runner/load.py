"""One tool run on the client: how many requests, within what bound, and what came of it."""

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workloads.runner.errors import AgentError, HostLostError
from workloads.runner.transport import AgentLine
from workloads.tools import Adapter, AnyLoad, Command, Output, ToolError

# Grace beyond a tool's own bound for the answer to travel, in seconds.
_TRAVEL_S = 15.0


@dataclass(frozen=True)
class Execution:
    """A finished tool: its output, wall clock and CPU seconds, and the share of the CPU it could have had."""

    output: Output
    wall_s: float
    cpu_s: float
    cpu_share: float
    started_at_s: float
    packed: dict[str, bytes]


def bound_s(expected_s: float | None) -> float:
    """When a tool is killed: far beyond what it should take, and never for ever."""
    return 120.0 if expected_s is None else 15.0 + 6.0 * expected_s


def passes(lines: int, rate_rps: float, duration_s: float) -> int:
    """Requests that take about `duration_s` at this rate: whole passes of the list, at least one."""
    return max(1, round(rate_rps * duration_s / lines)) * lines


def execute(
    client: AgentLine, adapter: Adapter, load: AnyLoad, limit_s: float, watch: Sequence[AgentLine]
) -> Execution:
    """Run the tool; end it at once when a watched machine is lost.

    Raises ToolError when the client could not run it, HostLostError when a machine is lost.
    """
    command: Command = adapter.command(load)
    pending = client.ask(
        "exec",
        argv=list(command.argv),
        files=dict(command.files),
        outputs=list(command.outputs),
        env=dict(command.env),
        limit_s=limit_s,
        finish=list(command.finish),
    )
    try:
        done: dict[str, Any] = pending.wait(limit_s + _TRAVEL_S, watch)
    except AgentError as error:
        raise ToolError(str(error)) from error
    except HostLostError:
        if not client.lost_because:
            client.call("kill")
        raise
    packed = {name: base64.b64decode(text) for name, text in done["files"].items()}
    output = Output(
        stdout=done["stdout"],
        stderr=done["stderr"],
        exit_status=done["exit_status"],
        files={name: gzip.decompress(data) for name, data in packed.items()},
        timed_out=done["timed_out"],
    )
    could_have_s = done["wall_s"] * min(command.threads, done["cpus"])
    share = done["cpu_s"] / could_have_s if could_have_s > 0 else 0.0
    return Execution(output, done["wall_s"], done["cpu_s"], share, done["started_at"], packed)
