"""hosts: one row per machine of a run, what the disclosure and the facts know of it, and the schema of its columns."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vmtoll.model.columns import Cell, Column, Schema
from vmtoll.model.disclosure import DisclosedText, Disclosure
from vmtoll.model.facts import HostFacts

_Value = Callable[[HostFacts], Cell]


def _fact(name: str) -> _Value:
    return lambda facts: getattr(facts, name)


def _mitigations(facts: HostFacts) -> Cell:
    return "; ".join(f"{name}: {state}" for name, state in sorted(facts.mitigations.items()))


# Name, type, unit, description, value.
_OF_FACTS: tuple[tuple[str, str, str, str, _Value], ...] = (
    ("role", "string", "none", "client, sut (under test), kvm_host, …", _fact("role")),
    ("environment", "string", "none", "environment of a machine under test", _fact("environment")),
    ("release", "string", "none", "operating system, as Debian 13", _fact("release")),
    ("kernel", "string", "none", "release of its kernel", _fact("kernel")),
    ("cpu_model", "string", "none", "model of its CPU, as the kernel names it", _fact("cpu_model")),
    ("stepping", "string", "none", "family, model and stepping of its CPU, by numbers", _fact("stepping")),
    ("microcode", "string", "none", "revision of the microcode", _fact("microcode")),
    ("sockets", "integer", "1", "sockets with a CPU", _fact("sockets")),
    ("cpus_allowed", "integer", "1", "CPUs that a process may use", _fact("cpus_allowed")),
    ("smt", "string", "none", "whether siblings of a core are online, as /sys says it", _fact("smt")),
    ("numa_nodes", "integer", "1", "NUMA nodes", _fact("numa_nodes")),
    ("memory_kib", "integer", "KiB", "memory", _fact("memory_kib")),
    ("mitigations", "string", "none", "state of each vulnerability, as /sys says it", _mitigations),
    ("governor", "string", "none", "CPU frequency governor", _fact("governor")),
    ("clock_source", "string", "none", "clock source", _fact("clock_source")),
    ("virtualization", "string", "none", "what it is a guest of, by systemd-detect-virt", _fact("virtualization")),
    ("hardware", "string", "none", "the platform below: native, nested, emulated, unknown", _fact("hardware")),
    ("qemu_version", "string", "none", "version of QEMU, of a KVM host", _fact("qemu_version")),
    ("libvirt_version", "string", "none", "version of libvirt, of a KVM host", _fact("libvirt_version")),
    ("nic_driver", "string", "none", "driver and MTU of each network card", _fact("nic")),
)  # fmt: skip
# Items of the disclosure.
_OF_DISCLOSURE = (
    ("firmware", "vendor, product, and the firmware's version and date"),
    ("power_profile", "driver, governor, energy preference, turbo, idle driver"),
    ("memory", "memory modules by kind"),
    ("nic", "network cards by PCI ID, with their rate"),
    ("nic_firmware", "firmware of the network cards"),
    ("nic_offloads", "offloads and queues of the network cards"),
    ("storage", "disks"),
    ("switch", "what lies between the machines"),
    ("not_default", "what was changed: kernel command line, sysctl and module files, settings of vmtoll"),
)
# What a machine is for and stands on; and texts that differ with the wording alone, or have little to do with a load.
_NO_FACETS = {"role", "environment", "virtualization", "hardware", "storage", "switch", "not_default"}
# Of several that divide the hosts alike, the first one is named.
_FIRST = ("cpu_model", "stepping", "microcode", "sockets", "cpus_allowed", "smt", "numa_nodes", "memory_kib")
_COLUMNS = (*(row[0] for row in _OF_FACTS), *(row[0] for row in _OF_DISCLOSURE), "link_mbit")
# What a test bed's hosts may differ in, so that its effect may depend on it.
FACETS = (*_FIRST, *(name for name in _COLUMNS if name not in _NO_FACETS and name not in _FIRST))


def host_rows(
    run_id: str, hosts: Mapping[str, HostFacts], disclosure: Disclosure | None, link_mbit: float | None
) -> Iterator[dict[str, Cell]]:
    """One row per machine, in the order of hosts.json."""
    for name, facts in hosts.items():
        items: Mapping[str, DisclosedText] = disclosure.machines.get(name, {}) if disclosure else {}
        row: dict[str, Cell] = {"run_id": run_id, "host": name}
        row |= {column: value(facts) for column, *_, value in _OF_FACTS}
        row |= {column: items[column].text if column in items else None for column, _ in _OF_DISCLOSURE}
        yield row | {"link_mbit": link_mbit}


def hosts_schema() -> Schema:
    """The Data Package schema of the table of hosts."""
    return {
        "$schema": "https://datapackage.org/profiles/2.0/tableschema.json",
        "title": "hosts.csv",
        "description": "One row per machine of a run: what it reported of itself, or the inventory stated. Empty: not "
        "known.",
        "fields": [
            _column("run_id", "string", "none", "the run"),
            _column("host", "string", "none", "its name in the inventory"),
            *(_column(name, kind, unit, text) for name, kind, unit, text, _ in _OF_FACTS),
            *(_column(name, "string", "none", text) for name, text in _OF_DISCLOSURE),
            _column("link_mbit", "number", "Mbit/s", "rate of the clients' link, as the inventory states it"),
        ],
        "missingValues": [""],
        "primaryKey": ["run_id", "host"],
    }


def _column(name: str, kind: str, unit: str, text: str) -> Column:
    constraints: dict[str, Any] = {"required": name in ("run_id", "host")}
    if kind in ("integer", "number"):
        constraints["minimum"] = 0
    return {"name": name, "type": kind, "unit": unit, "description": text, "constraints": constraints}
