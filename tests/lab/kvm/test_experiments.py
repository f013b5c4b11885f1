"""The experiments on several guests of one host, as shipped at small scale, under KVM."""

import json
from pathlib import Path

import pytest

from tests.lab.kvm.machines import up, vmtoll
from tests.lab.records import number, primary, records_of
from tests.lab.the_lab import LAB
from vmtoll.model.finding import Validity
from vmtoll.model.trial import Accelerator

pytestmark = [pytest.mark.lab, pytest.mark.kvm]

# Experiment -> the guests that it needs on one host.
GUESTS = {
    "tuning-steps": "kvm-2009,kvm-virtio-nvhost,kvm-default,kvm-multiqueue",
    "consolidation": "kvm-default,kvm-default",
    "noisy-neighbour": "kvm-default,kvm-default",
    "storage": "kvm-default,kvm-virtio-scsi,kvm-ide",
}
WITH_VHOST = {"kvm-default", "kvm-multiqueue", "kvm-virtio-scsi", "kvm-ide"}


@pytest.mark.parametrize("experiment", GUESTS)
def test_it_is_measured_with_what_kvm_counts(tmp_path: Path, experiment: str) -> None:
    """Exits and the CPU of virtual CPUs, of QEMU and of vhost threads are those of a real KVM."""
    up("machines", GUESTS[experiment])
    vmtoll("run", experiment, "--scale", "small", "--inventory", LAB / "inventory.yml", "--results", tmp_path)
    folder = (tmp_path / "latest").resolve()
    records = records_of(folder)
    assert {str(record.arm) for record in records} >= set(GUESTS[experiment].split(",")) | {"metal"}
    assert len(records) >= json.loads((folder / "run.json").read_text())["trials_planned"]
    used = [r for r in records if r.validity is not Validity.INVALID and r.arm.environment != "metal"]
    assert used
    for record in used:
        assert record.accelerator is Accelerator.KVM
        assert number(primary(record).throughput_rps) > 0
        assert number(record.resources.host_exits_per_request) > 0
        assert number(record.resources.host_vcpu_cpu_us_per_request) > 0
        vhost = number(record.resources.host_vhost_cpu_us_per_request)
        assert (vhost > 0) == (record.arm.environment in WITH_VHOST), record.arm
    assert (folder / "report.html").stat().st_size > 0
