"""Campaigns: cells of an inventory, real runs on this machine side by side through Ansible, one of which fails."""

import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import free_port
from typer.testing import CliRunner

from vmtoll import fan_out
from vmtoll.board import last_line
from vmtoll.campaign import Campaign
from vmtoll.cells import cells
from vmtoll.cli import app
from vmtoll.shell import UserError
from workloads.runner.registry import Registry
from workloads.runner.run import plan, run

ELSEWHERE = str(Path(__file__).with_name("elsewhere.py"))

Hosts = dict[str, dict[str, Any]]


def hosts_of(inventory: Path) -> Hosts:
    tree = yaml.safe_load(inventory.read_text())["all"]["children"]
    return {**tree["clients"]["hosts"], **tree["metal"]["hosts"]}


def twin_of(hosts: Hosts, folder: Path, suffix: str) -> Hosts:
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
    """Cell → its machines; every machine is a client or metal by its name."""
    everyone = {name: variables for hosts in groups.values() for name, variables in hosts.items()}
    roles = {
        "clients": {n: v for n, v in everyone.items() if n.startswith("client")},
        "metal": {n: v for n, v in everyone.items() if n.startswith("metal")},
    }
    tree: dict[str, Any] = {role: {"hosts": hosts} for role, hosts in roles.items()}
    tree["cells"] = {"children": {cell: {"hosts": dict.fromkeys(hosts)} for cell, hosts in groups.items()}}
    path.write_text(yaml.safe_dump({"all": {"children": tree}}))
    return path


@pytest.fixture
def two_cells(inventory: Path, tmp_path: Path) -> dict[str, Hosts]:
    first = hosts_of(inventory)
    return {"cell_a": first, "cell_b": twin_of(first, tmp_path, "-b")}


@pytest.fixture
def small(project: Registry) -> Registry:
    """Experiment `tiny` in one short block without an A/A arm."""
    file = project.experiment_file("tiny")
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"blocks": 1, "noise_floor": None}))
    return project


def campaign_of(project: Registry, inventory: Path, folder: Path, *, limit: str | None = None) -> Campaign:
    program = [sys.executable, ELSEWHERE, str(project.root)]
    plans = {"tiny": plan(project.experiment_file("tiny"), project)}
    return Campaign(folder, folder / "data", inventory, plans, cells(inventory, limit), program=program)


def rows_of(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "trials.csv").open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def test_cells_are_the_child_groups_and_the_limit_chooses_among_their_machines(tmp_path: Path) -> None:
    groups = {
        "cell_a": {"client1": {}, "metal1": {"vmtoll_environment": "metal"}, "metal1-b": {"vmtoll_environment": "x"}},
        "cell_b": {"client2": {}, "metal2": {"vmtoll_environment": "metal"}},
    }
    inventory = write_inventory(tmp_path / "i.yml", groups)
    first, second = cells(inventory)
    assert (first.name, first.limit, sorted(first.hosts)) == ("cell_a", "cell_a", ["client1", "metal1", "metal1-b"])
    assert (second.name, second.limit, second.environments) == ("cell_b", "cell_b", frozenset({"metal"}))
    (part,) = cells(inventory, "client1:metal1")
    assert (part.name, part.limit, part.environments) == ("cell_a", "client1,metal1", frozenset({"metal"}))
    (part,) = cells(inventory, "all,!client2")
    assert (part.name, part.limit) == ("cell_a", "cell_a")
    assert [cell.limit for cell in cells(inventory, "cell_b")] == ["cell_b"]
    with pytest.raises(UserError, match="no cell with a client matches --limit metal1"):
        cells(inventory, "metal1")


def test_an_inventory_without_cells_is_one(inventory: Path) -> None:
    (whole,) = cells(inventory)
    assert (whole.name, whole.limit) == ("whole", None)
    assert sorted(whole.hosts) == ["client", "metal", "metal-two"]
    (part,) = cells(inventory, "client:metal")
    assert part.limit == "client,metal"


def test_a_machine_in_two_cells_is_refused(tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path / "i.yml", {"one": {"client1": {}}, "two": {"client1": {}, "client2": {}}})
    with pytest.raises(UserError, match="client1 is in the cells one and two, which measure at the same time"):
        cells(inventory)


def test_a_dry_run_says_what_would_run_where_and_starts_nothing(tmp_path: Path) -> None:
    groups = {
        "cell_a": {"client1": {}, "metal1": {"vmtoll_environment": "metal"}},
        "cell_b": {"client2": {}, "metal2": {"vmtoll_environment": "metal"}},
    }
    inventory = write_inventory(tmp_path / "i.yml", groups)
    words = ["campaign", "demo", "--inventory", str(inventory), "--output", str(tmp_path / "c"), "--dry-run"]
    said = CliRunner().invoke(app, words).stdout
    assert "cell_a" in said and "client2, metal2" in said
    assert "no machine is kvm-default" in said
    assert "cells: 2, 2 at once; runs: 2; about" in said
    assert not (tmp_path / "c").exists()


def test_a_name_that_cannot_be_a_folder_is_refused(inventory: Path, tmp_path: Path) -> None:
    words = ["campaign", "demo", "--inventory", str(inventory), "--output", str(tmp_path / "a=b"), "--dry-run"]
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, UserError)
    assert "campaign 'a=b': letters, digits" in str(found.exception)


def test_two_cells_measure_one_fails_and_the_same_command_goes_on_with_it(
    small: Registry, two_cells: dict[str, Hosts], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = tmp_path / "cells.yml", tmp_path / "spring"
    closed = two_cells["cell_b"]["metal-b"] | {"ansible_connection": "ssh", "ansible_port": free_port()}
    broken = two_cells | {"cell_b": two_cells["cell_b"] | {"metal-b": closed}}
    write_inventory(path, broken)

    assert campaign_of(small, path, folder).measure() == 1
    said = capsys.readouterr()
    assert "cell_a: tiny: complete" in said.err
    assert "cell_b: tiny: metal-b" in said.err, "the sentence that the run ended with"
    assert "1 of 2 runs are missing" in said.err
    document = json.loads((folder / "campaign.json").read_text())
    (done,) = (folder / "cells/cell_a/tiny").glob("*Z-*")
    assert document["cells"]["cell_a"]["runs"]["tiny"] == {
        "status": "complete", "run": str(done.relative_to(folder)), "why": None
    }  # fmt: skip
    assert document["cells"]["cell_b"]["runs"]["tiny"]["status"] == "failed"
    assert document["ended_at"] is None
    assert [file.parent.parent.name for file in (folder / "data/trials").rglob("*.parquet")] == ["cell=cell_a"]
    assert (folder / "campaign.html").exists()

    write_inventory(path, two_cells)
    assert campaign_of(small, path, folder).measure() == 0
    assert "1 of 2 runs to measure" in capsys.readouterr().err
    assert list((folder / "cells/cell_a/tiny").glob("*Z-*")) == [done], "what is finished is not measured again"
    document = json.loads((folder / "campaign.json").read_text())
    assert document["ended_at"] is not None
    figures = json.loads((folder / "figures.json").read_text())
    assert [(row["cell"], row["blocks"]) for row in figures["cells"]] == [("cell_a", 1), ("cell_b", 1)]
    one = next(e for e in figures["effects"] if e["metric"] == "throughput")
    assert {row["cell"] for row in one["by_cell"]} == {"cell_a", "cell_b"}
    for row in one["by_cell"]:
        (run_dir,) = (file.parent for file in (folder / "cells" / row["cell"] / "tiny").glob("*/run.json"))
        column = "throughput_rps" if one["source"] == "tool" else "twin_throughput_rps"
        rates = {trial["environment"]: float(trial[column]) for trial in rows_of(run_dir)}
        assert row["ratio"] == pytest.approx(rates["metal-two"] / rates["metal"], rel=1e-6)


def test_a_run_that_was_killed_is_gone_on_with(small: Registry, two_cells: dict[str, Hosts], tmp_path: Path) -> None:
    path, folder = tmp_path / "cells.yml", tmp_path / "spring"
    write_inventory(path, {"cell_a": two_cells["cell_a"]})

    class KilledError(Exception):
        pass

    def killed(stage: str, n: int, *_: object) -> None:
        if (stage, n) == ("trial", 1):
            raise KilledError

    with pytest.raises(KilledError):
        run(
            small.experiment_file("tiny"), path, folder / "cells/cell_a", progress=killed, registry=small,
            limit="cell_a",
        )  # fmt: skip
    (half,) = (folder / "cells/cell_a/tiny").glob("*Z-*")
    assert len(rows_of(half)) == 1
    asked = campaign_of(small, path, folder)
    assert asked.run_of(("cell_a", "tiny"), "running") == half
    assert asked.measure() == 0
    assert asked.run_of(("cell_a", "tiny"), "complete") == half
    rows = [(row["block"], row["order"], row["attempt"]) for row in rows_of(half)]
    assert len(rows) == len(set(rows)) == 2


def test_an_experiment_that_changed_or_another_process_is_refused(
    small: Registry, two_cells: dict[str, Hosts], tmp_path: Path
) -> None:
    path, folder = tmp_path / "cells.yml", tmp_path / "spring"
    write_inventory(path, {"cell_a": two_cells["cell_a"]})
    asked = campaign_of(small, path, folder)
    assert asked.measure() == 0
    assert asked.measure() == 0, "twice is harmless"
    with asked._held(), pytest.raises(UserError, match="another process is running this campaign"):
        campaign_of(small, path, folder).measure()
    file = small.experiment_file("tiny")
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"duration_s": 0.2}))
    with pytest.raises(UserError, match="experiment tiny has changed since the campaign began"):
        campaign_of(small, path, folder).measure()


def test_commands_run_side_by_side_and_are_told_as_they_end(tmp_path: Path) -> None:
    """Each of two cells waits for the other: one after the other, neither would end well."""
    wait = "for n in $(seq 300); do test -e {other} && exit {code}; sleep 0.1; done; exit 9"

    def command(mine: str, other: str, code: int) -> fan_out.Command:
        script = f"touch {tmp_path / mine}; echo 'a \"quoted\" {mine}'; " + wait.format(
            other=tmp_path / other, code=code
        )
        return fan_out.Command(["sh", "-c", script], tmp_path / f"{mine}.log")

    commands = {("a", "x"): command("a", "b", 0), ("b", "x"): command("b", "a", 3), ("b", "y"): command("c", "a", 0)}
    told = list(fan_out.fan_out(commands, tmp_path))
    assert sorted(told) == sorted(commands)
    assert told.index(("b", "x")) < told.index(("b", "y")), "within a cell one after the other, after a failure too"
    assert last_line(tmp_path / "b.log") == 'a "quoted" b'
    assert "non-zero return code" in (tmp_path / "ansible.log").read_text()


def test_ansible_that_fails_itself_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "PLAYBOOKS", tmp_path)
    commands = {("a", "x"): fan_out.Command(["true"], tmp_path / "a.log")}
    with pytest.raises(UserError, match=r"Ansible started 0 of 1 commands and ended with \d+: .*ansible\.log"):
        list(fan_out.fan_out(commands, tmp_path))


def test_the_verbs_of_a_dataset(small: Registry, inventory: Path, tmp_path: Path) -> None:
    run_dir = run(small.experiment_file("tiny"), inventory, tmp_path / "r", registry=small)
    data, runner = tmp_path / "d", CliRunner()
    words = ["partition", str(run_dir), "--output", str(data), "--campaign", "c", "--cell", "home"]
    assert f"{run_dir}: in {data}" in runner.invoke(app, words).stdout
    figures = json.loads(runner.invoke(app, ["campaign-report", str(data), "--json"]).stdout)
    assert figures["campaign"] == "c"
    said = runner.invoke(app, ["campaign-report", str(data), "--output", str(tmp_path / "page")]).stdout
    assert said.strip() == f"page: {tmp_path / 'page' / 'campaign.html'}"
    assert {path.name for path in data.iterdir()} == {"trials", "histograms", "seconds", "samples"}
