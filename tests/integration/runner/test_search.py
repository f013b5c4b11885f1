"""A search through a whole run on this machine: a real agent, the real vegeta, a real lighttz; stopped and resumed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.measured import run
from tests.support.records import records_of
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.capacity.estimate import ByEnd
from vmtoll.capacity.notes import NoteCode, note
from vmtoll.capacity.objective import Slo
from vmtoll.capacity.planner import assess_capacity, default_slo
from vmtoll.model.event import Event, TrialEnded
from vmtoll.model.load import Load, LoadKind
from vmtoll.report.html import render
from vmtoll.spec.catalog import Registry

Rewrite = Callable[..., Path]
# Within so long a deadline at 99% and 90% available: so few requests at rates so low always are, on whatever machine,
# and so clearly that three trials say so, also when one of them is disturbed.
DEADLINE_MS = 1e6
SEARCH = {
    "kind": "search", "tool": "vegeta", "crosscheck": None, "deadline_ms": DEADLINE_MS, "availability_pct": 90.0,
    "between_rps": [100.0, 800.0], "resolution_pct": 100.0,
}  # fmt: skip


def write(project: Registry, **workload: Any) -> None:
    path = project.workload_file("tiny")
    data = {**yaml.safe_load(path.read_text()), **SEARCH, **workload}
    path.write_text(yaml.safe_dump({key: value for key, value in data.items() if key != "users" and value is not None}))


class EndedError(Exception):
    """The run was ended by its user."""


def test_the_rates_follow_from_the_records_also_when_it_is_resumed(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> None:
    write(project)
    experiment = rewrite(blocks=12, environments=["metal"], noise_floor=None, duration_s=0.2)
    results = tmp_path / "results"

    def stop(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.number == 4:
            raise EndedError

    with pytest.raises(EndedError):
        run(experiment, inventory, results, registry=project, listener=stop)
    (begun,) = (results / "tiny").glob("2*")
    assert len(records_of(begun)) == 4
    run(experiment, inventory, results, resume=begun, registry=project)
    records, rates = records_of(begun), [200.0] * 3 + [400.0] * 3 + [800.0] * 6
    assert [record.scenario.load for record in records] == [Load(LoadKind.RATE, rate) for rate in rates]
    assert [record.offered.offered_rps for record in records] == rates
    found = load_run(begun)
    slo = default_slo(found)
    assert slo == Slo(DEADLINE_MS, 90.0)
    (result,) = assess_capacity(found, slo).results
    assert result.carries_rps == ByEnd(800.0, 800.0, 800.0)
    assert (result.at_least, result.trials, result.steps) == (True, 12, 3)
    assert note(NoteCode.SEARCH_ENDS, rate_rps=800.0) in result.notes
    assert result.power_w is None or result.power_w.mid > 0
    page = render(found, analyse(found))
    assert "search found the " in page
    assert "Capacity of one" in page


def test_a_search_may_go_by_shares_of_the_capacity(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None, unlimited_client: None
) -> None:
    shares = {"between_shares": [0.02, 0.08], "capacity": {"tool": "h2load", "users": 2}}
    write(project, between_rps=None, **shares)
    experiment = rewrite(blocks=1, environments=["metal"], duration_s=0.2)
    records = records_of(run(experiment, inventory, tmp_path / "results", registry=project))
    assert [record.scenario.load for record in records] == [Load(LoadKind.SHARE, 0.04)] * 2, (
        "the A/A control searches for itself"
    )
    for record in records:
        assert record.offered.offered_rps == pytest.approx(0.04 * (record.offered.capacity_rps or 0))
