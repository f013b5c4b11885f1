"""The clients of a trial, which start one load at the same instant."""

import contextlib
import time
from collections.abc import Sequence

from vmtoll.loadgen import Adapter, ToolLoad
from vmtoll.machines.clock import clock_offset
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError, HostLostError, ToolError
from vmtoll.trial.dealing import deal
from vmtoll.trial.execution import JointExecution, Sending, combine

# Time from the order until all clients begin: by then each must have its URL list.
LEAD_S = 0.25
# Time limit for an answer to `kill`.
_LIMIT_S = 15.0


class Fleet:
    """The clients of one trial; `first` does all that one client does alone."""

    def __init__(self, lines: Sequence[AgentLine]) -> None:
        self.lines, self.first = lines, lines[0]

    def send(self, adapter: Adapter, load: ToolLoad, limit_s: float, watch: Sequence[AgentLine]) -> JointExecution:
        """Send a load; end it on all clients as soon as a client or a machine of `watch` is lost.

        Raises ToolError when a client could not run its part, HostLostError when a machine is lost.
        """
        loads = deal(load, len(self.lines), lockstep=adapter.lockstep)
        has_several = len(self.lines) > 1
        watched_lines = [*self.lines, *watch]
        try:
            ahead_s = [clock_offset(line).ahead_s if has_several else 0.0 for line in self.lines]
            start_at_s = time.time() + LEAD_S if has_several else None
            sendings = [
                Sending(line, adapter, load_of_client, limit_s, start_at_s, ahead)
                for line, load_of_client, ahead in zip(self.lines, loads, ahead_s, strict=True)
            ]
            return combine([sending.wait(watched_lines) for sending in sendings])
        except (ToolError, HostLostError):
            self.end()
            raise

    def end(self) -> None:
        """End all tools that still run, or wait to begin, on clients that can be reached."""
        for line in self.lines:
            if not line.lost_because:
                with contextlib.suppress(AgentError, HostLostError):
                    line.call("kill", _LIMIT_S)
