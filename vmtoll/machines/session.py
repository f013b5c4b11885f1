"""State of a run: its machines, the lines to them, and their facts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vmtoll import hypervisors
from vmtoll.agent.protocol import GuestAddress
from vmtoll.machines.connection import AgentLine
from vmtoll.model.event import Listener, Phase, TrialStep
from vmtoll.model.facts import HostFacts
from vmtoll.model.finding import Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.inventory import Host, Inventory
from vmtoll.model.load import Load
from vmtoll.model.service import ServicePage
from vmtoll.model.trial import Accelerator, Arm, TrialSpec
from vmtoll.model.workload import sends_alone
from vmtoll.runs.rates import Rates
from vmtoll.runs.store import Store
from vmtoll.sites import Site, SiteFiles
from vmtoll.spec.experiment import Resolved


@dataclass(frozen=True)
class Paused:
    """A paused guest, and how far its clock was ahead of ours before."""

    guest: Host
    ahead_s: float


@dataclass
class Session:
    """State of a run. `content`: the site's files; `pages`: what a service answered at the start, by path.
    `fully_checked`: each (machine, server) whose files have all been
    compared with `content`.

    `facts`: machine → its facts without any change; `changed`: (environment, machine) → those with the environment's
    change. `paused`: paused guests by name; `unpausable`: guests that could not be paused; `guests_paused`: number of
    paused guests on the physical machine of the current trial, None if none idles there. `vcpus`: guest → thread IDs of
    its virtual CPUs, if libvirt does not run it.
    """

    run_id: str
    resolved: Resolved
    inventory: Inventory
    store: Store
    content: SiteFiles
    order_seed: int
    lines: Mapping[str, AgentLine]
    facts: dict[str, HostFacts] = field(default_factory=dict)
    changed: dict[tuple[str, str], HostFacts] = field(default_factory=dict)
    accelerators: dict[str, Accelerator] = field(default_factory=dict)
    hardware: dict[str, Hardware] = field(default_factory=dict)
    releases: dict[str, str] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)
    fully_checked: set[tuple[str, str]] = field(default_factory=set)
    paused: dict[str, Paused] = field(default_factory=dict)
    unpausable: set[str] = field(default_factory=set)
    guests_paused: int | None = None
    vcpus: dict[str, list[int]] = field(default_factory=dict)
    pages: dict[str, ServicePage] = field(default_factory=dict)

    @property
    def client(self) -> AgentLine:
        """The line to the first client."""
        return self.lines[self.inventory.client.name]

    @property
    def clients(self) -> list[AgentLine]:
        return [self.lines[host.name] for host in self.inventory.clients]

    def senders(self, spec: TrialSpec) -> list[AgentLine]:
        """The lines to the machines that send this trial's load; the first also checks the bodies."""
        workload = self.resolved.workloads[spec.scenario.workload]
        if workload.client == "localhost":
            return [self.line(self.inventory.suts[spec.arm.environment])]
        return [self.client] if sends_alone(workload) else self.clients

    def line(self, host: Host) -> AgentLine:
        return self.lines[host.name]

    def on_host(self, guest: Host) -> hypervisors.Guest | None:
        """A guest as its host has it; None where the inventory does not name the host."""
        host = self.inventory.kvm_host(guest)
        return hypervisors.of(guest, self.line(host)) if host else None

    def addresses(self, guests: Iterable[Host]) -> dict[str, GuestAddress]:
        """Addresses of the guests that libvirt does not run, by their name on the host; with their known `vcpus`."""
        addresses: dict[str, GuestAddress] = {}
        for guest in guests:
            on_host = None if guest.vars.domain else self.on_host(guest) if guest.guest_name else None
            if on_host:
                addresses[on_host.name] = {**on_host.address, "vcpus": self.vcpus.get(guest.name, [])}
        return addresses

    @property
    def site(self) -> Site:
        """The site that the servers serve. Raises RuntimeError in an experiment with a service, which has none."""
        if self.resolved.site is None:
            raise RuntimeError("a service has no site")
        return self.resolved.site

    @property
    def sees_server(self) -> bool:
        """Return whether machines under test can find the processes of their server: not of every service."""
        requests = self.resolved.requests
        return requests is None or requests.service.cpu is not None

    def facts_in(self, environment: str) -> dict[str, HostFacts]:
        """Machine → its facts in this environment: with its change."""
        return self.facts | {machine: facts for (name, machine), facts in self.changed.items() if name == environment}

    @property
    def reference(self) -> HostFacts:
        """The facts of the baseline's machine, which all others are compared with."""
        baseline = self.resolved.experiment.baseline_arm.environment
        return self.facts[self.inventory.suts[baseline].name]

    def machines(self, arm: Arm, load: Load, clients: Sequence[AgentLine]) -> "Machines":
        """The machines of a trial: those that share the load, and the neighbour if the scenario sets its load, even to
        zero.
        """
        all_suts = self.inventory.machines.get(arm.environment, ()) if self.sees_server else ()
        suts, others = all_suts[: load.guests or 1], all_suts[load.guests or 1 :]
        density = self.resolved.experiment.density
        tiles = list(zip(suts, density.of(len(suts)), strict=True)) if density else []
        idle = [sut for sut, tile in tiles if tile.idle]
        suts = [sut for sut in suts if sut not in idle]
        host = self.inventory.host(suts[0]) if suts else None
        kernel = host or next((sut for sut in suts if sut.runtime), None)
        participants = [*(line.host for line in clients), *suts]
        return Machines(
            clients=clients,
            suts=[self.line(sut) for sut in suts],
            neighbour=self.line(others[0]) if others and load.neighbour else None,
            host=self.line(host) if host else None,
            addresses=self.addresses(all_suts),
            idle=[self.line(sut) for sut in idle],
            servers={sut.name: tile.server for sut, tile in tiles if tile.server},
            groups_only=bool(self.resolved.experiment.kinds),
            contained=frozenset(
                machine.name for machine in participants if kernel and self.inventory.shares_kernel(machine, kernel)
            ),
        )


@dataclass(frozen=True)
class TrialReporter:
    """Reports the phases of one attempt at a trial to the run's listener."""

    listener: Listener
    spec: TrialSpec
    attempt: int
    number: int
    trials: int
    blocks: int
    left_s: float

    def __call__(
        self,
        phase: Phase,
        *,
        tool: str | None = None,
        role: Role | None = None,
        rate_rps: float | None = None,
    ) -> None:
        self.listener(
            TrialStep(
                spec=self.spec, attempt=self.attempt, number=self.number, trials=self.trials, blocks=self.blocks,
                left_s=self.left_s, phase=phase, tool=tool, role=role, rate_rps=rate_rps,
            )
        )  # fmt: skip


@dataclass(frozen=True)
class Machines:
    """The machines of a trial. `suts`: one, or several guests of one KVM host that share the load, none for a service
    whose machine is not seen; `neighbour`: another
    guest there with its own load. `host`: that KVM host, or the machine whose kernel a container shares. `contained`:
    names of all machines that share the kernel of `host`, or of what starts the container runtime under test.
    `addresses`: of guests that libvirt does not run. A client may be the machine under test. `idle`: guests of the
    trial that run without a load, in an experiment with `density`; `servers`: machine → its server, where it is another
    one than the scenario's. `groups_only`: see trial's Usage.
    """

    clients: Sequence[AgentLine]
    suts: Sequence[AgentLine]
    neighbour: AgentLine | None
    host: AgentLine | None
    contained: frozenset[str]
    addresses: Mapping[str, GuestAddress] = field(default_factory=dict)
    idle: Sequence[AgentLine] = ()
    servers: Mapping[str, str] = field(default_factory=dict)
    groups_only: bool = False

    def server_on(self, line: AgentLine, server: str) -> str:
        """The server that runs on a machine in a scenario with `server`."""
        return self.servers.get(line.host.name, server)

    @property
    def serving(self) -> list[AgentLine]:
        """Machines that a server runs on."""
        return [*self.suts, *([self.neighbour] if self.neighbour else [])]

    @property
    def all(self) -> list[AgentLine]:
        """All machines, each once."""
        return list(dict.fromkeys([*self.clients, *self.serving, *self.idle, *([self.host] if self.host else [])]))

    @property
    def kernels(self) -> list[AgentLine]:
        """Machines whose kernels cache the served files, guests before their host; for a container only `host`."""
        lines = [line for line in self.suts if line.host.name not in self.contained]
        return [*lines, *([self.host] if self.host else [])]

    @property
    def domain_args(self) -> dict[str, Any]:
        """Arguments of the agent's `usage` on the KVM host; empty for a container's host."""
        domains, neighbours = (
            [line.host.guest_name for line in lines if line.host.guest_name]
            for lines in ([*self.suts, *self.idle], self.serving[len(self.suts) :])
        )
        if not domains or self.host is None:
            return {}
        others = {name: self.addresses[name] for name in (*domains, *neighbours) if name in self.addresses}
        return {"domains": domains, "neighbours": neighbours, "uri": self.host.host.libvirt_uri, "guests": others}

    @property
    def container_names(self) -> list[str]:
        """The names that the host's engine has for the containers under test."""
        return [line.host.container_name for line in self.suts if line.host.container_name]
