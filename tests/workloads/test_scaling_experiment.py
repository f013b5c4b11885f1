"""The experiment `scaling`: levels of one load, at both scales, enough for the law that is fitted to them."""

import pytest

from workloads.runner.experiment import Scale, load
from workloads.runner.registry import Registry
from workloads.runner.run import plan


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
