"""Per-second series of a trial: counters in, rates out."""

import csv
import io
import itertools
from collections.abc import Mapping, Sequence

COLUMNS = [
    "time_s",
    "host",
    "role",
    "cpu_user_pct",
    "cpu_system_pct",
    "steal_pct",
    "rx_mbit",
    "tx_mbit",
    "load1",
    "pressure_cpu_pct",
]


def to_csv(series: Sequence[tuple[str, str, Sequence[Mapping[str, float]]]]) -> bytes:
    """One line a machine and second. `series`: host, role and the agent's counters, oldest first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for host, role, counters in series:
        for old, new in itertools.pairwise(counters):
            writer.writerow([f"{new['time_s']:.3f}", host, role, *(f"{v:.3f}" for v in _rates(old, new))])
    return text.getvalue().encode()


def _rates(old: Mapping[str, float], new: Mapping[str, float]) -> list[float]:
    cpus_s = sum(new[k] - old[k] for k in ("user_s", "system_s", "idle_s", "steal_s"))
    elapsed_s = max(new["time_s"] - old["time_s"], 1e-6)

    def of_cpus(key: str) -> float:
        return 100 * (new[key] - old[key]) / cpus_s if cpus_s > 0 else 0.0

    def mbit(key: str) -> float:
        return (new[key] - old[key]) * 8 / 1e6 / elapsed_s

    pressure = (new["pressure_us"] - old["pressure_us"]) / 1e4 / elapsed_s
    cpu = [of_cpus("user_s"), of_cpus("system_s"), of_cpus("steal_s")]
    return [*cpu, mbit("rx_bytes"), mbit("tx_bytes"), new["load1"], pressure]
