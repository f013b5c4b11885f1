"""Operations that cannot be done are refused before anything is measured, in one sentence."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from vmtoll.hypervisors import libvirt
from vmtoll.machines.session import Session
from vmtoll.model.errors import ExperimentError
from vmtoll.model.inventory import Host, Inventory
from vmtoll.runner.operations import check_operations
from vmtoll.runner.requirements import check_inventory
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, load
from vmtoll.spec.machines import from_data

DOCUMENT: dict[str, Any] = {
    "question": "?", "environments": ["kvm-default"], "servers": ["nginx"], "workloads": ["site-rate-100"],
    "blocks": 6, "warmup_s": 1, "duration_s": 60,
}  # fmt: skip
HOSTS: dict[str, dict[str, Any]] = {
    "client": {}, "big1": {}, "big2": {}, "here": {"ansible_connection": "local"},
    "guest": {"vmtoll_environment": "kvm-default", "vmtoll_kvm_host": "big1", "vmtoll_domain": "web1"},
}  # fmt: skip
GROUPS = {"clients": ["client"], "kvm_hosts": ["big1", "big2", "here"], "kvm_guests": ["guest"], "metal_hosts": []}


def resolved(tmp_path: Path, to: str, **operation: Any) -> Resolved:
    path = tmp_path / "moves.yml"
    during = {"moved": {"of": "kvm-default", "at_s": 10, **(operation or {"do": "migrate", "to": to})}}
    path.write_text(yaml.safe_dump(DOCUMENT | {"during": during}))
    return load(path, Registry())


def inventory(to: str, **hosts: Any) -> Inventory:
    hostvars = {name: HOSTS[name] | hosts.get(name, {}) for name in HOSTS}
    data = {"_meta": {"hostvars": hostvars}, **{name: {"hosts": members} for name, members in GROUPS.items()}}
    machine_of = {"kvm-default": "kvm-default", "moved": "kvm-default"}
    return from_data(data, ["kvm-default"], targets=[to]).with_environments(machine_of)


def test_the_target_is_a_machine_of_the_run(tmp_path: Path) -> None:
    machines = inventory("big2")
    assert [host.name for host in machines.hosts()] == ["client", "guest", "big1", "big2"]
    assert [host.name for host in machines.other_kvm_hosts] == ["here"]
    check_inventory(resolved(tmp_path, "big2"), machines, Path("lab.yml"))


@pytest.mark.parametrize(
    ("to", "hosts", "words"),
    [
        ("client", {}, r"during\.moved\.to: 'client' is not in the inventory's group `kvm_hosts`; add it there"),
        ("big1", {}, r"during\.moved\.to: guest runs on big1 already; name another KVM host"),
        ("big2", {"big2": {"ansible_host": "big1"}}, "guest runs on big2 already"),
        ("here", {}, "here is this machine, and other hosts have no address of it; set its vmtoll_migration_uri"),
    ],
)
def test_a_target_that_is_none(tmp_path: Path, to: str, hosts: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        check_inventory(resolved(tmp_path, to), inventory(to, **hosts), Path("lab.yml"))


def test_how_other_hosts_reach_a_libvirt() -> None:
    def uri(**variables: Any) -> str:
        return Host("big2", "kvm_host", variables).migration_uri

    assert uri() == "qemu+ssh://big2/system"
    assert (
        uri(ansible_host="192.0.2.7", ansible_user="root", ansible_port=2222) == "qemu+ssh://root@192.0.2.7:2222/system"
    )
    assert uri(vmtoll_migration_uri="qemu+tls://big2/system") == "qemu+tls://big2/system"


def test_what_a_target_lacks_is_said_with_the_file_and_the_operation(tmp_path: Path) -> None:
    """The source's libvirt does not reach the target's."""
    machines, experiment = inventory("big2"), resolved(tmp_path, "big2")

    def line(name: str) -> Any:
        done = {"exit_status": 1, "stdout": "", "stderr": "error: Permission denied"}
        return SimpleNamespace(host=machines.kvm_hosts[name], call=lambda *_, **__: done)

    lines = {name: line(name) for name in ("big1", "big2")}
    session = SimpleNamespace(
        resolved=experiment, inventory=machines, lines=lines,
        on_host=lambda guest: libvirt.LibvirtGuest(guest, lines["big1"]),
    )  # fmt: skip
    with pytest.raises(
        ExperimentError,
        match=r"moves\.yml: during\.moved: big1 does not reach the libvirt of big2 by qemu\+ssh://big2/system: "
        "error: Permission denied; let its root log in there without a password, or set vmtoll_migration_uri",
    ):
        check_operations(cast(Session, session))


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ({"do": "balloon", "memory_mib": 64, "for_s": 1}, r"web1: it has no balloon \(memballoon\)"),
        ({"do": "snapshot"}, "web1: its disk vda is raw, .*; use `snapshot-external`"),
    ],
)
def test_what_a_guest_lacks_is_said_before_the_first_trial(
    tmp_path: Path, operation: dict[str, Any], words: str
) -> None:
    experiment, machines = resolved(tmp_path, "", **operation), inventory("")
    disk = "<disk type='file'><driver type='raw'/><source file='/one'/><target dev='vda'/></disk>"
    done = {"exit_status": 0, "stdout": f"<domain><devices>{disk}</devices></domain>", "stderr": ""}
    line: Any = SimpleNamespace(host=machines.kvm_hosts["big1"], call=lambda *_, **__: done)
    session = SimpleNamespace(
        resolved=experiment, inventory=machines, lines={"big1": line},
        on_host=lambda guest: libvirt.LibvirtGuest(guest, line),
    )  # fmt: skip
    with pytest.raises(ExperimentError, match=rf"moves\.yml: during\.moved: {words}"):
        check_operations(cast(Session, session))
