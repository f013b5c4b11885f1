"""CPU time that processes outside the measurement used on a machine, and CPU time that hypervisors stole."""

from collections.abc import Iterable
from dataclasses import dataclass

from vmtoll.agent.protocol import Survey


@dataclass(frozen=True)
class BackgroundCpu:
    """`share_pct`: CPU time of processes outside the measurement, in percent of the time of `cpus` CPUs.

    `spent_s`: the same in seconds. `process`: the process that used most of it, None if there is none. `idle_pct`: idle
    time, in percent of the same CPUs.
    """

    share_pct: float
    idle_pct: float
    spent_s: float
    process: str | None
    cpus: int = 1


def background_cpu(
    before: Survey, after: Survey, cpus: int | None = None, our_namespaces: frozenset[str] = frozenset()
) -> BackgroundCpu:
    """CPU time of all processes but ours and those in the PID namespaces `our_namespaces`, on the CPUs `cpus`.

    `cpus` is a bit mask, by default of the CPUs that the surveying agent may use. Processes may also have run on other
    CPUs, so their total is capped at the busy time of `cpus` minus that of our processes confined to `cpus`.
    """
    mask = after["cpus"] if cpus is None else cpus
    elapsed_s = after["time_s"] - before["time_s"]
    cpu_ids = [cpu for cpu in after["idle_s"] if mask >> int(cpu) & 1]
    idle_s = min(sum(after["idle_s"][c] - before["idle_s"][c] for c in cpu_ids), elapsed_s * len(cpu_ids))
    confined_s, outside_s = 0.0, {}
    for pid, (name, cpu_s, allowed, namespace, is_ours) in {**before["processes"], **after["processes"]}.items():
        old_s = before["processes"][pid][1] if pid in before["processes"] else 0.0
        # The CPU time of a process that has ended is now in its parent's count.
        spent_s = (cpu_s if pid in after["processes"] else 0.0) - old_s
        if is_ours or namespace in our_namespaces:
            confined_s += spent_s if not allowed & ~mask else 0.0
        elif allowed & mask:
            outside_s[f"{name} (pid {pid})"] = spent_s
    unexplained_s = elapsed_s * len(cpu_ids) - idle_s - confined_s
    spent_s = max(0.0, min(sum(outside_s.values()), unexplained_s))
    percent_s = elapsed_s * len(cpu_ids) / 100
    busiest = max(outside_s, key=outside_s.__getitem__, default=None)
    return BackgroundCpu(spent_s / percent_s, idle_s / percent_s, spent_s, busiest, len(cpu_ids))


def steal_pct(surveys: Iterable[tuple[Survey, Survey, int]]) -> float:
    """CPU time that hypervisors stole from all machines together, in percent of the time of their CPUs.

    `surveys`: for each machine the survey before and after, and the bit mask of the CPUs that count.
    """
    stolen_s = total_s = 0.0
    for before, after, mask in surveys:
        cpu_ids = [cpu for cpu in after["steal_s"] if mask >> int(cpu) & 1]
        stolen_s += sum(after["steal_s"][cpu] - before["steal_s"][cpu] for cpu in cpu_ids)
        total_s += (after["time_s"] - before["time_s"]) * len(cpu_ids)
    return 100 * stolen_s / total_s if total_s > 0 else 0.0
