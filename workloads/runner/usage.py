"""What a server, its host and the machines have used and seen, between two readings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads.runner.machines import Machines

_LIMIT_S = 30.0

Reading = Mapping[str, Any]


@dataclass(frozen=True)
class Usage:
    """One reading of each machine: the answers of the agent's `usage`.

    `clients` and `suts`, the machines under test: by name. `outer` is the KVM host of guests, or the machine whose
    kernel a container shares. Where the client is on the machine under test, both have one reading.
    """

    clients: Mapping[str, Reading]
    suts: Mapping[str, Reading]
    outer: Reading | None

    @property
    def pss_kib(self) -> int:
        return sum(sut["server"]["pss_kib"] for sut in self.suts.values())

    @property
    def processes(self) -> int:
        return sum(sut["server"]["processes"] for sut in self.suts.values())

    @property
    def on_sut(self) -> bool:
        """Whether the client is on the machine under test."""
        return any(reading is sut for reading in self.clients.values() for sut in self.suts.values())

    @property
    def energy_uj(self) -> Mapping[str, list[int]]:
        """Of the physical machine that the server ran on; see the agent's `energy_uj`."""
        found: Mapping[str, list[int]] = (self.outer or next(iter(self.suts.values())))["energy"]
        return found

    @property
    def domain_s(self) -> float | None:
        """CPU seconds of the guests' QEMU and vhost threads; None where the client, on the guest too, has a part."""
        if self.on_sut or not self.outer or not self.outer["domains"]:
            return None
        return float(sum(domain["total_s"] for domain in self.outer["domains"].values()))

    def steal_pct(self, before: "Usage") -> float:
        """Stolen share of the machines' CPU time since `before`, in percent."""
        stolen_s, user_s, system_s, idle_s = (
            grown(before, self, "machine", key) for key in ("steal_s", "user_s", "system_s", "idle_s")
        )
        whole_s = stolen_s + user_s + system_s + idle_s
        return 100 * stolen_s / whole_s if whole_s > 0 else 0.0


def mbit(before: Reading, after: Reading, wall_s: float) -> float:
    """Mbit/s on a machine's interfaces between two readings, in the busier direction."""
    old, new = before["machine"], after["machine"]
    return float(max(new[k] - old[k] for k in ("rx_bytes", "tx_bytes"))) * 8 / 1e6 / wall_s


def read_usage(machines: Machines, server: str, port: int) -> Usage:
    """Ask all machines at once. `port`: that the load goes to. Raises AgentError, HostLostError."""
    clients, suts, outer = machines.clients, machines.suts, machines.outer
    remote = (suts[0].host.seen_from(clients[0].host), port)
    asked_outer = outer.ask("usage", **machines.of_domains) if outer else None
    asked = [(line, line.ask("usage", server=server, remote=remote if line in clients else None)) for line in suts]
    asked += [(line, line.ask("usage", remote=remote)) for line in clients if line not in suts]
    seen = {line.host.name: answer.wait(_LIMIT_S) for line, answer in asked}
    return Usage(
        suts={line.host.name: seen[line.host.name] for line in suts},
        clients={line.host.name: seen[line.host.name] for line in clients},
        outer=asked_outer.wait(_LIMIT_S) if asked_outer else None,
    )


def grown(before: Usage, after: Usage, part: str, key: str) -> float:
    """By how much a figure of the machines under test grew, all together."""
    return float(sum(after.suts[name][part][key] - old[part][key] for name, old in before.suts.items()))


def cpu_columns(before: Usage, after: Usage, requests: int) -> dict[str, float | None]:
    """`server_cpu_*` and, for a guest, `host_cpu_*` columns.

    The precise total is split into user and system by the machine's coarser counters of the two.
    """
    total, user, system = (grown(before, after, "server", key) for key in ("total_s", "user_s", "system_s"))
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
