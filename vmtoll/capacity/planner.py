"""Capacity planning: how many machines an objective takes, by a rate sweep or a search; how many guests may share a
host; how throughput scales.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from vmtoll.analysis.run import Run
from vmtoll.capacity import resources
from vmtoll.capacity.consolidation import Consolidation, consolidations
from vmtoll.capacity.estimate import ByEnd, End, Estimate
from vmtoll.capacity.fleet import FleetPlan, plan_fleet, watts_of_host
from vmtoll.capacity.limits import BindingLimit, binding_limit, notes
from vmtoll.capacity.notes import CapacityNote, NoteCode, note
from vmtoll.capacity.objective import Demand, Slo
from vmtoll.capacity.rate_sweep import RateSweep, UnitCapacity, rate_sweeps, unit_capacity, unseen_share
from vmtoll.capacity.scaling import Scaling, scalings
from vmtoll.model.hardware import Hardware
from vmtoll.model.message import WithText
from vmtoll.model.trial import Accelerator, ClientPlace, MachineKind, is_shape_only
from vmtoll.model.workload import Arrivals, OpenWorkload


class Assumption(WithText):
    """Assumption of a plan; ENDS explains its three values."""

    EVEN_LOAD = (
        "even-load",
        "the load is spread evenly over all machines, and each is like the one that was measured, with the same mix of"
        " requests",
    )
    EVEN_ARRIVALS = (
        "even-arrivals",
        "requests come at even intervals, as the load tools send them (a machine carries fewer random arrivals,"
        " because their queue is longer; the factor is that of a queue for its CPUs alone)",
    )
    GUEST_ALONE = (
        "guest-alone",
        "each guest was measured alone on its host: what guests on one host take from each other is not included",
    )
    ENDS = (
        "ends",
        "low, mid and high: by the unfavourable end of the 95% interval over blocks, by the estimate, by the"
        " favourable end; the recommendation uses low",
    )


@dataclass(frozen=True, kw_only=True)
class CapacityResult:
    """Capacity of one machine (or guest) of this size with one server by one rate sweep, and the plan that follows.

    `carries_rps`: see UnitCapacity.rates; `at_least`: even the highest rate is shown to meet the objective;
    `measured_rps`: the lowest and the highest rate. Measured at the low rate: `p99_ms`, `used`, `request`, `power_w`
    (of the host, by its own counters), and `available`, the share of `requests` that succeeded, in `blocks` blocks.
    `unseen_share`: if no request failed, the share of trials that may fail although none of these did. `plan`:
    by each end; None where no rate met the objective, where the guest or the hardware below was emulated, and without a
    demand.
    """

    server: str
    workload: str
    tool: str
    environment: str
    kind: MachineKind
    accelerator: Accelerator
    hardware: Hardware
    size: resources.Size
    host_cpus: int | None
    carries_rps: ByEnd[float | None]
    at_least: bool
    measured_rps: tuple[float, float]
    steps: int
    trials: int
    p99_ms: Estimate | None
    available: Estimate | None
    requests: int
    blocks: int
    unseen_share: float | None
    binds: BindingLimit
    used: resources.MachineUsage
    request: resources.RequestCost
    power_w: Estimate | None
    erlang_c: resources.ErlangBound | None
    notes: tuple[CapacityNote, ...]
    plan: ByEnd[FleetPlan | None] | None
    arrivals: Arrivals = "constant"


@dataclass(frozen=True)
class CapacityAssessment:
    """Results of a run for an objective. Without an objective only `scaling` has entries."""

    run_id: str
    slo: Slo | None
    demand: Demand | None
    results: tuple[CapacityResult, ...]
    consolidations: tuple[Consolidation, ...]
    scaling: tuple[Scaling, ...]
    assumptions: tuple[Assumption, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether the run has no results, no consolidations and no scaling."""
        return not (self.results or self.consolidations or self.scaling)


def assess_capacity(run: Run, slo: Slo | None, demand: Demand | None = None) -> CapacityAssessment:
    """Return a run's capacity for an objective, and the number of machines that a demand takes."""
    sweeps = rate_sweeps(run) if slo else []
    results = [_result(run, slo, demand, sweep) for sweep in sweeps if slo and sweep.is_alone]
    shared = consolidations(sweeps, slo) if slo else []
    assumptions = [assumption for assumption in Assumption if run.guests or assumption is not Assumption.GUEST_ALONE]
    if not results:
        assumptions = [Assumption.EVEN_ARRIVALS] if shared else []
    if sweeps and all(_arrivals(run, sweep.workload) == "poisson" for sweep in sweeps):
        assumptions = [assumption for assumption in assumptions if assumption is not Assumption.EVEN_ARRIVALS]
    return CapacityAssessment(
        run.manifest.run_id, slo, demand, tuple(results),
        consolidations=tuple(shared),
        scaling=tuple(scalings(run)),
        assumptions=tuple(assumptions),
    )  # fmt: skip


def default_slo(run: Run) -> Slo | None:
    """The objective of the run's search, or a sweep's deadline as p99 at 99.9%; the strictest of several; else None."""
    sweeps = rate_sweeps(run)
    swept = {sweep.workload for sweep in sweeps}
    deadlines = [trial.offered.deadline_ms for trial in run.trials if trial.scenario.workload in swept]
    limits = [deadline for deadline in deadlines if deadline is not None]
    availabilities = [sweep.search.availability_pct for sweep in sweeps if sweep.search]
    return Slo(min(limits), max(availabilities, default=99.9)) if limits else None


def _result(run: Run, slo: Slo, demand: Demand | None, sweep: RateSweep) -> CapacityResult:
    unit = unit_capacity(sweep.steps, slo, searched=bool(sweep.search))
    size = resources.size_of(run, sweep.arm.environment, sweep.server)
    low_step, kind = unit.low_step, sweep.kind
    bound = resources.erlang_bound(low_step.trials, size, slo)
    return CapacityResult(
        server=sweep.server, workload=sweep.workload, tool=sweep.tool,
        environment=sweep.arm.environment, kind=kind, accelerator=sweep.accelerator, hardware=sweep.hardware, size=size,
        host_cpus=resources.host_cpus(run) if kind is not MachineKind.METAL else None,
        carries_rps=unit.rates, at_least=End.LOW in unit.open_ends,
        measured_rps=(unit.steps[0].rate_rps, unit.steps[-1].rate_rps),
        steps=len(unit.steps), trials=sum(len(step.trials) for step in unit.steps),
        p99_ms=_in_ms(low_step.p99_us), available=low_step.available, requests=low_step.requests,
        blocks=low_step.blocks,
        unseen_share=unseen_share(low_step.blocks) if low_step.available and low_step.available.mid == 1 else None,
        binds=binding_limit(unit, resources.usage((unit.missed_step or low_step).trials, size), slo),
        used=resources.usage(low_step.trials, size), request=resources.request_cost(low_step.trials),
        power_w=resources.power_w(low_step.trials),
        erlang_c=bound,
        notes=(*notes(unit, slo, bound, sweep.search), *_power_notes(run, unit, demand, kind)),
        plan=_plans(unit, sweep, demand, kind) if demand else None, arrivals=_arrivals(run, sweep.workload),
    )  # fmt: skip


def _arrivals(run: Run, workload: str) -> Arrivals:
    document = run.manifest.workloads[workload]
    return document.arrivals if isinstance(document, OpenWorkload) else "constant"


def _in_ms(time_us: Estimate | None) -> Estimate | None:
    return None if time_us is None else ByEnd(*(end / 1e3 for end in time_us.all))


def _plans(unit: UnitCapacity, sweep: RateSweep, demand: Demand, kind: MachineKind) -> ByEnd[FleetPlan | None]:
    watts = watts_of_host(demand, resources.power_w(unit.low_step.trials), kind)

    def planned(end: End) -> FleetPlan | None:
        rate_rps = None if is_shape_only(sweep.accelerator, sweep.hardware) else unit.rates[end]
        return plan_fleet(rate_rps, demand, kind, watts[end]) if rate_rps else None

    return ByEnd.of(planned)


def _power_notes(run: Run, unit: UnitCapacity, demand: Demand | None, kind: MachineKind) -> Iterator[CapacityNote]:
    """Yield the notes on counted power; none if it was not counted, or if the demand gives it."""
    low_trials = unit.low_step.trials
    if resources.power_w(low_trials) is None or (demand and demand.watts is not None):
        return
    if demand and kind is not MachineKind.METAL and demand.guests_per_host > 1:
        yield note(NoteCode.SHARED_POWER_UNKNOWN, guests=demand.guests_per_host)
    if run.manifest.lab == "embedded" or (low_trials["client"] == ClientPlace.LOCALHOST).any():
        yield note(NoteCode.ENERGY_OF_CLIENT_TOO)
