"""The machines that a preflight checks, and how it asks them."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vmtoll.agent.protocol import Done
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import VmtollError
from vmtoll.model.inventory import Host, Role
from vmtoll.preflight.result import CheckResult, fail
from vmtoll.spec.inventory import read_inventory
from vmtoll.spec.inventory_faults import SUTS, InventoryData

_AT_ONCE = 16
# How long a command or an answer may take on a machine: an emulated one on two busy cores took more than a minute to
# start Python.
PATIENCE_S = 180.0


@dataclass
class Lab:
    """`data`: the output of ansible-inventory. `lines`: agents that the check `reach` started; a machine without one
    does not answer. `in_use`: machines that another run holds, or whose port is taken: the checks send them no load.
    """

    path: Path
    data: dict[str, Any]
    limited: bool = False
    say: Callable[[str], None] = lambda _: None
    lines: dict[str, AgentLine] = field(default_factory=dict)
    in_use: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path, limit: str | None, say: Callable[[str], None]) -> "Lab":
        """The lab of an inventory. Raises InventoryError."""
        return cls(path, read_inventory(path, limit), limit is not None, say)

    @cached_property
    def machines(self) -> InventoryData:
        return InventoryData(self.data, self.path)

    @property
    def by_role(self) -> dict[Role, list[Host]]:
        """The machines by role, without those that have a wrong variable."""
        wrong = self.machines.mistakes
        return {role: [h for h in hosts if h.name not in wrong] for role, hosts in self.machines.by_role.items()}

    @cached_property
    def hosts(self) -> Sequence[Host]:
        """All machines; under a limit only those KVM hosts that the others need."""
        hosts = [host for role, hosts in self.by_role.items() for host in hosts if role != "kvm_host"]
        needed = {name for host in hosts for name in (host.vars.kvm_host, host.vars.container_host)}
        return [*hosts, *(host for host in self.by_role["kvm_host"] if not self.limited or host.name in needed)]

    def answering_hosts(self, *roles: Role) -> list[Host]:
        """The machines that answer, of these roles or of any."""
        return [host for host in self.hosts if host.name in self.lines and (not roles or host.role in roles)]

    def pairs(self) -> list[tuple[Host, Host]]:
        """Each client with each machine that it would send load to; if the inventory has cells, those in its own."""
        return [
            (client, sut)
            for client in self.answering_hosts("client")
            for sut in self.answering_hosts(*SUTS)
            if self.machines.test_bed(client) == self.machines.test_bed(sut) and client.name != sut.name
        ]

    def ask(self, host: Host, op: str, limit_s: float = PATIENCE_S, **args: Any) -> Any:
        """Ask the agent on a machine. Raises AgentError, HostLostError."""
        return self.lines[host.name].call(op, limit_s, **args)

    def run(self, host: Host, argv: Sequence[str], limit_s: float = PATIENCE_S) -> Done:
        """Run a command on a machine; see the agent's Commands.run."""
        done: Done = self.lines[host.name].call("exec", limit_s + 15, argv=argv, limit_s=limit_s)
        return done

    def on_each(
        self, hosts: Iterable[Host], check_host: Callable[[Host], Iterable[CheckResult]]
    ) -> Iterable[CheckResult]:
        """Yield the results of `check_host`, run in parallel on each of these machines. A lost one yields an error."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for results in pool.map(lambda host: results_or_error(host.name, lambda: check_host(host)), hosts):
                yield from results

    def close(self) -> None:
        """End all agents."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(AgentLine.close, self.lines.values()))


def results_or_error(name: str, check: Callable[[], Iterable[CheckResult]]) -> list[CheckResult]:
    """Return the results of `check`; an error if the machine is lost meanwhile, or cannot answer."""
    try:
        return list(check())
    except VmtollError as error:
        return [fail(name, f"the check broke off: {error}", "Correct that and check again.")]
