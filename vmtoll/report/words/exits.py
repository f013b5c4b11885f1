"""Words for where the time of a guest's exits goes."""

from collections.abc import Iterator

from vmtoll.analysis.exits import ExplainedExits, ReasonShare
from vmtoll.model.message import number, plural
from vmtoll.model.verdict import Estimate
from vmtoll.report.words.terms import amount_text

HEADINGS = ("exits/request", "CPU µs/request", "CPU µs each", "off CPU µs/request")
PRICES = {
    "cpuid": "cpuid, answered by KVM",
    "msr": "a register (MSR) read, answered by KVM",
    "port-eventfd": "a write to an I/O port, passed on by an eventfd as virtio's doorbells are",
    "mmio-eventfd": "a write to a device's memory, passed on by an eventfd",
    "port-process": "a write to an I/O port, answered by a process, as most devices of QEMU",
}


def exits_text(exits: ExplainedExits) -> str:
    """A sentence: `nginx: exits explain 14 µs (13 to 15) of the 19 µs of host CPU that kvm-default needs more per
    request than metal.`
    """
    server, took, more = exits.scenario.server, exits.us_per_request, exits.more_us
    exits_take = f"{server}: exits take {_us(took)} per request of {exits.arm}"
    if more is None:
        cpu = exits.host_cpu_us
        of_cpu = f"; it needs {_us(cpu)} of host CPU" if cpu else ""
        return f"{exits_take}{of_cpu}."
    if exits.is_baseline_guest:
        theirs = exits.baseline_us_per_request
        of_theirs = f" and {_us(theirs)} of {exits.baseline}" if theirs else ""
        size, word = (_negative(more), "less") if more.value < 0 else (more, "more")
        return f"{exits_take}{of_theirs}; {exits.arm} needs {_us(size)} {word} host CPU than {exits.baseline}."
    if more.value <= 0:
        return f"{exits_take}, which needs no more CPU than {exits.baseline}."
    if took.value >= more.value:
        return (
            f"{exits_take} while they are traced, and explain all of the {_us(more)} of host CPU that it needs more "
            f"than {exits.baseline}."
        )
    return (
        f"{server}: exits explain {_us(took)} of the {_us(more)} of host CPU that {exits.arm} needs more per request "
        f"than {exits.baseline}."
    )


def tracing_text(exits: ExplainedExits) -> str:
    """A sentence on what tracing adds: `While exits were traced, a request took 21 µs of host CPU; in the trials that
    are compared, 19 µs.`; empty where one of the two is not known.
    """
    traced, measured = exits.traced_cpu_us, exits.host_cpu_us
    if traced is None or measured is None:
        return ""
    return (
        f"While exits were traced, a request took {_us(traced)} of host CPU; in the trials that are compared, "
        f"{_us(measured)}."
    )


def prices_text(exits: ExplainedExits) -> str:
    """A sentence on the least that the exits cost without tracing; empty without a price list."""
    if exits.at_least_us is None:
        return ""
    return (
        f"{number(exits.per_request.value)} exits per request cost at least {number(exits.at_least_us)} µs by the "
        "host's list of prices."
    )


def reason_cells(share: ReasonShare) -> list[str]:
    """The cells of a reason's row, in the order of HEADINGS."""
    each, away = number(share.us_per_exit), amount_text(share.away_us)
    return [amount_text(share.per_request), amount_text(share.us_per_request), each, away]


def exit_lines(exits: ExplainedExits) -> Iterator[str]:
    """Lines for a terminal: the sentence, a line for each reason, the price list."""
    yield exits_text(exits)
    for text in (tracing_text(exits), prices_text(exits)):
        if text:
            yield text
    rows = [["reason", *HEADINGS]]
    rows += [[share.reason, *reason_cells(share)] for share in exits.reasons]
    yield ""
    yield f"{exits.scenario.server} on {exits.arm}, {plural(exits.trials, 'explained trial')}"
    yield from _aligned(rows)
    if exits.prices:
        yield ""
        yield "prices on the KVM host, measured before the run (fastest and slowest round)"
        yield from _aligned(
            [
                ["exit", "ns"],
                *(
                    [price.kind, f"{number(price.ns)} ({number(price.low_ns)} to {number(price.high_ns)})"]
                    for price in exits.prices
                ),
            ]
        )


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(others, widths[1:], strict=True))]
        yield "  " + "  ".join(cells)


def _negative(amount: Estimate) -> Estimate:
    return Estimate(-amount.value, *(-end for end in reversed(amount.ends or ())))


def _us(amount: Estimate) -> str:
    return amount_text(amount, "µs")
