"""An inventory that is a folder with one file per machine: the same machines for every command, and a run on them."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.support.machines import Rewrite
from tests.support.measured import run
from tests.support.records import assert_sound, records_of
from vmtoll.campaign.testbeds import read_testbeds
from vmtoll.cli import app
from vmtoll.preflight import Lab
from vmtoll.spec.catalog import Registry
from vmtoll.spec.machines import load_inventory


@pytest.fixture
def folder(inventory: Path, tmp_path: Path) -> Path:
    """The machines of `inventory`: who is what in one file, what is true of each in one of its own."""
    folder, tree = tmp_path / "my-lab", yaml.safe_load(inventory.read_text())
    (folder / "host_vars").mkdir(parents=True)
    for group in tree["all"]["children"].values():
        for name, variables in group["hosts"].items():
            (folder / "host_vars" / f"{name}.yml").write_text(yaml.safe_dump(variables))
        group["hosts"] = dict.fromkeys(group["hosts"])
    (folder / "hosts.yml").write_text(yaml.safe_dump(tree))
    return folder


def test_its_machines_are_those_of_one_file(inventory: Path, folder: Path, tmp_path: Path) -> None:
    environments = ["metal", "metal-two"]
    assert load_inventory(folder, environments) == load_inventory(inventory, environments)
    assert read_testbeds(folder) == read_testbeds(inventory)
    assert Lab.read(folder, None, print).hosts == Lab.read(inventory, None, print).hosts
    words = ["campaign", "run", "demo", "--inventory", str(folder), "--output", str(tmp_path / "c"), "--dry-run"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "client, metal, metal-two" in done.stdout


def test_a_run_on_it_is_recorded_as_on_one_file(
    project: Registry, folder: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    rewrite(blocks=1, noise_floor=None, environments=["metal"])
    run_dir = run(project.experiment_file("tiny"), folder, tmp_path / "r", registry=project)
    (record,) = records_of(run_dir)
    assert_sound([record])
    assert sorted(json.loads((run_dir / "hosts.json").read_text())) == ["client", "metal"]
    assert "127.0.0.1" in json.loads((run_dir / "private.json").read_text())["hosts"]["metal"]
    assert json.loads((run_dir / "run.json").read_text())["status"] == "complete"
