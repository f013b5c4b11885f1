"""Find what a KVM host lacks for its guests: one sentence each, with the way out.

Pure functions over facts; `PROBE` is the module that gathers them. A play runs it on the host as `python3 -`, as root.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from vmtoll.agent import kvm_host
from vmtoll.guests import profiles
from vmtoll.guests.inventory import Guest
from vmtoll.guests.profiles import Profile
from vmtoll.model.errors import UserError
from vmtoll.model.hardware import foreign_kvm_module
from vmtoll.paths import VM_IMAGES
from vmtoll.spec.catalog import unknown

PROBE = Path(kvm_host.__file__)

Facts = Mapping[str, Any]


def lacking(
    guests: Iterable[Guest], facts: Facts, running: Collection[str] = (), images: Path = VM_IMAGES
) -> list[str]:
    """What one host lacks for all of these guests together. `running`: domains that have their memory already.

    Raises UserError for an unknown profile, or a profile with an unknown need.
    """
    lacks = []
    pages, memory_mib = facts["hugepages"]["free"] * facts["hugepages"]["size_kib"] // 1024, 0
    for guest in (guest for guest in guests if guest.state == "present"):
        profile = profiles.load(guest.profile, images)
        for need in ("kvm", "cpus", "bridge", *profile.needs):
            if need not in _CHECKS:
                raise UserError(f"{guest.profile}.yml: needs: {unknown('need', need, sorted(_CHECKS))}")
            if lack := _CHECKS[need](guest, profile, facts):
                lacks.append(f"{guest.name} ({guest.profile}): {lack}")
        if guest.libvirt_name in running:
            continue
        size_mib = guest.memory_mib or int(profile.values["memory_mib"])
        if "hugepages" in profile.needs:
            pages -= size_mib
        else:
            memory_mib += size_mib
    if pages < 0:
        size_kib = facts["hugepages"]["size_kib"]
        lacks.append(
            f"all guests together lack {-pages} MiB of free huge pages; right after the host's boot, raise "
            f"vm.nr_hugepages by {-(-(-pages * 1024) // size_kib)}"
        )
    if memory_mib > facts["memory_available_mib"]:
        lacks.append(
            f"all guests together: {memory_mib} MiB are wanted and {facts['memory_available_mib']} MiB of memory are "
            "available; make fewer guests, or smaller ones with vmtoll_memory_mib"
        )
    return lacks


def module_text(facts: Facts) -> str:
    """End of a sentence on KVM: `; /dev/kvm belongs to kvm_pvm, which is …`; empty if it is kvm_intel or kvm_amd."""
    module = foreign_kvm_module(facts.get("kvm_modules", ()), facts.get("kvm_flags", ()))
    return f"; /dev/kvm belongs to {module}, which is neither kvm_intel nor kvm_amd" if module else ""


def _kvm(guest: Guest, profile: Profile, facts: Facts) -> str:
    if guest.accelerator != "kvm" or not facts["kvm"]:
        return ""
    why = f"{facts['kvm']}{module_text(facts)}"
    return f"KVM does not work ({why}); switch virtualization on in the firmware and load kvm_intel or kvm_amd"


def _x86_64(guest: Guest, profile: Profile, facts: Facts) -> str:
    if facts["architecture"] == "x86_64":
        return ""
    return f"its hardware exists on x86_64 alone, and this host is {facts['architecture']}; take kvm-default"


def _cpus(guest: Guest, profile: Profile, facts: Facts) -> str:
    missing = sorted(set(guest.cpu_list) - set(facts["cpus"]))
    return (
        f"the host has no CPU {missing[0]}, but vmtoll_cpus is {guest.cpus}; name CPUs of the host" if missing else ""
    )


def _bridge(guest: Guest, profile: Profile, facts: Facts) -> str:
    if profile.values["nic_type"] != "bridge" or guest.bridge in facts["interfaces"]:
        return ""
    return f"there is no bridge {guest.bridge}; make it, or name another in vmtoll_bridge"


def _vhost_net(guest: Guest, profile: Profile, facts: Facts) -> str:
    if guest.accelerator != "kvm" or facts["vhost_net"]:  # an emulated guest has QEMU's own virtio
        return ""
    return "/dev/vhost-net is missing; modprobe vhost_net, or take the profile kvm-virtio-nvhost"


def _pinning(guest: Guest, profile: Profile, facts: Facts) -> str:
    if guest.vcpu_count <= len(guest.cpu_list):
        return ""
    return f"{guest.vcpu_count} virtual CPUs cannot have a CPU each of vmtoll_cpus {guest.cpus}; name more of them"


def _hugepages(guest: Guest, profile: Profile, facts: Facts) -> str:
    return "" if facts["hugetlbfs"] else "no hugetlbfs is mounted; systemctl start dev-hugepages.mount"


def _macvtap(guest: Guest, profile: Profile, facts: Facts) -> str:
    if not facts["macvtap"]:
        return "the host's kernel has no macvtap; modprobe macvtap, or boot Debian's own kernel"
    if guest.uplink not in facts["interfaces"]:
        return f"there is no network card {guest.uplink!r}; name one in vmtoll_uplink"
    return ""


def _sriov(guest: Guest, profile: Profile, facts: Facts) -> str:
    if not facts["iommu"]:
        return "the IOMMU is off; switch it on in the firmware, and boot with intel_iommu=on or amd_iommu=on"
    if guest.vf not in facts["vfs"]:
        existing = ", ".join(sorted(facts["vfs"])) or "none, so write how many to the card's sriov_numvfs in /sys"
        return f"there is no virtual function {guest.vf!r}; name one in vmtoll_vf (there are: {existing})"
    return ""


_CHECKS: Mapping[str, Callable[[Guest, Profile, Facts], str]] = {
    "kvm": _kvm,
    "cpus": _cpus,
    "x86_64": _x86_64,
    "bridge": _bridge,
    "vhost-net": _vhost_net,
    "pinning": _pinning,
    "hugepages": _hugepages,
    "macvtap": _macvtap,
    "sriov": _sriov,
}
