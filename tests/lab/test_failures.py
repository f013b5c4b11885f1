"""Machines that cannot be reached, a key that is refused, a machine that reboots in mid-run: real SSH, real systemd."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.faults import measured, once
from tests.lab.records import BY_CLIENT, finding, number, primary, undisturbed
from tests.lab.the_lab import Ssh
from vmtoll.model.errors import HostLostError
from vmtoll.model.event import Absence, Event, MachineStep, Phase
from vmtoll.model.finding import ACCIDENTS, Code, Validity

pytestmark = pytest.mark.lab


def told_at_the_start(lab: Path, folder: Path, **metal: Any) -> str:
    """What a run says that finds `metal` with other variables in the inventory."""
    tree = yaml.safe_load((lab / "inventory.yml").read_text())
    hosts = tree["all"]["children"]["lab_machines"]["hosts"]
    hosts["metal"] |= metal
    with pytest.raises(HostLostError) as lost:
        measured(folder, tree=tree)
    assert not list(folder.glob("results/injected/*/run.json")), "nothing was begun"
    return str(lost.value)


def test_a_machine_without_an_answer_is_named_with_its_address(lab: Path, tmp_path: Path) -> None:
    said = told_at_the_start(lab, tmp_path, ansible_host="198.18.0.99")
    assert said.startswith("metal: nothing answers at 198.18.0.99, port 22"), said
    assert "see that it is switched on" in said


def test_a_machine_where_no_ssh_listens(lab: Path, tmp_path: Path) -> None:
    said = told_at_the_start(lab, tmp_path, ansible_port=2222)
    assert said.startswith("metal: "), said
    assert "port 2222" in said


def test_a_key_that_is_refused_is_named(lab: Path, tmp_path: Path) -> None:
    key, config = tmp_path / "other-key", tmp_path / "ssh_config"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    config.write_text((lab / "ssh_config").read_text().replace(f"IdentityFile {lab}/key", f"IdentityFile {key}"))
    said = told_at_the_start(
        lab, tmp_path, ansible_ssh_common_args=f"-F {config}", ansible_ssh_private_key_file=str(key)
    )
    assert said.startswith(f"metal: it refuses the key of root ({key}): "), said
    assert "ansible_ssh_private_key_file" in said


@pytest.mark.injects(Code.HOST_LOST)
def test_a_machine_that_reboots_in_mid_trial_is_waited_for(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    since = "systemctl show --property=UserspaceTimestampMonotonic --value"
    before = ssh("metal", since)
    steps: list[tuple[Absence, str]] = []
    inject = once(Phase.MEASURING, lambda: ssh("metal", "systemctl reboot --no-block"), "h2load")

    def listen(event: Event) -> None:
        if isinstance(event, MachineStep):
            steps.append((event.absence, event.machine))
        inject(event)

    records = measured(tmp_path, listen, duration_s=6.0)
    assert [record.attempt for record in records] == [1, 2], steps
    lost, again = records
    assert lost.validity is Validity.INVALID
    assert lost.codes <= ACCIDENTS
    assert finding(lost, Code.HOST_LOST).detail.startswith("metal: ")
    assert lost.primary is None or lost.primary.throughput_rps is None
    assert number(primary(again).throughput_rps) > 0
    # It has just booted: what it still does is its own.
    assert undisturbed(again) <= BY_CLIENT | {Code.BACKGROUND_CPU}, again.findings
    assert ssh("metal", since) != before, "it did reboot"
    assert steps.index((Absence.LOST, "metal")) < steps.index((Absence.BACK, "metal"))
