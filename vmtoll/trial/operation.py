"""An arm's operation: done in the middle of its measured load, timed, and undone after it."""

import contextlib
import json
import time
from dataclasses import dataclass

import numpy as np

from vmtoll.agent.protocol import Done
from vmtoll.hypervisors.migration import migration_figures
from vmtoll.hypervisors.operations import script
from vmtoll.hypervisors.scripts import Script
from vmtoll.loadgen import ToolResult
from vmtoll.machines.changes import REVERT_S
from vmtoll.machines.clock import clock_offset
from vmtoll.machines.connection import AgentLine, Pending
from vmtoll.machines.idle_guests import BEHIND_S
from vmtoll.machines.session import Machines, Session
from vmtoll.model.errors import AgentError, HostLostError, ToolError
from vmtoll.model.finding import Code
from vmtoll.model.operation import MigrationFigures, Operation, OperationTimes
from vmtoll.model.transport import Transport
from vmtoll.trial.disruption import Disruption, Log, disruption, windows

# What an operation does to a guest, and what the machines spend on it: its effect, and no fault of the trial.
EXPECTED = frozenset({
    Code.STALLED, Code.MEAN_OVER_P99, Code.FAILED_REQUESTS, Code.HOST_BACKGROUND_CPU, Code.STEAL, Code.CLOCK_STEPPED,
    Code.RETRANSMITS, Code.LISTEN_DROPS, Code.WARMUP_DRIFT,
})  # fmt: skip
_TRAVEL_S = 15.0
_LOOKS = 3
# How long a guest that has moved may take to answer a client.
_ANSWER_S = 10.0


@dataclass(frozen=True)
class Spell:
    """When an operation began and ended, in µs since the epoch on the clock of the sends; what libvirt says of a live
    migration.
    """

    begin_us: float
    end_us: float
    migration: MigrationFigures | None = None


class OperationDriver:
    """Does the operation of an arm. `line`: the machine that its commands run on."""

    def __init__(self, session: Session, environment: str, machines: Machines, client: AgentLine | None) -> None:
        """`client`: whose clock the sends are on; None: ours."""
        self.session, self.environment, self.client = session, environment, client
        self.operation: Operation = session.resolved.experiment.during[environment]
        self.sut = machines.suts[0]
        self.line = machines.host if self.operation.on == "kvm_host" and machines.host else self.sut
        self.script, self.guest = Script(""), ""
        self.client_ahead_s = self.line_ahead_s = self.sut_ahead_s = 0.0
        self.is_prepared = self.is_suspended = False

    @property
    def has_new_process(self) -> bool:
        """Whether another process runs the guest after it."""
        return self.operation.do in ("save", "migrate")

    @property
    def is_elsewhere(self) -> bool:
        """Whether the guest is on another host after it, until it is undone."""
        return self.operation.do == "migrate"

    def prepare(self) -> None:
        """Note on the machine how the operation is undone, and compare the clocks. Raises AgentError, HostLostError."""
        guest = self.session.on_host(self.sut.host)
        if self.line is self.sut or guest is None:
            self.script = Script(self.operation.command, self.operation.revert)
        else:
            target = self.session.lines[self.operation.to] if self.operation.to else None
            self.script, self.guest = script(self.operation, guest, target), self.sut.host.name
        if self.script.undo:
            self.line.call(
                "apply", 2 * max(self.operation.limit_s, REVERT_S) + _TRAVEL_S, name=self.environment,
                apply=self.script.prepare, revert=self.script.undo, limit_s=self.operation.limit_s, guest=self.guest,
            )  # fmt: skip
            self.is_prepared = True
        self.client_ahead_s = clock_offset(self.client, _LOOKS).ahead_s if self.client else 0.0
        self.line_ahead_s = clock_offset(self.line, _LOOKS).ahead_s
        self.sut_ahead_s = clock_offset(self.sut, _LOOKS).ahead_s

    def begin(self) -> Pending:
        """Ask the machine to do it `at_s` after now, when the load begins. Raises HostLostError."""
        pending = self.line.ask(
            "exec", argv=["sh", "-c", self.script.run], limit_s=self.operation.limit_s, env={"LC_ALL": "C"},
            start_at_s=time.time() + self.operation.at_s + self.line_ahead_s,
        )  # fmt: skip
        if self.line is not self.sut:
            self.sut.suspend()
            self.is_suspended = True
        return pending

    def end(self, pending: Pending) -> Spell:
        """Wait for its end. Raises ToolError when it failed, HostLostError."""
        try:
            done: Done = pending.wait(self.operation.limit_s + self.operation.at_s + _TRAVEL_S)
        except AgentError as error:
            raise ToolError(f"operation {self.environment}: {error}", error.machine) from error
        finally:
            self.release()
        if done["timed_out"] or done["exit_status"]:
            words = " ".join((done["stderr"] or done["stdout"]).split())[:300]
            why = f"took longer than {self.operation.limit_s:g} s" if done["timed_out"] else f"failed: {words}"
            if done["timed_out"] and self.operation.do == "migrate":
                why += "; raise limit_s or bandwidth_mib_per_s, or allow auto_converge"
            raise ToolError(f"operation {self.environment}: {why}", self.line.host.name)
        begin_s = done["started_at"] - self.line_ahead_s + self.client_ahead_s
        migration = migration_figures(done["stdout"]) if self.operation.do == "migrate" else None
        return Spell(begin_s * 1e6, (begin_s + done["wall_s"]) * 1e6, migration)

    def refuse_unreachable(self, client: AgentLine, transport: Transport) -> None:
        """Raise ToolError for a guest that does not answer its client on the host that it moved to; HostLostError."""
        if not self.is_elsewhere:
            return
        host, file = self.sut.host, self.session.content["files"][0]
        address = {"host": host.seen_from(client.host), "port": transport.port(host.port), "tls": transport.tls}
        files = [{"path": f"{self.session.site.name}/{file['path']}", "sha256": file["sha256"]}]
        try:
            client.call("http_check", 2 * _TRAVEL_S + _ANSWER_S, **address, files=files, limit_s=_ANSWER_S)
        except AgentError as error:
            raise ToolError(
                f"operation {self.environment}: {host.name} does not answer {client.host.name} on {self.operation.to}; "
                f"its address stays the same, so both hosts must put it into one network (layer 2): {error}",
                self.operation.to,
            ) from error

    def undo(self) -> None:
        """Make the machine what it was before, with its clock. Raises AgentError, HostLostError."""
        self.release()
        if self.is_prepared:
            self.line.call("revert", REVERT_S, guest=self.guest)
            self.is_prepared = False
        behind_s = self.sut_ahead_s - clock_offset(self.sut, _LOOKS).ahead_s
        if self.guest and abs(behind_s) > BEHIND_S:
            self.sut.call("shift_clock", by_s=behind_s)

    def clean_up(self) -> None:
        """End it and undo it after a failure. Raises AgentError, HostLostError."""
        with contextlib.suppress(AgentError, HostLostError):
            self.line.call("kill", _TRAVEL_S)
        self.undo()

    def release(self) -> None:
        """Let the line to the guest go on, which stood still as the guest may."""
        if self.is_suspended:
            self.is_suspended = False
            self.sut.resume()


def planned_spell(session: Session, environment: str, first_us: float) -> Spell:
    """When the operation would happen in a load without it: of the same machine, else the experiment's first."""
    experiment = session.resolved.experiment
    of_machine = [each for each in experiment.during.values() if each.of == environment]
    begin_us = first_us + (of_machine or list(experiment.during.values()))[0].at_s * 1e6
    return Spell(begin_us, begin_us)


def log_of(result: ToolResult) -> Log:
    """The requests of an open loop. Raises ToolError for a tool that does not log them, and where none was answered."""
    if result.sent_us is None or result.latencies_us is None or result.due_us is None or not len(result.sent_us):
        raise ToolError("no request was answered, or the tool does not log when they were")
    order = np.argsort(result.sent_us, kind="stable")
    return Log(np.sort(result.due_us), result.sent_us[order], result.latencies_us[order])


def noticed(log: Log, spell: Spell, deadline_ms: float) -> Disruption:
    """What the clients noticed. Raises ToolError for an operation that ended after the last request."""
    beyond_s = (spell.end_us - float(log.planned[-1])) / 1e6
    if beyond_s > 0:
        raise ToolError(f"the operation ended {beyond_s:.1f} s after the last request was due; raise duration_s")
    return disruption(log, spell.begin_us, spell.end_us, deadline_ms * 1000)


def times(log: Log, spell: Spell, *, is_over: bool = True) -> OperationTimes:
    """The operation on the load's own clock."""
    first_us = float(log.planned[0])
    begin_s, end_s = (spell.begin_us - first_us) / 1e6, (spell.end_us - first_us) / 1e6
    return OperationTimes(begin_s=begin_s, end_s=end_s, migration=spell.migration, is_over=is_over)


def course(log: Log, spell: Spell, done: OperationTimes | None) -> bytes:
    """JSON: each window's p99 response time in µs, null without an answer, by its middle in s from the first request;
    `done`: when the operation was, null for a load without it.
    """
    all_windows, length_us = windows(log, spell.begin_us), log.window_us
    document = {
        "operation": {"begin_s": done.begin_s, "end_s": done.end_s} if done else None,
        "window_s": length_us / 1e6,
        "time_s": np.round((all_windows.begins + length_us / 2 - log.planned[0]) / 1e6, 4).tolist(),
        "p99_us": [None if np.isnan(p99_us) else p99_us for p99_us in all_windows.p99.tolist()],
    }
    return json.dumps(document).encode() + b"\n"
