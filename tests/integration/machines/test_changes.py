"""A change of this machine as an arm: real agents, tools and a real lighttz; what is left after a kill."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.measured import run
from tests.support.records import records_of
from vmtoll.agent.applied import NOTE
from vmtoll.analysis.equality import FactStatus, equality
from vmtoll.analysis.run import load_run
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError, ExperimentError
from vmtoll.model.event import Event, NotReverted, TrialEnded
from vmtoll.model.finding import Code
from vmtoll.model.inventory import Host
from vmtoll.spec.catalog import Registry

Rewrite = Callable[..., Path]


@contextmanager
def agent(root: Path) -> Iterator[AgentLine]:
    line = AgentLine(Host("here", "metal", {"ansible_connection": "local", "vmtoll_root": str(root)}))
    line.open()
    try:
        yield line
    finally:
        line.close()


def change(log: Path, name: str = "changed", **keys: Any) -> dict[str, Any]:
    """Arguments of `apply` and `revert` that each write a line."""
    return {
        "name": name, "apply": f"echo apply {name} >>{log}", "revert": f"echo revert >>{log}", "limit_s": 10.0, **keys,
    }  # fmt: skip


def lines_of(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_changes_with_one_way_back_replace_each_other(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with agent(tmp_path) as line:
        assert line.call("apply", **change(log, "one")) == {"ran": True}
        assert line.call("apply", **change(log, "one")) == {"ran": False}
        line.call("apply", **change(log, "two"))
        line.call("apply", **change(log, "three", revert=f"echo another way >>{log}"))
        assert line.call("revert")["ran"] is True
        assert line.call("revert")["ran"] is False
    assert lines_of(log) == ["apply one", "apply two", "revert", "apply three", "another way"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_change_is_reverted_after_a_kill(tmp_path: Path, number: signal.Signals) -> None:
    """By the agent itself where it can, else by the next one, from the note on the disk."""
    log = tmp_path / "log"
    with agent(tmp_path) as line:
        line.call("apply", **change(log))
        os.kill(line.call("hello", root=str(tmp_path))["pid"], number)
    is_done = number is signal.SIGTERM
    assert lines_of(log) == ["apply changed", *["revert"] * is_done]
    assert (tmp_path / NOTE).exists() is not is_done
    with agent(tmp_path) as line:
        assert line.call("revert")["ran"] is not is_done
    assert lines_of(log) == ["apply changed", "revert"]


def test_changes_of_two_guests_of_a_host_are_apart(tmp_path: Path) -> None:
    """Two runs measure them at once: the end of one leaves the other's change alone."""
    log = tmp_path / "log"
    with agent(tmp_path) as first:
        first.call("apply", **change(log, "one", revert=f"echo one back >>{log}"), guest="web 1")
        with agent(tmp_path) as second:
            second.call("apply", **change(log, "two", revert=f"echo two back >>{log}"), guest="../2")
        assert lines_of(log) == ["apply one", "apply two", "two back"]
        assert first.call("revert", guest="web 1") == {"ran": True, "boots": False}
    assert lines_of(log)[-1] == "one back"
    assert not list((tmp_path / NOTE).parent.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_change_that_its_machine_had_booted_with_is_reverted_with_a_boot(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The agent that ends reverts the definition alone, so the next run has to boot the machine, once."""
    log = tmp_path / "log"
    with agent(tmp_path) as line:
        line.call("apply", **change(log), boots=True, guest="web1")
        os.kill(line.call("hello", root=str(tmp_path))["pid"], number)
    with agent(tmp_path) as line:
        assert line.call("revert", guest="web1") == {"ran": True, "boots": True}
        assert line.call("revert", guest="web1") == {"ran": False, "boots": False}
    assert lines_of(log) == ["apply changed", "revert"]


HALT_POLL, SOMAXCONN = "sys/module/kvm/parameters/halt_poll_ns", "proc/sys/net/core/somaxconn"
SETTINGS: dict[str, Any] = {"settings": {"halt_poll_ns": 0}, "sysctls": {"net.core.somaxconn": "64"}}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine's folder with two values of its kernel."""
    for name, text in {HALT_POLL: "200000\n", SOMAXCONN: "4096\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def values_of(machine: Path) -> list[str]:
    return [(machine / name).read_text().strip() for name in (HALT_POLL, SOMAXCONN)]


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGKILL])
def test_settings_are_set_and_restored(machine: Path, number: signal.Signals | None) -> None:
    """Also by the next agent, after a kill that leaves no time to restore them."""
    with agent(machine) as line:
        keys = change(machine / "log", apply="", revert="") | SETTINGS
        assert line.call("apply", **keys) == {"ran": True}
        assert values_of(machine) == ["0", "64"]
        line.call("apply", **change(machine / "log", "other"), settings={"halt_poll_ns": 50})
        assert values_of(machine) == ["50", "4096"]
        line.call("apply", **keys)
        if number:
            os.kill(line.call("hello", root=str(machine))["pid"], number)
    if number is signal.SIGKILL:
        assert values_of(machine) == ["0", "64"]
        with agent(machine) as line:
            assert line.call("revert")["ran"] is True
    assert values_of(machine) == ["200000", "4096"]
    assert not (machine / NOTE).exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_setting_that_several_guests_of_a_host_share_is_restored_by_the_last(machine: Path, is_killed: bool) -> None:
    keys = change(machine / "log", apply="", revert="", settings={"halt_poll_ns": 0})
    with agent(machine) as line:
        for guest in ("web1", "web2"):
            line.call("apply", **keys, guest=guest)
        if is_killed:
            os.kill(line.call("hello", root=str(machine))["pid"], signal.SIGKILL)
    if is_killed:
        with agent(machine) as line:
            for guest, value in (("web1", "0"), ("web2", "200000")):
                assert line.call("revert", guest=guest)["ran"] is True
                assert values_of(machine)[0] == value
    assert values_of(machine) == ["200000", "4096"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"settings": {"governor": "performance"}}, "this host does not govern its clock rate"),
        ({"sysctls": {"net.core.no_such": "1"}}, "no_such: this kernel has no such parameter"),
        ({"sysctls": {"net.core.somaxconn": "64", "stuck": "1"}}, "/proc/sys/stuck does not take 1: it is "),
    ],
)
def test_a_setting_that_is_not_there_or_does_not_stick_is_named(machine: Path, keys: dict[str, Any], said: str) -> None:
    (machine / "proc/sys/stuck").symlink_to("/dev/null")
    with agent(machine) as line:
        with pytest.raises(AgentError, match=f"change changed: .*{said}"):
            line.call("apply", **change(machine / "log", apply="", revert="") | keys)
        assert values_of(machine) == ["200000", "4096"]
    assert not (machine / NOTE).exists()


def test_a_setting_varies_by_block(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> None:
    del load_tools
    file = tmp_path / "metal" / SOMAXCONN
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("4096\n")
    seen = []

    def look(event: Event) -> None:
        if isinstance(event, TrialEnded):
            seen.append((event.record.arm.environment, file.read_text().strip()))

    vary = {"net.core.somaxconn": [None, 64, 128]}
    experiment = rewrite(environments=["metal"], vary=vary, noise_floor=None)
    records = records_of(run(experiment, inventory, tmp_path / "r", registry=project, listener=look))
    assert set(seen) == {("metal", "4096"), ("somaxconn-64", "64"), ("somaxconn-128", "128")}
    assert len(records) == 6
    assert not any(record.codes & {Code.FINGERPRINT} for record in records)
    assert file.read_text().strip() == "4096"


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        (
            {"net.core.stuck": [None, 64]},
            "metal: apply: change stuck-64: /proc/sys/net/core/stuck does not take 64: it is ",
        ),
        ({"net.core.no_such": [None, 1]}, "metal: apply: change no-such-1: net.core.no_such: this kernel has no such"),
        (
            {"halt_poll_ns": [None, 0]},
            "metal: apply: change halt-poll-ns-0: halt_poll_ns: the module kvm is not loaded",
        ),
    ],
)
def test_a_value_that_a_machine_does_not_take_ends_the_run_at_its_start(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, vary: dict[str, Any], said: str
) -> None:
    """A second factor, which the machine takes, is restored."""
    good, stuck = tmp_path / "metal" / SOMAXCONN, tmp_path / "metal/proc/sys/net/core/stuck"
    good.parent.mkdir(parents=True, exist_ok=True)
    good.write_text("4096\n")
    stuck.symlink_to("/dev/null")
    vary = vary | {"net.core.somaxconn": [None, 64]}
    experiment = rewrite(environments=["metal"], vary=vary, noise_floor=None)
    with pytest.raises(ExperimentError) as refused:
        run(experiment, inventory, tmp_path / "r", registry=project)
    assert str(refused.value).startswith(f"{experiment}: metal: apply: change ")
    assert said in str(refused.value)
    assert str(refused.value).endswith("or leave it out")
    assert "\n" not in str(refused.value)
    assert good.read_text() in ("4096\n", "4096")
    assert not (tmp_path / "metal" / NOTE).exists()
    assert not list((tmp_path / "r").glob("*/*/trials.jsonl"))


def test_a_command_that_is_still_running_ends_with_the_agent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with agent(tmp_path) as line:
        pending = line.ask("apply", **change(log, apply=f"echo begun >>{log}; sleep 600"))
        while not lines_of(log):
            assert not line.lost_because
        assert pending is not None
    assert lines_of(log) == ["begun", "revert"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"apply": "echo no such package; exit 3"}, "failed (exit code 3): no such package"),
        ({"apply": "sleep 60", "limit_s": 0.1}, "took longer than 0.1 s"),
    ],
)
def test_a_change_that_fails_is_reverted(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    log = tmp_path / "log"
    with agent(tmp_path) as line:
        with pytest.raises(AgentError) as failed:
            line.call("apply", **change(log) | keys)
        assert said in str(failed.value)
        assert lines_of(log) == ["revert"]


def test_a_change_that_cannot_be_reverted_is_named(tmp_path: Path) -> None:
    with agent(tmp_path) as line:
        line.call("apply", **change(tmp_path / "log", revert="exit 1"))
        with pytest.raises(AgentError, match=f"changed stays .*remove {tmp_path / NOTE}"):
            line.call("revert")
        assert json.loads((tmp_path / NOTE).read_text())["name"] == "changed"
        (tmp_path / NOTE).unlink()


def changed_experiment(rewrite: Rewrite, log: Path, **keys: Any) -> Path:
    """`metal`, and `metal` with a change that writes a line."""
    apply = {"apply": f"echo apply >>{log}", "revert": f"echo revert >>{log}", **keys}
    return rewrite(environments=["metal", "changed"], changes={"changed": apply}, noise_floor=None)


def test_a_change_and_its_machine_alternate_by_block(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> None:
    """Two blocks in both orders: the arms that follow each other in the same state need no command."""
    del load_tools
    log = tmp_path / "log"
    run_dir = run(changed_experiment(rewrite, log), inventory, tmp_path / "r", registry=project)
    records = records_of(run_dir)
    arms = [record.arm.environment for record in records]
    assert sorted(arms[:2]) == sorted(arms[2:]) == ["changed", "metal"]
    assert arms[1] == arms[2]
    assert lines_of(log) == ["apply", "revert"] * (2 if arms[0] == "changed" else 1)
    assert all(record.primary and record.primary.throughput_rps for record in records)
    assert not any(record.codes & {Code.FINGERPRINT, Code.SYSCTL} for record in records)
    assert not (tmp_path / "metal" / NOTE).exists()


@pytest.mark.parametrize(
    ("differs_in", "codes", "is_open"),
    [(None, set(), False), (["config"], set(), False), (["binary"], {Code.FINGERPRINT}, True)],
)
def test_what_a_command_changed_is_expected_where_it_says_so(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None,
    differs_in: list[str] | None, codes: set[Code], is_open: bool,
) -> None:  # fmt: skip
    """The command lengthens a configuration of lighttz by a comment; nothing tells that but its digest."""
    del load_tools
    config = tmp_path / "metal/policy.conf"
    keys = {
        "apply": f"cp {config} {config}.old && echo '# longer' >>{config}", "revert": f"mv {config}.old {config}",
        **({} if differs_in is None else {"differs_in": differs_in}),
    }  # fmt: skip
    before = config.read_bytes()
    experiment = rewrite(environments=["metal", "changed"], changes={"changed": keys}, noise_floor=None)
    measured = load_run(run(experiment, inventory, tmp_path / "r", registry=project))
    assert config.read_bytes() == before
    of_gates = {Code.FINGERPRINT, Code.SYSCTL}
    found = {
        arm: {c for r in measured.records if r.arm.environment == arm for c in r.codes} for arm in ("metal", "changed")
    }
    assert (found["metal"] & of_gates, found["changed"] & of_gates) == (set(), codes)
    (fact,) = [fact for fact in equality(measured) if fact.name.endswith(": config_sha256")]
    assert set(fact.values) == {"metal", "changed"} and len(set(fact.values.values())) == 2
    expected = FactStatus.CHANGED if differs_in is None else FactStatus.DECLARED
    assert fact.status is (FactStatus.UNDECLARED if is_open else expected)


def test_a_stopped_run_leaves_no_change(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> None:
    del load_tools
    log = tmp_path / "log"

    def stop(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.record.arm.environment == "changed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(changed_experiment(rewrite, log), inventory, tmp_path / "r", registry=project, listener=stop)
    assert lines_of(log) == ["apply", "revert"]


def test_a_change_that_fails_loses_its_trials_alone(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> None:
    del load_tools
    experiment = changed_experiment(rewrite, tmp_path / "log", apply="exit 7", revert="exit 8")
    events: list[Event] = []
    run_dir = run(experiment, inventory, tmp_path / "r", registry=project, listener=events.append)
    failed = {record.arm.environment for record in records_of(run_dir) if Code.SERVER_FAILED in record.codes}
    assert failed >= {"changed"}
    (left,) = [event for event in events if isinstance(event, NotReverted)]
    assert left.machine == "metal"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"environments": ["metal"]}, "changes: changed: is not one of `environments`"),
        ({"changes": {"changed": {"apply": "true", "of": "metol"}}}, "changes.changed.of: unknown environment 'metol'"),
        ({"environments": ["metal", "metal#2"], "changes": {"metal#2": {"apply": "true"}}}, "'metal#2': a name is not"),
        ({"environments": ["metal", "../x"], "changes": {"../x": {"apply": "true"}}}, "'../x': a name is not"),
        ({"environments": ["metal", ""], "changes": {"": {"apply": "true"}}}, "'': a name is not empty"),
        ({"changes": {"changed": {"apply": ""}}}, "give apply, settings, sysctls or isolation"),
        ({"changes": {"changed": {"apply": "true", "on": "host"}}}, "metal has no KVM host"),
        ({"environments": ["metal", "metal-two"], "changes": {"metal-two": {"apply": "true"}}}, "give the change"),
    ],
)  # fmt: skip
def test_a_change_that_makes_no_sense(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, keys: dict[str, Any], said: str
) -> None:
    given = {"environments": ["metal", "changed"], "changes": {"changed": {"apply": "true"}}, "noise_floor": None}
    with pytest.raises(ExperimentError) as refused:
        run(rewrite(**given | keys), inventory, tmp_path / "r", registry=project)
    assert said in str(refused.value)
