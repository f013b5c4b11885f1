"""Words for what clients noticed of an operation."""

from collections.abc import Iterator

from vmtoll.model.message import plural, short
from vmtoll.model.operation import Operation
from vmtoll.model.verdict import OperationEffect
from vmtoll.report.words.terms import amount_text

HEADINGS = {
    "blackout_ms": "blackout, ms", "brownout_s": "brownout, s", "lost": "requests lost", "late": "later than 1 s",
}  # fmt: skip


_DEEDS = {
    "pause": "a pause of {for_s:g} s", "snapshot": "a snapshot with its memory",
    "snapshot-external": "a snapshot of its disks", "backup": "a backup of its disks", "save": "saved and restored",
    "balloon": "{memory_mib} MiB of memory for {for_s:g} s", "migrate": "a live migration to {to}",
    "command": "`{command}`",
}  # fmt: skip


def deed_text(operation: Operation) -> str:
    """`kvm-default: a pause of 0.4 s, 2 s after the load's beginning`."""
    place = " on its host" if operation.do == "command" and operation.on == "kvm_host" else ""
    deed = _DEEDS[operation.do].format(**operation.model_dump())
    return f"{operation.of}: {deed}{place}, {operation.at_s:g} s after the load's beginning"


def noticed_text(effect: OperationEffect) -> str:
    """A sentence: `During pause nginx's clients had no answer for 404 ms (402 to 405); without it, for 10 ms.`"""
    blackout = effect.figures["blackout_ms"]
    with_it, without = (amount_text(side, "ms") for side in (blackout.with_it, blackout.without))
    whose = f"{effect.scenario.server}'s clients"
    return f"During {effect.arm} {whose} had no answer for {with_it}; without it, for {without}."


def migration_text(effect: OperationEffect) -> str:
    """`libvirt: down for 245 ms (240 to 250), sent 167 MiB of memory, 4,096 of disk`; empty without one."""
    if effect.migration is None:
        return ""
    figures = effect.migration
    memory, disk = (short(figures[name].value) for name in ("memory_mib", "disk_mib"))
    return f"libvirt: down for {amount_text(figures['downtime_ms'], 'ms')}, sent {memory} MiB of memory, {disk} of disk"


def open_ended_text(effect: OperationEffect) -> str:
    """`In 2 of 6 trials the brownout outlasted the load: raise duration_s.`; empty if in none."""
    if not effect.open_ended:
        return ""
    trials = f"{effect.open_ended} of {plural(effect.blocks, 'trial')}"
    return f"In {trials} the brownout outlasted the load: raise duration_s."


def operation_lines(effect: OperationEffect) -> Iterator[str]:
    """Lines for a terminal: what happened, then a line for each figure that is not zero on both sides."""
    length = f" of {short(effect.length_s.value)} s" if effect.length_s else ""
    yield f"{effect.arm}, {effect.scenario.server}: an operation{length}, against {effect.without}"
    for name, figure in effect.figures.items():
        sides = [side for side in (figure.with_it, figure.without) if side]
        if any(side.value for side in sides):
            yield f"  {HEADINGS[name]:16} {amount_text(figure.with_it)}, without {amount_text(figure.without)}"
    for text in (migration_text(effect), open_ended_text(effect)):
        if text:
            yield f"  {text}"
