"""Operations in an experiment's file: the environments that they become, and mistakes in them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from vmtoll.model.errors import ExperimentError
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, load

DOCUMENT: dict[str, Any] = {
    "question": "?", "environments": ["kvm-default"], "servers": ["nginx"], "workloads": ["site-rate-100"],
    "blocks": 6, "warmup_s": 1, "duration_s": 8,
}  # fmt: skip
PAUSE = {"of": "kvm-default", "do": "pause", "for_s": 0.4, "at_s": 3}


def read(tmp_path: Path, **keys: Any) -> Resolved:
    path = tmp_path / "during.yml"
    path.write_text(yaml.safe_dump(DOCUMENT | keys))
    return load(path, Registry())


def test_one_operation_happens_to_every_guest(tmp_path: Path) -> None:
    resolved = read(tmp_path, environments=["metal", "kvm-default"], during={"do": "backup", "at_s": 2})
    experiment = resolved.experiment
    assert experiment.environments == ["metal", "kvm-default", "kvm-default-backup"]
    assert experiment.machine_of("kvm-default-backup") == "kvm-default"
    assert experiment.baseline_arm.environment == "metal"
    assert type(experiment).model_validate(experiment.model_dump(mode="json")) == experiment, "as it is stored"


def test_operations_with_names_are_compared_with_their_machine(tmp_path: Path) -> None:
    experiment = read(tmp_path, during={"a": PAUSE, "b": PAUSE | {"for_s": 1}}).experiment
    assert experiment.environments == ["kvm-default", "a", "b"]
    assert experiment.baseline_arm.environment == "kvm-default"
    shipped = load(Registry().experiment_file("operations"), Registry(), "small").experiment
    assert set(shipped.during) < set(shipped.environments)
    moved = load(Registry().experiment_file("migration"), Registry(), "small").experiment
    assert [operation.to for operation in moved.during.values()] == ["kvm-host2"]


def test_metal_runs_a_command(tmp_path: Path) -> None:
    during = {"do": "command", "on": "guest", "command": "sync", "at_s": 1}
    experiment = read(tmp_path, environments=["metal"], during=during).experiment
    assert experiment.environments == ["metal", "metal-command"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"during": {"a": PAUSE | {"for_s": None}}}, "for_s: `do: pause` needs it"),
        ({"during": {"a": PAUSE | {"command": "sync"}}}, "command: `do: pause` has none; leave it out"),
        ({"during": {"a": PAUSE | {"revert": "sync"}}}, "revert: vmtoll undoes `do: pause` without it"),
        ({"during": {"a": PAUSE | {"on": "guest"}}}, "on: `do: pause` is done on the KVM host"),
        ({"during": {"a": PAUSE | {"at_s": 7.8}}}, "during: a: it would not end within duration_s, 8 s"),
        ({"during": {"a": PAUSE | {"of": "metal"}}}, "of: 'metal' is not one of `environments` without an operation"),
        ({"during": {"metal": PAUSE}}, "during.metal: is a guest profile or metal; give the operation another name"),
        ({"during": {"do": "pause", "for_s": 1, "at_s": 1}, "environments": ["metal"]}, "no environment is a guest"),
        ({"during": {"a": PAUSE}, "workloads": ["site-siege"]}, "is not an open-loop vegeta workload"),
        ({"during": {"a": PAUSE, "b": PAUSE | {"at_s": 4}}}, "all operations of kvm-default begin at the same time"),
        ({"during": {"a": PAUSE | {"limit_s": 0.3}}}, "for_s: 0.4 s is not below limit_s, 0.3 s"),
        ({"during": {"do": "backup", "of": "kvm-default", "at_s": 2}}, "leave `of` out, or name it"),
        ({"during": {"a": PAUSE}, "workloads": ["site-search"]}, "site-search searches for its rate"),
        ({"during": {"a": {"do": "migrate", "of": "kvm-default", "at_s": 2}}}, "to: `do: migrate` needs it"),
        ({"during": {"a": PAUSE | {"to": "big2"}}}, "to: `do: pause` has none; leave it out"),
        ({"during": {"a": PAUSE | {"auto_converge": True}}}, "auto_converge: `do: pause` has none; leave it out"),
        ({"during": {"a": PAUSE | {"bandwidth_mib_per_s": 9}}}, "bandwidth_mib_per_s: `do: pause` has none"),
        ({"during": {"a": {"do": "burn", "of": "kvm-default", "at_s": 1}}}, "during.a.do"),
    ],
)
def test_operations_that_make_no_sense(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        read(tmp_path, **keys)
    assert said in str(refused.value)
