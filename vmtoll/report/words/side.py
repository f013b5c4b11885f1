"""What a run shows besides its comparisons, in words: operations, first answers, exits, guests on one host, waits."""

import math
from collections.abc import Callable, Iterator, Mapping

from vmtoll.analysis.exits import ExplainedExits, ReasonShare
from vmtoll.capacity.density import CarriedGuests, GuestCount, hosts_for
from vmtoll.capacity.estimate import End
from vmtoll.model.density import Density, Tile
from vmtoll.model.message import DASH, number, plural, short, spread
from vmtoll.model.operation import Operation
from vmtoll.model.trial import Accelerator, is_shape_only
from vmtoll.model.verdict import Estimate, OperationEffect, StartFigures
from vmtoll.report.words.terms import amount_text, platform_text
from vmtoll.statistics.thresholds import MIN_EQUIVALENT_BLOCKS

# ---- operations on a guest

OPERATION_HEADINGS = {
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
            heading = OPERATION_HEADINGS[name]
            yield f"  {heading:16} {amount_text(figure.with_it)}, without {amount_text(figure.without)}"
    for text in (migration_text(effect), open_ended_text(effect)):
        if text:
            yield f"  {text}"


# ---- starts up to the first answer

START_HEADINGS = ("starts", "first, s", "all, s", "network, s", "more, s")
PART_NAMES = {
    "host": "host and firmware", "firmware": "firmware", "loader": "boot loader", "kernel": "kernel",
    "initrd": "initial RAM disk", "systemd": "systemd", "network": "network", "engine": "podman",
    "runtime": "runtime", "server": "server", "hypervisor": "hypervisor", "guest": "guest continues",
}  # fmt: skip
_SEVERAL = {
    "boot": "booted", "restore": "restored from a saved state", "resume": "resumed from a pause", "start": "started",
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
        return f"{start.environment}{emulated} serves {_s(start.all_s)} after it is {_SEVERAL[start.way]}."
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
    return f"The longest part is {PART_NAMES[name]}, {_s(amount)}{waited}."


def start_cells(start: StartFigures) -> list[str]:
    """The cells of a row, in the order of START_HEADINGS."""
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
        yield "  " + ", ".join(f"{PART_NAMES[name]} {number(part.value)}" for name, part in start.parts.items())
    if start.waits:
        yield "  waits: " + ", ".join(f"{wait.unit} {number(wait.length_s.value)}" for wait in start.waits)
    if start.more_s is not None:
        yield f"  {_s(start.more_s)} compared with {start.against}"


def _s(amount: Estimate) -> str:
    return amount_text(amount, "s")


# ---- exits

EXIT_HEADINGS = ("exits/request", "CPU µs/request", "CPU µs each", "off CPU µs/request")
EXIT_PRICES = {
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


def exit_prices_text(exits: ExplainedExits) -> str:
    """A sentence on the least that the exits cost without tracing; empty without a price list."""
    if exits.at_least_us is None:
        return ""
    return (
        f"{number(exits.per_request.value)} exits per request cost at least {number(exits.at_least_us)} µs, by "
        "the cost per exit measured on the host."
    )


def reason_cells(share: ReasonShare) -> list[str]:
    """The cells of a reason's row, in the order of EXIT_HEADINGS."""
    each, away = number(share.us_per_exit), amount_text(share.away_us)
    return [amount_text(share.per_request), amount_text(share.us_per_request), each, away]


def exit_lines(exits: ExplainedExits) -> Iterator[str]:
    """Lines for a terminal: the sentence, a line for each reason, the price list."""
    yield exits_text(exits)
    for text in (tracing_text(exits), exit_prices_text(exits)):
        if text:
            yield text
    rows = [["reason", *EXIT_HEADINGS]]
    rows += [[share.reason, *reason_cells(share)] for share in exits.reasons]
    yield ""
    yield f"{exits.scenario.server} on {exits.arm}, {plural(exits.trials, 'explained trial')}"
    yield from _aligned(rows)
    if exits.prices:
        yield ""
        yield "cost per exit on the KVM host, measured before the run (fastest and slowest round)"
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


# ---- how many guests a host carries

DENSITY_HEADINGS = (
    "guests", "objective kept", "p99 ÷ deadline", "answered, fewest", "vCPUs per CPU", "CPU busy", "CPU ready",
    "guests' memory, MB", "available, MB", "merged by KSM, MB",
)  # fmt: skip


def tiles_text(density: Density) -> str:
    """`site-rate-100, idle, mail-submission at 2/s on postfix-dovecot, in turn`."""
    return ", ".join(map(_tile_text, density.tiles)) + (", in turn" if len(density.tiles) > 1 else "")


def _tile_text(tile: Tile) -> str:
    return f"{tile.name} at {tile.rate_rps:g}/s on {tile.server}" if tile.is_mail else tile.name


def carried_text(answer: CarriedGuests) -> str:
    """`The host of kvm-default carries 7 (6 to 8) such guests.`"""
    guests, host = answer.guests, f"The host of {answer.environment}{_shape_text(answer)}"
    if guests.high == 0:
        return f"{host} carries not even one such guest."
    if End.LOW in answer.open_ends:
        most = "the most whose trials count" if answer.failed else "the most that ran at once"
        return f"{host} carries at least {_guests(guests.low)}, {most}."
    at_least = "at least " if End.MID in answer.open_ends else ""
    high = f"{guests.high} or more" if End.HIGH in answer.open_ends else str(guests.high)
    interval = "" if guests.low == guests.high else f" ({guests.low} to {high})"
    return f"{host} carries {at_least}{_guests(guests.mid, interval)}."


def _guests(count: int, interval: str = "") -> str:
    return f"{count or 'not even one'}{interval} such {'guest' if count <= 1 else 'guests'}"


def _shape_text(answer: CarriedGuests) -> str:
    text = platform_text(answer.accelerator, answer.hardware)
    shape = "not a measurement" if is_shape_only(answer.accelerator, answer.hardware) else ""
    return f" ({': '.join(filter(None, [text, shape]))})" if text or shape else ""


def density_notes(answer: CarriedGuests) -> Iterator[str]:
    """Sentences on what the answer lacks."""
    blocks = max(len(count.worst) for count in answer.counts)
    if blocks < MIN_EQUIVALENT_BLOCKS:
        least = MIN_EQUIVALENT_BLOCKS
        yield f"{answer.environment}: {plural(blocks, 'block')}; it takes at least {least} to show a number."
    for number_of_guests, codes in answer.failed.items():
        yield (
            f"{answer.environment}: with {plural(number_of_guests, 'guest')} no trial counts ({', '.join(codes)}), so "
            "vmtoll says nothing about that number; see what failed, for example a host without memory for them."
        )
    missed = answer.missed
    if missed and missed.limits:
        yield (
            f"{answer.environment}: with {plural(missed.guests, 'guest')} the client or the link was the limit "
            f"({', '.join(missed.limits)}), so the host may carry more: use a faster client, or several."
        )
    share = missed.available if missed else None
    if missed and share and share.mid == 1 and 100 * share.low < answer.availability_pct:
        yield (
            f"{answer.environment}: with {plural(missed.guests, 'guest')} no request failed, but so few cannot show "
            f"{answer.availability_pct:g}%: raise duration_s or blocks, or lower availability_pct."
        )


def count_cells(count: GuestCount) -> list[str]:
    """A number of guests under each of DENSITY_HEADINGS."""
    host, ratio = count.host, count.ratio
    ends = (ratio.low, ratio.high) if ratio.low and math.isfinite(ratio.high) else None
    return [
        str(count.guests), f"{count.kept} of {count.trials}", spread(ratio.mid, ends, "{:.2g}".format),
        f"{100 * count.available.mid:.5g}%", _known(count.vcpus_per_cpu, lambda value: f"{value:.3g}"),
        _known(host.cpu_pct, lambda value: f"{value:.0f}%"), _known(host.ready_pct, lambda value: f"{value:.1f}%"),
        _known(host.guests_mb, number), _known(host.available_mb, number),
        "off" if host.ksm is False else _known(host.merged_mb, number),
    ]  # fmt: skip


def _known(value: float | None, text: Callable[[float], str]) -> str:
    return DASH if value is None else text(value)


def hosts_text(guests: int, answer: CarriedGuests, spare: int) -> str:
    """`40 guests such as those of kvm-default: you need 8 hosts, 1 of them spare (7 to 9 …).`"""
    head, hosts = f"{plural(guests, 'guest')} such as those of {answer.environment}", hosts_for(guests, answer, spare)
    if hosts is None:
        return f"{head} ran under emulation or on emulated hardware, so vmtoll gives no number of hosts."
    if hosts.low is None:
        return f"{head}: one host is not shown to carry any, so vmtoll gives no number of hosts."
    at_most = "at most " if End.LOW in answer.open_ends else ""
    others = [] if hosts.mid == hosts.low == hosts.high else [f"by the estimate {hosts.mid}, at best {hosts.high}"]
    return (
        f"{head}: you need {at_most}{plural(hosts.low, 'host')} like this one, {spare} of them spare"
        f"{''.join(f' ({text})' for text in others)}; each carries {answer.guests.low}."
    )


# ---- waits for a CPU (CPU ready)

# A wait that is a smaller part of running and waiting together needs no sentence.
_WORTH_SAYING = 0.02


def wait_text(times_us: Mapping[str, float | None], arm: str) -> str:
    """`the vCPUs of kvm-default waited for a CPU for 21 of 68 µs per request`; empty where neither they nor the
    server's threads waited for 2% of that time.

    `times_us`: column of trials.csv → µs per request, what they ran and waited. Of vCPUs and server, the one that
    waited for the larger part of its time.
    """
    subjects = (
        (f"the vCPUs of {arm}", times_us["host_vcpu_cpu_us_per_request"], times_us["host_vcpu_wait_us_per_request"]),
        (
            f"the server's threads on {arm}",
            times_us["server_cpu_us_per_request"],
            times_us["server_wait_us_per_request"],
        ),
    )
    parts = [
        (wait_us / (ran_us + wait_us), subject, ran_us + wait_us, wait_us)
        for subject, ran_us, wait_us in subjects
        if ran_us is not None and wait_us is not None and ran_us + wait_us > 0
    ]
    share, subject, wanted_us, wait_us = max(parts, default=(0.0, "", 0.0, 0.0))
    if share < _WORTH_SAYING:
        return ""
    return f"{subject} waited for a CPU for {number(wait_us)} of {number(wanted_us)} µs per request"
