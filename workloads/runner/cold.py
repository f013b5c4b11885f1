"""Cold caches: dropped right before a load, and proven by what the disks then had to read."""

from collections.abc import Sequence

from workloads.runner import gates
from workloads.runner.gates import Reason
from workloads.runner.results import Row
from workloads.runner.transport import AgentLine
from workloads.runner.usage import Usage

# Dirty pages are written back first.
_LIMIT_S = 120.0


def drop(kernels: Sequence[AgentLine]) -> None:
    """Empty the page caches of these machines, guests before their host. Raises AgentError, HostLostError."""
    for line in kernels:
        line.call("drop_caches", _LIMIT_S)


def read_columns(before: Usage, after: Usage) -> Row:
    """What the kernels read from their disks between two readings, in 10⁶ bytes."""
    own = sum(after.suts[name]["read_kib"] - old["read_kib"] for name, old in before.suts.items())
    row: Row = {"read_mb": own * 1024 / 1e6}
    if before.domain_s is not None and before.outer and after.outer:
        row["host_read_mb"] = (after.outer["read_kib"] - before.outer["read_kib"]) * 1024 / 1e6
    return row


def reasons(row: Row) -> list[Reason]:
    """Less was read than served, by the machine under test or by its KVM host: some of it came out of a cache."""
    read = {"the machine under test": row["read_mb"], "its KVM host": row.get("host_read_mb")}
    served_mb = row.get("transferred_mb")
    if served_mb is None:
        return []
    return [r for who, mb in read.items() if mb is not None for r in gates.not_cold(mb, served_mb, who)]
