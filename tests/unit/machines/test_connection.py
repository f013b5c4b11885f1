"""The line to an agent: it is given up in time where nothing reads what it sends."""

import pytest

from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import HostLostError
from vmtoll.model.inventory import Host


def test_a_machine_that_never_reads_the_agent_is_lost_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ssh, which reads nothing before it has logged in: the agent is longer than what a pipe takes."""
    monkeypatch.setattr(Host, "argv", lambda _: ["sh", "-c", "exec sleep 60"])
    monkeypatch.setattr(Host, "is_local", True)
    line = AgentLine(Host("metal", "metal", {}))
    with pytest.raises(HostLostError, match=r"metal: no login within 0\.3 s"):
        line.open(0.3)
    line.close()
