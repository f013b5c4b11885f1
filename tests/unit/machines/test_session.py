"""The machine that the others of a run are compared with."""

from types import SimpleNamespace
from typing import Any

import pytest

from vmtoll.machines.session import Session
from vmtoll.model.experiment import Experiment
from vmtoll.model.facts import HostFacts
from vmtoll.spec.machines import from_data

MACHINES = {"big": "metal", "first": "kvm-default", "second": "kvm-tuned"}
COMMON = {
    "name": "tiny", "question": "?", "servers": ["nginx"], "workloads": ["w"], "blocks": 6, "warmup_s": 1,
    "duration_s": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "machine"),
    [
        ({"environments": ["kvm-default", "metal"]}, "big"),
        ({"environments": ["kvm-default", "kvm-tuned"]}, "first"),
        ({"environments": ["kvm-default", "kvm-tuned"], "baseline": "kvm-tuned"}, "second"),
        (
            {
                "environments": ["kvm-tuned", "kvm-default", "quiet"],
                "changes": {"quiet": {"of": "kvm-default", "sysctls": {"net.core.somaxconn": "64"}}},
                "baseline": "quiet",
            },
            "first",
        ),
    ],
)
def test_machines_are_compared_with_that_of_the_baseline(keys: dict[str, Any], machine: str) -> None:
    experiment = Experiment.model_validate(COMMON | keys)
    groups = {"clients": ["load"], "metal_hosts": ["big"], "kvm_guests": ["first", "second"]}
    variables = {name: {"vmtoll_environment": environment} for name, environment in MACHINES.items()}
    inventory = from_data(
        {"_meta": {"hostvars": variables}} | {name: {"hosts": hosts} for name, hosts in groups.items()},
        list(dict.fromkeys(map(experiment.machine_of, experiment.environments))),
    )
    session = Session.__new__(Session)
    session.resolved = SimpleNamespace(experiment=experiment)  # type: ignore[assignment]
    session.inventory = inventory.with_environments(
        {name: experiment.machine_of(name) for name in experiment.environments}
    )
    session.facts = {name: HostFacts(kernel=name) for name in MACHINES}
    assert session.reference.kernel == machine
