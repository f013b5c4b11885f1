"""The machines that a preflight looks at, and how it asks them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vmtoll.preflight.finding import Finding, fail
from workloads.runner.errors import AgentError, RunnerError
from workloads.runner.inventory import Host, Role, hosts_by_role, members, read_inventory
from workloads.runner.transport import AgentLine

PROBES = Path(__file__).parent / "probes"
_AT_ONCE = 16
SUTS: tuple[Role, ...] = ("metal", "kvm_guest")


@dataclass
class Lab:
    """`data` is what ansible-inventory says. The check `reach` opens the `lines`: who has none does not answer.

    `in_use`: machines that another run holds, or where something else has the port: no load is sent to them.
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
    def hosts(self) -> Sequence[Host]:
        """All machines; of the KVM hosts under a limit only those that the others stand on."""
        by_role = hosts_by_role(self.data)
        hosts = [*by_role["client"], *by_role["metal"], *by_role["kvm_guest"]]
        needed = {host.get(key) for host in hosts for key in ("vmtoll_kvm_host", "vmtoll_container_host")}
        return [*hosts, *(host for host in by_role["kvm_host"] if not self.limited or host.name in needed)]

    def answering(self, *roles: Role) -> list[Host]:
        """The machines with a line, of these roles or of any."""
        return [host for host in self.hosts if host.name in self.lines and (not roles or host.role in roles)]

    def pairs(self) -> list[tuple[Host, Host]]:
        """Each client with each machine that it would send load to: where the inventory has cells, those of its own."""
        return [
            (client, sut)
            for client in self.answering("client")
            for sut in self.answering(*SUTS)
            if self.cell(client) == self.cell(sut) and client.name != sut.name
        ]

    def cell(self, host: Host) -> str:
        """The machine's child group of `cells`; empty where there are none."""
        cells = self.data.get("cells", {}).get("children", [])
        return next((cell for cell in cells if host.name in members(self.data, cell)), "")

    def run(
        self, host: Host, argv: Sequence[str], limit_s: float = 60.0, files: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Run a command on a machine, in a fresh folder with these files; see the agent's Commands.run."""
        line = self.lines[host.name]
        done: dict[str, Any] = line.call("exec", limit_s + 15, argv=argv, limit_s=limit_s, files={**(files or {})})
        return done

    def probe(self, host: Host, name: str, *words: str, limit_s: float = 60.0) -> Any:
        """What probes/<name>.py prints on a machine. Raises AgentError."""
        return self.script(host, (PROBES / f"{name}.py").read_text("utf-8"), *words, limit_s=limit_s)

    def script(
        self, host: Host, text: str, *words: str, limit_s: float = 60.0, files: Mapping[str, str] | None = None
    ) -> Any:
        """What a Python program, which may import `files`, prints on a machine, as JSON. Raises AgentError."""
        done = self.run(host, [host.argv()[-1], "probe.py", *words], limit_s, {**(files or {}), "probe.py": text})
        try:
            return json.loads(done["stdout"])
        except ValueError:
            last = "no answer in time" if done["timed_out"] else " ".join(done["stderr"].split()[-20:])
            raise AgentError(f"{host.name}: the probe ended with {done['exit_status']} ({last})") from None

    def on_each(self, hosts: Iterable[Host], look: Callable[[Host], Iterable[Finding]]) -> Iterable[Finding]:
        """What `look` finds on each of these machines, all at once. One that is lost meanwhile is a finding."""

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for found in pool.map(lambda host: guarded(host.name, lambda: look(host)), hosts):
                yield from found

    def close(self) -> None:
        """End all agents."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(AgentLine.close, self.lines.values()))


def guarded(name: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What `look` finds; a machine that is lost meanwhile, or cannot answer, is a finding too."""
    try:
        return list(look())
    except RunnerError as error:
        return [fail(name, f"could not be looked at: {error}", "Mend that and check again.")]
