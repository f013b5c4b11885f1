"""Why a claim cannot be told by a run, whatever its figures say; and what is said beside a claim that can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.evidence import Side, emulated, listed, prescribes_link
from analysis.load import Run

# What counts messages and bytes, not time: emulation makes it slow, not wrong.
TOLD_UNDER_EMULATION = frozenset({"messages_lost", "messages_doubled", "bodies_wrong"})
PER_RUN = frozenset({"server_cpu_user_s", "server_cpu_system_s"})  # seconds over all requests of a trial


def refused(run: Run, names: list[dict[str, Any]], sides: list[Side], metric: str) -> Iterator[str]:
    """Why these figures decide nothing, whatever they say."""
    skipped = {one.get("server") for one in run.meta.get("skipped") or []}
    for name, one in zip(names, sides, strict=True):
        if one.trials.empty:
            absent = _absent(run, name)
            lacking = ", ".join(server for server in absent if server in skipped)
            yield f"source of {lacking} not at hand" if lacking else f"this run did not measure {', '.join(absent)}"
    if any(one.trials.empty for one in sides):
        return
    if emulated(run, sides) and metric not in TOLD_UNDER_EMULATION:
        yield "the guest was emulated (TCG): no figure of it is a KVM figure"
    if metric in PER_RUN and len({_requests(one) for one in sides}) > 1:
        yield "seconds of CPU for different numbers of requests"
    yield from _cores(run, names, sides)
    if any(one.used == 0 for one in sides):
        for name, one in zip(names, sides, strict=True):
            if one.used == 0:
                codes = ", ".join(sorted(one.refused)) or f"no trial has {metric}"
                yield f"no usable figure of {side_words(name, names)}: {codes}"
    elif min(len(one.figures) for one in sides) == 0:
        yield "no block has a usable figure of every cell"


def _absent(run: Run, name: dict[str, Any]) -> list[str]:
    """The names of a side that no trial has; the side itself when only their combination is absent."""
    keys = ("server", "environment", "workload")
    found = [one for key in keys for one in listed(name.get(key)) if one not in set(run.trials[key])]
    return found or [side_words(name, [name])]


def _requests(one: Side) -> float:
    """Requests of a trial, to two digits."""
    return float(f"{one.trials['transactions'].median():.2g}")


def _cores(run: Run, names: list[dict[str, Any]], sides: list[Side]) -> Iterator[str]:
    """A claim about more cores, or more workers, where the server had no more of them.

    An experiment that limits the cores of one workload means more cores by its others; sides whose servers have
    different numbers of workers mean what these do side by side.
    """
    had = [max(one.cores, default=0) for one in sides]
    if not all(had):
        return
    workloads = run.meta["experiment"].get("resolved", {}).get("workloads", {})
    limits = {name: one.get("cores") for name, one in workloads.items()}
    fewest = min((n for n in limits.values() if n), default=0)
    unlimited = [any(not limits.get(w) for w in listed(one.get("workload"))) for one in names]
    if fewest and any(free and cores <= fewest for free, cores in zip(unlimited, had, strict=True)):
        yield f"it is about more than {_cores_words(fewest)}, and the machine has {_cores_words(min(had))}"
        return
    workers = [{_workers(run, server) for server in listed(one.get("server"))} - {0} for one in names]
    if max(had) == 1 and len(workers) == 2 and all(workers) and max(workers[0]) != max(workers[1]):
        yield "it is about more workers at once, and the machine has one core"


def _cores_words(n: int) -> str:
    return "one core" if n == 1 else f"{n} cores"


def _workers(run: Run, server: str) -> int:
    facts = (host.get("servers") or {} for host in run.hosts.values() if isinstance(host, dict))
    return max((int((one.get(server) or {}).get("workers") or 0) for one in facts), default=0)


def bounds(sides: list[Side]) -> Iterator[str]:
    limited = sum(one.limited for one in sides)
    if limited:
        codes = ", ".join(sorted({code for one in sides for code in one.limits}))
        yield f"in {limited} of {sum(one.used for one in sides)} trials client or link set the pace ({codes})"


def full_link(run: Run, sides: list[Side]) -> Iterator[str]:
    """The experiment's own link was full: that is part of the claim, and said."""
    full = sum("link-bound" in codes for one in sides for codes in one.trials["codes"])
    if full and prescribes_link(run):
        yield f"the link of {run.meta['experiment']['link']}, as published, was full in {full} trials"


def without(run: Run, names: list[dict[str, Any]]) -> Iterator[str]:
    """Servers of a side of several whose source was not at hand."""
    named = {server for one in names for server in listed(one.get("server"))}
    lacking = [str(one["server"]) for one in run.meta.get("skipped") or [] if one.get("server") in named]
    if lacking:
        yield f"without {', '.join(lacking)}, whose source is not at hand"


def side_words(one: dict[str, Any], all_sides: list[dict[str, Any]]) -> str:
    """What tells this side from the other: `lighttz`, or `nginx on metal, page-4k-100`."""
    keys = [key for key in ("server", "environment", "workload") if len({str(side.get(key)) for side in all_sides}) > 1]
    return ", ".join(" and ".join(listed(one.get(key))) for key in keys or ("server", "environment"))
