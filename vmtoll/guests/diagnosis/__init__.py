"""What holds an existing guest back: a pure function over its libvirt definition and the facts of its host."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import replace

from vmtoll.guests.diagnosis import disk, limits, memory, network, processor
from vmtoll.guests.diagnosis.definition import parsed
from vmtoll.guests.diagnosis.facts import Facts
from vmtoll.model.diagnosis import State, Step

# In the order of `Tuning`.
_LOOKS: tuple[Callable[[ET.Element, Facts], Iterator[Step]], ...] = (
    processor.kvm, limits.cpu, limits.memory, limits.disk, limits.network, processor.model, processor.timers,
    network.backend, network.card_model, disk.bus, disk.cache, network.vhost, network.iommu, network.notifications,
    network.offloads, network.multiqueue, processor.pinning, memory.huge_pages, processor.halt_polling,
)  # fmt: skip


def diagnose(xml: str, facts: Facts, next_xml: str | None = None) -> tuple[Step, ...]:
    """Every tuning step of the domain with its state, in the order in which to take them. Raises UserError.

    `next_xml`: the definition that the guest gets at its next start, if it runs with an earlier one. The changes are
    changes of that one.
    """
    steps = _steps(xml, facts)
    if next_xml is None:
        return steps
    later = {(step.tuning, step.device): step for step in _steps(next_xml, facts)}
    return tuple(_as_of_next_start(step, later.get((step.tuning, step.device), step)) for step in steps)


def _steps(xml: str, facts: Facts) -> tuple[Step, ...]:
    domain = parsed(xml)
    return tuple(step for look in _LOOKS for step in look(domain, facts))


def _as_of_next_start(step: Step, later: Step) -> Step:
    if step.state is not State.LACKING:
        return step
    if later.state is State.TAKEN:
        return replace(step, changes=(), xml="", pending=True)
    return replace(step, changes=later.changes, xml=later.xml) if later.state is State.LACKING else step
