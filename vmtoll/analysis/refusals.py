"""Reasons why the figures of a claim decide nothing, whatever their values; and notes on one that is decided."""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from vmtoll.analysis.run import Run
from vmtoll.analysis.selection import Selection, names_of
from vmtoll.model.claim import Reason, ReasonCode
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.finding import Code
from vmtoll.model.workload import listed

# Counts of messages and bodies: emulation makes them slow, not wrong.
SOUND_UNDER_EMULATION = frozenset({"messages_lost", "messages_doubled", "bodies_wrong"})
PER_RUN = frozenset({"server_cpu_user_s", "server_cpu_system_s"})  # seconds over all requests of a trial


def refusals_of(run: Run, sides: Sequence[ClaimSide], selections: Sequence[Selection], metric: str) -> Iterator[Reason]:
    """Yield the reasons why these figures decide nothing, whatever their values."""
    if any(not selection.trials for selection in selections):
        yield from _absences(run, sides, selections)
        return
    codes = {selection.emulation for selection in selections}
    emulation = next((code for code in (ReasonCode.EMULATED, ReasonCode.EMULATED_HARDWARE) if code in codes), None)
    if emulation and metric not in SOUND_UNDER_EMULATION:
        yield Reason(emulation)
    if metric in PER_RUN and len({_requests(selection) for selection in selections}) > 1:
        yield Reason(ReasonCode.DIFFERENT_REQUESTS)
    yield from _cores(run, sides, selections)
    for index, selection in enumerate(selections):
        if not selection.used:
            yield Reason(ReasonCode.NO_FIGURE, {"side": index}, (metric,), tuple(sorted(selection.refused)))
    if all(selection.used for selection in selections) and any(not selection.figures for selection in selections):
        yield Reason(ReasonCode.NO_COMPLETE_BLOCK)


def _absences(run: Run, sides: Sequence[ClaimSide], selections: Sequence[Selection]) -> Iterator[Reason]:
    skipped = run.manifest.skipped_servers
    measured = (
        {trial.scenario.server for trial in run.trials},
        {trial.arm.environment for trial in run.trials},
        {trial.scenario.workload for trial in run.trials},
    )
    for index, (side, selection) in enumerate(zip(sides, selections, strict=True)):
        if selection.trials:
            continue
        names_and_measured = zip(names_of(side), measured, strict=True)
        absent = [name for names, present in names_and_measured for name in names if name not in present]
        if skipped_names := tuple(name for name in absent if name in skipped):
            yield why_skipped(run, skipped_names)
        else:
            yield Reason(ReasonCode.NOT_MEASURED, {"side": index}, tuple(absent))


def why_skipped(run: Run, servers: tuple[str, ...]) -> Reason:
    """Reason why a run has skipped these servers: their release lacks them, or their source was not available."""
    releases = [skip.release for skip in run.manifest.skipped if skip.server in servers and skip.release]
    if releases:
        return Reason(ReasonCode.NOT_SHIPPED, names=(releases[0], *servers))
    return Reason(ReasonCode.SOURCE_NOT_AT_HAND, names=servers)


def _requests(selection: Selection) -> float:
    """The median number of responses of a trial, to two significant digits; NaN if not counted."""
    counts = [t.primary.transactions for t in selection.trials if t.primary and t.primary.transactions is not None]
    return float(f"{median(counts):.2g}") if counts else math.nan


def _cores(run: Run, sides: Sequence[ClaimSide], selections: Sequence[Selection]) -> Iterator[Reason]:
    """Yield the refusal of a claim about more cores, or more workers at once, than the machine allowed.

    If an experiment limits the cores of one workload, its other workloads are about more cores than that. Sides whose
    servers have different numbers of workers are about workers that run at the same time.
    """
    cores = [selection.cores for selection in selections]
    if not all(cores):
        return
    limits = {name: workload.cores for name, workload in run.manifest.workloads.items()}
    fewest = min((limit for limit in limits.values() if limit), default=0)
    unlimited = [any(not limits.get(workload) for workload in listed(side.workload)) for side in sides]
    if fewest and any(is_unlimited and count <= fewest for is_unlimited, count in zip(unlimited, cores, strict=True)):
        yield Reason(ReasonCode.TOO_FEW_CORES, {"about": fewest, "had": min(cores)})
        return
    workers = [max(_workers(run, server) for server in listed(side.server)) for side in sides]
    if max(cores) == 1 and len(workers) == 2 and all(workers) and workers[0] != workers[1]:
        yield Reason(ReasonCode.ONE_CORE_FOR_WORKERS)


def _workers(run: Run, server: str) -> int:
    return max((facts.server(server).workers or 0 for facts in run.hosts.values()), default=0)


def notes(run: Run, sides: Sequence[ClaimSide], selections: Sequence[Selection]) -> Iterator[Reason]:
    """Yield notes on limited figures; for a ratio also on a full link that is prescribed, and on skipped servers."""
    if limited := sum(len(selection.limited) for selection in selections):
        codes = tuple(sorted({code for selection in selections for code in selection.limits}))
        used = sum(len(selection.used) for selection in selections)
        yield Reason(ReasonCode.LIMITED, {"trials": limited, "used": used}, codes=codes)
    if len(sides) == 1:
        return
    experiment = run.manifest.experiment
    full_link_trials = sum(Code.LINK_BOUND in trial.codes for selection in selections for trial in selection.trials)
    if full_link_trials and experiment.prescribes_link:
        yield Reason(ReasonCode.FULL_LINK, {"trials": full_link_trials}, (experiment.link,))
    lacking = [
        skip.server
        for side in sides
        for skip in run.manifest.skipped
        if skip.server in listed(side.server) and skip.workload in (None, *listed(side.workload))
    ]
    if lacking:
        yield Reason(ReasonCode.WITHOUT_SERVERS, names=tuple(dict.fromkeys(filter(None, lacking))))
