"""A search through a whole run on this machine: a real agent, the real vegeta, a real lighttz; stopped and resumed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.capacity import capacity, default_slo
from analysis.load import load_run
from analysis.report import render
from workloads.runner.registry import Registry
from workloads.runner.run import run

Rewrite = Callable[..., Path]
# Within so long a deadline at 99% and 90% available: so few requests at rates so low always are, on whatever machine,
# and so clearly that three trials say so, also when one of them is disturbed.
DEADLINE_MS = 1e6
SEARCH = {
    "kind": "search", "tool": "vegeta", "twin": None, "deadline_ms": DEADLINE_MS, "availability_pct": 90.0,
    "between_rps": [100.0, 800.0], "resolution_pct": 100.0,
}  # fmt: skip


def write(project: Registry, **workload: Any) -> None:
    path = project.workload_file("tiny")
    data = {**yaml.safe_load(path.read_text()), **SEARCH, **workload}
    path.write_text(yaml.safe_dump({key: value for key, value in data.items() if key != "users" and value is not None}))


class EndedError(Exception):
    """The run was ended by its user."""


def test_the_rates_follow_from_the_rows_also_when_it_is_resumed(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> None:
    write(project)
    experiment = rewrite(blocks=10, environments=["metal"], noise_floor=None, duration_s=0.2)
    results = tmp_path / "results"

    def stop(stage: str, n: int, *_: object) -> None:
        if stage == "trial" and n == 4:
            raise EndedError

    with pytest.raises(EndedError):
        run(experiment, inventory, results, registry=project, progress=stop)
    (begun,) = (results / "tiny").glob("2*")
    assert len(load_run(begun).trials) == 4
    run(experiment, inventory, results, resume=begun, registry=project)
    found = load_run(begun)
    assert list(found.trials["offered_load"]) == ["rate:200"] * 3 + ["rate:400"] * 3 + ["rate:800"] * 4
    assert list(found.trials["offered_rps"]) == [200.0] * 3 + [400.0] * 3 + [800.0] * 4
    slo = default_slo(found)
    assert slo is not None
    assert (slo.p99_ms, slo.availability_pct) == (DEADLINE_MS, 90.0)
    (one,) = capacity(found, slo)["results"]
    assert one["one"] == {"low": 800.0, "mid": 800.0, "high": 800.0}
    assert (one["at_least"], one["trials"], one["rates"]) == (True, 10, 3)
    assert "the search tried nothing above 800/s; what lies above was not measured" in one["notes"]
    assert one["watts"] is None or one["watts"]["mid"] > 0
    page = render(found)
    assert "A search for the highest rate that each side carries" in page
    assert "Capacity of one" in page


def test_a_search_may_go_by_shares_of_the_capacity(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> None:
    shares = {"between_shares": [0.02, 0.08], "capacity": {"tool": "h2load", "users": 2}}
    write(project, between_rps=None, **shares)
    experiment = rewrite(blocks=1, environments=["metal"], duration_s=0.2)
    trials = load_run(run(experiment, inventory, tmp_path / "results", registry=project)).trials
    assert list(trials["offered_load"]) == ["share:0.04"] * 2, "the A/A arm searches for itself"
    for _, trial in trials.iterrows():
        assert trial["offered_rps"] == pytest.approx(0.04 * trial["capacity_rps"], rel=1e-6)
