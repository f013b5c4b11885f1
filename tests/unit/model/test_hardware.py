"""What is below a host is read from it, each source by its name, and unknown where the sources do not tell."""

from typing import Any

import pytest

from tests.support.recorded_hosts import FOLDER, MACHINES, facts
from vmtoll.agent.hardware import crypto_flags
from vmtoll.agent.protocol import Hypervisor
from vmtoll.model.facts import HostFacts
from vmtoll.model.hardware import Hardware, foreign_kvm_module, hardware_below_guests, hardware_below_kvm, hardware_of

EXPECTED = {
    "firecracker-kvm_pvm": Hardware.NESTED,
    "tcg-epyc": Hardware.EMULATED,
    "tcg-epyc-hidden": Hardware.UNKNOWN,
    "tcg-max": Hardware.EMULATED,
    "tcg-max-no-hypervisor-bit": Hardware.EMULATED,
}
# Intel's processors without a hypervisor answer a leaf that they lack with another one's bytes.
NATIVE: Hypervisor = {
    "cpuid_bit": False, "cpuid_signature": "", "cpuinfo_flag": False, "dmi_sys_vendor": "Dell Inc.",
    "dmi_product_name": "PowerEdge R640",
}  # fmt: skip


def host(virtualization: str = "none", cpu_model: str = "Intel(R) Xeon(R) Gold 6130", **seen: Any) -> HostFacts:
    facts = {"virtualization": virtualization, "cpu_model": cpu_model, "hypervisor": NATIVE | seen}
    return HostFacts.model_validate(facts)


def test_recorded_machines_are_what_they_are() -> None:
    assert {machine: hardware_of(facts(machine)) for machine in MACHINES} == EXPECTED


def test_each_source_is_recorded_by_its_name() -> None:
    assert facts("tcg-epyc").hypervisor == {
        "cpuid_bit": True, "cpuid_signature": "TCGTCGTCGTCG", "cpuinfo_flag": True, "dmi_sys_vendor": "QEMU",
        "dmi_product_name": "Standard PC (i440FX + PIIX, 1996)",
    }  # fmt: skip
    assert facts("tcg-epyc-hidden").hypervisor["cpuid_signature"] == ""
    assert facts("tcg-max-no-hypervisor-bit").hypervisor["cpuid_bit"] is False
    assert facts("firecracker-kvm_pvm").hypervisor == {
        "cpuid_bit": True, "cpuid_signature": "KVMKVMKVM", "cpuinfo_flag": True, "dmi_sys_vendor": "",
        "dmi_product_name": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("facts_of_host", "expected"),
    [
        (host(), Hardware.NATIVE),
        (host(cpuid_bit=None), Hardware.NATIVE),
        (host(cpuid_bit=None, cpuinfo_flag=None), Hardware.UNKNOWN),
        (host(dmi_sys_vendor="QEMU"), Hardware.UNKNOWN),
        (host("qemu"), Hardware.UNKNOWN),
        (host("vm-other", cpuid_bit=True), Hardware.UNKNOWN),
        (host(cpuid_bit=True), Hardware.UNKNOWN),
        (host("microsoft", cpuid_bit=True, cpuid_signature="Microsoft Hv"), Hardware.NESTED),
        (host("vm-other", cpuid_bit=True, cpuid_signature="NewHypervsor"), Hardware.NESTED),
        (host("amazon", cpuid_bit=None, cpuinfo_flag=None), Hardware.NESTED),
        (host("kvm", "QEMU TCG CPU version 2.5+", cpuid_bit=True, cpuid_signature="KVMKVMKVM"), Hardware.EMULATED),
        # Before vmtoll recorded `hypervisor`.
        (HostFacts(virtualization="kvm", cpu_model="Intel(R) Xeon(R) Processor"), Hardware.NESTED),
        (HostFacts(virtualization="qemu", cpu_model="QEMU TCG CPU version 2.5+"), Hardware.EMULATED),
        (HostFacts(virtualization="none", cpu_model="AMD EPYC 7302"), Hardware.UNKNOWN),
        (HostFacts(), Hardware.UNKNOWN),
    ],
)
def test_hardware_from_all_sources_together(facts_of_host: HostFacts, expected: Hardware) -> None:
    assert hardware_of(facts_of_host) is expected


def test_guests_on_hosts_that_differ_have_no_known_hardware() -> None:
    native, nested = (host(kind).model_copy(update={"role": "kvm_host"}) for kind in ("none", "kvm"))
    client = host("kvm").model_copy(update={"role": "client"})
    assert hardware_below_guests([native, client]) is Hardware.NATIVE
    assert hardware_below_guests([native, nested]) is Hardware.UNKNOWN
    assert hardware_below_guests([client]) is Hardware.UNKNOWN


def test_kvm_by_kvm_pvm_is_pvm() -> None:
    below = {machine: hardware_below_kvm(facts(machine)) for machine in MACHINES}
    assert below == EXPECTED | {"firecracker-kvm_pvm": Hardware.PVM}
    emulated = facts("tcg-epyc").model_copy(update={"kvm_modules": ["kvm_pvm"], "kvm_flags": []})
    assert hardware_below_kvm(emulated) is Hardware.EMULATED


def test_a_kvm_that_is_not_the_processors_own_is_named() -> None:
    for machine, module in (("firecracker-kvm_pvm", "kvm_pvm"), ("tcg-max", "")):
        assert foreign_kvm_module(facts(machine).kvm_modules, facts(machine).kvm_flags) == module
    built_in = ["kvm_amd", "kvm_intel", "kvm_pvm"]
    assert foreign_kvm_module(built_in, ["svm"]) == ""
    assert foreign_kvm_module(built_in, []) == "kvm_pvm"
    assert foreign_kvm_module([], []) == ""


def test_the_instructions_that_tls_is_fast_by_are_listed() -> None:
    seen = {machine: crypto_flags(str(FOLDER / machine)) for machine in ("firecracker-kvm_pvm", "tcg-epyc", "none")}
    assert seen == {
        "firecracker-kvm_pvm": ["adx", "aes", "avx2", "bmi2", "pclmulqdq", "vaes", "vpclmulqdq"],
        "tcg-epyc": ["adx", "aes", "avx2", "bmi2", "pclmulqdq"],
        "none": [],
    }
