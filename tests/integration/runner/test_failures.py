"""What goes wrong around a run: a full disk, two runs at once, another set of machines. Nothing measured is lost."""

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.runner.test_run import eventually_none_left, is_at, kill_agent_of, start
from tests.support.local_server import server_pids
from tests.support.measured import run
from tests.support.records import assert_sound, records_of
from tests.support.small_disk import fill, mounted
from vmtoll import cli
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.recovery import take
from vmtoll.machines.session import Session
from vmtoll.model.errors import AgentError, HostLostError, InventoryError, ResultsError
from vmtoll.model.event import Absence, Event, MachineStep, Phase, TrialEnded, TrialStep
from vmtoll.model.finding import Code
from vmtoll.model.inventory import Host
from vmtoll.model.trial import Arm
from vmtoll.paths import PROJECT
from vmtoll.spec.catalog import Registry
from vmtoll.spec.machines import load_inventory
from vmtoll.trial.trial import lost_machine

Rewrite = Callable[..., Path]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB."""
    with mounted(tmp_path / "small", 4) as disk:
        yield disk


def test_a_command_that_fills_the_disk_is_not_believed(
    small_disk: Path, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(small_disk))
    line = AgentLine(load_inventory(inventory, ["metal"]).client)
    line.open()
    try:
        with pytest.raises(AgentError, match=f"client: exec: .* {small_disk} is full: "):
            line.call("exec", argv=["sh", "-c", "head -c 8m /dev/zero >log; exit 0"], outputs=["log"])
        assert line.call("exec", argv=["echo", "goes on"])["stdout"] == "goes on"
    finally:
        line.close()


@pytest.mark.usefixtures("load_tools")
def test_a_full_disk_on_the_client_is_named_and_the_run_continues(
    small_disk: Path, project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rewrite(blocks=2, noise_floor=None, environments=["metal"])
    monkeypatch.setenv("TMPDIR", str(small_disk))

    def inject(event: Event) -> None:
        if isinstance(event, TrialEnded):
            (small_disk / "filler").unlink(missing_ok=True)
        elif isinstance(event, TrialStep) and event.number == 1 and event.phase is Phase.MEASURING:
            fill(small_disk)

    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, listener=inject)
    records = records_of(run_dir)
    assert [(r.block, r.attempt) for r in records] == [(1, 1), (1, 2), (2, 1)]
    for record in records[:2]:
        assert record.codes == {Code.TOOL_FAILED}
        assert record.findings[0].machine == "client"
        assert re.match(f"client: exec: .* {small_disk} is full", record.findings[0].detail)
        assert record.measurements == ()
    assert_sound(records[2:])


def test_a_load_that_is_not_answered_in_time_is_not_tried_again(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stands still beyond the tool's bound: what it is too slow for is its failure."""
    rewrite(blocks=1, noise_floor=None, environments=["metal"], duration_s=1.0)

    def freeze(event: Event) -> None:
        if is_at(event, Phase.MEASURING, "siege"):
            monkeypatch.setattr("vmtoll.trial.loads.bound_s", lambda *_: 2.0)
            for pid in server_pids(tmp_path / "metal"):
                os.kill(pid, signal.SIGSTOP)
        elif isinstance(event, TrialEnded):
            assert not server_pids(tmp_path / "metal")

    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, listener=freeze)
    (record,) = records_of(run_dir)
    assert record.codes == {Code.TIMED_OUT}
    assert record.findings[0].detail.startswith("siege did not end ")
    assert record.measurements == ()


def absences(events: Sequence[Event]) -> list[tuple[str, Absence]]:
    return [(event.machine, event.absence) for event in events if isinstance(event, MachineStep)]


def test_a_machine_that_is_lost_before_the_first_trial_is_waited_for(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(blocks=1, noise_floor=None, environments=["metal"], warmup_s=0.1, duration_s=1.0)
    events: list[Event] = []
    held: list[Host] = []

    def cut(session: Session, host: Host) -> None:
        take(session, host)
        held.append(host)
        if [each.name for each in held].count("metal") == 1 and held[-1].name == "metal":
            kill_agent_of(tmp_path / "metal")

    monkeypatch.setattr("vmtoll.runner.run.take", cut)
    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, listener=events.append)
    assert absences(events) == [("metal", Absence.LOST), ("metal", Absence.BACK)]
    (record,) = records_of(run_dir)
    assert_sound([record])


@pytest.mark.long
def test_a_block_that_lost_a_machine_is_measured_again_as_a_whole(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    rewrite(blocks=2, noise_floor=None, warmup_s=0.1, duration_s=1.0)
    killed = threading.Event()

    def pull_the_plug(event: Event) -> None:
        if not isinstance(event, TrialStep) or event.spec.key != (1, 2) or killed.is_set():
            return
        if is_at(event, Phase.MEASURING, "siege"):
            killed.set()
            threading.Timer(0.2, kill_agent_of, [tmp_path / event.spec.arm.environment]).start()

    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, listener=pull_the_plug)
    records = records_of(run_dir)
    made = [(*record.key, record.attempt) for record in records]
    assert made == [(1, 1, 1), (1, 2, 1), (1, 1, 2), (1, 2, 2), (2, 1, 1), (2, 2, 1)]
    assert records[1].codes == {Code.HOST_LOST}
    assert records[1].findings[0].machine == records[1].arm.environment
    assert not records[0].accidents, "the first trial was repeated although nothing had failed in it"
    assert_sound(record for record in records if record is not records[1])


def test_a_guest_that_went_with_its_host_does_not_count_as_lost(inventory: Path) -> None:
    machines = load_inventory(inventory, ["metal"])
    host, error = AgentLine(machines.client), HostLostError("guest: the agent ended", "guest")
    host.open()
    try:
        assert lost_machine(error, host) == lost_machine(error, None) == "guest"
        host.give_up("the SSH connection was cut")
        assert lost_machine(error, host) == host.host.name
    finally:
        host.close()


def test_a_full_disk_for_the_results_is_one_sentence_and_the_run_is_resumed(
    small_disk: Path, project: Registry, inventory: Path, tmp_path: Path
) -> None:
    def inject(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.number == 3:
            fill(small_disk)

    results = small_disk / "r"
    with pytest.raises(ResultsError, match=r"disk is full; .*--resume /"):
        run(project.experiment_file("tiny"), inventory, results, registry=project, listener=inject)
    assert eventually_none_left(tmp_path)
    (run_dir,) = (results / "tiny").iterdir()
    (small_disk / "filler").unlink()
    before = records_of(run_dir)
    assert len(before) == 3
    run(project.experiment_file("tiny"), inventory, results, resume=run_dir, registry=project)
    records = records_of(run_dir)
    assert records[:3] == before
    assert len({record.key for record in records}) == len(records) == 6


def vmtoll(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The command line, in this process; its exit code and what it said on stderr."""
    capsys.readouterr()
    sys.argv = ["vmtoll", *map(str, words)]
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0), capsys.readouterr().err
    return 0, capsys.readouterr().err


def test_two_runs_at_once_and_what_a_killed_one_leaves(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The second run is refused by name; after `kill -9` of the first, a run can start."""
    rewrite(blocks=4, duration_s=0.3, noise_floor=None)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(Registry.__init__, "__defaults__", (project.root,))
    # Its profile metal-two stands for a second metal machine; the shipped ones are guests.
    monkeypatch.setattr("vmtoll.spec.profiles.Registry", lambda: Registry(PROJECT))
    monkeypatch.setattr("vmtoll.commands.run.finish", lambda folder, **_: None)
    words = ("run", "tiny", "--inventory", inventory, "--results", tmp_path / "other")
    first = start(project, inventory, tmp_path / "r", None)
    try:
        deadline = time.monotonic() + 20
        while not list((tmp_path / "r").glob("tiny/*/run.json")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with monkeypatch.context() as impatient:
            impatient.setattr("vmtoll.machines.recovery.LOCK_S", 0.3)
            code, said = vmtoll(capsys, *words)
        assert code == 2
        name = next((tmp_path / "r/tiny").iterdir()).name
        assert f"{name} of tiny (process {first.pid}" in said
    finally:
        first.kill()
        first.wait()
    assert vmtoll(capsys, *words)[0] == 0
    finished = [json.loads(file.read_text())["status"] for file in sorted((tmp_path / "other/tiny").glob("*/run.json"))]
    assert finished == ["complete"]
    assert eventually_none_left(tmp_path)


GOING_DOWN = """\
#!/bin/sh
echo "$@" >>{folder}/asked
case $(wc -l <{folder}/asked) in
1) echo stopping; exit 1 ;;
2) echo unknown; echo 'Failed to query system state: Connection reset by peer' >&2; exit 1 ;;
*) echo running ;;
esac
"""


@pytest.mark.long
def test_a_machine_on_its_way_down_is_not_taken_for_back(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still answers in the moment before it goes; systemd says so (here a stand-in, in the lab the real one)."""
    rewrite(blocks=1, noise_floor=None, environments=["metal"], warmup_s=0.1, duration_s=2.0)
    stand_in = tmp_path / "stand-in"
    stand_in.mkdir()
    monkeypatch.setenv("PATH", f"{stand_in}:{os.environ['PATH']}")
    events: list[Event] = []

    def reboot(event: Event) -> None:
        events.append(event)
        if is_at(event, Phase.MEASURING, "siege") and sum(is_at(e, Phase.MEASURING, "siege") for e in events) == 1:
            threading.Timer(0.2, kill_agent_of, [tmp_path / "metal"]).start()
        # Not earlier: all machines here would ask the one stand-in.
        elif isinstance(event, MachineStep) and event.absence is Absence.LOST:
            (stand_in / "systemctl").write_text(GOING_DOWN.format(folder=stand_in))
            (stand_in / "systemctl").chmod(0o755)

    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, listener=reboot)
    failed, good = records_of(run_dir)
    assert (failed.attempt, failed.arm) == (1, Arm("metal"))
    assert failed.codes == {Code.HOST_LOST}, events
    assert failed.findings[0].detail.startswith("metal: ")
    assert good.attempt == 2
    assert_sound([good])
    assert (stand_in / "asked").read_text().splitlines() == ["is-system-running --wait"] * 3
    assert absences(events) == [("metal", Absence.LOST), ("metal", Absence.BACK)]


def test_a_run_is_not_resumed_on_other_machines(project: Registry, inventory: Path, tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def killed(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.number == 1:
            raise KilledError

    results, experiment = tmp_path / "r", project.experiment_file("tiny")
    with pytest.raises(KilledError):
        run(experiment, inventory, results, registry=project, listener=killed)
    (run_dir,) = (results / "tiny").iterdir()
    renamed = tmp_path / "renamed.yml"
    renamed.write_text(inventory.read_text().replace("metal-two:", "metal-three:"))
    with pytest.raises(InventoryError, match=r" client, metal, metal-two; .* client, .*metal-three"):
        run(experiment, renamed, results, resume=run_dir, registry=project)
    assert len(records_of(run_dir)) == 1


def test_a_limit_chooses_among_the_machines(project: Registry, inventory: Path, tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match=r"--limit client,metal: 0 hosts .*'metal-two'"):
        run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, limit="client,metal")
