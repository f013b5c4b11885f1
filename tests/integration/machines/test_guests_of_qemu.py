"""Runs with guests that plain QEMU runs: real, emulated QEMU processes with QMP sockets, agents on this machine."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.trial.test_guests_together import GUESTS, guests
from tests.support.measured import run
from tests.support.qemu_process import qemu
from tests.support.records import primary, records_of
from vmtoll.hypervisors import qmp
from vmtoll.model.errors import InventoryError
from vmtoll.model.event import Event, Phase, TrialStep
from vmtoll.model.inventory import Host
from vmtoll.spec.catalog import Registry

__all__ = ["guests"]

HERE = Host("host", "kvm_host", {"ansible_connection": "local"})
Rewrite = Callable[..., Path]
Sockets = dict[str, str]


@pytest.fixture(params=["pc", "microvm,x-option-roms=off"], ids=["pc", "microvm"])
def machine(request: pytest.FixtureRequest) -> str:
    """QEMU's machine type; libvirt knows no microvm."""
    return str(request.param)


@pytest.fixture
def sockets(guests: Path, tmp_path: Path, machine: str) -> Iterator[Sockets]:
    """Guest → its QMP socket; the inventory `guests` names these instead of libvirt's domains."""
    tree: dict[str, Any] = yaml.safe_load(guests.read_text())
    guest_variables = tree["all"]["children"]["kvm_guests"]["hosts"]
    paths: Sockets = {}
    with contextlib.ExitStack() as stack:
        for name in GUESTS:
            folder = tmp_path / f"qemu-{name}"
            folder.mkdir()
            path = stack.enter_context(qemu(folder, "-nodefaults", "-M", machine, "-name", name, stopped=False))
            paths[name] = str(path)
            guest_variables[name] = {k: v for k, v in guest_variables[name].items() if k != "vmtoll_domain"} | {
                "vmtoll_qmp_socket": str(path)
            }
        guests.write_text(yaml.safe_dump(tree))
        yield paths


def status(socket: str) -> str:
    return str(qmp.ask_one(HERE, socket, "query-status")["status"])


def test_an_idle_guest_is_paused_and_a_busy_one_is_counted(
    project: Registry, guests: Path, sockets: Sockets, machine: str, tmp_path: Path, rewrite: Rewrite
) -> None:
    statuses: dict[str, set[str]] = {}

    def look(event: Event) -> None:
        if isinstance(event, TrialStep) and event.phase is Phase.MEASURING:
            statuses.setdefault(event.spec.arm.environment, set()).add(status(sockets["guest-1"]))

    qmp.ask_one(HERE, sockets["guest-1"], "stop")  # as a run leaves it that was killed with its agents
    folder = run(rewrite(blocks=1, noise_floor=None), guests, tmp_path / "r", registry=project, listener=look)
    assert statuses == {"metal": {"paused"}, "metal-two": {"running"}}
    assert {status(path) for path in sockets.values()} == {"running"}
    records = {record.arm.environment: record for record in records_of(folder)}
    assert {name: record.conditions.guests_paused for name, record in records.items()} == {
        "metal": 1,
        "metal-two": None,
    }
    guest = records["metal-two"]
    assert primary(guest).host_cpu_s is not None
    assert guest.resources.host_vcpu_cpu_us_per_request is not None
    facts = json.loads((folder / "hosts.json").read_text())["host"]
    assert facts["qemu_version"].startswith("QEMU ")
    assert 'type="qemu"' in facts["domains"]["guest-1"]
    assert f'machine="{machine.partition(",")[0]}"' in facts["domains"]["guest-1"]


@pytest.mark.parametrize("machine", ["pc"])
def test_a_run_with_a_guest_that_does_not_run_begins_not(
    project: Registry, guests: Path, sockets: Sockets, tmp_path: Path, rewrite: Rewrite
) -> None:
    tree = yaml.safe_load(guests.read_text())
    tree["all"]["children"]["kvm_guests"]["hosts"]["guest-1"]["vmtoll_qmp_socket"] = "/nowhere.qmp"
    guests.write_text(yaml.safe_dump(tree))
    with pytest.raises(InventoryError, match=r"guest-1: .*QEMU process .*/nowhere\.qmp"):
        run(rewrite(blocks=1, noise_floor=None), guests, tmp_path / "r", registry=project)
