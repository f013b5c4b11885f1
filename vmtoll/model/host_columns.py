"""hosts: one row per machine of a run, what the disclosure and the facts know of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vmtoll.model.disclosure import ITEMS, DisclosedText, Disclosure, Item
from vmtoll.model.facts import HostFacts
from vmtoll.model.table import Cell, Described, column, columns, columns_of, nested, rows


def _disclosed(item: Item) -> Described:
    def text(items: Mapping[str, DisclosedText]) -> Cell:
        return items[item.name].text if item.name in items else None

    return Described(doc=item.column, name=item.name, value=text, before="switch" if item.name == "storage" else "")


@dataclass(frozen=True)
class HostRow:
    """A machine of a run."""

    run_id: str = column("the run")
    host: str = column("its name in the inventory")
    facts: HostFacts = nested()
    disclosed: Mapping[str, DisclosedText] = columns(*(_disclosed(item) for item in ITEMS if item.column))
    link_mbit: float | None = column("rate of the clients' link, as the inventory states it", "Mbit/s")


# What a machine is for and stands on; and texts that differ with the wording alone, or have little to do with a load.
_NO_FACETS = {
    "run_id", "host", "role", "environment", "virtualization", "hardware", "storage", "switch", "not_default",
}  # fmt: skip
# Of several that divide the hosts alike, the first one is named.
_FIRST = ("cpu_model", "stepping", "microcode", "sockets", "cpus_allowed", "smt", "numa_nodes", "memory_kib")
# What a test bed's hosts may differ in, so that its effect may depend on it.
FACETS = (*_FIRST, *(each.name for each in columns_of(HostRow) if each.name not in _NO_FACETS.union(_FIRST)))


def host_rows(
    run_id: str, hosts: Mapping[str, HostFacts], disclosure: Disclosure | None, link_mbit: float | None
) -> Iterator[dict[str, Cell]]:
    """One row per machine, in the order of hosts.json."""
    items = disclosure.machines if disclosure else {}
    return rows(HostRow(run_id, name, facts, items.get(name, {}), link_mbit) for name, facts in hosts.items())
