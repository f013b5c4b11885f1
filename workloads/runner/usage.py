"""What a server, its host and the machines have used and seen, between two readings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads.runner.transport import AgentLine

_LIMIT_S = 30.0

Reading = Mapping[str, Any]


@dataclass(frozen=True)
class Usage:
    """One reading of each machine: the answers of the agent's `usage`.

    `outer` is the KVM host of a guest, or the machine whose kernel a container shares. Where the client is on the
    machine under test, both have one reading.
    """

    client: Reading
    sut: Reading
    outer: Reading | None

    @property
    def pss_kib(self) -> int:
        return int(self.sut["server"]["pss_kib"])

    @property
    def processes(self) -> int:
        return int(self.sut["server"]["processes"])

    @property
    def domain_s(self) -> float | None:
        """CPU seconds of the guest's QEMU and vhost threads; None where the client, on the guest too, has a part."""
        if self.client is self.sut:
            return None
        return self.outer["domain"]["total_s"] if self.outer and "domain" in self.outer else None

    def steal_pct(self, before: "Usage") -> float:
        """Stolen share of the machine's CPU time since `before`, in percent."""
        old, new = before.sut["machine"], self.sut["machine"]
        whole = sum(new[k] - old[k] for k in ("user_s", "system_s", "idle_s", "steal_s"))
        return float(100 * (new["steal_s"] - old["steal_s"]) / whole) if whole > 0 else 0.0

    def client_mbit(self, before: "Usage", wall_s: float) -> float:
        """Mbit/s on the client's interfaces since `before`, in the busier direction."""
        old, new = before.client["machine"], self.client["machine"]
        return float(max(new[k] - old[k] for k in ("rx_bytes", "tx_bytes"))) * 8 / 1e6 / wall_s


def read_usage(client: AgentLine, sut: AgentLine, outer: AgentLine | None, server: str, port: int) -> Usage:
    """Ask all machines at once. Raises AgentError, HostLostError."""
    remote = (sut.host.seen_from(client.host), port)
    asked_outer = outer.ask("usage", domain=sut.host.get("vmtoll_domain")) if outer else None
    asked_sut = sut.ask("usage", server=server, remote=remote if client is sut else None)
    asked_client = None if client is sut else client.ask("usage", remote=remote)
    on_sut = asked_sut.wait(_LIMIT_S)
    return Usage(
        sut=on_sut,
        client=asked_client.wait(_LIMIT_S) if asked_client else on_sut,
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
