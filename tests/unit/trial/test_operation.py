"""The order in which an operation is noted, done, timed and undone. Its real twin runs in the embedded lab."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from vmtoll.loadgen import ToolResult
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.session import Machines, Session
from vmtoll.model.errors import AgentError, ToolError
from vmtoll.model.inventory import Host
from vmtoll.model.operation import MigrationFigures, Operation, OperationTimes
from vmtoll.model.transport import Transport
from vmtoll.trial.execution import Execution
from vmtoll.trial.merging import ClientPart, merge
from vmtoll.trial.operation import OperationDriver, Spell, course, log_of, noticed, planned_spell, times

DONE = {"exit_status": 0, "timed_out": False, "stdout": "", "stderr": "", "wall_s": 0.5, "started_at": 100.0}
COMMAND = Operation(of="metal", do="command", on="guest", command="sync", revert="true", at_s=2)


@dataclass
class Line:
    """An agent whose clock is ahead of ours, and that answers its operation with `done`."""

    done: Any = field(default_factory=lambda: dict(DONE))
    host: Host = field(default_factory=lambda: Host("metal", "metal", {}))
    calls: list[str] = field(default_factory=list)

    def call(self, op: str, timeout_s: float = 30.0, **args: Any) -> Any:
        if op != "ping":
            self.calls.append(f"{op} {args.get('revert', '')}".strip())
        return {"time_s": 0.0} if op == "ping" else {"ran": True}

    def ask(self, op: str, **args: Any) -> Any:
        self.calls.append(" ".join([op, *args["argv"]]))
        return self

    def wait(self, limit_s: float) -> Any:
        if isinstance(self.done, Exception):
            raise self.done
        return self.done


def driver(line: Line) -> OperationDriver:
    experiment = SimpleNamespace(during={"metal-command": COMMAND})
    session = SimpleNamespace(
        resolved=SimpleNamespace(experiment=experiment), on_host=lambda guest: None, site=SimpleNamespace(name="small"),
        content={"files": [{"path": "a.html", "sha256": "00"}]},
    )  # fmt: skip
    machines = SimpleNamespace(suts=[line], host=None)
    return OperationDriver(cast(Session, session), "metal-command", cast(Machines, machines), None)


def test_it_is_noted_before_it_is_done_and_undone_after() -> None:
    line = Line()
    operation = driver(line)
    operation.prepare()
    spell = operation.end(operation.begin())
    operation.undo()
    operation.undo()
    assert line.calls == ["apply true", "exec sh -c sync", "revert"], "undone once"
    assert spell.end_us - spell.begin_us == pytest.approx(0.5e6)
    assert spell.begin_us == pytest.approx((100 - operation.line_ahead_s) * 1e6)


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (DONE | {"exit_status": 1, "stderr": "no\nspace"}, "operation metal-command: failed: no space"),
        (DONE | {"timed_out": True}, "operation metal-command: took longer than 120 s"),
        (AgentError("the disk is full", "metal"), "operation metal-command: the disk is full"),
    ],
)
def test_an_operation_that_fails_is_undone(done: Any, said: str) -> None:
    line = Line(done)
    operation = driver(line)
    operation.prepare()
    with pytest.raises(ToolError, match=said):
        operation.end(operation.begin())
    operation.clean_up()
    assert line.calls[-2:] == ["kill", "revert"]


def test_what_is_kept_of_a_load() -> None:
    sent_us = np.arange(1000, dtype=np.int64) * 10_000 + 50_000_000
    latencies_us = np.full(1000, 2000, dtype=np.int64)
    log = log_of(ToolResult(1000, 1000, 0, 10.0, sent_us=sent_us[::-1], latencies_us=latencies_us, due_us=sent_us))
    assert np.array_equal(log.planned, sent_us)
    spell = Spell(52_000_000.0, 52_500_000.0)
    assert times(log, spell) == OperationTimes(begin_s=2.0, end_s=2.5)
    assert noticed(log, spell, 50).blackout_ms == 10
    kept = json.loads(course(log, spell, times(log, spell)))
    assert kept["operation"] == {"begin_s": 2.0, "end_s": 2.5}
    assert (kept["time_s"][0], kept["p99_us"][0], len(kept["p99_us"])) == (0.5, 2000, 10)
    with pytest.raises(ToolError, match=r"operation ended 0\.5 s .*; raise duration_s"):
        noticed(log, Spell(52_000_000.0, 60_490_000.0), 50)
    with pytest.raises(ToolError, match=r"no request .*answered"):
        log_of(ToolResult(0, 0, 5, 1.0))


def test_clients_that_begin_at_different_times_lose_nothing_by_it() -> None:
    """A request of the second one, which is a millisecond late, is sent and answered in the same window."""
    due_us = 1_700_000_000_000_000 + np.cumsum(np.random.default_rng(1).exponential(1000, 20_000)).astype(np.int64)
    clients = []
    for sent_us in (due_us[::2], due_us[1::2] + 1000):
        count, latencies_us = len(sent_us), np.full(len(sent_us), 2000)
        result = ToolResult(count, count, 0, 20.0, sent_us=sent_us, due_us=sent_us, latencies_us=latencies_us)
        clients.append(ClientPart(cast(Execution, SimpleNamespace(load=SimpleNamespace(requests=count))), result))
    log = log_of(merge(clients))
    for begin_us in log.planned[0] + np.linspace(5e6, 6e6, 11):
        assert noticed(log, Spell(begin_us, begin_us), 50).brownout_s == 0


def test_a_guest_that_does_not_answer_where_it_moved_to() -> None:
    class Client(Line):
        def call(self, op: str, timeout_s: float = 30.0, **args: Any) -> Any:
            raise AgentError(f"client: {op}: http://{args['host']}:{args['port']} does not answer", "client")

    client = cast(AgentLine, Client(host=Host("client", "client", {})))
    operation = driver(Line(host=Host("web1", "kvm_guest", {"ansible_host": "192.0.2.7"})))
    operation.refuse_unreachable(client, Transport())
    operation.operation = Operation(of="metal", do="migrate", to="big2", at_s=2)
    with pytest.raises(ToolError, match=r"web1 does not answer client on big2; .*one network \(layer 2\): client: "):
        operation.refuse_unreachable(client, Transport())


def test_what_libvirt_says_of_a_migration_is_kept_with_its_times() -> None:
    info = "Time elapsed:     5061 ms\nTotal downtime:   245 ms\n"
    line = Line(DONE | {"stdout": info})
    operation = driver(line)
    operation.operation = Operation(of="metal", do="migrate", to="big2", at_s=2)
    assert operation.has_new_process
    assert operation.is_elsewhere
    assert operation.end(operation.begin()).migration == MigrationFigures(
        total_s=5.061, downtime_ms=245, memory_mib=0, disk_mib=0
    )
    line.done = DONE | {"timed_out": True}
    with pytest.raises(
        ToolError, match="longer than 120 s; raise limit_s or bandwidth_mib_per_s, or allow auto_conver"
    ):
        operation.end(operation.begin())


def test_the_time_of_an_operation_in_loads_without_one() -> None:
    experiment = SimpleNamespace(during={"a": COMMAND.model_copy(update={"of": "kvm", "at_s": 1.0}), "b": COMMAND})
    session = cast(Session, SimpleNamespace(resolved=SimpleNamespace(experiment=experiment)))
    assert planned_spell(session, "metal", 0).begin_us == 2e6
    assert planned_spell(session, "other", 0).begin_us == 1e6
