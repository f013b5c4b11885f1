"""What holds an existing guest back: rules over a neutral guest, and the changes that take a step."""

from collections.abc import Callable
from dataclasses import replace

from vmtoll.guests.diagnosis.definition import LibvirtWriter
from vmtoll.guests.diagnosis.facts import Facts
from vmtoll.guests.diagnosis.rules import Finding, findings
from vmtoll.hypervisors.guest_config import GuestConfig
from vmtoll.hypervisors.libvirt_xml import guest_of_xml, parsed
from vmtoll.model.diagnosis import State, Step

Writer = Callable[[Finding], Step]


def steps_of(now: GuestConfig, facts: Facts, write: Writer, later: GuestConfig | None = None) -> tuple[Step, ...]:
    """Every tuning step of the guest with its state, in the order in which to take them.

    `later`: the guest as it is at its next start, if that differs; `write` makes changes of that one.
    """
    if later is None:
        return tuple(map(write, findings(now, facts)))
    of_later = {(finding.step.tuning, finding.step.device): finding for finding in findings(later, facts)}
    return tuple(
        _as_of_next_start(finding, of_later.get((finding.step.tuning, finding.step.device)), write)
        for finding in findings(now, facts)
    )


def _as_of_next_start(finding: Finding, later: Finding | None, write: Writer) -> Step:
    """The step with the changes of the next start's definition; without, if that lacks the device or has the step."""
    step = finding.step
    if step.state is not State.LACKING or later is None:
        return step
    if later.step.state is State.LACKING:
        return replace(write(later), current=step.current, host=step.host)
    return replace(step, pending=later.step.state is State.TAKEN)


def diagnose(xml: str, facts: Facts, next_xml: str | None = None) -> tuple[Step, ...]:
    """The steps of a libvirt guest. Raises UserError.

    `next_xml`: the definition that the guest gets at its next start, if it runs with an earlier one.
    """
    domain, flags = parsed(xml), facts.get("model_flags")
    now = guest_of_xml(domain, flags, running=next_xml is not None or domain.get("id") is not None)
    if next_xml is None:
        return steps_of(now, facts, LibvirtWriter(domain, now, facts))
    next_domain = parsed(next_xml)
    is_same = next_domain.findtext("cpu/model") == domain.findtext("cpu/model")
    later = guest_of_xml(next_domain, flags if is_same else None)
    return steps_of(now, facts, LibvirtWriter(next_domain, later, facts), later)
