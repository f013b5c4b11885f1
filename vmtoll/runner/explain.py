"""Explain where a guest's time goes: after the last block each scenario is measured again on each guest while its KVM
host traces the exits. Before the first block, a price list of exits is measured on each KVM host.
"""

import contextlib
from dataclasses import replace

from vmtoll.machines.idle_guests import settle
from vmtoll.machines.session import Session, TrialReporter
from vmtoll.model.errors import AgentError, ExperimentError
from vmtoll.model.event import Listener, NotMeasured, Phase
from vmtoll.model.exits import ExitPrice, ExplainedTrial
from vmtoll.model.inventory import Host
from vmtoll.model.trial import Accelerator, Arm, Scenario, TrialSpec
from vmtoll.runner.blocks import Blocks
from vmtoll.runner.plan import EXPLAINED_TRIALS, explained
from vmtoll.trial.traced import TracedTrial

# How many trials vmtoll makes at most to get EXPLAINED_TRIALS.
MOST_TRIALS = 5
# Wall clock of the price list; an emulated host needs the longest.
_PRICES_S = 180.0


def prepare(session: Session) -> None:
    """Check that exits can be traced on each KVM host, and measure its prices unless the run has them. Without
    `explain` only end the traces that killed agents have left, which would disturb any run. Raises ExperimentError,
    HostLostError, AgentError.
    """
    _end_traces_left(session)
    experiment, file = session.resolved.experiment, session.resolved.file
    guests = [host for name in experiment.explained for host in session.inventory.machines.get(name, ())]
    for name in experiment.explained:
        if (ran_by := session.accelerators[name]) is not Accelerator.KVM:
            raise ExperimentError(
                f"explain: {name} is not run by KVM ({ran_by.value}), and only KVM's exits can be traced; run "
                "it on a host with KVM, or leave `explain` out",
                file,
            )
    hosts = {host.name: host for guest in guests if (host := session.inventory.kvm_host(guest))}
    for host in hosts.values():
        _refuse_untraceable(session, host)
    known = session.store.exit_prices()
    for host in hosts.values():
        if host.name not in known:
            known[host.name] = _prices(session, host)
            session.store.write_exit_prices(known)


def _end_traces_left(session: Session) -> None:
    for host in session.inventory.hosts():
        if host.role == "kvm_host":
            with contextlib.suppress(AgentError):
                session.line(host).call("exits_obstacle")


def _refuse_untraceable(session: Session, host: Host) -> None:
    answer = session.line(host).call("exits_obstacle")
    if answer["why"]:
        raise ExperimentError(
            f"explain: the exits of {host.name}'s guests cannot be traced, because "
            f"{answer['why']}; {answer['way_out']}, or leave `explain` out",
            session.resolved.file,
        )


def _prices(session: Session, host: Host) -> list[ExitPrice]:
    """The price list of a KVM host; empty where KVM runs the guests, but no virtual machine of one page."""
    try:
        return [ExitPrice.model_validate(row) for row in session.line(host).call("exit_prices", _PRICES_S)]
    except AgentError:
        return []


def explain(session: Session, blocks: Blocks, tell: Listener) -> None:
    """Measure the explained trials that the run lacks. Raises VmtollError when a machine does not come back."""
    pairs = explained(session.resolved)
    for number in range(1, MOST_TRIALS + 1):
        for order, (arm, scenario) in enumerate(pairs, start=1):
            made = trials_of(session, arm, scenario)
            if len(made) < number and sum(bool(trial.exits) for trial in made) < EXPLAINED_TRIALS:
                _measure(session, TrialSpec(_last_block(session), order, arm, scenario), number, blocks, tell)
    for arm, scenario in pairs:
        made = trials_of(session, arm, scenario)
        if made and not any(trial.exits for trial in made):
            why = "; ".join(finding.detail or finding.code.value for finding in made[-1].trial.findings)
            tell(NotMeasured(f"exits of {arm} ({scenario.server}, {scenario.workload})", why or "there were none"))


def trials_of(session: Session, arm: Arm, scenario: Scenario) -> list[ExplainedTrial]:
    """The explained trials so far of a scenario on a guest."""
    return [
        each for each in session.store.explained.records if (each.trial.arm, each.trial.scenario) == (arm, scenario)
    ]


def _last_block(session: Session) -> int:
    return max((record.block for record in session.store.records()), default=1)


def _measure(session: Session, spec: TrialSpec, number: int, blocks: Blocks, tell: Listener) -> None:
    boot = max((record.boot for record in session.store.records()), default=1)
    total = blocks.scheduled
    reporter = TrialReporter(tell, replace(spec, boot=boot), number, total, total, blocks.total, left_s=0.0)
    reporter(Phase.EXPLAINING)
    settle(session, reporter)
    trial = TracedTrial(session, reporter, f"exits-{spec.name(number)}")
    session.store.explained.append(trial.explain())
