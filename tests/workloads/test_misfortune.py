"""What goes wrong around a run: a full disk, two runs at once, another set of machines. Nothing measured is lost."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_run import eventually_none_left, kill_agent_of, rows_of, start

from vmtoll import cli
from workloads.runner.errors import AgentError, InventoryError, ResultsError
from workloads.runner.inventory import load_inventory
from workloads.runner.registry import Registry
from workloads.runner.run import run
from workloads.runner.transport import AgentLine

Rewrite = Callable[..., Path]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("ab", buffering=0) as handle:
        try:
            while handle.write(bytes(4096)):
                pass
        except OSError:
            return


def test_a_command_that_fills_the_disk_is_not_believed(
    small_disk: Path, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(small_disk))
    line = AgentLine(load_inventory(inventory, ["metal"]).client)
    line.open()
    try:
        with pytest.raises(AgentError, match=f"client: exec: the disk of {small_disk} is full: what the command wrote"):
            line.call("exec", argv=["sh", "-c", "head -c 8m /dev/zero >log; exit 0"], outputs=["log"])
        assert line.call("exec", argv=["echo", "goes on"])["stdout"] == "goes on"
    finally:
        line.close()


@pytest.mark.usefixtures("load_tools")
def test_a_full_disk_on_the_client_fails_the_trial_by_name_and_the_run_goes_on(
    small_disk: Path, project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rewrite(blocks=2, noise_floor=None, environments=["metal"])
    monkeypatch.setenv("TMPDIR", str(small_disk))

    def plant(stage: str, n: int, of: int, message: str, left_s: float | None) -> None:
        if stage == "trial":
            (small_disk / "filler").unlink(missing_ok=True)
        elif n == 1 and message.endswith("measures"):
            fill(small_disk)

    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, progress=plant)
    rows = rows_of(run_dir)
    assert [(r["block"], r["attempt"]) for r in rows] == [("1", "1"), ("1", "2"), ("2", "1")]
    for row in rows[:2]:
        assert row["verdict"] == "invalid"
        assert row["reasons"].startswith(f"tool-failed: client: exec: the disk of {small_disk} is full")
        assert row["throughput_rps"] == ""
    assert rows[2]["verdict"] in {"valid", "suspect"}, rows[2]["reasons"]


def test_a_full_disk_for_the_results_is_one_sentence_and_the_run_is_resumed(
    small_disk: Path, project: Registry, inventory: Path, tmp_path: Path
) -> None:
    def plant(stage: str, n: int, of: int, message: str, left_s: float | None) -> None:
        if (stage, n) == ("trial", 3):
            fill(small_disk)

    results = small_disk / "r"
    with pytest.raises(ResultsError, match=r"the disk is full; what was measured is kept: .* go on with --resume /"):
        run(project.experiment_file("tiny"), inventory, results, registry=project, progress=plant)
    assert eventually_none_left(tmp_path)
    (run_dir,) = (results / "tiny").iterdir()
    (small_disk / "filler").unlink()
    before = rows_of(run_dir)
    assert len(before) == 3
    run(project.experiment_file("tiny"), inventory, results, resume=run_dir, registry=project)
    rows = rows_of(run_dir)
    assert rows[:3] == before
    assert len({(r["block"], r["order"]) for r in rows}) == len(rows) == 6


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
    """The second is refused by name; after `kill -9` of the first nothing stands in the way."""
    rewrite(blocks=4, duration_s=0.3, noise_floor=None)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(Registry.__init__, "__defaults__", (project.root,))
    monkeypatch.setattr(cli, "conclude", lambda folder: f"report of {folder}")
    words = ("run", "tiny", "--inventory", inventory, "--results", tmp_path / "other")
    first = start(project, inventory, tmp_path / "r", None)
    try:
        deadline = time.monotonic() + 20
        while not list((tmp_path / "r").glob("tiny/*/run.json")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with monkeypatch.context() as impatient:
            impatient.setattr("workloads.runner.revive.LOCK_S", 0.3)
            code, said = vmtoll(capsys, *words)
        assert code == 2
        assert f"is in use by run {next((tmp_path / 'r/tiny').iterdir()).name} of tiny (process {first.pid}" in said
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


def test_a_machine_on_its_way_down_is_not_taken_for_back(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still answers in the moment before it goes; systemd says so (here a stand-in, in the lab the real one)."""
    rewrite(blocks=1, noise_floor=None, environments=["metal"], warmup_s=0.1, duration_s=2.0)
    stand_in = tmp_path / "stand-in"
    stand_in.mkdir()
    monkeypatch.setenv("PATH", f"{stand_in}:{os.environ['PATH']}")
    messages: list[str] = []

    def reboot(stage: str, n: int, of: int, message: str, left_s: float | None) -> None:
        messages.append(message)
        if message.endswith(": siege measures") and messages.count(message) == 1:
            threading.Timer(0.2, kill_agent_of, [tmp_path / "metal"]).start()
        elif message.startswith("metal is gone"):  # not earlier: all machines here would ask the one stand-in
            (stand_in / "systemctl").write_text(GOING_DOWN.format(folder=stand_in))
            (stand_in / "systemctl").chmod(0o755)

    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, progress=reboot)
    rows = rows_of(run_dir)
    assert [row["attempt"] for row in rows] == ["1", "2"], messages
    assert rows[0]["reasons"].startswith("host-lost: metal: ")
    assert rows[1]["verdict"] in {"valid", "suspect"}, rows[1]["reasons"]
    assert (stand_in / "asked").read_text().splitlines() == ["is-system-running --wait"] * 3
    assert "metal is back" in messages


def test_a_run_is_not_resumed_on_other_machines(project: Registry, inventory: Path, tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def killed(stage: str, n: int, *_: object) -> None:
        if (stage, n) == ("trial", 1):
            raise KilledError

    results, experiment = tmp_path / "r", project.experiment_file("tiny")
    with pytest.raises(KilledError):
        run(experiment, inventory, results, registry=project, progress=killed)
    (run_dir,) = (results / "tiny").iterdir()
    renamed = tmp_path / "renamed.yml"
    renamed.write_text(inventory.read_text().replace("metal-two:", "metal-three:"))
    with pytest.raises(InventoryError, match=r"was measured on client, metal, metal-two; .* has client, metal, metal-"):
        run(experiment, renamed, results, resume=run_dir, registry=project)
    assert len(rows_of(run_dir)) == 1


def test_a_limit_chooses_among_the_machines(project: Registry, inventory: Path, tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match=r"with --limit client,metal: 0 hosts have vmtoll_environment 'metal-two'"):
        run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, limit="client,metal")
