"""Capacity trials: before the first share that needs it, a capacity is measured in whole trials of its own."""

from dataclasses import replace

from vmtoll.model.event import Phase
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import trial_name
from vmtoll.model.workload import ClosedWorkload, MailWorkload
from vmtoll.runner.capacity import Target, is_settled, of_target, targets
from vmtoll.runner.idle_guests import settle
from vmtoll.runner.session import Session, Steps
from vmtoll.runner.trial import Trial


def ensure(session: Session, steps: Steps) -> None:
    """Measure what the share of this trial is of, as far as it is not known yet. Raises VmtollError when a machine does
    not come back.
    """
    for target in targets(steps.spec, session.resolved):
        while not is_settled(of_target(target, session.store.capacities())):
            trial = _trial(session, steps, target)
            settle(session, trial.tell)
            session.store.append_capacity(trial.attempt())


def _trial(session: Session, steps: Steps, target: Target) -> Trial:
    """The next capacity trial of a target: a closed loop on the first machine alone."""
    shared = session.resolved.workloads[target.workload]
    if isinstance(shared, MailWorkload) or shared.capacity is None:
        raise TypeError(f"{target.workload} takes no shares")
    closed = ClosedWorkload(
        name=shared.name, description=shared.description, site=shared.site, tool=shared.capacity.tool, page=shared.page,
        keep_alive=shared.keep_alive, client=shared.client, cores=shared.cores, users=shared.capacity.users,
        tls=shared.tls, tls_resumption=shared.tls_resumption, http=shared.http, streams=shared.capacity.streams,
    )  # fmt: skip
    number = len(of_target(target, session.store.capacities())) + 1
    scenario = replace(steps.spec.scenario, load=Load(LoadKind.CLOSED, shared.capacity.users))
    spec = replace(steps.spec, arm=target.arm, scenario=scenario)
    told = replace(steps, spec=spec, attempt=number)
    told(Phase.CAPACITY, tool=closed.tool)
    name = f"capacity-{target.arm}-{target.server}-{target.workload}-{trial_name(spec.block, spec.order, number)}"
    return Trial(session, told, closed, name)
