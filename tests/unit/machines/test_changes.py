"""What is in place on a KVM host while a guest is measured. Its real twin: tests/lab/test_vary_in_the_lab.py."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from vmtoll.machines.changes import alter
from vmtoll.machines.session import Session
from vmtoll.model.change import Change
from vmtoll.model.inventory import Host, Inventory


class Line:
    """An agent that notes what it is asked."""

    def __init__(self, host: Host, asked: list[tuple[Any, ...]]) -> None:
        self.host, self.asked, self.lost_because = host, asked, None

    def call(self, action: str, *_: float, **words: Any) -> dict[str, bool]:
        self.asked.append((self.host.name, action, words.get("guest"), words.get("boots")))
        return {"ran": False, "boots": False}


@pytest.mark.parametrize(
    ("environment", "reverted", "applied"), [("quiet", "web2", "web1"), ("kvm-multiqueue", "web1", None)]
)
def test_a_hosts_setting_for_one_guest_is_not_there_while_another_is_measured(
    environment: str, reverted: str, applied: str | None
) -> None:
    host = Host("big1", "kvm_host", {})
    web1, web2 = (Host(name, "kvm_guest", {"vmtoll_kvm_host": "big1"}) for name in ("web1", "web2"))
    machines = {"kvm-default": [web1], "quiet": [web1], "kvm-multiqueue": [web2]}
    asked: list[tuple[Any, ...]] = []
    change = Change(of="kvm-default", settings={"ksm": "off"})  # type: ignore[arg-type]
    experiment = SimpleNamespace(
        changes={"quiet": change},
        variants={"quiet": change},
        machine_of=lambda name: {"quiet": "kvm-default"}.get(name, name),
    )
    session = SimpleNamespace(
        resolved=SimpleNamespace(experiment=experiment), inventory=Inventory([], machines, {"big1": host}),
        line=lambda machine: Line(machine, asked), paused={},
    )  # fmt: skip
    alter(cast("Session", session), environment, lambda event: None)
    assert ("big1", "revert", reverted, False) in asked
    assert ("big1", "revert", applied or "web2", False) not in asked
    assert [guest for where, action, guest, _ in asked if (where, action) == ("big1", "apply")] == [applied] * bool(
        applied
    )


def test_a_paused_guest_is_not_asked() -> None:
    """Of several guests of an environment some may rest while fewer are measured."""
    host = Host("big1", "kvm_host", {})
    web1, web2 = (Host(name, "kvm_guest", {"vmtoll_kvm_host": "big1"}) for name in ("web1", "web2"))
    asked: list[tuple[Any, ...]] = []
    change = Change(of="kvm-default", settings={"ksm": "off"})  # type: ignore[arg-type]
    experiment = SimpleNamespace(
        changes={"quiet": change}, variants={"quiet": change}, machine_of=lambda _: "kvm-default"
    )
    session = SimpleNamespace(
        resolved=SimpleNamespace(experiment=experiment),
        inventory=Inventory([], {"quiet": [web1, web2]}, {"big1": host}),
        line=lambda machine: Line(machine, asked), paused={"web2": None},
    )  # fmt: skip
    alter(cast("Session", session), "quiet", lambda event: None)
    assert {machine for machine, *_ in asked} == {"big1", "web1"}
    assert [guest for machine, action, guest, _ in asked if action == "apply"] == ["web1", "web2"]


def _asked_while(environment: str, machines: dict[str, list[Host]], change: Change) -> list[tuple[Any, ...]]:
    """What the agents are asked before a trial of this environment; `changed`: the environment with the change."""
    asked: list[tuple[Any, ...]] = []
    experiment = SimpleNamespace(
        changes={"changed": change},
        variants={"changed": change},
        machine_of=lambda name: {"changed": change.of}.get(name, name),
    )
    host = Host("big1", "kvm_host", {"ansible_host": "192.0.2.20"})
    session = SimpleNamespace(
        resolved=SimpleNamespace(experiment=experiment), inventory=Inventory([], machines, {"big1": host}),
        line=lambda machine: Line(machine, asked), paused={},
    )  # fmt: skip
    alter(cast("Session", session), environment, lambda event: None)
    return asked


@pytest.mark.parametrize(("address", "is_reverted"), [("192.0.2.20", True), ("192.0.2.21", False)])
def test_a_setting_of_metal_is_not_there_while_a_guest_on_it_is_measured(address: str, is_reverted: bool) -> None:
    metal = Host("big1-metal", "metal", {"ansible_host": address})
    guest = Host("web1", "kvm_guest", {"vmtoll_kvm_host": "big1", "ansible_host": "192.0.2.31"})
    change = Change(of="metal", settings={"ksm": "off"})  # type: ignore[arg-type]
    asked = _asked_while("kvm-default", {"metal": [metal], "changed": [metal], "kvm-default": [guest]}, change)
    assert (("big1-metal", "revert", "", False) in asked) is is_reverted


def test_a_setting_of_a_container_is_its_hosts() -> None:
    """As the report says; in the container the kernel's settings cannot be written."""
    container = Host("box1", "container", {"vmtoll_container_host": "big1", "ansible_host": "192.0.2.41"})
    change = Change(of="container", settings={"ksm": "off"}, sysctls={"net.core.somaxconn": "64"})  # type: ignore[arg-type]
    machines = {"container": [container], "changed": [container]}
    applied = [
        (where, guest) for where, action, guest, _ in _asked_while("changed", machines, change) if action == "apply"
    ]
    assert sorted(applied) == [("big1", "box1"), ("box1", "")]
