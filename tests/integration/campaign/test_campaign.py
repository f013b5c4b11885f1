"""Campaigns: test beds of an inventory, real runs on this machine in parallel, one of which fails."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.support.measured import plan, run
from tests.support.ports import free_port
from vmtoll.analysis.run import load_run
from vmtoll.campaign.campaign import Campaign
from vmtoll.campaign.fan_out import LoggedCommand, fan_out, last_line
from vmtoll.campaign.testbeds import read_testbeds
from vmtoll.cli import app
from vmtoll.commands.campaign import result
from vmtoll.model.errors import LoadError, RunInterruptedError, UserError
from vmtoll.model.event import Event, TrialEnded
from vmtoll.model.finding import Role
from vmtoll.model.trial import TrialRecord
from vmtoll.spec.catalog import Registry

RUN_IN_PROJECT = str(Path(__file__).parents[2] / "support" / "run_in_project.py")

Hosts = dict[str, dict[str, Any]]


def hosts_of(inventory: Path) -> Hosts:
    tree = yaml.safe_load(inventory.read_text())["all"]["children"]
    return {**tree["clients"]["hosts"], **tree["metal_hosts"]["hosts"]}


def copy_of(hosts: Hosts, folder: Path, suffix: str) -> Hosts:
    """The same machines once more, with folders and ports of their own."""
    copies: Hosts = {}
    for name, variables in hosts.items():
        old, new, port = Path(variables["vmtoll_root"]), folder / (name + suffix), free_port()
        shutil.copytree(old, new, ignore=shutil.ignore_patterns("run"))
        for file in (new / "lighttz.conf", new / "etc/vmtoll/servers/lighttz.json"):
            text = file.read_text().replace(str(old) + "/", str(new) + "/")
            file.write_text(text.replace(str(variables["vmtoll_http_port"]), str(port)))
        copies[name + suffix] = variables | {"vmtoll_root": str(new), "vmtoll_http_port": port}
    return copies


def write_inventory(path: Path, groups: dict[str, Hosts]) -> Path:
    """Test bed → its machines; every machine is a client or metal by its name."""
    everyone = {name: variables for hosts in groups.values() for name, variables in hosts.items()}
    roles = {
        "clients": {n: v for n, v in everyone.items() if n.startswith("client")},
        "metal_hosts": {n: v for n, v in everyone.items() if n.startswith("metal")},
    }
    tree: dict[str, Any] = {role: {"hosts": hosts} for role, hosts in roles.items()}
    tree["cells"] = {"children": {bed: {"hosts": dict.fromkeys(hosts)} for bed, hosts in groups.items()}}
    path.write_text(yaml.safe_dump({"all": {"children": tree}}))
    return path


@pytest.fixture
def two_testbeds(inventory: Path, tmp_path: Path) -> dict[str, Hosts]:
    first = hosts_of(inventory)
    return {"cell_a": first, "cell_b": copy_of(first, tmp_path, "-b")}


@pytest.fixture
def small(project: Registry) -> Registry:
    """Experiment `tiny` in one short block without an A/A arm."""
    file = project.experiment_file("tiny")
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"blocks": 1, "noise_floor": None}))
    return project


def campaign_of(project: Registry, inventory: Path, folder: Path, *, limit: str | None = None) -> Campaign:
    program = [sys.executable, RUN_IN_PROJECT, str(project.root)]
    plans = {"tiny": plan(project.experiment_file("tiny"), project)}
    return Campaign(folder, folder / "data", inventory, plans, read_testbeds(inventory, limit), program=program)


def records_of(run_dir: Path) -> Sequence[TrialRecord]:
    return load_run(run_dir).records


def test_testbeds_are_the_child_groups_and_the_limit_chooses_among_their_machines(tmp_path: Path) -> None:
    groups = {
        "cell_a": {"client1": {}, "metal1": {"vmtoll_environment": "metal"}, "metal1-b": {"vmtoll_environment": "x"}},
        "cell_b": {"client2": {}, "metal2": {"vmtoll_environment": "metal"}},
    }
    inventory = write_inventory(tmp_path / "i.yml", groups)
    first, second = read_testbeds(inventory)
    assert (first.name, first.limit, sorted(first.hosts)) == ("cell_a", "cell_a", ["client1", "metal1", "metal1-b"])
    assert (second.name, second.limit, second.environments) == ("cell_b", "cell_b", frozenset({"metal"}))
    (part,) = read_testbeds(inventory, "client1:metal1")
    assert (part.name, part.limit, part.environments) == ("cell_a", "client1,metal1", frozenset({"metal"}))
    (part,) = read_testbeds(inventory, "all,!client2")
    assert (part.name, part.limit) == ("cell_a", "cell_a")
    assert [bed.limit for bed in read_testbeds(inventory, "cell_b")] == ["cell_b"]
    with pytest.raises(UserError, match=r"client .*--limit metal1"):
        read_testbeds(inventory, "metal1")


def test_an_inventory_without_the_group_is_one_test_bed(inventory: Path) -> None:
    (whole,) = read_testbeds(inventory)
    assert (whole.name, whole.limit) == ("whole", None)
    assert sorted(whole.hosts) == ["client", "metal", "metal-two"]
    (part,) = read_testbeds(inventory, "client:metal")
    assert part.limit == "client,metal"


def test_a_machine_in_two_testbeds_is_refused(tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path / "i.yml", {"one": {"client1": {}}, "two": {"client1": {}, "client2": {}}})
    with pytest.raises(UserError, match=r"client1 .*one and two, "):
        read_testbeds(inventory)


def test_a_dry_run_lists_runs_by_test_bed_and_starts_nothing(tmp_path: Path) -> None:
    groups = {
        "cell_a": {"client1": {}, "metal1": {"vmtoll_environment": "metal"}},
        "cell_b": {"client2": {}, "metal2": {"vmtoll_environment": "metal"}},
    }
    inventory = write_inventory(tmp_path / "i.yml", groups)
    words = ["campaign", "run", "demo", "--inventory", str(inventory), "--output", str(tmp_path / "c"), "--dry-run"]
    said = CliRunner().invoke(app, words).stdout
    assert "cell_a" in said and "client2, metal2" in said
    assert "machine is kvm-default" in said
    assert "test beds: 2, 2 " in said and "; runs: 2; " in said
    schedule = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert schedule["testbeds"][1] == {"name": "cell_b", "hosts": ["client2", "metal2"]}
    first = schedule["runs"][0]
    assert (first["testbed"], first["experiment"], first["is_complete"]) == ("cell_a", "demo", False)
    assert first["absent_environments"] == ["kvm-default"]
    assert schedule["total_s"] == first["total_s"] > 0, "both test beds at once"
    assert not (tmp_path / "c").exists()


def test_a_name_that_cannot_be_a_folder_is_refused(inventory: Path, tmp_path: Path) -> None:
    words = ["campaign", "run", "demo", "--inventory", str(inventory), "--output", str(tmp_path / "a=b"), "--dry-run"]
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, LoadError)
    assert "campaign 'a=b': letters, digits" in str(found.exception)


@pytest.mark.long
def test_the_same_command_continues_after_one_of_two_test_beds_failed(
    small: Registry, two_testbeds: dict[str, Hosts], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = tmp_path / "testbeds.yml", tmp_path / "spring"
    closed = two_testbeds["cell_b"]["metal-b"] | {"ansible_connection": "ssh", "ansible_port": free_port()}
    broken = two_testbeds | {"cell_b": two_testbeds["cell_b"] | {"metal-b": closed}}
    write_inventory(path, broken)

    assert campaign_of(small, path, folder).measure() == 1
    said = capsys.readouterr()
    assert "cell_a: tiny: complete" in said.err
    assert "cell_b: tiny: metal-b" in said.err, "the sentence that the run ended with"
    assert "1 of 2 runs are missing" in said.err
    document = json.loads((folder / "campaign.json").read_text())
    (done,) = (folder / "testbeds/cell_a/tiny").glob("*Z-*")
    assert document["testbeds"]["cell_a"]["runs"]["tiny"] == {
        "status": "complete", "run": str(done.relative_to(folder)), "why": None
    }  # fmt: skip
    assert document["testbeds"]["cell_b"]["runs"]["tiny"]["status"] == "failed"
    assert document["ended_at"] is None
    assert [file.parent.parent.name for file in (folder / "data/trials").rglob("*.parquet")] == ["testbed=cell_a"]
    assert (folder / "campaign.html").exists()

    write_inventory(path, two_testbeds)
    assert campaign_of(small, path, folder).measure() == 0
    assert "1 of 2 runs to measure" in capsys.readouterr().err
    assert list((folder / "testbeds/cell_a/tiny").glob("*Z-*")) == [done], "what is finished is not measured again"
    document = json.loads((folder / "campaign.json").read_text())
    assert document["ended_at"] is not None
    figures = json.loads((folder / "figures.json").read_text())
    assert [(row["testbed"], row["blocks"]) for row in figures["testbeds"]] == [("cell_a", 1), ("cell_b", 1)]
    effect = next(e for e in figures["effects"] if e["verdict"]["metric"] == "throughput")
    assert {bed["testbed"] for bed in effect["by_testbed"]} == {"cell_a", "cell_b"}
    for bed in effect["by_testbed"]:
        (run_dir,) = (file.parent for file in (folder / "testbeds" / bed["testbed"] / "tiny").glob("*/run.json"))
        rates = {}
        for record in records_of(run_dir):
            measured = record.measurement(Role(bed["role"]))
            assert measured is not None and measured.throughput_rps is not None
            rates[str(record.arm)] = measured.throughput_rps
        assert bed["estimate"]["ratio"] == pytest.approx(rates["metal-two"] / rates["metal"], rel=1e-6)


def test_a_killed_run_is_continued(small: Registry, two_testbeds: dict[str, Hosts], tmp_path: Path) -> None:
    path, folder = tmp_path / "testbeds.yml", tmp_path / "spring"
    write_inventory(path, {"cell_a": two_testbeds["cell_a"]})

    class KilledError(Exception):
        pass

    def killed(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.number == 1:
            raise KilledError

    with pytest.raises(KilledError):
        run(
            small.experiment_file("tiny"), path, folder / "testbeds/cell_a", listener=killed, registry=small,
            limit="cell_a",
        )  # fmt: skip
    (half,) = (folder / "testbeds/cell_a/tiny").glob("*Z-*")
    assert len(records_of(half)) == 1
    asked = campaign_of(small, path, folder)
    assert asked.run_of(("cell_a", "tiny"), "running") == half
    assert asked.measure() == 0
    assert result(asked) == {
        "campaign": folder,
        "dataset": folder / "data",
        "page": folder / "campaign.html",
        "runs": [
            {
                "testbed": "cell_a", "experiment": "tiny", "status": "complete", "run": str(half.relative_to(folder)),
                "why": None,
            }
        ],
    }  # fmt: skip
    assert asked.run_of(("cell_a", "tiny"), "complete") == half
    keys = [(*record.key, record.attempt) for record in records_of(half)]
    assert len(keys) == len(set(keys)) == 2


def test_an_experiment_that_changed_or_another_process_is_refused(
    small: Registry, two_testbeds: dict[str, Hosts], tmp_path: Path
) -> None:
    path, folder = tmp_path / "testbeds.yml", tmp_path / "spring"
    write_inventory(path, {"cell_a": two_testbeds["cell_a"]})
    asked = campaign_of(small, path, folder)
    assert asked.measure() == 0
    assert asked.measure() == 0, "twice is harmless"
    with asked.locked(), pytest.raises(UserError, match=r"another process .*this campaign"):
        campaign_of(small, path, folder).measure()
    file = small.experiment_file("tiny")
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"duration_s": 0.2}))
    with pytest.raises(UserError, match="experiment tiny has changed"):
        campaign_of(small, path, folder).measure()


def test_commands_run_in_parallel_and_are_reported_as_they_end(tmp_path: Path) -> None:
    """Each of two test beds waits for the other: one after the other, neither would end well."""
    wait = "for n in $(seq 300); do test -e {other} && exit {code}; sleep 0.1; done; exit 9"

    def command(mine: str, other: str, code: int) -> LoggedCommand:
        script = f"touch {tmp_path / mine}; echo 'a \"quoted\" {mine}'; " + wait.format(
            other=tmp_path / other, code=code
        )
        return LoggedCommand(["sh", "-c", script], tmp_path / f"{mine}.log")

    commands = {("a", "x"): command("a", "b", 0), ("b", "x"): command("b", "a", 3), ("b", "y"): command("c", "a", 0)}
    ended = list(fan_out(commands))
    assert sorted(ended) == sorted(commands)
    assert ended.index(("b", "x")) < ended.index(("b", "y")), "on a test bed in sequence, after a failure too"
    assert last_line(tmp_path / "b.log") == 'a "quoted" b'


def test_no_more_testbeds_than_forks_run_in_parallel(tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/lock || echo crowded; sleep 0.2; rmdir {tmp_path}/lock"
    commands = {(bed, "x"): LoggedCommand(["sh", "-c", script], tmp_path / f"{bed}.log") for bed in "abc"}
    assert len(list(fan_out(commands, forks=1))) == 3
    assert [last_line(command.log) for command in commands.values()] == ["", "", ""]


def test_a_command_that_cannot_be_started_ends_with_the_reason(tmp_path: Path) -> None:
    commands = {("a", "x"): LoggedCommand([str(tmp_path / "absent")], tmp_path / "a.log")}
    assert list(fan_out(commands)) == [("a", "x")]
    assert os.strerror(errno.ENOENT) in last_line(tmp_path / "a.log")


def test_an_interrupted_campaign_interrupts_its_runs_and_starts_no_other(tmp_path: Path) -> None:
    """Ctrl-C reaches each command once, which gets the time to let its machines go."""
    child = """
import pathlib, sys, time
try:
    pathlib.Path(sys.argv[1], "begun").touch()
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.5)
    pathlib.Path(sys.argv[1], "let-go").touch()
"""
    parent = """
import pathlib, sys
from vmtoll.campaign.fan_out import LoggedCommand, fan_out
folder = pathlib.Path(sys.argv[1])
first = LoggedCommand([sys.executable, "-c", sys.argv[2], str(folder)], folder / "x.log")
second = LoggedCommand(["touch", str(folder / "second")], folder / "y.log")
list(fan_out({("a", "x"): first, ("a", "y"): second}))
"""
    campaign = subprocess.Popen([sys.executable, "-c", parent, str(tmp_path), child], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    campaign.send_signal(signal.SIGINT)
    assert campaign.wait(30) != 0
    assert (tmp_path / "let-go").exists()
    assert not (tmp_path / "second").exists()


def test_a_campaign_that_never_measured_leaves_nothing(
    small: Registry, two_testbeds: dict[str, Hosts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a run has begun, ^C says that it is kept."""
    inventory = write_inventory(tmp_path / "testbeds.yml", two_testbeds)
    campaign = campaign_of(small, inventory, tmp_path / "mine")

    def interrupted(*_: object) -> Iterator[object]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("vmtoll.campaign.campaign.fan_out", interrupted)
    with pytest.raises(KeyboardInterrupt) as error:
        campaign.measure()
    assert not isinstance(error.value, RunInterruptedError)
    assert not campaign.folder.exists()
    run_dir = run(small.experiment_file("tiny"), inventory, campaign.results("cell_a"), registry=small, limit="cell_a")
    with pytest.raises(RunInterruptedError, match="mine"):
        campaign.measure()
    assert run_dir.exists()


def test_the_commands_of_a_dataset(small: Registry, inventory: Path, tmp_path: Path) -> None:
    run_dir = run(small.experiment_file("tiny"), inventory, tmp_path / "r", registry=small)
    data, runner = tmp_path / "d", CliRunner()
    words = ["partition", str(run_dir), "--output", str(data), "--campaign", "c", "--testbed", "home"]
    assert f"{run_dir}: in {data}" in runner.invoke(app, words).stdout
    figures = json.loads(runner.invoke(app, ["campaign", "report", str(data), "--json"]).stdout)
    assert figures["campaign"] == "c"
    said = runner.invoke(app, ["campaign", "report", str(data), "--output", str(tmp_path / "page")]).stdout
    assert said.strip() == f"page: {tmp_path / 'page' / 'campaign.html'}"
    tables = {"trials", "histograms", "seconds", "samples", "verdicts", "effects", "claims", "hosts"}
    assert {path.name for path in data.iterdir()} == tables
