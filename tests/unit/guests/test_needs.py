"""What a KVM host lacks is found before anything is made, by name and with the way out."""

import errno
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vmtoll.agent.kvm_host import kvm, tsc_khz
from vmtoll.guests import needs, profiles
from vmtoll.guests.inventory import Guest
from vmtoll.guests.needs import lacking
from vmtoll.model.errors import UserError
from vmtoll.paths import VM_IMAGES

COMPLETE: dict[str, Any] = {
    "architecture": "x86_64",
    "tsc_khz": 2_596_000,
    "kvm": "",
    "kvm_modules": ["kvm_amd"],
    "kvm_flags": ["svm"],
    "vhost_net": True,
    "macvtap": True,
    "hugetlbfs": True,
    "hugepages": {"size_kib": 2048, "free": 1024},
    "memory_available_mib": 8192,
    "cpus": [0, 1, 2, 3],
    "interfaces": ["lo", "eth0", "br0"],
    "vfs": {"0000:3b:02.1": "vfio-pci"},
    "iommu": True,
}


def guest(profile: str, name: str = "one", **fields: object) -> Guest:
    given = {"cpus": "2-3", "uplink": "eth0", "vf": "0000:3b:02.1", **fields}
    return Guest.model_validate({"name": name, "profile": profile, **given})


def test_a_host_that_has_everything_lacks_nothing_for_any_profile() -> None:
    for name in profiles.names():
        assert lacking([guest(name)], COMPLETE) == [], name


@pytest.mark.parametrize(
    ("fact", "profile", "said"),
    [
        ({"kvm": "/dev/kvm: No such file"}, "kvm-default", "KVM does not work (/dev/kvm: No such file); switch virt"),
        (
            {"kvm": "/dev/kvm: no virtual machine can be made", "kvm_modules": ["kvm_pvm"], "kvm_flags": []},
            "kvm-default",
            "KVM does not work (/dev/kvm: no virtual machine can be made; /dev/kvm belongs to kvm_pvm, which is "
            "neither kvm_intel nor kvm_amd); switch virt",
        ),
        ({"architecture": "aarch64"}, "kvm-2009", "its hardware exists on x86_64 alone, and this host is aarch64"),
        ({"vhost_net": False}, "kvm-default", "/dev/vhost-net is missing; modprobe vhost_net"),
        ({"vhost_net": False}, "kvm-tuned", "/dev/vhost-net is missing; modprobe vhost_net"),
        ({"hugetlbfs": False}, "kvm-hugepages", "no hugetlbfs is mounted; systemctl start dev-hugepages.mount"),
        ({"macvtap": False}, "kvm-macvtap", "the host's kernel has no macvtap; modprobe macvtap"),
        ({"interfaces": ["lo", "br0"]}, "kvm-macvtap", "there is no network card 'eth0'; name one in vmtoll_uplink"),
        ({"interfaces": ["lo"]}, "kvm-default", "there is no bridge br0; make it, or name another in vmtoll_bridge"),
        ({"iommu": False}, "kvm-sriov", "the IOMMU is off; switch it on in the firmware"),
        (
            {"vfs": {}},
            "kvm-sriov",
            "there is no virtual function '0000:3b:02.1'; name one in vmtoll_vf (there are: none,",
        ),
        ({"cpus": [0, 1, 2]}, "kvm-default", "the host has no CPU 3, but vmtoll_cpus is 2-3; name CPUs"),
    ],
)
def test_missing_prerequisites_name_a_fix(fact: dict[str, Any], profile: str, said: str) -> None:
    (found,) = lacking([guest(profile)], COMPLETE | fact)
    assert found.startswith(f"one ({profile}): {said}")


def test_all_missing_prerequisites_are_reported_together() -> None:
    bare = COMPLETE | {"kvm": "no", "vhost_net": False, "interfaces": [], "hugetlbfs": False}
    assert len(lacking([guest("kvm-tuned")], bare)) == 4


def test_huge_pages_are_counted_over_all_guests_but_those_that_run() -> None:
    two = [guest("kvm-hugepages", "one"), guest("kvm-tuned", "two")]
    assert lacking(two, COMPLETE) == []
    (found,) = lacking([*two, guest("kvm-hugepages", "three", memory_mib=512)], COMPLETE)
    assert found.startswith("all guests ") and "512 MiB of free huge pages" in found
    assert "raise vm.nr_hugepages by 256" in found
    assert lacking([*two, guest("kvm-hugepages", "three")], COMPLETE, running=["three"]) == []


def test_memory_is_counted_over_all_guests() -> None:
    nine = [guest("kvm-default", f"guest{n}") for n in range(9)]
    assert lacking(nine[:8], COMPLETE) == []
    (found,) = lacking(nine, COMPLETE)
    assert re.findall(r"\d+ MiB", found) == ["9216 MiB", "8192 MiB"]


def test_emulation_needs_neither_kvm_nor_vhost() -> None:
    bare = COMPLETE | {"kvm": "no", "vhost_net": False}
    assert lacking([guest("kvm-multiqueue", accelerator="tcg")], bare) == []


def test_a_cpu_for_each_virtual_cpu_is_asked_for_by_pinning_alone() -> None:
    assert lacking([guest("kvm-default", vcpus=3)], COMPLETE) == []
    (found,) = lacking([guest("kvm-pinned", vcpus=3)], COMPLETE)
    assert found.startswith("one (kvm-pinned): 3 virtual CPUs ") and "vmtoll_cpus 2-3; " in found


def test_a_guest_to_be_removed_needs_nothing() -> None:
    assert lacking([guest("kvm-tuned", state="absent")], COMPLETE | {"kvm": "no"}) == []


def test_an_unknown_need_is_an_error_of_the_profile(tmp_path: Path) -> None:
    (tmp_path / "guests").mkdir()
    (tmp_path / "defaults.yml").write_text((VM_IMAGES / "defaults.yml").read_text())
    (tmp_path / "guests/new.yml").write_text("description: new\nneeds: [hugepage]\n")
    with pytest.raises(UserError, match=r"new.yml: needs: .* 'hugepage' .*'hugepages'"):
        lacking([guest("new")], COMPLETE, images=tmp_path)


def test_the_facts_of_this_machine_are_all_that_is_asked_for() -> None:
    """The real script, as it reaches a KVM host: by standard input, to a Python that knows nothing of vmtoll."""
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-"], input=needs.PROBE.read_bytes(), capture_output=True, check=True, cwd="/"
    )
    facts = json.loads(done.stdout)
    assert set(facts) == set(COMPLETE)
    assert {key: type(value) for key, value in facts.items()} == {key: type(v) for key, v in COMPLETE.items()}
    assert facts["cpus"] and "lo" in facts["interfaces"]
    assert facts["vhost_net"] == Path("/dev/vhost-net").exists()
    lacks = lacking([guest("kvm-default", cpus="0", bridge="lo")], facts)
    assert bool(facts["kvm"]) == any("KVM does not" in lack for lack in lacks)


def test_a_false_kvm_device_is_distinguished_from_a_real_one(tmp_path: Path) -> None:
    assert kvm(str(tmp_path / "kvm")) == f"{tmp_path}/kvm: {os.strerror(errno.ENOENT)}"
    assert kvm("/dev/null").startswith("/dev/null: no virtual machine ")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86-64 has this counter")
def test_the_rate_of_the_time_stamp_counter_is_measured_beside_other_work() -> None:
    rates_khz = [tsc_khz() or 0 for _ in range(5)]
    assert min(rates_khz) > 100_000
    assert max(rates_khz) - min(rates_khz) <= 1000, "to the MHz, or guests would be redefined at each provisioning"
