"""A container as a machine under test: neither metal nor a guest, found by its host."""

from typing import Any

from vmtoll.machines.facts import accelerator
from vmtoll.model.inventory import Host
from vmtoll.model.trial import Accelerator
from vmtoll.spec.machines import from_data


def data(**container: Any) -> dict[str, Any]:
    hostvars = {
        "load": {}, "big": {"vmtoll_environment": "metal"}, "host": {},
        "box": {"vmtoll_environment": "container", "vmtoll_container_host": "host", **container},
    }  # fmt: skip
    return {
        "clients": {"hosts": ["load"]}, "metal_hosts": {"hosts": ["big"]}, "containers": {"hosts": ["box"]},
        "kvm_hosts": {"hosts": ["host"]}, "_meta": {"hostvars": hostvars},
    }  # fmt: skip


def test_a_container_is_an_arm_whose_host_is_watched() -> None:
    inventory = from_data(data(), ["metal", "container"])
    box = inventory.suts["container"]
    assert (box.role, box.container_name) == ("container", "box")
    host = inventory.host(box)
    assert host is not None
    assert inventory.shares_kernel(box, host)
    assert inventory.kvm_host(box) is None
    assert inventory.unseen_hosts == []
    assert accelerator(box.role, "kvm", None) is Accelerator.NONE, "what is below its host runs no code of its own"


def test_its_name_may_be_the_engines() -> None:
    inventory = from_data(data(vmtoll_container="shop-1"), ["container"])
    assert inventory.suts["container"].container_name == "shop-1"


def test_only_a_container_with_cpus_is_ours_to_make() -> None:
    variables = {"vmtoll_environment": "container", "vmtoll_container_host": "host"}
    assert not Host("box", "container", variables).is_made
    assert Host("box", "container", {**variables, "vmtoll_cpus": "2-3"}).is_made
    assert not Host("big", "metal", {"vmtoll_cpus": "2-3"}).is_made
    assert Host("big", "metal", {"vmtoll_container_host": "host"}).container_name is None, "the lab's metal"
