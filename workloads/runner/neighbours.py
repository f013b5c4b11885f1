"""Who else used the CPUs of a machine between two surveys of its processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Survey = Mapping[str, Any]


@dataclass(frozen=True)
class Others:
    """`share_pct`: CPU time that others took, in percent of what the CPUs have; `idle_pct` alike.

    `spent_s` is the same in seconds; `worst` names the process that took most of it.
    """

    share_pct: float
    idle_pct: float
    spent_s: float
    worst: str


def others(before: Survey, after: Survey, cpus: int | None = None, own: frozenset[str] = frozenset()) -> Others:
    """What neither we nor the processes of the PID namespaces `own` used of the CPUs in the bit mask `cpus`.

    `cpus` is by default what the surveying agent itself may use. A process may run elsewhere too, so what all
    others used is bounded by what is left of the CPUs' busy time when everything of our own that can run
    nowhere else is subtracted.
    """
    mask = after["cpus"] if cpus is None else cpus
    elapsed_s = after["time_s"] - before["time_s"]
    ids = [cpu for cpu in after["idle_s"] if mask >> int(cpu) & 1]
    idle_s = min(sum(after["idle_s"][c] - before["idle_s"][c] for c in ids), elapsed_s * len(ids))
    confined_s, foreign = 0.0, {}
    for pid, (name, cpu_s, allowed, namespace, ours) in {**before["processes"], **after["processes"]}.items():
        old_s = before["processes"][pid][1] if pid in before["processes"] else 0.0
        # What a process that has ended used by then is in its parent's count now.
        spent_s = (cpu_s if pid in after["processes"] else 0.0) - old_s
        if ours or namespace in own:
            confined_s += spent_s if not allowed & ~mask else 0.0
        elif allowed & mask:
            foreign[f"{name} (pid {pid})"] = spent_s
    unexplained_s = elapsed_s * len(ids) - idle_s - confined_s
    spent_s = max(0.0, min(sum(foreign.values()), unexplained_s))
    whole_s = elapsed_s * len(ids) / 100
    worst = max(foreign, key=foreign.__getitem__, default="")
    return Others(spent_s / whole_s, idle_s / whole_s, spent_s, worst)
