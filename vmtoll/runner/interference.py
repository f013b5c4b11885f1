"""Check that responses kept coming, by the bytes that the client received, a few times a second."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

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


# Below this share of the mean a slice holds no response: what is left is the line to the agent, and the handshakes of
# connections that a tool opens while the server stands still, which the kernel answers in its place.
_SILENT = 0.1
# Slices that a comparison of the beginning with the rest needs at least.
FEWEST_SLICES = 12
# Standard errors that the beginning must lie away from the rest, to rule out chance in the files' sizes.
_SURE = 3.0


@dataclass(frozen=True)
class Slice:
    """Bytes received in some seconds."""

    length_s: float
    size_bytes: float


def slices(pulse: Sequence[tuple[float, float]], started_at_s: float, wall_s: float) -> list[Slice]:
    """The slices that lie within a load, from the first to the last in which bytes came; `pulse`: time, counter."""
    inside = [(t, size) for t, size in pulse if started_at_s <= t <= started_at_s + wall_s]
    parts = [Slice(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(inside)]
    loud = [i for i, part in enumerate(parts) if part.size_bytes > _silence(parts) * part.length_s]
    return parts[loud[0] : loud[-1] + 1] if loud else []


def _silence(parts: Sequence[Slice]) -> float:
    """Bytes per second below which nothing was answered."""
    return _SILENT * sum(s.size_bytes for s in parts) / sum(s.length_s for s in parts)


def longest_gap_s(parts: Sequence[Slice]) -> float | None:
    """The longest time without a response, as fine as the slices; None without slices."""
    if not parts:
        return None
    longest = gap = 0.0
    for part in parts:
        gap = gap + part.length_s if part.size_bytes <= _silence(parts) * part.length_s else 0.0
        longest = max(longest, gap)
    return longest


def slower_start_pct(parts: Sequence[Slice]) -> float | None:
    """Slowness of the first third against the rest, in percent; 0 when that may be chance.

    Welch's t of the rates; None with too few slices to tell.
    """
    third = len(parts) // 3
    if third < FEWEST_SLICES // 3:
        return None
    rates = np.array([part.size_bytes / part.length_s for part in parts])
    first, rest = rates[:third], rates[third:]
    error = np.sqrt(first.var(ddof=1) / len(first) + rest.var(ddof=1) / len(rest))
    lacking = rest.mean() - first.mean()
    return float(100 * lacking / rest.mean()) if lacking > _SURE * error else 0.0
