"""What a run has at hand: the machines, the lines to them, and what is known about them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workloads.runner.experiment import Resolved
from workloads.runner.inventory import Host, Inventory
from workloads.runner.results import Store
from workloads.runner.schedule import Scenario
from workloads.runner.transport import AgentLine
from workloads.sites import Manifest

# stage, trial n, of m, message, seconds left (None when not known)
Progress = Callable[[str, int, int, str, float | None], None]
RateKey = tuple[str, str, str, str]


@dataclass
class Bench:
    """`rates`: requests per second last seen of (environment, server, workload, tool) in a closed loop.

    `seen_whole`: (machine, server) whose every file has been compared with the manifest.
    `capacities`: requests per second of (environment, server, workload), which shares are taken of.
    """

    run_id: str
    resolved: Resolved
    inventory: Inventory
    store: Store
    manifest: Manifest
    order_seed: int
    lines: Mapping[str, AgentLine]
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    accelerators: dict[str, str] = field(default_factory=dict)
    rates: dict[RateKey, float] = field(default_factory=dict)
    seen_whole: set[tuple[str, str]] = field(default_factory=set)
    capacities: dict[tuple[str, str, str], float] = field(default_factory=dict)

    @property
    def client(self) -> AgentLine:
        """The first client's."""
        return self.lines[self.inventory.client.name]

    @property
    def clients(self) -> list[AgentLine]:
        return [self.lines[host.name] for host in self.inventory.clients]

    def sut(self, scenario: Scenario) -> Host:
        return self.inventory.suts[scenario.base_environment]

    def suts(self, scenario: Scenario) -> list[Host]:
        """Those that share the load: as many guests as the scenario says, or the one machine there is."""
        return list(self.inventory.machines[scenario.base_environment])[: scenario.offer.place.guests or 1]

    def neighbour(self, scenario: Scenario) -> Host | None:
        """The guest after these, where the scenario gives it a load, be it none; None where there is no such guest."""
        more = list(self.inventory.machines[scenario.base_environment])[scenario.offer.place.guests or 1 :]
        return more[0] if more and scenario.offer.place.dose else None

    def line(self, host: Host) -> AgentLine:
        return self.lines[host.name]

    def reference(self, server: str) -> Mapping[str, object]:
        """The fingerprint that every machine must show: that of the first environment's machine."""
        found: Mapping[str, object] = self._first["servers"][server]
        return found

    def reference_sysctls(self) -> Mapping[str, str]:
        """The kernel parameters that every machine must show: those of the first environment's machine."""
        found: Mapping[str, str] = self._first["sysctls"]
        return found

    @property
    def _first(self) -> dict[str, Any]:
        return self.facts[next(iter(self.inventory.suts.values())).name]
