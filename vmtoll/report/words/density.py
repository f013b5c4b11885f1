"""Words for how many guests a host carries."""

import math
from collections.abc import Callable, Iterator

from vmtoll.capacity.density import CarriedGuests, GuestCount, hosts_for
from vmtoll.capacity.estimate import End
from vmtoll.model.density import Density, Tile
from vmtoll.model.message import DASH, number, plural
from vmtoll.model.trial import is_shape_only
from vmtoll.report.words.terms import platform_text
from vmtoll.statistics.thresholds import MIN_EQUIVALENT_BLOCKS

HEADINGS = (
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
    shape = "shape only" if is_shape_only(answer.accelerator, answer.hardware) else ""
    return f" ({': '.join(filter(None, [text, shape]))})" if text or shape else ""


def density_notes(answer: CarriedGuests) -> Iterator[str]:
    """Sentences on what the answer lacks."""
    blocks = max(len(count.worst) for count in answer.counts)
    if blocks < MIN_EQUIVALENT_BLOCKS:
        yield f"{answer.environment}: {plural(blocks, 'block')} of at least {MIN_EQUIVALENT_BLOCKS} that show a number."
    for number_of_guests, codes in answer.failed.items():
        yield (
            f"{answer.environment}: with {plural(number_of_guests, 'guest')} no trial counts ({', '.join(codes)}), so "
            "nothing follows for that number: see what failed, such as a host without memory for them."
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
    """A number of guests under each of HEADINGS."""
    host, ratio = count.host, count.ratio
    interval = f" [{ratio.low:.2g}, {ratio.high:.2g}]" if ratio.low and math.isfinite(ratio.high) else ""
    return [
        str(count.guests), f"{count.kept} of {count.trials}", f"{ratio.mid:.2g}{interval}",
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
        return f"{head}: it ran on emulation or emulated hardware: shape only; vmtoll gives no number of hosts."
    if hosts.low is None:
        return f"{head}: no number of them is shown to be carried by one host, so no number of hosts follows."
    at_most = "at most " if End.LOW in answer.open_ends else ""
    others = [] if hosts.mid == hosts.low == hosts.high else [f"by the estimate {hosts.mid}, at best {hosts.high}"]
    return (
        f"{head}: you need {at_most}{plural(hosts.low, 'host')} like this one, {spare} of them spare"
        f"{''.join(f' ({text})' for text in others)}; each carries {answer.guests.low}."
    )
