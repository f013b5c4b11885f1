"""What a server, its host and its machine have used, between two readings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads.runner.transport import AgentLine

_LIMIT_S = 30.0


@dataclass(frozen=True)
class Usage:
    """One reading. `server`: total_s, user_s, system_s, pss_kib, processes; `domain`: total_s, or None."""

    server: Mapping[str, Any]
    machine: Mapping[str, float]
    client: Mapping[str, float]
    domain: Mapping[str, float] | None

    @property
    def pss_kib(self) -> int:
        return int(self.server["pss_kib"])

    @property
    def processes(self) -> int:
        return int(self.server["processes"])

    def steal_pct(self, before: "Usage") -> float:
        """Stolen share of the machine's CPU time since `before`, in percent."""
        old, new = before.machine, self.machine
        whole = sum(new[k] - old[k] for k in ("user_s", "system_s", "idle_s", "steal_s"))
        return 100 * (new["steal_s"] - old["steal_s"]) / whole if whole > 0 else 0.0

    def client_mbit(self, before: "Usage", wall_s: float) -> float:
        """Mbit/s on the client's interfaces since `before`, in the busier direction."""
        moved = max(self.client[k] - before.client[k] for k in ("rx_bytes", "tx_bytes"))
        return moved * 8 / 1e6 / wall_s


def read_usage(client: AgentLine, sut: AgentLine, server: str, kvm_host: AgentLine | None, domain: str | None) -> Usage:
    """Ask all machines at once. Raises AgentError, HostLostError."""
    asked_domain = kvm_host.ask("usage", domain=domain) if kvm_host and domain else None
    asked_server = sut.ask("usage", server=server)
    asked_client = client.ask("usage")
    seen = asked_server.wait(_LIMIT_S)
    return Usage(
        server=seen["server"],
        machine=seen["machine"],
        client=asked_client.wait(_LIMIT_S)["machine"],
        domain=asked_domain.wait(_LIMIT_S)["domain"] if asked_domain else None,
    )


def cpu_columns(before: Usage, after: Usage, requests: int) -> dict[str, float | None]:
    """`server_cpu_*` and, for a guest, `host_cpu_*` columns.

    The precise total is split into user and system by the machine's coarser counters of the two.
    """
    total, user, system = (after.server[k] - before.server[k] for k in ("total_s", "user_s", "system_s"))
    share = user / (user + system) if user + system > 0 else 0.0
    columns: dict[str, float | None] = {
        "server_cpu_user_s": total * share,
        "server_cpu_system_s": total * (1 - share),
        "server_cpu_us_per_request": total * 1e6 / requests if requests else None,
    }
    if before.domain and after.domain:
        host = after.domain["total_s"] - before.domain["total_s"]
        columns["host_cpu_s"] = host
        columns["host_cpu_us_per_request"] = host * 1e6 / requests if requests else None
    return columns
