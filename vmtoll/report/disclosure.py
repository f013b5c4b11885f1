"""disclosure.html: what a run discloses about its machines, and what it does not, as one page to print."""

from collections.abc import Mapping
from pathlib import Path

from vmtoll.analysis.run import Run
from vmtoll.model.disclosure import ITEMS, DisclosedText, Disclosure, requested_items
from vmtoll.model.trial import MachineKind
from vmtoll.report.page import environment, write

PAGE = "disclosure.html"
NOT_DISCLOSED = "not disclosed"
NOT_ASKED = "as its host"
# Item → fact of hosts.json that has it too, for runs older than the disclosure.
_FACTS = {"cpu": "cpu_model", "kernel": "kernel", "nic": "nic"}


def disclosure_of(run: Run) -> Disclosure:
    """The run's disclosure; for an older run, what the facts of its machines contain."""
    if run.manifest.disclosure is not None:
        return run.manifest.disclosure
    machines = {
        name: {
            item: DisclosedText(text=text, source="machine")
            for item, key in _FACTS.items()
            if (text := getattr(facts, key))
        }
        | _mitigations(facts.mitigations)
        for name, facts in run.hosts.items()
    }
    kind_of = run.manifest.experiment.kind_of
    virtual = [
        name for name, facts in run.hosts.items()
        if facts.environment and kind_of(facts.environment) is MachineKind.GUEST
    ]  # fmt: skip
    return Disclosure(machines=machines, virtual=virtual)


def _mitigations(states: Mapping[str, str]) -> dict[str, DisclosedText]:
    if not states:
        return {}
    affected = [f"{name}: {state}" for name, state in states.items() if state != "Not affected"]
    return {"mitigations": DisclosedText(text="; ".join(affected) or "not affected", source="machine")}


def write_disclosure(run: Run, folder: Path) -> Path:
    """Write the page into a folder and return its path."""
    return write(folder / PAGE, render(run))


def render(run: Run) -> str:
    """The whole page; the same run gives the same bytes."""
    disclosure = disclosure_of(run)
    cells = {
        machine: {item.name: _cell(disclosure, machine, item.name) for item in ITEMS}
        for machine in sorted(disclosure.machines)
    }
    missing = sum(len(disclosure.missing(machine)) for machine in disclosure.machines)
    domains = {name: xml for facts in run.hosts.values() for name, xml in sorted(facts.domains.items())}
    return environment().get_template("disclosure.html.j2").render(
        manifest=run.manifest, operator=disclosure.operator or NOT_DISCLOSED, items=ITEMS, cells=cells, missing=missing,
        domains=domains, not_disclosed=NOT_DISCLOSED,
    )  # fmt: skip


def _cell(disclosure: Disclosure, machine: str, name: str) -> tuple[str, str]:
    """(text, source); the source is `none` for an item that is not disclosed, `host` for one left to the host."""
    entry = disclosure.machines[machine].get(name)
    if entry is not None:
        return entry.text, entry.source
    is_asked = name in {item.name for item in requested_items(machine in disclosure.virtual)}
    return (NOT_DISCLOSED, "none") if is_asked else (NOT_ASKED, "host")
