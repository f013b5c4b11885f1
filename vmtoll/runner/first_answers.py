"""Starts in each block, in random order: from nothing, or a guest's saved or paused state, to the first answer."""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime

from vmtoll.agent.protocol import Done
from vmtoll.hypervisors.starts import start_commands
from vmtoll.machines.boots import wait_until_resting
from vmtoll.machines.idle_guests import guests_beside, pause_only
from vmtoll.machines.recovery import restore
from vmtoll.machines.session import Session
from vmtoll.model.errors import AgentError, ExperimentError, HostLostError, ToolError
from vmtoll.model.event import Listener, StartFailed, Starting
from vmtoll.model.first_answer import GuestStart, StartRecord
from vmtoll.model.inventory import Host
from vmtoll.runner.plan import Start, starts_of
from vmtoll.trial.first_answer import SandboxTrial, StartTrial, asked


def check_starts(session: Session) -> None:
    """Raise ExperimentError for a guest that cannot be started in the ways that the experiment wants; AgentError,
    HostLostError.
    """
    experiment, inventory = session.resolved.experiment, session.inventory
    ways = [way for way in experiment.first_answer.of if way != "start"] if experiment.first_answer else []
    started = [guest for name in experiment.started for guest in inventory.machines.get(name, ())]
    for guest in (guest for guest in started if not guest.runtime):
        if on_host := session.on_host(guest):
            try:
                for way in ways:
                    start_commands(way, on_host)
            except AgentError as error:
                raise ExperimentError(f"first_answer: {error}", session.resolved.file) from None
        if "boot" in ways:
            _refuse_without_systemd(session, guest)


def _refuse_without_systemd(session: Session, guest: Host) -> None:
    argv = ["test", "-d", "/run/systemd/system"]
    done: Done = session.line(guest).call("exec", 60, argv=argv, limit_s=30)
    if done["exit_status"]:
        raise ExperimentError(
            f"first_answer: {guest.name} does not boot by systemd, which starts the server "
            "and tells the parts of a boot; leave `boot` out",
            session.resolved.file,
        )


def measure_starts(session: Session, block: int, tell: Listener) -> None:
    """Measure the starts that a block lacks. Raises VmtollError when a machine does not come back."""
    done = {record.key for record in session.store.starts.records}
    for order, start in enumerate(starts_of(session.resolved, session.order_seed, block), start=1):
        if (block, *start) not in done:
            _measure(session, block, order, start, tell)


def _measure(session: Session, block: int, order: int, start: Start, tell: Listener) -> None:
    guests = session.inventory.machines[start.environment][: start.at_once]
    pause_only(session, guests_beside(session, guests), tell)
    tell(Starting(start.way, start.environment, start.at_once, block))
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    figures, failure = _figures(session, guests, start, tell)
    session.store.starts.append(
        StartRecord(
            block=block, order=order, environment=start.environment,
            accelerator=session.accelerators[start.environment], server=start.server, way=start.way,
            at_once=start.at_once, started_at=started_at, guests=figures, failure=failure,
        )
    )  # fmt: skip
    if failure:
        tell(StartFailed(start.way, start.environment, failure))
    wait_until_resting(session, guests)


def _figures(
    session: Session, guests: Sequence[Host], start: Start, tell: Listener
) -> tuple[tuple[GuestStart, ...], str]:
    """The figures of each guest, or why there are none."""
    trial: StartTrial | SandboxTrial
    if start.way == "start":
        trial = SandboxTrial(session, guests[0], start.server)
    else:
        trial = StartTrial(session, guests, start.server, start.way)
    try:
        figures = trial.measure()
    except (AgentError, HostLostError, ToolError) as error:
        trial.clean_up()
        restore(session, tell)
        return (), str(error)
    except BaseException:
        with contextlib.suppress(AgentError, HostLostError):
            trial.make_run()
        raise
    silent = [each.guest for each in figures if each.answer_s is None]
    return figures, f"no answer of {', '.join(silent)} within {asked(session).limit_s:g} s" if silent else ""
