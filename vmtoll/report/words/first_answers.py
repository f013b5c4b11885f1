"""Words for starts of guests up to their first answer."""

from collections.abc import Iterator

from vmtoll.model.message import DASH, number, plural
from vmtoll.model.trial import Accelerator
from vmtoll.model.verdict import Estimate, StartFigures
from vmtoll.report.words.terms import amount_text

HEADINGS = ("starts", "first guest, s", "all, s", "network, s", "more, s")
PARTS = {
    "host": "host and firmware", "firmware": "firmware", "loader": "boot loader", "kernel": "kernel",
    "initrd": "initial RAM disk", "systemd": "systemd", "network": "network", "engine": "podman",
    "runtime": "runtime", "server": "server", "hypervisor": "hypervisor", "guest": "guest goes on",
}  # fmt: skip
_SINGLE = {
    "boot": "is booted", "restore": "is restored from a saved state", "resume": "is resumed from a pause",
    "start": "is started",
}  # fmt: skip
_SEVERAL = {
    "boot": "booted", "restore": "restored from a saved state", "resume": "resumed from a pause",
    "start": "started",
}  # fmt: skip


def start_text(start: StartFigures) -> str:
    """`kvm-default, boot`; `kvm-default, boot of 4 at once`."""
    several = f" of {start.at_once} at once" if start.at_once > 1 else ""
    return f"{start.environment}, {start.way}{several}"


def first_answer_text(start: StartFigures) -> str:
    """A sentence: `kvm-default serves 31.2 s (30.1 to 32.3) after it is booted.`; `4 kvm-default booted at once: the
    first serves after 50 s, all after 92 s.`
    """
    if start.all_s is None or start.first_s is None:
        return f"{start.environment} did not serve after a {start.way}: {plural(start.failed, 'start')} failed."
    emulated = " (emulated)" if start.accelerator is Accelerator.TCG else ""
    if start.at_once == 1:
        return f"{start.environment}{emulated} serves {_s(start.all_s)} after it {_SINGLE[start.way]}."
    return (
        f"{start.at_once} {start.environment}{emulated} {_SEVERAL[start.way]} at once: the first serves after "
        f"{_s(start.first_s)}, all of them after {_s(start.all_s)}."
    )


def longest_text(start: StartFigures) -> str:
    """A sentence on where the time goes: `The longest part is systemd, 12 s; its server waited 5.01 s for
    slow.service.`; empty without parts.
    """
    if not start.parts:
        return ""
    name, amount = max(start.parts.items(), key=lambda item: item[1].value)
    wait = start.waits[0] if start.waits else None
    waited = f"; its server waited {_s(wait.length_s)} for {wait.unit}" if wait else ""
    return f"The longest part is {PARTS[name]}, {_s(amount)}{waited}."


def start_cells(start: StartFigures) -> list[str]:
    """The cells of a row, in the order of HEADINGS."""
    failed = f", {start.failed} failed" if start.failed else ""
    more = DASH if start.more_s is None else f"{amount_text(start.more_s)} than {start.against}"
    amounts = [amount_text(amount) for amount in (start.first_s, start.all_s, start.network_s)]
    return [f"{start.blocks}{failed}", *amounts, more]


def accuracy_text(start: StartFigures) -> str:
    """`±0.4 ms between clocks; a request every 31 ms at worst`."""
    return (
        f"±{number(start.error_s * 1000)} ms between clocks; a request every {number(start.gap_s * 1000)} ms at worst"
    )


def start_lines(start: StartFigures) -> Iterator[str]:
    """Lines for a terminal: the sentence, its parts, what the server waited for."""
    yield first_answer_text(start)
    if start.parts:
        yield "  " + ", ".join(f"{PARTS[name]} {number(part.value)}" for name, part in start.parts.items())
    if start.waits:
        yield "  waits: " + ", ".join(f"{wait.unit} {number(wait.length_s.value)}" for wait in start.waits)
    if start.more_s is not None:
        yield f"  {_s(start.more_s)} compared with {start.against}"


def _s(amount: Estimate) -> str:
    return amount_text(amount, "s")
