"""In the embedded lab: the guest is pulled down in mid-trial, brought back, and the run goes on."""

import subprocess
import threading
from pathlib import Path

import pytest
import yaml

from tests.lab.records import BY_CLIENT, measure, number, primary, undisturbed
from vmtoll.model.event import Event, Phase, TrialStep
from vmtoll.model.finding import ACCIDENTS, Code, Validity
from vmtoll.model.trial import Accelerator
from vmtoll.spec.machines import load_inventory

pytestmark = [pytest.mark.lab, pytest.mark.guest_minutes]


@pytest.mark.injects(Code.HOST_LOST)
def test_a_guest_pulled_down_in_mid_trial(lab: Path, tmp_path: Path) -> None:
    inventory = lab / "inventory.yml"
    guest = load_inventory(inventory, ["kvm-default"]).suts["kvm-default"]
    assert guest.vars.revive is not None
    argv = [*guest.vars.revive[0][:-2], "destroy", str(guest.vars.domain)]
    experiment = {
        "question": "does a run survive the loss of its guest?",
        "purpose": "smoke",
        "environments": ["kvm-default"],
        "servers": ["lighttz"],
        "workloads": ["site-siege"],
        "blocks": 1,
        "warmup_s": 0.5,
        "duration_s": 6.0,
        "crosscheck_duration_s": 1.0,
    }
    path = tmp_path / "pulled.yml"
    path.write_text(yaml.safe_dump(experiment))
    pulled = threading.Event()

    def pull(event: Event) -> None:
        begins = isinstance(event, TrialStep) and event.phase is Phase.PREPARING and event.tool == "siege"
        if begins and not pulled.is_set():
            pulled.set()
            threading.Timer(3.0, lambda: subprocess.run(argv, check=True, capture_output=True)).start()

    _, records = measure(path, inventory, tmp_path / "results", pull)
    assert [record.attempt for record in records] == [1, 2]
    lost, again = records
    assert lost.validity is Validity.INVALID
    assert Code.HOST_LOST in lost.codes <= ACCIDENTS
    assert lost.primary is None or lost.primary.throughput_rps is None
    # The guest has just booted: what it still does is its own.
    assert undisturbed(again) <= BY_CLIENT | {Code.BACKGROUND_CPU}, again.findings
    assert again.accelerator in {Accelerator.KVM, Accelerator.TCG}
    assert number(primary(again).host_cpu_us_per_request) > 0
