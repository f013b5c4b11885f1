"""What an `offered_load` says behind the load itself: over how many guests it went, and beside which dose.

`rate:300 guests:2`, `closed:10 neighbour-share:0.5`: words of a kind and a number each.
"""

from __future__ import annotations

GUESTS = "guests"
DOSES = ("neighbour-share", "neighbour-rate")


def place_of(offered_load: str) -> str:
    """What follows the load; empty where nothing does."""
    return offered_load.partition(" ")[2]


def numbers(place: str) -> dict[str, float]:
    """Kind → number."""
    return {kind: float(number) for kind, _, number in (word.partition(":") for word in place.split())}


def guests_of(place: str) -> int | None:
    """Over how many guests the load went; None where the workload says nothing."""
    found = numbers(place).get(GUESTS)
    return None if found is None else int(found)


def dose_of(place: str) -> float | None:
    """What the neighbour was to bear, as a share of the capacity or in requests per second; None without one."""
    return next((number for kind, number in numbers(place).items() if kind in DOSES), None)


def alone(place: str) -> bool:
    """True where one machine had the whole load, and no neighbour bore any."""
    return guests_of(place) in (None, 1) and not dose_of(place)


def place_words(place: str) -> str:
    """`2 guests, neighbour at 50% of capacity`."""
    return ", ".join(_words(kind, number) for kind, number in numbers(place).items())


def _words(kind: str, number: float) -> str:
    if kind == GUESTS:
        return f"{number:g} guest{'' if number == 1 else 's'}"
    return f"neighbour at {number:.0%} of capacity" if kind == DOSES[0] else f"neighbour at {number:,g} req/s"
