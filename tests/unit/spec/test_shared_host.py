"""What a workload may say of guests that share a host, neighbours and cold caches."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.machines import EXPERIMENT, WORKLOAD
from vmtoll.model.errors import ExperimentError
from vmtoll.model.load import Load, LoadKind, NeighbourLoad
from vmtoll.runner.plan import FIXED_COST_S, combinations, expected_s
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load

CAPACITY = {"tool": "h2load", "users": 2}
RATE = {"kind": "rate", "tool": "vegeta", "crosscheck": None, "users": None, "rate_rps": 100, "deadline_ms": 50.0}
SWEEP = {**RATE, "kind": "sweep", "rate_rps": None, "shares": [0.5, 1.0], "capacity": CAPACITY}
CLOSED = {"tool": "siege", "crosscheck": None}
WITH_NEIGHBOUR = {**CLOSED, "neighbour": {"share": [0.0, 0.5]}, "capacity": CAPACITY}


def with_workload(project: Registry, change: dict[str, Any]) -> Path:
    data = {key: value for key, value in {**WORKLOAD, **change}.items() if value is not None}
    project.workload_file("tiny").write_text(yaml.safe_dump(data))
    return project.experiment_file("tiny")


@pytest.mark.parametrize(
    ("change", "loads", "guests"),
    [
        (CLOSED, [Load(LoadKind.CLOSED, 2)], 1),
        ({**CLOSED, "users": [1, 2], "guests": 2}, [Load(LoadKind.CLOSED, users, 2) for users in (1, 2)], 2),
        ({**RATE, "guests": [1, 3]}, [Load(LoadKind.RATE, 100, guests) for guests in (1, 3)], 3),
        (
            {**SWEEP, "guests": [1, 2]},
            [Load(LoadKind.SHARE, share, guests) for guests in (1, 2) for share in (0.5, 1.0)],
            2,
        ),
        (
            WITH_NEIGHBOUR,
            [Load(LoadKind.CLOSED, 2, None, NeighbourLoad(LoadKind.SHARE, share)) for share in (0.0, 0.5)],
            2,
        ),
        (
            {**RATE, "guests": 2, "neighbour": {"rate_rps": 40}},
            [Load(LoadKind.RATE, 100, 2, NeighbourLoad(LoadKind.RATE, 40))],
            3,
        ),
    ],
)
def test_guests_and_neighbour_make_a_scenario_of_each_load(
    project: Registry, change: dict[str, Any], loads: list[Load], guests: int
) -> None:
    resolved = load(with_workload(project, change), project)
    assert resolved.workloads["tiny"].loads == loads
    assert len(combinations(resolved)) == 3 * len(loads), "metal, its A/A control, the guest"
    assert resolved.guests == guests


def test_a_neighbours_tool_and_capacity_count(project: Registry) -> None:
    """The tool has to be on the client, and measuring the capacity takes its time."""
    shares = load(with_workload(project, WITH_NEIGHBOUR), project)
    assert set(shares.workloads["tiny"].tools) == {"siege", "vegeta", "h2load"}
    at_rates = {**WITH_NEIGHBOUR, "neighbour": {"rate_rps": [0, 40]}, "capacity": None}
    rates = load(with_workload(project, at_rates), project)
    once_s = EXPERIMENT["warmup_s"] + EXPERIMENT["duration_s"] + FIXED_COST_S
    assert expected_s(shares) - expected_s(rates) == pytest.approx(3 * once_s), "three trials on metal"
    slowest = shares.experiment.model_copy(update={"shares_of": "slowest"})
    both = replace(shares, experiment=slowest)
    assert expected_s(both) - expected_s(rates) == pytest.approx(6 * once_s), "three on each of two environments"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"guests": 0}, r"guests: must be 1 or more, in rising order"),
        ({"guests": [2, 1]}, r"guests: must be 1 or more, in rising order"),
        ({"guests": 2}, r"crosscheck: h2load sends all to the host of its first URL, .*; allowed: oha, siege"),
        ({**CLOSED, "guests": 2, "tool": "ab", "page": "index.html"}, r"tool: ab sends all to the host of its first"),
        ({**CLOSED, "guests": 2, "client": "localhost"}, r"client: with `guests` or `neighbour` it must be remote"),
        ({**WITH_NEIGHBOUR, "capacity": None}, r"capacity: neighbour\.share needs it"),
        ({**CLOSED, "capacity": CAPACITY}, r"capacity: neighbour\.share needs it .*, nothing else does"),
        ({**RATE, "neighbour": {"share": 0.5}}, r"capacity: share needs it"),
        ({**RATE, "neighbour": {}}, r"neighbour.*give either rate_rps or share"),
        ({**RATE, "neighbour": {"rate_rps": [4, 4]}}, r"neighbour.*its loads must be 0 or more, in rising order"),
        ({**RATE, "neighbour": {"rate_rps": 4, "tool": "oha"}}, r"neighbour\.tool: oha cannot be ended .*: vegeta$"),
        ({**RATE, "neighbour": {"rate_rps": 4, "tool": "siege"}}, r"neighbour\.tool: siege is refused for tails"),
        ({"cold": True}, r"crosscheck: must be null with `cold: true`"),
        ({**CLOSED, "cold": True, "page": "index.html"}, r"page: must not be given with `cold: true`"),
        ({**SWEEP, "cold": True}, r"cold: goes with rates only"),
        ({**CLOSED, "cold": True, "tool": "h2load"}, r"tool: h2load has all its users start at .*; allowed: siege"),
        ({**RATE, "cold": True, "tool": "oha"}, r"tool: oha draws its URLs at random, .*; allowed: vegeta"),
        ({**RATE, "kind": "ramp", "guests": 2}, r"guests: unknown key 'guests'"),
    ],
)
def test_conflicting_settings_are_refused(project: Registry, change: dict[str, Any], said: str) -> None:
    path = with_workload(project, change)
    with pytest.raises(ExperimentError, match=said):
        load(path, project)
