"""disclosure.html: what a run discloses of its machines, and what it does not, as one page to print."""

from collections.abc import Mapping
from pathlib import Path

from vmtoll.analysis.run import Run
from vmtoll.model.disclosure import ITEMS, Disclosed, Disclosure, requested_items
from vmtoll.report.page import environment, write

PAGE = "disclosure.html"
NOT_DISCLOSED = "not disclosed"
NOT_ASKED = "as its host"
# Items that facts of hosts.json tell too, in runs from before the block.
_FACTS = {"cpu": "cpu_model", "kernel": "kernel", "nic": "nic"}


def block_of(run: Run) -> Disclosure:
    """The run's block; of an older run what the facts of its machines tell."""
    if run.manifest.disclosure is not None:
        return run.manifest.disclosure
    machines = {
        name: {
            item: Disclosed(text=str(facts[key]), source="machine") for item, key in _FACTS.items() if facts.get(key)
        }
        | _mitigations(facts.get("mitigations"))
        for name, facts in run.hosts.items()
    }
    guests = {facts.get("environment") for facts in run.hosts.values()} - {None, "metal"}
    return Disclosure(machines=machines, virtual=[n for n, f in run.hosts.items() if f.get("environment") in guests])


def _mitigations(states: object) -> dict[str, Disclosed]:
    if not isinstance(states, Mapping) or not states:
        return {}
    affected = [f"{name}: {state}" for name, state in states.items() if state != "Not affected"]
    return {"mitigations": Disclosed(text="; ".join(affected) or "not affected", source="machine")}


def write_disclosure(run: Run, folder: Path) -> Path:
    """Write the page into a folder; returns its path."""
    return write(folder / PAGE, render(run))


def render(run: Run) -> str:
    """The whole page; the same run gives the same bytes."""
    block = block_of(run)
    cells = {
        machine: {item.name: _cell(block, machine, item.name) for item in ITEMS} for machine in sorted(block.machines)
    }
    missing = sum(len(block.missing(machine)) for machine in block.machines)
    domains = {name: xml for facts in run.hosts.values() for name, xml in sorted((facts.get("domains") or {}).items())}
    return environment().get_template("disclosure.html.j2").render(
        manifest=run.manifest, operator=block.operator or NOT_DISCLOSED, items=ITEMS, cells=cells, missing=missing,
        domains=domains, not_disclosed=NOT_DISCLOSED,
    )  # fmt: skip


def _cell(block: Disclosure, machine: str, name: str) -> tuple[str, str]:
    """The text, and the source of it or a class for none."""
    entry = block.machines[machine].get(name)
    if entry is not None:
        return entry.text, entry.source
    is_asked = name in {item.name for item in requested_items(machine in block.virtual)}
    return (NOT_DISCLOSED, "none") if is_asked else (NOT_ASKED, "host")
