"""The experiment `scaling`: levels of one load, at both scales, enough for the law that is fitted to them; and such a
sweep through a whole run on this machine: a real agent, the real h2load, a real lighttz.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from analysis.capacity.scaling import scaling
from analysis.capacity.usl import MIN_LEVELS
from analysis.load import load_run
from analysis.metrics import LIMITING
from analysis.report import render
from workloads.runner.experiment import Scale, load
from workloads.runner.registry import Registry
from workloads.runner.run import plan, run


@pytest.mark.parametrize(("scale", "servers"), [("full", 2), ("small", 1)])
def test_its_workloads_differ_in_their_users_only(scale: Scale, servers: int) -> None:
    file = Registry().experiment_file("scaling")
    resolved = load(file, scale=scale)
    assert resolved.experiment.scale == scale
    documents = [workload.model_dump() for workload in resolved.workloads.values()]
    assert [document["users"] for document in documents] == [1, 2, 5, 10, 20, 50, 100]
    for document in documents:
        for key in ("name", "description", "users"):
            document.pop(key)
    assert all(document == documents[0] for document in documents)
    assert len(plan(file, scale=scale).trials) == 7 * 2 * servers * resolved.experiment.blocks


def test_the_rows_of_a_run_are_one_sweep(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Callable[..., Path], load_tools: None
) -> None:
    keys = yaml.safe_load(project.workload_file("tiny").read_text())
    keys |= {"tool": "h2load", "twin": None, "keep_alive": True}
    names = [f"tiny-{users}" for users in range(1, MIN_LEVELS + 1)]
    for users, name in enumerate(names, start=1):
        text = yaml.safe_dump({**keys, "users": users, "description": f"{users} at once"})
        project.workload_file(name).write_text(text)
    experiment = rewrite(blocks=1, environments=["metal"], noise_floor=None, duration_s=0.2, workloads=names)
    found = load_run(run(experiment, inventory, tmp_path / "results", registry=project))
    trials = found.trials[found.trials["verdict"] != "invalid"]
    limited = trials["codes"].map(lambda codes: bool(set(codes) & LIMITING["tool"])).astype(bool)
    laws, page = scaling(found), render(found)
    if limited.any() or len(trials) < MIN_LEVELS:  # where this machine's client is its bottleneck, nothing follows
        assert laws == []
        return
    (law,) = laws
    assert (law["over"], law["tool"], law["largest"]) == ("users", "h2load", MIN_LEVELS)
    assert law["intervals"] == {"alpha": None, "beta": None}, "a single block"
    assert law["text"] in page
    assert "Throughput over users (h2load)" in page
