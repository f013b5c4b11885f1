"""One start: guests are shut down, saved or paused, started at once, and asked until each has answered."""

import contextlib
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vmtoll import hypervisors
from vmtoll.agent.protocol import Done, Probed, StartedSandbox
from vmtoll.hypervisors.starts import StartCommands, start_commands
from vmtoll.machines.boots import end_guest
from vmtoll.machines.changes import REVERT_S
from vmtoll.machines.clock import Offset, clock_offset, uptime_offset
from vmtoll.machines.connection import AgentLine, Pending
from vmtoll.machines.idle_guests import BEHIND_S
from vmtoll.machines.recovery import reopen, take
from vmtoll.machines.session import Session
from vmtoll.model.errors import AgentError, HostLostError, ToolError
from vmtoll.model.first_answer import FirstAnswer, GuestStart, UnitWait, Way
from vmtoll.model.inventory import Host
from vmtoll.trial.boot_parts import parts_of, show_command, waits_of

NAME = "first-answer"  # of the notes on guests and hosts
_LIMIT_S = 180.0
_TRAVEL_S = 30.0
_LOOKS = 3
# Between the first request and the start, so that requests are under way.
_LEAD_S = 1.0
_UNITS = "/etc/systemd/system"
_KEEPER = "vmtoll-first-answer.service"
_WANTS, _TMPFILES = f"multi-user.target.wants/{_KEEPER}", "/etc/tmpfiles.d/vmtoll-first-answer.conf"
# How long the server runs after a boot that nobody looks at any more.
_ALONE_S = 900


def enable_command(unit: str) -> str:
    """Shell command that lets a server start with its machine's next boot, and with no other: systemd-tmpfiles removes
    in that boot what this command writes. The server ends by itself if nobody ends it.
    """
    lines = (
        "[Unit]", "Description=vmtoll: ends the server of a measured boot", f"Wants={unit}", f"After={unit}",
        "[Service]", f"ExecStart=/bin/sleep {_ALONE_S}", f"ExecStopPost=/bin/systemctl --no-block stop {unit}",
    )  # fmt: skip
    files = (f"{_UNITS}/{_KEEPER}", f"{_UNITS}/{_WANTS}", _TMPFILES)
    text = shlex.join(lines)
    return (
        f"set -e; mkdir -p {_UNITS}/multi-user.target.wants /etc/tmpfiles.d; "
        f"printf '%s\\n' {text} >{_UNITS}/{_KEEPER}; "
        f"printf 'r! %s\\n' {' '.join(files)} >{_TMPFILES}; ln -sf ../{_KEEPER} {_UNITS}/{_WANTS}; sync"
    )


def disable_command(unit: str) -> str:
    """Shell command that undoes `enable_command`, before and after the boot."""
    files = f"{_UNITS}/{_KEEPER} {_UNITS}/{_WANTS} {_TMPFILES}"
    return f"rm -f {files}; systemctl stop {_KEEPER} {unit}; systemctl daemon-reload"


@dataclass
class _Started:
    """A guest of a start."""

    line: AgentLine
    host: AgentLine
    on_host: hypervisors.Guest
    commands: StartCommands
    ahead_s: float  # of its clock before
    is_left: bool = False  # it was told to leave its running state

    @property
    def guest(self) -> Host:
        return self.line.host


class StartTrial:
    """`measure` starts the guests and looks; they run afterwards, without the server. Else `clean_up`."""

    def __init__(self, session: Session, guests: Sequence[Host], server: str, way: Way) -> None:
        self.session, self.hosts, self.server, self.way = session, guests, server, way
        self.client = session.client
        self.guests: list[_Started] = []

    @property
    def unit(self) -> str:
        """The server's unit on the guests."""
        return f"vmtoll-{self.server}.service"

    def measure(self) -> tuple[GuestStart, ...]:
        """Start the guests. Raises AgentError, HostLostError, ToolError."""
        self._note()
        self._shut_down() if self.way == "boot" else self._put_aside()
        begun = self._start()
        return tuple(self._figures(started, *figures) for started, figures in zip(self.guests, begun, strict=True))

    def _note(self) -> None:
        """Note on each KVM host how its guests are made to run, which its agent does when the runner is gone."""
        for guest in self.hosts:
            kvm_host, on_host = self.session.inventory.kvm_host(guest), self.session.on_host(guest)
            if kvm_host is None or on_host is None:
                raise AgentError(f"{guest.name}: its KVM host is not known", guest.name)
            line, host = self.session.line(guest), self.session.line(kvm_host)
            commands = start_commands(self.way, on_host)
            started = _Started(line, host, on_host, commands, clock_offset(line, _LOOKS).ahead_s)
            host.call(
                "apply", 2 * REVERT_S + _TRAVEL_S, name=NAME, apply="", revert=commands.undo, limit_s=_LIMIT_S,
                guest=guest.name,
            )  # fmt: skip
            self.guests.append(started)

    def _shut_down(self) -> None:
        """Let the server start with the next boot, and shut the guests down. Raises AgentError, HostLostError."""
        commands = {"apply": enable_command(self.unit), "revert": disable_command(self.unit)}
        for started in self.guests:
            started.line.call("apply", 2 * REVERT_S + _TRAVEL_S, name=NAME, limit_s=_LIMIT_S, **commands)
            started.line.call("keep_change")
        for started in self.guests:
            started.is_left = True
            with contextlib.suppress(HostLostError):
                argv = ["systemctl", "poweroff", "--no-block"]
                started.line.call("exec", _LIMIT_S, argv=argv, limit_s=_LIMIT_S)
        for started in self.guests:
            end_guest(started.on_host)
            started.line.give_up("vmtoll shut it down")

    def _put_aside(self) -> None:
        """Start the server, then save or pause the guests. Raises AgentError, HostLostError, ToolError."""
        _wait([started.line.ask("server_start", name=self.server) for started in self.guests])
        for started in self.guests:
            started.line.suspend()
            started.is_left = True
        for started in self.guests:
            done: Done = started.host.call(
                "exec", _LIMIT_S + _TRAVEL_S, argv=["sh", "-c", started.commands.leave], limit_s=_LIMIT_S
            )
            _check(done, started)

    def _start(self) -> list[tuple[Done, Probed, float]]:
        """Start all guests at one time, with a prober for each; for each of them the command, what the prober saw, and
        when it began to count, on our clock. Raises AgentError, HostLostError, ToolError.
        """
        key = asked(self.session)
        limit_s = key.limit_s
        ahead = [clock_offset(started.host, _LOOKS).ahead_s for started in self.guests]
        probes = [_probe(self.session, started.guest, key) for started in self.guests]
        start_at_s = time.time() + _LEAD_S
        commands = [
            started.host.ask(
                "exec", argv=started.commands.start, limit_s=limit_s, env={"LC_ALL": "C"},
                start_at_s=start_at_s + ahead_s,
            )
            for started, ahead_s in zip(self.guests, ahead, strict=True)
        ]  # fmt: skip
        dones: list[Done] = _wait(commands, limit_s)
        for done, started in zip(dones, self.guests, strict=True):
            _check(done, started)
        seen: list[Probed] = _wait(probes, limit_s)
        return [
            (done, probed, done["started_at"] - ahead_s)
            for done, probed, ahead_s in zip(dones, seen, ahead, strict=True)
        ]

    def _figures(self, started: _Started, done: Done, probed: Probed, began_s: float) -> GuestStart:
        """The figures of a guest, which is as it was afterwards. Raises AgentError, HostLostError, ToolError."""
        client = clock_offset(self.client, _LOOKS)
        error_s = client.error_s + clock_offset(started.host, _LOOKS).error_s

        answer_s, network_s = (_since(probed[at], client.ahead_s, began_s) for at in ("answered_at", "reached_at"))
        if answer_s is not None and answer_s < -error_s:
            raise ToolError(f"{started.guest.name} answered before it was started", started.guest.name)
        parts, waits = dict[str, float](), tuple[UnitWait, ...]()
        if self.way == "boot":
            offset, manager, units = self._boot_of(started)
            error_s += offset.error_s
            if answer_s is not None and network_s is not None:
                with contextlib.suppress(ValueError):
                    parts = parts_of(manager, units, self.unit, -offset.ahead_s - began_s, network_s, answer_s)
                waits = waits_of(units, self.unit)
        elif answer_s is not None:
            command_s = min(done["wall_s"], answer_s)
            parts = {"hypervisor": command_s, "guest": answer_s - command_s}
        self._end(started)
        return GuestStart(
            guest=started.guest.name, answer_s=answer_s, network_s=network_s,
            command_s=done["wall_s"], parts=parts, waits=waits, error_s=error_s, gap_s=probed["gap_s"],
        )  # fmt: skip

    def _boot_of(self, started: _Started) -> tuple[Offset, str, str]:
        """When the guest's kernel began, and what its systemd says of the boot. Raises AgentError, HostLostError."""
        reopen(self.session, started.line)
        texts = []
        for argv in (show_command(), show_command("*")):
            done: Done = started.line.call("exec", _LIMIT_S + _TRAVEL_S, argv=argv, limit_s=_LIMIT_S)
            texts.append(_check(done, started)["stdout"])
        return uptime_offset(started.line, _LOOKS), texts[0], texts[1]

    def _end(self, started: _Started) -> None:
        """Stop the server, set the clock, and forget the notes. Raises AgentError, HostLostError."""
        if self.way == "boot":
            take(self.session, started.guest)
            started.line.call("revert", REVERT_S)
            machine = started.guest.name
            self.session.fully_checked -= {each for each in self.session.fully_checked if each[0] == machine}
        else:
            started.line.resume()
            behind_s = started.ahead_s - clock_offset(started.line, _LOOKS).ahead_s
            if abs(behind_s) > BEHIND_S:
                started.line.call("shift_clock", by_s=behind_s)
            started.line.call("server_stop", _LIMIT_S, name=self.server)
        started.is_left = False
        started.host.call("revert", REVERT_S, guest=started.guest.name)

    def clean_up(self) -> None:
        """Make all guests what they were, after a failure. Raises AgentError, HostLostError."""
        self.make_run()
        for started in self.guests:
            with contextlib.suppress(AgentError, HostLostError):
                if self.way == "boot":
                    reopen(self.session, started.line)
                    take(self.session, started.guest)
                    started.line.call("revert", REVERT_S)
                else:
                    started.line.call("server_stop", _LIMIT_S, name=self.server)

    def make_run(self) -> None:
        """Make all guests run, wherever the start ended. Raises AgentError, HostLostError."""
        with contextlib.suppress(AgentError, HostLostError):
            self.client.call("probe_stop")
        for started in self.guests:
            with contextlib.suppress(AgentError, HostLostError):
                started.host.call("kill")
        for started in self.guests:
            started.host.call("revert", REVERT_S, guest=started.guest.name)
            if started.is_left and self.way != "boot":
                started.line.resume()


class SandboxTrial:
    """`measure` starts a server in its container runtime, or as a process, looks, and ends it. Else `clean_up`."""

    def __init__(self, session: Session, host: Host, server: str) -> None:
        self.session, self.server, self.line = session, server, session.line(host)

    def measure(self) -> tuple[GuestStart, ...]:
        """Start the server. Raises AgentError, HostLostError."""
        key, clock = asked(self.session), clock_offset(self.line, _LOOKS)
        probe = _probe(self.session, self.line.host, key)
        start_at_s = time.time() + _LEAD_S + clock.ahead_s
        started: StartedSandbox = self.line.call(
            "sandbox_start", key.limit_s + _TRAVEL_S, name=self.server, start_at_s=start_at_s, limit_s=key.limit_s
        )
        probed: Probed = probe.wait(key.limit_s + _LEAD_S + _TRAVEL_S)
        client, began_s = clock_offset(self.session.client, _LOOKS), started["started_at"]
        ahead_s = client.ahead_s - clock.ahead_s
        answer_s, network_s = (_since(probed[at], ahead_s, began_s) for at in ("answered_at", "reached_at"))
        calls = started["calls"]
        since_start = None if calls is None else [(begin - began_s, end - began_s) for begin, end in calls]
        self.clean_up()
        return (
            GuestStart(
                guest=self.line.host.name, answer_s=answer_s, network_s=network_s, command_s=started["wall_s"],
                parts=runtime_parts(since_start, answer_s), error_s=clock.error_s + client.error_s,
                gap_s=probed["gap_s"],
            ),
        )  # fmt: skip

    def clean_up(self) -> None:
        """End the server, and the client's probe, wherever the start ended. Raises AgentError, HostLostError."""
        with contextlib.suppress(AgentError, HostLostError):
            self.session.client.call("probe_stop")
        self.line.call("server_stop", _LIMIT_S, name=self.server)

    make_run = clean_up


def asked(session: Session) -> FirstAnswer:
    """What the experiment says of starts. Raises RuntimeError in an experiment without them."""
    if (key := session.resolved.experiment.first_answer) is None:
        raise RuntimeError("the experiment has no `first_answer`")
    return key


def _since(time_s: float | None, ahead_s: float, began_s: float) -> float | None:
    """Seconds from `began_s` to a time of a clock that is `ahead_s`."""
    return None if time_s is None else time_s - ahead_s - began_s


def runtime_parts(calls: Sequence[tuple[float, float]] | None, answer_s: float | None) -> dict[str, float]:
    """The parts of a start up to its answer, in s; together `answer_s`. `calls`: begin and end of each call of the
    runtime by its engine, in s from the start; none of a plain process. Empty where calls or answer are not known.
    """
    if calls is None or answer_s is None:
        return {}
    ended_s = min(answer_s, max((end for _, end in calls), default=0.0))
    runtime_s = sum(max(0.0, min(end, answer_s) - begin) for begin, end in calls)
    parts = {"engine": ended_s - runtime_s, "runtime": runtime_s} if calls else {}
    return {**parts, "server": answer_s - ended_s}


def _probe(session: Session, host: Host, key: FirstAnswer) -> Pending:
    """Requests of the client for the smallest page, from before the start."""
    files, client = session.content["files"], session.client
    page = min(files, key=lambda file: (file["size_bytes"], file["path"]))["path"]
    return client.ask(
        "probe", host=host.seen_from(client.host), port=host.port, path=f"/{session.site.name}/{page}",
        every_s=key.every_ms / 1000, limit_s=key.limit_s + _LEAD_S,
    )  # fmt: skip


def _wait(pending: Sequence[Pending], limit_s: float = _LIMIT_S) -> list[Any]:
    return [each.wait(limit_s + _TRAVEL_S) for each in pending]


def _check(done: Done, started: _Started) -> Done:
    """The command that ended well. Raises ToolError for another one."""
    if done["timed_out"] or done["exit_status"]:
        words = " ".join((done["stderr"] or done["stdout"]).split())[:300]
        raise ToolError(f"{started.guest.name}: {'no end in time' if done['timed_out'] else words}", started.guest.name)
    return done
