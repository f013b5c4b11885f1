"""Machines that boot between groups of blocks: each is a PID namespace of this machine."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.measured import run
from tests.support.records import assert_sound, records_of
from vmtoll.model.errors import InventoryError, VmtollError
from vmtoll.model.event import Absence, Event, MachineStep, TrialEnded
from vmtoll.spec.catalog import Registry

Rewrite = Callable[..., Path]

# Ends when its Python does, and all processes of the namespace with it.
CONTAINED = """\
#!/bin/sh
exec unshare --pid --fork --mount-proc --kill-child sh -c 'python3 "$@"; exit $?' sh "$@"
"""
BOOTS = [["sh", "-c", "kill -9 $PPID"]]


@pytest.fixture
def bootable(inventory: Path, tmp_path: Path) -> Callable[..., Path]:
    """The inventory with machines under test that are containers; `reboot`: what boots them."""
    if os.geteuid() != 0:
        pytest.skip("a PID namespace needs root")

    def with_commands(reboot: list[list[str]]) -> Path:
        python = tmp_path / "contained"
        python.write_text(CONTAINED)
        python.chmod(0o755)
        tree = yaml.safe_load(inventory.read_text())
        for host in tree["all"]["children"]["metal_hosts"]["hosts"].values():
            host |= {"ansible_python_interpreter": str(python), "vmtoll_reboot": reboot}
        inventory.write_text(yaml.safe_dump(tree))
        return inventory

    return with_commands


class KilledError(Exception):
    pass


def test_the_machines_boot_between_groups_of_blocks_also_when_resumed(
    project: Registry, bootable: Callable[..., Path], tmp_path: Path, rewrite: Rewrite
) -> None:
    experiment = rewrite(blocks=3, boots=3, noise_floor=None)
    events: list[tuple[int, Absence, str]] = []
    ended: list[int] = []

    def listen(event: Event) -> None:
        if isinstance(event, MachineStep) and event.absence in {Absence.REBOOTING, Absence.REBOOTED}:
            events.append((ended[-1], event.absence, event.machine))
        if isinstance(event, TrialEnded):
            ended.append(event.number)
            if event.number == 3 and len(events) == 4:
                raise KilledError

    inventory, results = bootable(BOOTS), tmp_path / "r"
    with pytest.raises(KilledError):
        run(experiment, inventory, results, registry=project, listener=listen)
    (run_dir,) = (results / "tiny").iterdir()
    run(experiment, inventory, results, resume=run_dir, registry=project, listener=listen)
    boots = [(absence, name) for absence in (Absence.REBOOTING, Absence.REBOOTED) for name in ("metal", "metal-two")]
    assert events == [(number, *each) for number in (2, 4) for each in boots]
    records = records_of(run_dir)
    assert [(record.block, record.boot, record.attempt) for record in records] == [
        (block, block, 1) for block in (1, 2, 3) for _ in range(2)
    ]
    assert_sound(records)


def test_a_machine_that_does_not_boot_ends_the_run(
    project: Registry, bootable: Callable[..., Path], tmp_path: Path, rewrite: Rewrite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmtoll.machines.boots.DOWN_S", 0.5)
    experiment = rewrite(blocks=2, boots=2, noise_floor=None)
    with pytest.raises(VmtollError, match=r"metal: .*shut down .*0\.5 s"):
        run(experiment, bootable([["true"]]), tmp_path / "r", registry=project)
    with pytest.raises(VmtollError, match=r"metal: false: "):
        run(experiment, bootable([["false"]]), tmp_path / "other", registry=project)


def test_the_machine_that_runs_vmtoll_is_not_booted(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    with pytest.raises(InventoryError, match=r"metal: `boots` .*vmtoll runs on; .*vmtoll_reboot"):
        run(rewrite(boots=2), inventory, tmp_path / "r", registry=project)
    tree = yaml.safe_load(inventory.read_text())
    far = {"ansible_connection": "ssh", "vmtoll_tuning": {"governor": "performance"}}
    for name in ("metal", "metal-two"):
        tree["all"]["children"]["metal_hosts"]["hosts"][name] |= far
    inventory.write_text(yaml.safe_dump(tree))
    with pytest.raises(InventoryError, match=r"metal: .*`vmtoll tune` .*\(vmtoll_tuning\) "):
        run(rewrite(boots=2), inventory, tmp_path / "r", registry=project)
