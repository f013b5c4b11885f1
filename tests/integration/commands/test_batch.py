"""A batch of experiments: real runs on this machine, one after the other, interrupted and gone on with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.measured import run
from tests.support.records import records_of
from vmtoll.commands import batch
from vmtoll.model.errors import UserError
from vmtoll.model.event import Event, TrialEnded
from vmtoll.spec.catalog import Registry

CLAIM: dict[str, Any] = {
    "says": "both machines are as fast",
    "metric": "throughput_rps",
    "of": {"server": "lighttz", "environment": "metal", "workload": "tiny"},
    "over": {"environment": "metal-two"},
    "within_pct": 50,
}
KEYS: dict[str, Any] = {
    "claims": [CLAIM],
    "scales": {"small": {"blocks": 3}, "full": {"blocks": 7}},
    "noise_floor": None,
}


# Without report and page, which take longer than these runs; the first test here has them.
UNREAD = batch.PageWriters(
    report=lambda folder: f"report of {folder}",  # type: ignore[arg-type,return-value]
    page=lambda folders, output: output,
)


@pytest.fixture
def three(project: Registry, rewrite: Callable[..., Path]) -> Registry:
    """Three experiments: two that make a claim, one of which no machine here has the link; and one that makes none."""
    tiny = project.experiment_file("tiny")
    for name, more in (("alpha", KEYS), ("beta", KEYS | {"link": "10gbit"}), ("gamma", {})):
        rewrite(**more).rename(project.experiment_file(name))
    assert not tiny.exists()
    return project


def recorded(results: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((results / "all-small.json").read_text())
    return content


def test_a_batch_measures_what_makes_a_claim_and_skips_what_has_no_machines(
    three: Registry, inventory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And programs get the outcome of each."""
    results = tmp_path / "results"
    assert {name: len(p.trials) for name, p in batch.plans("full", three).items()} == {"alpha": 14, "beta": 14}
    assert batch.run_all("small", inventory, results, three, as_json=True) == 0
    said = capsys.readouterr()
    assert "experiment 1 of 2: alpha" in said.err
    assert "beta.yml: link: 10gbit, but in" in said.err
    (folder,) = batch.newest_runs(results)
    assert recorded(results) == {"done": True, "runs": {"alpha": folder.name}}
    assert (folder / "analysis.json").exists()
    assert (folder / "report.html").exists()
    assert CLAIM["says"] in (results / "replication.html").read_text()
    content = json.loads(said.out)
    measured, skipped = content["experiments"]
    assert (measured["experiment"], measured["status"]) == ("alpha", "complete")
    assert Path(measured["report"]) == folder / "report.html"
    assert (skipped["experiment"], skipped["status"]) == ("beta", "skipped")
    assert "link: 10gbit" in skipped["why"]
    assert content["page"] == str(results / "replication.html")


def test_an_interrupted_batch_repeats_nothing_and_goes_on_inside_of_a_run(
    three: Registry, inventory: Path, tmp_path: Path
) -> None:
    results, beta = tmp_path / "results", three.experiment_file("beta")
    beta.write_text(yaml.safe_dump(yaml.safe_load(beta.read_text()) | {"link": "unshaped"}))

    class KilledError(Exception):
        pass

    def killed(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.number == 4:
            raise KilledError

    alpha = run(three.experiment_file("alpha"), inventory, results, registry=three, scale="small")
    batch.Batch(results, "small").record_run(alpha)
    with pytest.raises(KilledError):
        run(beta, inventory, results, registry=three, scale="small", listener=killed)
    (half,) = (results / "beta").iterdir()
    assert json.loads((half / "run.json").read_text())["status"] == "running"

    assert batch.run_all("small", inventory, results, three, writers=UNREAD) == 0
    assert batch.newest_runs(results) == [alpha, half]
    assert list((results / "alpha").iterdir()) == [alpha]
    names = [record.name for record in records_of(half)]
    assert len(names) == len(set(names)) == 6


@pytest.mark.long
def test_an_experiment_that_fails_does_not_stop_the_others_and_is_tried_again(
    three: Registry, inventory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, alpha, beta = tmp_path / "results", three.experiment_file("alpha"), three.experiment_file("beta")
    beta.write_text(yaml.safe_dump(yaml.safe_load(beta.read_text()) | {"link": "unshaped"}))
    good = alpha.read_text()
    (three.root / "vm-images/guests/kvm-none.yml").write_text("description: no machine has it\n")
    alpha.write_text(yaml.safe_dump(yaml.safe_load(good) | {"environments": ["metal", "metal-two", "kvm-none"]}))
    assert batch.run_all("small", inventory, results, three, writers=UNREAD) == 1
    assert "failed: alpha: " in (said := capsys.readouterr().err)
    assert "1 of 2 experiments failed" in said
    (first,) = batch.newest_runs(results)
    assert first.parent.name == "beta"

    alpha.write_text(good)
    assert batch.run_all("small", inventory, results, three, writers=UNREAD) == 0
    assert [folder.parent.name for folder in batch.newest_runs(results)] == ["beta", "alpha"]
    assert first in batch.newest_runs(results)
    assert batch.Batch(results, "small").runs == {}, "the next batch begins anew"


def test_without_a_batch_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`vmtoll run all`"):
        batch.newest_runs(tmp_path)
