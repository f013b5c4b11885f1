"""Observe the machines of one trial: sample them throughout, read them before and after each load."""

import csv
import io
import itertools
from collections.abc import Mapping, Sequence

from vmtoll.agent.protocol import Samples
from vmtoll.machines.connection import Pending
from vmtoll.machines.session import Machines
from vmtoll.model.errors import AgentError
from vmtoll.model.finding import Finding, Role
from vmtoll.trial.conditions import LoadObservations, Names, ObservedLoad, Sender, observe_load
from vmtoll.trial.merging import ClientPart
from vmtoll.trial.server_times import ServerTimes, parse
from vmtoll.trial.usage import Usage, read_usage

_LIMIT_S = 30.0
PULSE_S = 0.05
# In loads shorter than SHORT_S, one clock rate a second and a pulse every PULSE_S are too few for the gates on clock
# rate and warm-up. All other counters stay at one second: sampled every 0.1 s, they took 4 to 6% of an emulated guest's
# CPU.
SHORT_S, SHORT_PULSE_S, SHORT_MHZ_S = 2.0, 0.02, 0.1


class TrialObserver:
    """`start` and `stop` the samplers; `read` before and after each load, then record the load with `record_load`."""

    def __init__(self, machines: Machines, server: str, remote: tuple[str, int], shortest_s: float) -> None:
        """`remote`: address and port of the load. `shortest_s`: planned duration of the shortest load."""
        self.machines, self.server, self.remote = machines, server, remote
        self.is_short = shortest_s < SHORT_S
        self.names = Names(
            {line.host.name: line.host.guest_name or "" for line in machines.suts},
            machines.host.host.name if machines.host else None,
            machines.contained,
        )
        self.loads: list[ObservedLoad] = []

    def start(self) -> None:
        """Start sampling on every machine. Raises AgentError, HostLostError."""
        clients, suts = self.machines.clients, self.machines.suts
        args = {"mhz_s": SHORT_MHZ_S} if self.is_short else {}
        client_args = {
            "pulse_s": SHORT_PULSE_S if self.is_short else PULSE_S, "loopback": any(line in clients for line in suts)
        }  # fmt: skip
        host_args = {name: value for name, value in self.machines.domain_args.items() if name in ("domains", "guests")}
        pending = [
            line.ask(
                "sample_start",
                **args,
                **(client_args if line in clients else {}),
                **({"server": self.machines.server_on(line, self.server)} if line in suts else {}),
                **(host_args if line is self.machines.host and line not in suts else {}),
            )
            for line in self.machines.all
        ]
        for answer in pending:
            answer.wait(_LIMIT_S)

    def read(self, *, has_guests: bool = True) -> Usage:
        """Read every machine. `has_guests`: whether the guests are on their own host. Raises AgentError,
        HostLostError.
        """
        return read_usage(self.machines, self.server, self.remote, has_guests=has_guests)

    def server_times(self) -> list[ServerTimes | None]:
        """Times that the server on each machine under test reports about itself. Raises HostLostError.

        Call it outside of the two `read`s around a load: the server's CPU time for this answer is not the load's.
        """
        answers = [
            line.ask("server_metrics", name=self.machines.server_on(line, self.server)) for line in self.machines.suts
        ]
        return [parse(_metrics_page(pending)) for pending in answers]

    def record_load(self, role: Role, tool: str, before: Usage, after: Usage, parts: Sequence[ClientPart]) -> None:
        """Record a load that ran on the clients between two readings."""
        senders = {
            part.client: Sender(
                part.execution.started_at_s, part.execution.wall_s, part.result.transactions / part.execution.wall_s
            )
            for part in parts
        }
        self.loads.append(ObservedLoad(role, tool, before, after, senders))

    def stop(self, sources: Mapping[str, str]) -> tuple[bytes, dict[Role, LoadObservations], list[Finding]]:
        """Stop sampling; return the per-second series as CSV, the observations of each load, and the findings of all
        loads, where a later load does not repeat a code and role.

        `sources`: machine name → its clock source at the start of the run. Raises AgentError, HostLostError.
        """
        pending = [(line.host, line.ask("sample_stop")) for line in self.machines.all]
        series: dict[str, Samples] = {host.name: answer.wait(_LIMIT_S) for host, answer in pending}
        observations = {load.role: observe_load(load, self.names, series, sources) for load in self.loads}
        findings: list[Finding] = []
        for load in observations.values():
            reported = {(finding.code, finding.role) for finding in findings}
            findings += [finding for finding in load.findings if (finding.code, finding.role) not in reported]
        table = to_csv([(host.name, str(host.role), series[host.name]["counters"]) for host, _ in pending])
        return table, observations, findings


def _metrics_page(pending: Pending) -> str | None:
    """A page of metrics; None if the agent cannot get it, which does not fail the trial."""
    try:
        page: str | None = pending.wait(_LIMIT_S)
    except AgentError:
        return None
    return page


COLUMNS = ["time_s", "host", "role", "cpu_user_pct", "cpu_system_pct", "steal_pct", "rx_mbit", "tx_mbit",
           "load1", "pressure_cpu_pct", "wait_pct"]  # fmt: skip


def to_csv(series: Sequence[tuple[str, str, Sequence[Mapping[str, float]]]]) -> bytes:
    """CSV with one line per machine and second. `series`: host, role and the agent's counters, oldest first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for host, role, counters in series:
        for old, new in itertools.pairwise(counters):
            rates = ["" if rate is None else f"{rate:.3f}" for rate in _rates(old, new)]
            writer.writerow([f"{new['time_s']:.3f}", host, role, *rates])
    return text.getvalue().encode()


def _rates(old: Mapping[str, float], new: Mapping[str, float]) -> list[float | None]:
    growth = {key: new[key] - old[key] for key in old if key in new}
    cpus_s = sum(growth[key] for key in ("user_s", "system_s", "idle_s", "steal_s"))
    elapsed_s = max(growth["time_s"], 1e-6)
    cpu_pct = [100 * growth[key] / cpus_s if cpus_s > 0 else 0.0 for key in ("user_s", "system_s", "steal_s")]
    mbit = [growth[key] * 8 / 1e6 / elapsed_s for key in ("rx_bytes", "tx_bytes")]
    wait_pct = 100 * growth["wait_s"] / elapsed_s if "wait_s" in growth else None
    return [*cpu_pct, *mbit, new["load1"], growth["pressure_us"] / 1e4 / elapsed_s, wait_pct]
