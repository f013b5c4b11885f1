"""A real run is published and run again from its bundle alone: real agents, tools and server on this machine."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.support.measured import run
from vmtoll.analysis.run import load_run
from vmtoll.commands.replay import _available_part, interventions_of, measure_again, replay
from vmtoll.model.agreement import AgreementReason, Status
from vmtoll.model.change import Change
from vmtoll.model.errors import UserError
from vmtoll.model.experiment import Claim
from vmtoll.model.run import Differences, Manifest
from vmtoll.model.trial import Arm
from vmtoll.publish.bundle import open_bundle, publish
from vmtoll.publish.comparison import compare_runs
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load


def test_a_bundle_is_run_again(project: Registry, inventory: Path, tmp_path: Path) -> None:
    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "results", registry=project)
    private = json.loads((run_dir / "private.json").read_text())
    assert set(private["hosts"]) == {"client", "metal", "metal-two"}
    assert "127.0.0.1" in private["hosts"]["metal"]
    published = open_bundle(publish(run_dir, tmp_path / "bundle"))
    for file in (project.experiment_file("tiny"), project.workload_file("tiny")):
        file.unlink()

    again = load_run(measure_again(published.manifest, inventory, tmp_path / "again", registry=project))
    assert again.path.parent == tmp_path / "again" / "tiny"
    assert again.manifest.experiment == published.manifest.experiment
    assert again.manifest.status == "complete"
    assert len(again.trials) == len(published.trials) == 6
    (result,) = compare_runs(published, again).scenarios
    assert (result.scenario.server, result.arm) == ("lighttz", Arm("metal-two"))
    assert (result.facts, result.other_differences) == ((), ())
    # Two blocks claim nothing, and where nothing was claimed nothing can be reproduced.
    assert result.status is Status.NOT_COMPARABLE
    assert {metric.agreement.why for metric in result.metrics.values()} == {AgreementReason.CLAIMS_NOTHING}
    assert result.absolute and result.absolute["metal"]["throughput_rps"] > 0


@pytest.fixture
def published(project: Registry) -> Manifest:
    """What a run of experiment `tiny` records."""
    resolved = load(project.experiment_file("tiny"), project)
    return Manifest(
        run_id="r",
        experiment=resolved.experiment,
        workloads=dict(resolved.workloads),
        site=resolved.site,
        order_seed=7,
        versions={},
        commit=None,
        started_at="2026-11-22T15:00:00Z",
        status="complete",
        accelerators={},
        lab="hosts",
        link="unshaped",
        differences=Differences(),
        trials_planned=6,
    )


def changed(published: Manifest, **keys: Any) -> Manifest:
    return published.model_copy(update={"experiment": published.experiment.model_copy(update=keys)})


def test_the_number_of_blocks_and_what_is_not_here(
    published: Manifest, project: Registry, inventory: Path, tmp_path: Path
) -> None:
    more = changed(published, servers=["lighttz", "thttpd"], environments=["metal", "metal-two", "kvm-elsewhere"])
    again = load_run(measure_again(more, inventory, tmp_path / "again", blocks=1, registry=project))
    assert again.manifest.experiment.servers == ["lighttz"]
    assert again.manifest.experiment.environments == ["metal", "metal-two"]
    assert len(again.trials) == 3


def test_a_claim_about_what_is_not_here_is_left_out(published: Manifest, project: Registry) -> None:
    of = {"server": "lighttz", "environment": "metal", "workload": "tiny", "users": 2}
    claim = {"says": "it is faster", "metric": "throughput_rps", "of": of}
    here, *elsewhere = (
        Claim.model_validate({**claim, "over": over})
        for over in ({"environment": "metal-two"}, {"server": "thttpd"}, {"users": 3}, {"workload": "other"})
    )
    more = changed(published, claims=[here, *elsewhere])
    left = _available_part(more, project, {"metal", "metal-two"})
    assert left.experiment.claims == [here]


def test_a_bundles_commands_are_not_run_unasked(
    published: Manifest, project: Registry, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would run as root, and somebody else wrote them."""
    marker = tmp_path / "ran"
    change = Change(of="metal", apply=f"touch {marker}", sysctls={"kernel.core_pattern": "|/x"})
    more = changed(published, environments=["metal", "changed"], changes={"changed": change}, noise_floor=None)
    monkeypatch.setattr("vmtoll.publish.bundle.open_bundle", lambda _: SimpleNamespace(manifest=more))
    with pytest.raises(UserError) as refused:
        replay(tmp_path, inventory=inventory, results=tmp_path / "again")
    assert f"changed: runs `touch {marker}`; changed: sets kernel.core_pattern = |/x" in str(refused.value)
    assert "agree with --yes" in str(refused.value)
    assert not marker.exists() and not (tmp_path / "again").exists()
    assert list(interventions_of(published.experiment)) == []


def test_a_bundles_boots_restart_no_machine_unasked(
    published: Manifest, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record permits nothing on machines of others."""
    more = changed(published, boots=2)
    monkeypatch.setattr("vmtoll.publish.bundle.open_bundle", lambda _: SimpleNamespace(manifest=more))
    with pytest.raises(UserError, match="restarts every machine under test and its KVM host, boots: 2"):
        replay(tmp_path, inventory=inventory, results=tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_what_cannot_be_run_is_one_sentence(
    published: Manifest, project: Registry, inventory: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"servers \(thttpd\) .*: none"):
        measure_again(changed(published, servers=["thttpd"]), inventory, tmp_path / "again", registry=project)
    with pytest.raises(UserError, match="not a name of"):
        measure_again(changed(published, name="../../etc/passwd"), inventory, tmp_path / "again", registry=project)
    change = {"../../x": Change(of="metal", apply="true")}
    elsewhere = changed(published, environments=["metal", "../../x"], changes=change, noise_floor=None)
    with pytest.raises(UserError, match=r"'\.\./\.\./x' is not a name of"):
        measure_again(elsewhere, inventory, tmp_path / "again", registry=project)
    site = yaml.safe_load(project.site_file("tiny").read_text())
    project.site_file("tiny").write_text(yaml.safe_dump(site | {"seed": 2}))
    with pytest.raises(UserError, match=r"tiny\.yml differs .*published site"):
        measure_again(published, inventory, tmp_path / "again", registry=project)
    assert not (tmp_path / "again").exists()
