"""Reproduced, not reproduced, not comparable: against known truths, and the interval against scipy's Welch test."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from synthetic_run import Row, Truth, make_run

from analysis.judge import EQUIVALENT, METAL_FASTER, NOT_DISTINGUISHABLE
from analysis.load import load_run
from analysis.publish.agreement import NOT_COMPARABLE, NOT_REPRODUCED, REPRODUCED, agreement
from analysis.publish.replication import compare_runs
from analysis.stats import paired

QUIET = Truth(drift=0.0, noise=0.003, blocks=8)


def _entry(logs: Any, kind: str = METAL_FASTER, floor: float | None = None, bound: str | None = None) -> dict[str, Any]:
    found = paired(logs)
    low, high = (np.exp(found.t.low), np.exp(found.t.high)) if found.t else (None, None)
    ratio = {"ratio": float(np.exp(found.mean)), "ratio_low": low, "ratio_high": high, "blocks": found.n}
    return ratio | {"kind": kind, "text": kind, "bound": bound, "noise_floor": floor}


def test_the_interval_is_welchs() -> None:
    rng = np.random.default_rng(5)
    first, second = rng.normal(-0.10, 0.02, 6), rng.normal(-0.11, 0.05, 10)
    found = agreement(_entry(first), _entry(second), 0.02)
    expected = stats.ttest_ind(second, first, equal_var=False).confidence_interval(0.95)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((expected.low, expected.high))
    assert found.change == pytest.approx(second.mean() - first.mean())


@pytest.mark.parametrize("blocks", [6, 10])
def test_two_runs_of_one_truth_differ_by_chance_in_five_percent(blocks: int) -> None:
    """The interval covers zero in 95% of cases; 2,000 pairs of runs know that to ±1 point."""
    rng = np.random.default_rng(11)
    draws = rng.normal(-0.3, 0.02, (2000, 2, blocks))
    found = [agreement(_entry(first), _entry(second), 0.0) for first, second in draws]
    outside = sum(one.interval is not None and one.interval.excludes_zero for one in found) / len(found)
    assert outside == pytest.approx(0.05, abs=0.015)
    refused = sum(one.status == NOT_REPRODUCED for one in found) / len(found)
    assert refused <= outside, "a tenth of the effect is tolerated"


def test_a_change_beyond_the_tolerance_is_not_reproduced() -> None:
    near = np.array([-0.001, 0.0, 0.001, -0.001, 0.0, 0.001])
    first = _entry(near - 0.10)
    assert agreement(first, _entry(near - 0.115), 0.02).status == REPRODUCED, "1.5%, within the margin of 2%"
    assert agreement(first, _entry(near - 0.14), 0.02).status == NOT_REPRODUCED
    assert agreement(first, _entry(near - 0.14), 0.05).status == REPRODUCED
    assert agreement(first | {"noise_floor": 0.05}, _entry(near - 0.14), 0.02).status == REPRODUCED
    assert agreement(_entry(near - 1.0), _entry(near - 1.09), 0.02).status == REPRODUCED, "within a tenth of the effect"
    assert agreement(_entry(near - 1.0), _entry(near - 1.11), 0.02).status == NOT_REPRODUCED


def test_the_claim_decides_too() -> None:
    near = np.array([-0.01, 0.0, 0.01, -0.01, 0.0, 0.01])
    claim, none = _entry(near - 0.03), _entry(near - 0.03, NOT_DISTINGUISHABLE)
    assert agreement(none, claim, 0.02).status == NOT_COMPARABLE
    assert agreement(claim, none, 0.02).status == NOT_COMPARABLE
    assert agreement(claim, _entry(near - 0.02, EQUIVALENT), 0.02).status == NOT_REPRODUCED
    assert agreement(claim, _entry([-0.03]), 0.02).status == REPRODUCED
    bounds = agreement(claim, _entry(near - 3, bound="at least"), 0.02)
    assert (bounds.status, bounds.interval) == (REPRODUCED, None)


def _compare(tmp_path: Path, first: Truth, second: Truth, edit: Callable[[Path], None] | None = None) -> dict[str, Any]:
    runs = [make_run(tmp_path / name, truth) for name, truth in (("first", first), ("second", second))]
    if edit:
        edit(runs[1])
    found = compare_runs(load_run(runs[0]), load_run(runs[1]))
    json.dumps(found)
    return found


def test_the_same_truth_is_reproduced(tmp_path: Path) -> None:
    found = _compare(tmp_path, QUIET, replace(QUIET, seed=2))
    (scenario,) = found["scenarios"]
    assert (scenario["status"], found["counts"]) == (REPRODUCED, {REPRODUCED: 1})
    assert set(scenario["metrics"]) == {"throughput", "latency_p99", "cpu", "host_cpu"}
    assert scenario["absolute"]["metal"]["throughput_rps"] == pytest.approx(1, abs=0.01)


def test_another_truth_is_not(tmp_path: Path) -> None:
    found = _compare(tmp_path, QUIET, replace(QUIET, seed=2, servers={"nginx": 0.7}))
    (scenario,) = found["scenarios"]
    assert scenario["status"] == NOT_REPRODUCED
    assert scenario["reason"] == "throughput"
    assert scenario["metrics"]["throughput"]["change"] == pytest.approx(0.7 / 0.9, rel=0.01)
    assert scenario["metrics"]["cpu"]["status"] == REPRODUCED


def _set(document: str, *path: str, value: Any) -> Callable[[Path], None]:
    def edit(run_dir: Path) -> None:
        content = json.loads((run_dir / document).read_text())
        here = content
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = value
        (run_dir / document).write_text(json.dumps(content))

    return edit


@pytest.mark.parametrize(
    ("edit", "fact"),
    [
        (_set("run.json", "lab", value="hosts"), "lab"),
        (_set("run.json", "link", value="1gbit"), "link"),
        (_set("run.json", "versions", "siege", value="4.1"), "version of siege"),
        (_set("hosts.json", "metal", "cpu_model", value="Another CPU"), "cpu model on metal"),
        (_set("hosts.json", "kvm-default", "workers", value=2), "workers on kvm-default"),
        (_set("hosts.json", "metal", "servers", "nginx", "binary_sha256", value="00"), "server binary sha256 on metal"),
        (_set("hosts.json", "metal", "servers", "nginx", "version", value="2.0"), "server version on metal"),
        (
            _set("run.json", "experiment", "resolved", value={"workloads": {"siege-site": {"kind": "rate"}}}),
            "workload kind",
        ),
        (_set("run.json", "experiment", "resolved", value={"site": {"seed": 3}}), "site seed"),
    ],
)  # fmt: skip
def test_the_fact_that_differs_is_named(tmp_path: Path, edit: Callable[[Path], None], fact: str) -> None:
    (scenario,) = _compare(tmp_path, QUIET, QUIET, edit)["scenarios"]
    assert scenario["status"] == NOT_COMPARABLE
    assert [one["fact"] for one in scenario["facts"]] == [fact]
    assert scenario["reason"] == f"{fact} differs"
    assert {one["status"] for one in scenario["metrics"].values()} == {NOT_COMPARABLE}
    assert scenario["absolute"] is None


def test_emulation_is_not_kvm(tmp_path: Path) -> None:
    (scenario,) = _compare(tmp_path, QUIET, replace(QUIET, accelerator="tcg"))["scenarios"]
    assert (scenario["status"], scenario["reason"]) == (NOT_COMPARABLE, "accelerator differs")


def test_on_another_kernel_ratios_are_compared_and_absolute_figures_are_not(tmp_path: Path) -> None:
    edit = _set("hosts.json", "metal", "kernel", value="6.2")
    (scenario,) = _compare(tmp_path, QUIET, replace(QUIET, seed=2), edit)["scenarios"]
    assert scenario["status"] == REPRODUCED
    assert [one["fact"] for one in scenario["other_differences"]] == ["kernel on metal"]
    assert scenario["absolute"] is None


def test_a_scenario_of_one_run_only(tmp_path: Path) -> None:
    found = _compare(tmp_path, replace(QUIET, servers={"nginx": 0.9, "lighttz": 0.8}), QUIET)
    by_server = {scenario["server"]: scenario for scenario in found["scenarios"]}
    assert by_server["lighttz"]["status"] == NOT_COMPARABLE
    assert by_server["lighttz"]["reason"] == "only in the first run"


def test_invalid_trials_are_no_evidence(tmp_path: Path) -> None:
    def spoil(row: Row) -> list[Row]:
        return [row | {"verdict": "invalid", "reasons": "wrong-body: 1 of 16"}]

    (scenario,) = _compare(tmp_path, QUIET, replace(QUIET, change=spoil))["scenarios"]
    assert scenario["status"] == NOT_COMPARABLE
    assert "the second run has no result" in scenario["reason"]
