"""CPU time on a machine that belongs to no part of the measurement, and what hypervisors took away."""

from collections.abc import Iterable
from dataclasses import dataclass

from vmtoll.agent.protocol import Survey


@dataclass(frozen=True)
class BackgroundCpu:
    """`share_pct`: CPU time of processes outside the measurement, in percent of what the CPUs have; `idle_pct` alike.

    `spent_s` is the same in seconds; `process` names the one that took most of it, None where there is none. `cpus`:
    how many CPUs these are shares of.
    """

    share_pct: float
    idle_pct: float
    spent_s: float
    process: str | None
    cpus: int = 1


def background_cpu(
    before: Survey, after: Survey, cpus: int | None = None, our_namespaces: frozenset[str] = frozenset()
) -> BackgroundCpu:
    """CPU time in the bit mask `cpus` of all but us and the processes of the PID namespaces `our_namespaces`.

    `cpus` is by default what the surveying agent itself may use. A process may run elsewhere too, so the time of all of
    them is bounded by what is left of the CPUs' busy time when everything of our own that can run nowhere else is
    subtracted.
    """
    mask = after["cpus"] if cpus is None else cpus
    elapsed_s = after["time_s"] - before["time_s"]
    ids = [cpu for cpu in after["idle_s"] if mask >> int(cpu) & 1]
    idle_s = min(sum(after["idle_s"][c] - before["idle_s"][c] for c in ids), elapsed_s * len(ids))
    confined_s, outside = 0.0, {}
    for pid, (name, cpu_s, allowed, namespace, is_ours) in {**before["processes"], **after["processes"]}.items():
        old_s = before["processes"][pid][1] if pid in before["processes"] else 0.0
        # What a process that has ended used by then is in its parent's count now.
        spent_s = (cpu_s if pid in after["processes"] else 0.0) - old_s
        if is_ours or namespace in our_namespaces:
            confined_s += spent_s if not allowed & ~mask else 0.0
        elif allowed & mask:
            outside[f"{name} (pid {pid})"] = spent_s
    unexplained_s = elapsed_s * len(ids) - idle_s - confined_s
    spent_s = max(0.0, min(sum(outside.values()), unexplained_s))
    whole_s = elapsed_s * len(ids) / 100
    most = max(outside, key=outside.__getitem__, default=None)
    return BackgroundCpu(spent_s / whole_s, idle_s / whole_s, spent_s, most, len(ids))


def steal_pct(surveys: Iterable[tuple[Survey, Survey, int]]) -> float:
    """CPU time that hypervisors took away from machines, all together, in percent of what their CPUs have.

    `surveys`: of each machine before and after, and the bit mask of the CPUs that count.
    """
    stolen_s = whole_s = 0.0
    for before, after, mask in surveys:
        ids = [cpu for cpu in after["steal_s"] if mask >> int(cpu) & 1]
        stolen_s += sum(after["steal_s"][cpu] - before["steal_s"][cpu] for cpu in ids)
        whole_s += (after["time_s"] - before["time_s"]) * len(ids)
    return 100 * stolen_s / whole_s if whole_s > 0 else 0.0
