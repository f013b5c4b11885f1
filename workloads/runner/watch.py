"""The machines of one trial under observation: sampled all the while, read before and after each load."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.runner import samples
from workloads.runner.conditions import Columns, Load, Names, Sender, judge
from workloads.runner.gates import Reason
from workloads.runner.joint import Part
from workloads.runner.machines import Machines
from workloads.runner.usage import Usage, read_usage

_LIMIT_S = 30.0
PULSE_S = 0.05


class Watch:
    """`start` and `stop` the samplers; `read` around each load, then tell of it with `loaded`."""

    def __init__(self, machines: Machines, server: str) -> None:
        self.machines, self.server = machines, server
        self.port = machines.suts[0].host.port  # that the load goes to
        self.names = Names(
            {line.host.name: str(line.host.get("vmtoll_domain", "")) for line in machines.suts},
            machines.outer.host.name if machines.outer else None,
            machines.contained,
        )
        self.loads: list[Load] = []

    def start(self) -> None:
        """Begin to sample on every machine. Raises AgentError, HostLostError."""
        clients, suts = self.machines.clients, self.machines.suts
        pulse = {"pulse_s": PULSE_S, "loopback": any(line in clients for line in suts)}
        pending = [line.ask("sample_start", **(pulse if line in clients else {})) for line in self.machines.all]
        for answer in pending:
            answer.wait(_LIMIT_S)

    def read(self) -> Usage:
        """Read every machine. Raises AgentError, HostLostError."""
        return read_usage(self.machines, self.server, self.port)

    def loaded(self, tool: str, before: Usage, after: Usage, parts: Sequence[Part]) -> None:
        """A tool has run on the clients between two readings: the trial's own first, then its twin."""
        senders = {
            part.client: Sender(part.done.started_at_s, part.done.wall_s, part.result.transactions / part.done.wall_s)
            for part in parts
        }
        self.loads.append(Load(tool, before, after, senders, twin=bool(self.loads)))

    def stop(self, sources: Mapping[str, str]) -> tuple[bytes, Columns, list[Reason]]:
        """The per-second series as CSV, the columns of the first load, and what the gates say of all.

        `sources`: machine name → its clock source at the start of the run. Raises AgentError, HostLostError.
        """
        pending = [(line.host, line.ask("sample_stop")) for line in self.machines.all]
        series: dict[str, dict[str, Any]] = {host.name: answer.wait(_LIMIT_S) for host, answer in pending}
        judged = [(load.tool, *judge(load, self.names, series, sources)) for load in self.loads]
        reasons: list[Reason] = []
        for tool, _, fired in judged:
            known = {reason.code for reason in reasons}
            reasons += [Reason(r.code, f"{r.detail} (during {tool})") for r in fired if r.code not in known]
        table = samples.to_csv([(host.name, str(host.role), series[host.name]["counters"]) for host, _ in pending])
        return table, judged[0][1], reasons
