"""Container runtimes as environments: declared by files, named by inventories."""

import json
from pathlib import Path
from typing import Any

import pytest

from vmtoll.agent.sandboxes import Sandbox
from vmtoll.model.errors import ExperimentError
from vmtoll.model.runtime import Isolation, Runtime
from vmtoll.model.trial import MachineKind
from vmtoll.paths import PROJECT
from vmtoll.spec import runtimes
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load
from vmtoll.spec.inventory_faults import InventoryData, faults
from vmtoll.spec.machines import from_data

EXPERIMENTS = PROJECT / "workloads" / "experiments"


def data(**of_runc: Any) -> dict[str, Any]:
    """An inventory with a client, the host of containers and an environment of runc."""
    runc = {
        "vmtoll_runtime": "runc", "vmtoll_container_host": "big", "vmtoll_rootfs": "/srv/root", "vmtoll_cpus": "2-3",
        "vmtoll_address": "192.0.2.20", "vmtoll_network": "host", **of_runc,
    }  # fmt: skip
    hosts = {
        "load": {"ansible_host": "192.0.2.10"},
        "big": {"ansible_host": "192.0.2.20"},
        "runc": {key: value for key, value in runc.items() if value is not None},
    }
    return {
        "_meta": {"hostvars": hosts}, "clients": {"hosts": ["load"]}, "kvm_hosts": {"hosts": ["big"]},
        "containers": {"hosts": ["runc"]},
    }  # fmt: skip


def complaints(**of_runc: Any) -> list[str]:
    return [str(fault) for fault in faults(InventoryData(data(**of_runc), Path("lab.yml")))]


def test_every_shipped_runtime_is_valid_and_of_a_declared_kind() -> None:
    kinds = {name: runtimes.load(name).kind for name in Registry().paths["runtime"].names()}
    assert kinds.pop("process") is MachineKind.PROCESS
    assert set(kinds.values()) == {MachineKind.CONTAINER}
    assert {"runc", "crun", "runsc-systrap", "runsc-ptrace", "runsc-kvm", "kata", "krun"} <= kinds.keys()


@pytest.mark.parametrize("wrong", [{"runtime": "runc", "platform": "kvm"}, {"runtime": "process", "seccomp": False}])
def test_what_a_runtime_cannot_have(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="remove"):
        Runtime(description="a runtime", **wrong)


def test_an_unknown_runtime() -> None:
    with pytest.raises(ExperimentError, match="unknown runtime 'rnuc'"):
        runtimes.load("rnuc")


def test_an_experiment_knows_the_kinds_of_its_environments() -> None:
    experiment = load(EXPERIMENTS / "runtimes.yml").experiment
    assert experiment.kinds == {"process": "process", "runc": "container", "runsc-systrap": "container"}
    assert experiment.kind_of("runc") is MachineKind.CONTAINER
    assert experiment.baseline_arm.environment == "process"
    parts = load(EXPERIMENTS / "runtime-parts.yml").experiment
    assert parts.kind_of("runc-overlay") is MachineKind.CONTAINER
    assert parts.changes["runc-no-seccomp"].isolation == Isolation(seccomp=False)
    assert parts.changes["runc-no-seccomp"].explains == []


def test_isolation_is_a_change_of_a_runtime(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yml"
    file.write_text(
        "question: is it wrong?\nenvironments: [metal, open]\nservers: [nginx]\nworkloads: [site-siege]\nblocks: 6\n"
        "warmup_s: 1\nduration_s: 1\nchanges: {open: {of: metal, isolation: {seccomp: false}}}\n"
    )
    with pytest.raises(ExperimentError, match="isolation: metal is not a container runtime"):
        load(file)


def test_a_runtime_is_reached_on_its_host_and_has_a_folder_of_its_own() -> None:
    inventory = from_data(data(), ["runc"])
    runc, big = inventory.suts["runc"], inventory.kvm_hosts["big"]
    assert runc.argv() == big.argv()
    assert runc.root == "/var/lib/vmtoll/runtimes/runc"
    assert runc.address == "192.0.2.20"
    assert inventory.host(runc) is None
    assert not runc.is_made
    assert runc.sandbox is not None
    assert (runc.sandbox["runtime"], runc.sandbox["cpus"], runc.sandbox["network"]) == ("runc", "2-3", "host")
    json.dumps(runc.sandbox)


def test_a_right_inventory_has_no_faults() -> None:
    assert complaints() == []


@pytest.mark.parametrize(
    ("variables", "observation"),
    [
        ({"vmtoll_runtime": "rnuc"}, "unknown vmtoll_runtime 'rnuc' (did you mean 'runc'?)"),
        ({"vmtoll_environment": "metal"}, "vmtoll_environment is 'metal' and vmtoll_runtime 'runc'"),
        ({"vmtoll_container_host": None}, "vmtoll_container_host is not set"),
        ({"vmtoll_cpus": None}, "vmtoll_cpus is not set"),
        ({"vmtoll_rootfs": None}, "neither vmtoll_rootfs nor vmtoll_image is set"),
        ({"vmtoll_network": "namespace"}, "vmtoll_network is namespace, and vmtoll_network_namespace is not set"),
        ({"vmtoll_address": None}, "vmtoll_address is not set"),
        ({"vmtoll_runtime": "runsc-systrap"}, "vmtoll_network is host, and gVisor's own TCP would take its cards"),
        (
            {"vmtoll_runtime": "process", "vmtoll_network": "bridge"},
            "vmtoll_network is bridge, and a plain process is not on podman's",
        ),
    ],
)
def test_what_an_inventory_lacks(variables: dict[str, Any], observation: str) -> None:
    assert any(observation in complaint for complaint in complaints(**variables)), complaints(**variables)


def test_the_command_line_of_a_container(tmp_path: Path) -> None:
    sandbox = (
        from_data(data(vmtoll_rootfs=str(tmp_path), vmtoll_runtime_path="/bin/true"), ["runc"]).suts["runc"].sandbox
    )
    assert sandbox is not None
    started = Sandbox(sandbox, tmp_path)  # type: ignore[arg-type]
    words = started.command({"name": "nginx", "argv": ["/usr/sbin/nginx"], "port": 8080, "user": "www-data"})
    assert words[:2] == ["podman", "--runtime=/bin/true"]
    assert {"--read-only", "--cpuset-cpus=2-3", "--network=host", "--user=www-data"} <= set(words)
    assert words[-3:] == ["--rootfs", str(tmp_path), "/usr/sbin/nginx"]
    started.isolate({"seccomp": False, "content": "overlay"})
    changed = started.command({"name": "nginx", "argv": ["/usr/sbin/nginx"], "port": 8080})
    assert "--security-opt=seccomp=unconfined" in changed
    assert changed[-2] == f"{tmp_path}:O"
    assert not any(word.startswith("--volume") for word in changed)
