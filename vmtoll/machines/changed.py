"""Ask agents what vmtoll changed on their machines and has not undone, and end what a killed run left there."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from vmtoll.agent.protocol import MachineChanges
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.facts import open_all, unreachable
from vmtoll.model.errors import AgentError, HostLostError, UserError
from vmtoll.model.inventory import Host

_AT_ONCE = 16
_LIMIT_S = 180.0


def ask_all(hosts: Iterable[Host]) -> tuple[dict[str, MachineChanges], list[str]]:
    """Host → its changes, for hosts that have some; and a sentence for each machine that does not answer."""
    lines = [AgentLine(host) for host in hosts]
    try:
        silent = unreachable(lines)
        answers = dict[str, MachineChanges]()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for line, answer in zip(lines, pool.map(_ask, lines), strict=True):
                if isinstance(answer, str):
                    silent += [answer]
                elif answer:
                    answers[line.host.name] = answer
        return answers, silent
    finally:
        _close(lines)


def _ask(line: AgentLine) -> MachineChanges | str | None:
    if line.lost_because:
        return None
    try:
        answer: MachineChanges = line.call("changed", _LIMIT_S)
    except (AgentError, HostLostError) as error:
        return str(error)
    return answer


def active_units(hosts: Iterable[Host], units: Sequence[str]) -> dict[str, list[str]]:
    """Host → the units of `units` that are active on it. Raises HostLostError that names every silent machine."""
    with _open_lines(hosts) as lines, ThreadPoolExecutor(_AT_ONCE) as pool:
        units_by_line = pool.map(lambda line: line.call("running", _LIMIT_S, units=list(units)), lines)
        return {line.host.name: names for line, names in zip(lines, units_by_line, strict=True)}


def check_reachable(hosts: Iterable[Host]) -> None:
    """Connect to every machine. Raises HostLostError that names every silent machine."""
    with _open_lines(hosts):
        pass


@contextmanager
def lock_machines(hosts: Iterable[Host], owner: str) -> Iterator[list[str]]:
    """Lock machines against runs, and end what a killed run left there; yields a line for each thing that was ended.

    Raises HostLostError that names every silent machine, UserError if a run holds any of them.
    """
    with _open_lines(hosts) as lines, ThreadPoolExecutor(_AT_ONCE) as pool:
        owner = f"{owner} (PID {os.getpid()})"
        holders = list(pool.map(lambda line: line.call("lock", _LIMIT_S, owner=owner)["held_by"], lines))
        busy = [
            f"{line.host.name} by {holder}"
            for line, holder in zip(lines, holders, strict=True)
            if holder not in (None, owner)  # two names may be one machine
        ]
        if busy:
            raise UserError(f"machines are in use: {', '.join(busy)}; wait until that has ended")
        actions_by_line: list[list[str]] = list(pool.map(lambda line: line.call("end_left", _LIMIT_S), lines))
        yield [
            f"{line.host.name}: {action}"
            for line, actions in zip(lines, actions_by_line, strict=True)
            for action in actions
        ]


@contextmanager
def _open_lines(hosts: Iterable[Host]) -> Iterator[list[AgentLine]]:
    lines = [AgentLine(host) for host in hosts]
    try:
        open_all(lines)
        yield lines
    finally:
        _close(lines)


def _close(lines: Iterable[AgentLine]) -> None:
    for line in lines:
        line.close()
