"""Capacity trials: before the first trial whose load is a share of it, a capacity is measured in its own trials."""

from dataclasses import replace

from vmtoll.machines.idle_guests import settle
from vmtoll.machines.session import Session, TrialReporter
from vmtoll.model.event import Phase
from vmtoll.model.trial import trial_name
from vmtoll.model.workload import ClosedWorkload, MailWorkload, WebWorkload, Workload
from vmtoll.trial.capacity import Target, is_settled, targets, trials_of
from vmtoll.trial.trial import Trial

# Keys of web workloads that a capacity sets itself or does not have; it inherits all others.
_NOT_INHERITED = {"tool", "crosscheck"}


def ensure_capacities(session: Session, reporter: TrialReporter) -> None:
    """Measure the capacities that this trial's share refers to, unless they are known. Raises VmtollError when a
    machine does not come back.
    """
    for target in targets(reporter.spec, session.resolved):
        while not is_settled(trials_of(target, session.store.capacities.records), reporter.spec.block):
            trial = _next_trial(session, reporter, target)
            settle(session, trial.tell)
            session.store.capacities.append(trial.attempt())


def _next_trial(session: Session, reporter: TrialReporter, target: Target) -> Trial:
    """The next capacity trial of a target: a closed loop on the first machine alone."""
    workload = closed_loop(session.resolved.workloads[target.workload])
    number = len(trials_of(target, session.store.capacities.records)) + 1
    scenario = replace(reporter.spec.scenario, load=workload.loads[0])
    spec = replace(reporter.spec, arm=target.arm, scenario=scenario)
    attempt_reporter = replace(reporter, spec=spec, attempt=number)
    attempt_reporter(Phase.CAPACITY, tool=workload.tool)
    name = f"capacity-{target.arm}-{target.server}-{target.workload}-{trial_name(spec.block, spec.order, number)}"
    return Trial(session, attempt_reporter, workload, name)


def closed_loop(workload: Workload) -> ClosedWorkload:
    """The closed loop of a workload's `capacity`: the same requests, sent by the capacity's users.

    Raises TypeError for a workload without `capacity`.
    """
    if isinstance(workload, MailWorkload) or workload.capacity is None:
        raise TypeError(f"{workload.name} takes no shares")
    requests = workload.model_dump(include=set(WebWorkload.model_fields) - _NOT_INHERITED)
    return ClosedWorkload(**requests, **workload.capacity.model_dump())
