"""The machines of one trial: who sends, who is under test, who stands beside it, and on what they run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.runner.inventory import Host, Inventory
from workloads.runner.transport import AgentLine


@dataclass(frozen=True)
class Machines:
    """`suts`: one, or guests beside each other on one KVM host that share the load; `neighbour`: a further guest there
    with a load of its own. `outer`: that host, or the machine whose kernel a container shares. `contained`: the names
    of all that share the kernel of `outer`. A client may be the machine under test.
    """

    clients: Sequence[AgentLine]
    suts: Sequence[AgentLine]
    neighbour: AgentLine | None
    outer: AgentLine | None
    contained: frozenset[str]

    @property
    def serving(self) -> list[AgentLine]:
        """Those that a server runs on."""
        return [*self.suts, *([self.neighbour] if self.neighbour else [])]

    @property
    def all(self) -> list[AgentLine]:
        """Each once."""
        return list(dict.fromkeys([*self.clients, *self.serving, *([self.outer] if self.outer else [])]))

    @property
    def kernels(self) -> list[AgentLine]:
        """Those whose kernels cache what is served, guests before their host; a container's is that of `outer`."""
        own = [line for line in self.suts if line.host.name not in self.contained]
        return [*own, *([self.outer] if self.outer else [])]

    @property
    def of_domains(self) -> dict[str, Any]:
        """What the agent's `usage` on the KVM host is asked for; nothing of a container's host."""
        named = [[_domain(line.host) for line in lines] for lines in (self.suts, self.serving[len(self.suts) :])]
        domains, beside = ([name for name in names if name] for names in named)
        if not domains or self.outer is None:
            return {}
        return {"domains": domains, "beside": beside, "uri": self.outer.host.libvirt_uri}


def machines(
    inventory: Inventory,
    lines: Mapping[str, AgentLine],
    clients: Sequence[AgentLine],
    under_test: Sequence[Host],
    neighbour: Host | None,
) -> Machines:
    """Those of a trial, by the inventory."""
    outer = inventory.outer(under_test[0])
    hosts = [*(line.host for line in clients), *under_test]
    return Machines(
        clients=clients,
        suts=[lines[host.name] for host in under_test],
        neighbour=lines[neighbour.name] if neighbour else None,
        outer=lines[outer.name] if outer else None,
        contained=frozenset(host.name for host in hosts if outer and inventory.shares_kernel(host, outer)),
    )


def _domain(host: Host) -> str | None:
    found = host.get("vmtoll_domain")
    return str(found) if found else None
