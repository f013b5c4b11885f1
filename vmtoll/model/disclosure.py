"""Disclosure of a run's machines: one table of items, and the block `disclosure` of run.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from vmtoll.model.document import Document


@dataclass(frozen=True)
class Item:
    """One item to disclose."""

    name: str
    label: str
    example: str  # what to write in the inventory
    guest: bool = False  # whether a virtual machine reports it too, or only the hardware below it
    column: str = ""  # what its column in the table of hosts has, empty without one


ITEMS = (
    Item("cpu", "CPU", "2 × AMD EPYC 9354, 32 cores each, SMT on", guest=True),
    Item("firmware", "firmware", "Dell BIOS 1.6.10 (2025-11-03)",
         column="vendor, product, and the firmware's version and date"),
    Item("power_profile", "power profile", "BIOS profile Performance, C-states off",
         column="driver, governor, energy preference, turbo, idle driver"),
    Item("memory", "memory population", "12 × 32 GiB DDR5-4800, one DIMM a channel", column="memory modules by kind"),
    Item("nic", "network card", "Intel E810-C, 100 Gbit/s", guest=True,
         column="network cards by PCI ID, with their rate"),
    Item("nic_firmware", "network card's firmware", "4.40 0x8001c967", column="firmware of the network cards"),
    Item("nic_offloads", "network card's offloads and queues", "TSO, GSO, GRO on; 32 queues", guest=True,
         column="offloads and queues of the network cards"),
    Item("switch", "switch", "Arista 7060CX, one hop, MTU 1500", column="what lies between the machines"),
    Item("storage", "storage", "2 × Samsung PM9A3 1.9 TB, RAID 1, ext4", guest=True, column="disks"),
    Item("kernel", "kernel", "6.1.0-30 of 2025-09-01", guest=True),
    Item("packages", "packages", "qemu 7.2.22 of 2025-10-02", guest=True),
    Item("mitigations", "mitigations", "kernel defaults", guest=True),
    Item("hypervisor", "hypervisor", "none, or what runs this machine", guest=True),
    Item("not_default", "not default", "governor performance; vm.nr_hugepages=4096", guest=True,
         column="what was changed: kernel command line, sysctl and module files, settings of vmtoll"),
)  # fmt: skip
OPERATOR = "operator"  # who ran it: an item of the run, not of a machine
NAMES = tuple(item.name for item in ITEMS)


class DisclosedText(Document):
    """The text of one item, and who gave it: the machine itself or the inventory."""

    text: str = Field(min_length=1)
    source: Literal["machine", "inventory"]


class Disclosure(Document):
    """The block `disclosure` of run.json: who ran it, and machine → item → its text; an unknown item is absent."""

    operator: str | None = None
    machines: dict[str, dict[str, DisclosedText]]
    virtual: list[str] = Field(default_factory=list)  # the virtual machines, which report only some items

    def missing(self, machine: str) -> list[Item]:
        """Items of a machine that are not disclosed."""
        return [
            item for item in requested_items(machine in self.virtual) if item.name not in self.machines.get(machine, {})
        ]


def requested_items(virtual: bool) -> list[Item]:
    """Items that a machine should disclose; a virtual machine has fewer."""
    return [item for item in ITEMS if item.guest or not virtual]


def disclosed_texts(collected: Mapping[str, str], stated: Mapping[str, str]) -> dict[str, DisclosedText]:
    """One machine's items; the inventory's statements override what the machine reported."""
    items = {
        name: DisclosedText(text=text, source="machine") for name, text in collected.items() if text and name in NAMES
    }
    return items | {
        name: DisclosedText(text=text, source="inventory") for name, text in stated.items() if text and name in NAMES
    }
