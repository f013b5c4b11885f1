"""The machines of one trial under observation: sampled all the while, read before and after each load."""

from collections.abc import Mapping
from typing import Any

from workloads.runner import samples
from workloads.runner.conditions import Columns, Load, Names, judge
from workloads.runner.gates import Reason
from workloads.runner.inventory import Inventory
from workloads.runner.load import Execution
from workloads.runner.transport import AgentLine
from workloads.runner.usage import Usage, read_usage

_LIMIT_S = 30.0
PULSE_S = 0.05


class Watch:
    """`start` and `stop` the samplers; `read` around each load, then tell of it with `loaded`."""

    def __init__(
        self, inventory: Inventory, lines: Mapping[str, AgentLine], client: AgentLine, sut: AgentLine, server: str
    ) -> None:
        outer = inventory.outer(sut.host)
        self.client, self.sut, self.server = client, sut, server
        self.port = sut.host.port  # that the load goes to
        self.outer = lines[outer.name] if outer else None
        # Each once: the client may be the machine under test.
        self.lines = [line for line in dict.fromkeys((client, sut, self.outer)) if line]
        hosts = (client.host, sut.host)
        contained = [h.name for h in hosts if outer and h.get("vmtoll_container_host") == outer.name]
        self.names = Names(client.host.name, sut.host.name, outer.name if outer else None, frozenset(contained))
        self.loads: list[Load] = []

    def start(self) -> None:
        """Begin to sample on every machine. Raises AgentError, HostLostError."""
        pulse = {"pulse_s": PULSE_S, "loopback": self.client is self.sut}
        pending = [line.ask("sample_start", **(pulse if line is self.client else {})) for line in self.lines]
        for answer in pending:
            answer.wait(_LIMIT_S)

    def read(self) -> Usage:
        """Read every machine. Raises AgentError, HostLostError."""
        return read_usage(self.client, self.sut, self.outer, self.server, self.port)

    def loaded(self, tool: str, before: Usage, after: Usage, done: Execution, transactions: int) -> None:
        """A tool has run between two readings: the trial's own first, then its twin."""
        rate, twin = transactions / done.wall_s, bool(self.loads)
        self.loads.append(Load(tool, before, after, done.started_at_s, done.wall_s, rate, twin))

    def stop(self, sources: Mapping[str, str]) -> tuple[bytes, Columns, list[Reason]]:
        """The per-second series as CSV, the columns of the first load, and what the gates say of all.

        `sources`: machine name → its clock source at the start of the run. Raises AgentError, HostLostError.
        """
        pending = [(line.host, line.ask("sample_stop")) for line in self.lines]
        series: dict[str, dict[str, Any]] = {host.name: answer.wait(_LIMIT_S) for host, answer in pending}
        judged = [(load.tool, *judge(load, self.names, series, sources)) for load in self.loads]
        reasons: list[Reason] = []
        for tool, _, fired in judged:
            known = {reason.code for reason in reasons}
            reasons += [Reason(r.code, f"{r.detail} (during {tool})") for r in fired if r.code not in known]
        table = samples.to_csv([(host.name, str(host.role), series[host.name]["counters"]) for host, _ in pending])
        return table, judged[0][1], reasons
