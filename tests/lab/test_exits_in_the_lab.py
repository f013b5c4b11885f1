"""`explain: exits` in the embedded lab, whose guest is emulated or under KVM. See also tests/lab/kvm/test_exits.py."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.lab.faults import measured
from vmtoll.model.errors import ExperimentError
from vmtoll.runs.folder import EXPLAINED
from vmtoll.spec.inventory import hosts_by_role, read_inventory

pytestmark = pytest.mark.lab

EXPERIMENT: dict[str, Any] = {"environments": ["metal", "kvm-default"], "explain": "exits"}


def is_emulated(lab: Path) -> bool:
    by_role = hosts_by_role(read_inventory(lab / "inventory.yml"))
    (host,), (guest, *_) = by_role["kvm_host"], by_role["kvm_guest"]
    words = ["virsh", "-q", "-c", host.libvirt_uri, "dumpxml", str(guest.vars.domain)]
    return "type='qemu'" in subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def test_an_emulated_guest_is_refused_before_anything_is_measured(lab: Path, tmp_path: Path) -> None:
    if not is_emulated(lab):
        measured(tmp_path, **EXPERIMENT)
        (run,) = tmp_path.glob("results/injected/2*")
        assert any(each.exits for each in EXPLAINED.read(run))
        return
    with pytest.raises(ExperimentError, match=r"kvm-default is not run by KVM \(tcg\)") as refused:
        measured(tmp_path, **EXPERIMENT)
    assert str(refused.value).endswith("run it on a host with KVM, or leave `explain` out")
    assert not list(tmp_path.glob("results/injected/2*")), "nothing was begun"
