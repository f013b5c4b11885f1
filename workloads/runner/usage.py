"""What a server, its host and the machines have used and seen, between two readings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.runner.transport import AgentLine

_LIMIT_S = 30.0

Reading = Mapping[str, Any]


@dataclass(frozen=True)
class Usage:
    """One reading of each machine: the answers of the agent's `usage`.

    `clients`: by name. `outer` is the KVM host of a guest, or the machine whose kernel a container shares. Where the
    client is on the machine under test, both have one reading.
    """

    clients: Mapping[str, Reading]
    sut: Reading
    outer: Reading | None

    @property
    def pss_kib(self) -> int:
        return int(self.sut["server"]["pss_kib"])

    @property
    def processes(self) -> int:
        return int(self.sut["server"]["processes"])

    @property
    def energy_uj(self) -> Mapping[str, list[int]]:
        """Of the physical machine that the server ran on; see the agent's `energy_uj`."""
        found: Mapping[str, list[int]] = (self.outer or self.sut)["energy"]
        return found

    @property
    def domain_s(self) -> float | None:
        """CPU seconds of the guest's QEMU and vhost threads; None where the client, on the guest too, has a part."""
        if any(reading is self.sut for reading in self.clients.values()):
            return None
        return self.outer["domain"]["total_s"] if self.outer and "domain" in self.outer else None

    def steal_pct(self, before: "Usage") -> float:
        """Stolen share of the machine's CPU time since `before`, in percent."""
        old, new = before.sut["machine"], self.sut["machine"]
        whole = sum(new[k] - old[k] for k in ("user_s", "system_s", "idle_s", "steal_s"))
        return float(100 * (new["steal_s"] - old["steal_s"]) / whole) if whole > 0 else 0.0


def mbit(before: Reading, after: Reading, wall_s: float) -> float:
    """Mbit/s on a machine's interfaces between two readings, in the busier direction."""
    old, new = before["machine"], after["machine"]
    return float(max(new[k] - old[k] for k in ("rx_bytes", "tx_bytes"))) * 8 / 1e6 / wall_s


def read_usage(clients: Sequence[AgentLine], sut: AgentLine, outer: AgentLine | None, server: str, port: int) -> Usage:
    """Ask all machines at once. Raises AgentError, HostLostError."""
    remote = (sut.host.seen_from(clients[0].host), port)
    domain = {"domain": sut.host.get("vmtoll_domain"), "uri": outer.host.libvirt_uri} if outer else {}
    asked_outer = outer.ask("usage", **domain) if outer else None
    asked_sut = sut.ask("usage", server=server, remote=remote if sut in clients else None)
    asked_clients = {line.host.name: line.ask("usage", remote=remote) for line in clients if line is not sut}
    on_sut = asked_sut.wait(_LIMIT_S)
    on_clients = {name: asked.wait(_LIMIT_S) for name, asked in asked_clients.items()}
    return Usage(
        sut=on_sut,
        clients=on_clients or {sut.host.name: on_sut},
        outer=asked_outer.wait(_LIMIT_S) if asked_outer else None,
    )


def cpu_columns(before: Usage, after: Usage, requests: int) -> dict[str, float | None]:
    """`server_cpu_*` and, for a guest, `host_cpu_*` columns.

    The precise total is split into user and system by the machine's coarser counters of the two.
    """
    old, new = before.sut["server"], after.sut["server"]
    total, user, system = (new[k] - old[k] for k in ("total_s", "user_s", "system_s"))
    share = user / (user + system) if user + system > 0 else 0.0
    columns: dict[str, float | None] = {
        "server_cpu_user_s": total * share,
        "server_cpu_system_s": total * (1 - share),
        "server_cpu_us_per_request": total * 1e6 / requests if requests else None,
    }
    if before.domain_s is not None and after.domain_s is not None:
        host = after.domain_s - before.domain_s
        columns["host_cpu_s"] = host
        columns["host_cpu_us_per_request"] = host * 1e6 / requests if requests else None
    return columns


def energy_j(before: Usage, after: Usage) -> float | None:
    """Joules that the machine's processors and memory have drawn; None where they do not tell.

    A counter begins again from zero at most once between two readings: it takes minutes at full power.
    """
    old, new = before.energy_uj, after.energy_uj
    if not old or old.keys() != new.keys():
        return None
    return sum((new[zone][0] - old[zone][0]) % new[zone][1] for zone in new) / 1e6
