"""The hardware below the machines under test, from what their host showed; vmtoll guesses nothing."""

from collections.abc import Collection, Iterable

from vmtoll.model.facts import HostFacts
from vmtoll.model.message import WithText

TCG_SIGNATURE = "TCGTCGTCGTCG"  # CPUID leaf 0x40000000 of QEMU's TCG: target/i386/cpu.c
TCG_MODEL = "QEMU TCG CPU"  # model name of `-cpu max` under TCG: target/i386/tcg/tcg-cpu.c
# Answers of `systemd-detect-virt --vm` that leave native, nested and emulated open: `qemu` means TCG, or anything with
# QEMU's name in DMI.
_UNDECIDED = frozenset({"", "none", "qemu", "vm-other", "bochs", "uml"})
# KVM's modules for the CPU's virtualization extensions → the CPU flag that each needs.
_KVM_MODULES = {"kvm_intel": "vmx", "kvm_amd": "svm"}


class Hardware(WithText):
    """Platform a host runs on. NATIVE: the hardware itself; NESTED: another hypervisor; PVM, of a guest under KVM: the
    module kvm_pvm, which does without the CPU's virtualization; EMULATED: a CPU emulated in software (TCG); UNKNOWN:
    the host's facts do not decide it, or were not recorded.
    """

    NATIVE = "native"
    NESTED = "nested", "nested (in another hypervisor)"
    PVM = "pvm", "PVM (kvm_pvm, without virtualization by the CPU)"
    EMULATED = "emulated", "emulated (its CPU is software)"
    UNKNOWN = "unknown"


def hardware_of(facts: HostFacts) -> Hardware:
    """Return the platform a host runs on, from its own facts: `hypervisor` (vmtoll/agent/hardware.py),
    `virtualization`, `cpu_model`.

    A host is native only where the hypervisor bit was read and is off. Facts from before `hypervisor` was recorded
    can show only nested and emulated.
    """
    hypervisor = facts.hypervisor
    signature, bit = hypervisor.get("cpuid_signature", ""), hypervisor.get("cpuid_bit")
    bit = hypervisor.get("cpuinfo_flag") if bit is None else bit
    virtualization = facts.virtualization or ""
    if signature == TCG_SIGNATURE or (facts.cpu_model or "").startswith(TCG_MODEL):
        return Hardware.EMULATED
    if (bit and signature) or virtualization not in _UNDECIDED:
        return Hardware.NESTED
    if bit is False and virtualization == "none" and hypervisor.get("dmi_sys_vendor") != "QEMU":
        return Hardware.NATIVE
    return Hardware.UNKNOWN


def hardware_below_kvm(facts: HostFacts) -> Hardware:
    """Return the platform below a guest that KVM runs, from its host's facts."""
    below, module = hardware_of(facts), foreign_kvm_module(facts.kvm_modules, facts.kvm_flags)
    return Hardware.PVM if module == "kvm_pvm" and below is not Hardware.EMULATED else below


def hardware_below_guests(hosts: Iterable[HostFacts]) -> Hardware:
    """Return the platform that all KVM hosts among these machines run on; UNKNOWN if there is no KVM host, or if they
    differ.
    """
    kinds = {hardware_of(facts) for facts in hosts if facts.is_kvm_host}
    return kinds.pop() if len(kinds) == 1 else Hardware.UNKNOWN


def foreign_kvm_module(modules: Collection[str], flags: Collection[str]) -> str:
    """The module that provides /dev/kvm if it is neither kvm_intel nor kvm_amd; else empty.

    `modules`: those in /sys/module named kvm_…; `flags`: the CPU's flags among vmx and svm. A module that is
    built into the kernel has a folder there on any CPU, so a module counts only with its flag.
    """
    if any(module in modules and flag in flags for module, flag in _KVM_MODULES.items()):
        return ""
    return ", ".join(sorted(set(modules) - _KVM_MODULES.keys()))
