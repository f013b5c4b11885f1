"""The experiment `scaling`: levels of one load, at both scales, enough for the law that is fitted to them; and such a
sweep through a whole run on this machine: a real agent, the real h2load, a real lighttz.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.measured import plan, run
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.capacity.scaling import MIN_LEVELS, LevelKind, scalings
from vmtoll.model.experiment import Scale
from vmtoll.model.finding import Role, Validity
from vmtoll.model.metric import THROUGHPUT
from vmtoll.report.capacity import scaling_text
from vmtoll.report.html import render
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load


@pytest.mark.parametrize(("scale", "servers"), [("full", 2), ("small", 1)])
def test_it_is_one_workload_of_seven_numbers_of_users(scale: Scale, servers: int) -> None:
    file = Registry().experiment_file("scaling")
    resolved = load(file, scale=scale)
    assert resolved.experiment.scale == scale
    (workload,) = resolved.workloads.values()
    assert [load.value for load in workload.loads] == [1, 2, 5, 10, 20, 50, 100]
    assert len(plan(file, scale=scale).trials) == 7 * 2 * servers * resolved.experiment.blocks


def test_the_rows_of_a_run_are_one_sweep(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Callable[..., Path], load_tools: None
) -> None:
    keys = yaml.safe_load(project.workload_file("tiny").read_text())
    keys |= {"tool": "h2load", "crosscheck": None, "users": list(range(1, MIN_LEVELS + 1))}
    project.workload_file("tiny").write_text(yaml.safe_dump(keys))
    experiment = rewrite(blocks=1, environments=["metal"], noise_floor=None, duration_s=0.2)
    measured = load_run(run(experiment, inventory, tmp_path / "results", registry=project))
    usable = [trial for trial in measured.trials if trial.validity is not Validity.INVALID]
    limited = [trial for trial in usable if THROUGHPUT.is_limited(trial, Role.PRIMARY)]
    laws, page = scalings(measured), render(measured, analyse(measured))
    if limited or len(usable) < MIN_LEVELS:  # where this machine's client is its bottleneck, nothing follows
        assert laws == []
        return
    (law,) = laws
    assert (law.over, law.workload, law.tool) == (LevelKind.USERS, "tiny", "h2load")
    assert sorted(point.level for point in law.points) == list(range(1, MIN_LEVELS + 1))
    assert law.alpha_interval is law.beta_interval is None, "a single block"
    assert scaling_text(law) in page
    assert "Throughput over users (h2load)" in page
