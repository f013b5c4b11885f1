"""Guests whose kernels panic while vmtoll waits for them: named with their consoles' last lines, and stopped.

A panicked kernel spins: it would take CPU time from whatever else its host runs.
"""

import contextlib
from collections.abc import Mapping

from vmtoll import hypervisors
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError, HostLostError
from vmtoll.model.inventory import Host

# An emulated host takes at most this long to start the agent.
_SLOW_S = 180.0


def stop_panicked(on_host: hypervisors.Guest) -> str:
    """If the guest's kernel has panicked, end the guest and return the sentence for an error; else return "".

    Raises AgentError when its host fails, HostLostError.
    """
    panic = on_host.panic()
    if not panic:
        return ""
    on_host.power_off()
    return f"{on_host.guest.name} panicked, and vmtoll stopped it: {panic}"


class Watch:
    """Watches the consoles of guests on their KVM hosts; the agents there start at the first look."""

    def __init__(self, guests: Mapping[str, tuple[Host, Host]]) -> None:
        """`guests`: name → the guest and its KVM host."""
        self._guests = guests
        self._lines: dict[str, AgentLine] = {}

    def look(self) -> str:
        """Stop a guest that has panicked; return the sentence for the error, empty if none has.

        A host that does not answer has no guests yet, or whatever waits for its guests will report it.
        """
        for guest, host in self._guests.values():
            with contextlib.suppress(AgentError, HostLostError):
                if text := stop_panicked(hypervisors.of(guest, self._line(host))):
                    return text
        return ""

    def close(self) -> None:
        """End the agents."""
        for line in self._lines.values():
            line.close()

    def _line(self, host: Host) -> AgentLine:
        line = self._lines.setdefault(host.name, AgentLine(host))
        if line.lost_because:
            line.open(_SLOW_S)
        return line
