"""The experiments on several guests of one host, as shipped at small scale but for one block, under KVM."""

import json
from pathlib import Path

import pytest
import yaml

from tests.lab.kvm.guests import SEEN, domain_of, look
from tests.lab.kvm.machines import INVENTORY, copied, up
from tests.lab.records import number, primary, records_of
from vmtoll.commands.conclude import conclude
from vmtoll.commands.run import run_one
from vmtoll.model.finding import Validity
from vmtoll.model.trial import Accelerator
from vmtoll.spec.catalog import Registry

pytestmark = [pytest.mark.lab, pytest.mark.kvm]

# The guests of one lab for all of them, two of one kind for those that compare guests with each other.
GUESTS = (
    "kvm-2009", "kvm-virtio-nvhost", "kvm-default", "kvm-default", "kvm-multiqueue", "kvm-virtio-scsi", "kvm-ide",
)  # fmt: skip
# Experiment → the profiles that it measures.
MEASURED = {
    "tuning-steps": {"kvm-2009", "kvm-virtio-nvhost", "kvm-default", "kvm-multiqueue"},
    "consolidation": {"kvm-default"}, "noisy-neighbour": {"kvm-default"},
    "storage": {"kvm-default", "kvm-virtio-scsi", "kvm-ide"},
}  # fmt: skip
WITH_VHOST = {"kvm-default", "kvm-multiqueue", "kvm-virtio-scsi", "kvm-ide"}


def of_one_block(root: Path, experiment: str) -> Registry:
    """This project, where the experiment at small scale has one block."""
    registry = copied(root)
    file = registry.experiment_file(experiment)
    document = yaml.safe_load(file.read_text())
    document["scales"]["small"]["blocks"] = 1
    file.write_text(yaml.safe_dump(document))
    return registry


@pytest.fixture(scope="module", autouse=True)
def _lab() -> None:
    machines = up("machines", ",".join(GUESTS))
    for profile in sorted(set(GUESTS)):
        SEEN[domain_of(profile)] = look(machines, profile, profile)


@pytest.mark.parametrize("experiment", MEASURED)
def test_it_is_measured_with_what_kvm_counts(tmp_path: Path, experiment: str) -> None:
    """Exits and the CPU of virtual CPUs, of QEMU and of vhost threads are those of a real KVM."""
    registry = of_one_block(tmp_path / "project", experiment)
    folder = run_one(experiment, INVENTORY, tmp_path / "results", scale="small", registry=registry)
    conclude(folder)
    records = records_of(folder)
    assert {str(record.arm) for record in records} >= MEASURED[experiment] | {"metal"}
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
