"""A real run is published and run again from its bundle alone: real agents, tools and server on this machine."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.load import load_run
from analysis.publish.agreement import NOT_COMPARABLE
from analysis.publish.bundle import publish
from analysis.publish.replication import compare_runs
from vmtoll.bundles import open_bundle
from vmtoll.replay import replay
from vmtoll.shell import UserError
from workloads.runner.experiment import load
from workloads.runner.registry import Registry
from workloads.runner.run import resolved_document, run


def test_a_bundle_is_run_again(project: Registry, inventory: Path, tmp_path: Path) -> None:
    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "results", registry=project)
    private = json.loads((run_dir / "private.json").read_text())
    assert set(private["hosts"]) == {"client", "metal", "metal-two"}
    assert "127.0.0.1" in private["hosts"]["metal"]
    published = open_bundle(publish(run_dir, tmp_path / "bundle"))
    for file in (project.experiment_file("tiny"), project.workload_file("tiny")):
        file.unlink()

    again = load_run(replay(published.meta, inventory, tmp_path / "again", registry=project))
    assert again.path.parent == tmp_path / "again" / "tiny"
    assert again.meta["experiment"] == published.meta["experiment"]
    assert again.meta["status"] == "complete"
    assert len(again.trials) == len(published.trials) == 6
    (scenario,) = compare_runs(published, again)["scenarios"]
    assert (scenario["server"], scenario["environment"]) == ("lighttz", "metal-two")
    assert scenario["facts"] == []
    # Two blocks claim nothing, and where nothing was claimed nothing can be reproduced.
    assert scenario["status"] == NOT_COMPARABLE
    assert "more blocks" in scenario["reason"]
    assert scenario["absolute"]["metal"]["throughput_rps"] > 0


@pytest.fixture
def published(project: Registry) -> dict[str, Any]:
    """What run.json says of experiment `tiny`."""
    return {"experiment": resolved_document(load(project.experiment_file("tiny"), project))}


def test_the_number_of_blocks_and_what_is_not_here(
    published: dict[str, Any], project: Registry, inventory: Path, tmp_path: Path
) -> None:
    published["experiment"]["servers"].append("thttpd")
    published["experiment"]["environments"].append("kvm-elsewhere")
    again = load_run(replay(published, inventory, tmp_path / "again", blocks=1, registry=project))
    assert again.meta["experiment"]["servers"] == ["lighttz"]
    assert again.meta["experiment"]["environments"] == ["metal", "metal-two"]
    assert len(again.trials) == 3


def test_what_cannot_be_run_is_one_sentence(
    published: dict[str, Any], project: Registry, inventory: Path, tmp_path: Path
) -> None:
    foreign = {"experiment": published["experiment"] | {"servers": ["thttpd"]}}
    with pytest.raises(UserError, match=r"of its servers \(thttpd\) there are: none"):
        replay(foreign, inventory, tmp_path / "again", registry=project)
    outside = {"experiment": published["experiment"] | {"name": "../../etc/passwd"}}
    with pytest.raises(UserError, match="is not a name of an experiment"):
        replay(outside, inventory, tmp_path / "again", registry=project)
    site = yaml.safe_load(project.site_file("tiny").read_text())
    project.site_file("tiny").write_text(yaml.safe_dump(site | {"seed": 2}))
    with pytest.raises(UserError, match=r"tiny\.yml is not the site that was published"):
        replay(published, inventory, tmp_path / "again", registry=project)
    assert not (tmp_path / "again").exists()
