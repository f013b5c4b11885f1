"""A machine's facts as they may be published: only what says how it performs, nothing that says which it is."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from analysis.equality import FACTS
from analysis.publish.scrub import Scrubber

PUBLISHED = ("role", "environment", *FACTS, "qemu_version", "libvirt_version")
# Kernel parameters that change how a machine performs; the rest may name disks, hosts, users and addresses.
_PARAMETERS = frozenset({
    "ro", "rw", "quiet", "mitigations", "spectre_v2", "spectre_v2_user", "spec_store_bypass_disable", "l1tf", "mds",
    "tsx", "tsx_async_abort", "pti", "nopti", "retbleed", "srbds", "nosmt", "isolcpus", "nohz", "nohz_full",
    "rcu_nocbs", "irqaffinity", "maxcpus", "nr_cpus", "mem", "hugepages", "hugepagesz", "default_hugepagesz",
    "transparent_hugepage", "intel_pstate", "amd_pstate", "intel_idle.max_cstate", "processor.max_cstate", "idle",
    "cpufreq.default_governor", "cpuidle.off", "clocksource", "tsc", "hpet", "iommu", "intel_iommu", "amd_iommu",
    "kvm-intel.nested", "kvm-amd.nested", "kvm.halt_poll_ns", "numa_balancing", "preempt", "skew_tick",
    "audit", "selinux", "apparmor", "lockdown", "net.ifnames", "fsck.mode",
})  # fmt: skip
_ELEMENTS = frozenset({
    "domain", "memory", "currentMemory", "vcpu", "vcpus", "iothreads", "cputune", "vcpupin", "emulatorpin",
    "iothreadpin", "shares", "period", "quota", "numatune", "memnode", "memoryBacking", "hugepages", "page", "locked",
    "nosharepages", "os", "type", "features", "acpi", "apic", "pae", "hyperv", "kvm", "hidden", "poll-control",
    "pvspinlock", "ioapic", "cpu", "model", "topology", "feature", "cache", "numa", "cell", "clock", "timer", "pm",
    "devices", "disk", "driver", "target", "format", "backingStore", "blockio", "iotune", "controller", "interface",
    "tune", "sndbuf", "mtu", "bandwidth", "inbound", "outbound", "memballoon", "rng", "rate", "watchdog", "hostdev",
})  # fmt: skip
_SECRET_ATTRIBUTES = frozenset({"id", "dev", "file", "name_prefix", "serial", "address", "path"})


def facts(found: dict[str, Any], scrubber: Scrubber, domains: dict[str, str]) -> dict[str, Any]:
    """The published facts of one host; `domains`: a guest's domain → the name that it is published under."""
    kept = {key: found[key] for key in PUBLISHED if key in found}
    if isinstance(kept.get("cmdline"), str):
        kept["cmdline"] = command_line(kept["cmdline"])
    clean: dict[str, Any] = scrubber.tree(kept)
    if isinstance(found.get("domains"), dict):
        clean["domains"] = {
            domains[name]: scrubber.text(domain_xml(str(text), domains[name]))
            for name, text in found["domains"].items()
        }
    return clean


def command_line(text: str) -> str:
    """A kernel command line without the parameters that may name something; it says how many it left out."""
    words = text.split()
    kept = [word for word in words if word.partition("=")[0] in _PARAMETERS]
    left_out = len(words) - len(kept)
    return " ".join([*kept, f"({left_out} more left out)"] if left_out else kept)


def domain_xml(text: str, name: str) -> str:
    """A libvirt domain's definition, reduced to what shapes its performance, under another name."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return "(left out: not a domain definition)"
    _reduce(root)
    title = ElementTree.Element("name")
    title.text = name
    root.insert(0, title)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode")


def _reduce(element: ElementTree.Element) -> None:
    for attribute in _SECRET_ATTRIBUTES.intersection(element.attrib):
        del element.attrib[attribute]
    for child in list(element):
        if child.tag in _ELEMENTS:
            _reduce(child)
        else:
            element.remove(child)
    if not (element.text or "").strip():
        element.text = None
