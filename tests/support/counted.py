"""A counting machine that boots in no time: what it counts is made up, and where it hangs is the test's choice."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from vmtoll.counting.machine import Boot, Load, Parts
from vmtoll.counting.sides import Side
from vmtoll.counting.windows import Window

GUEST_LEVEL = 2400  # instructions per request; metal's are 1000


def _window(instructions: int, requests: int, entries: int) -> Window:
    """A window whose requests take so many instructions; in a guest, if it was entered, a third of them."""
    guest = instructions // 3 if entries else 0
    return Window(requests * (instructions - guest), 0, 50, requests * guest, 0, 0, entries)


def _windows(side: Side, load: Load, drift: int) -> list[Window]:
    """The windows of a whole side: the counted ones, and the one with exits."""
    is_guest = side.environment == "guest"
    level, entries = (GUEST_LEVEL if is_guest else 1000) + drift, 4 * load.requests if is_guest else 0
    return [_window(level + number, load.requests, entries) for number in range(load.windows + 1)]


def boots(calls: list[list[str]], *finished: int, drift: int = 0) -> Callable[..., Boot]:
    """A machine that finishes as many windows in each boot, later all; a boot counts `drift` more than the one before.
    Adds the sides of each boot to `calls`.
    """
    per_boot = itertools.chain(finished, itertools.repeat(10**6))

    def boot(_parts: Parts, sides: Sequence[Side], load: Load, seed: int, _folder: Path, **_: object) -> Boot:
        calls.append([each.name for each in sides])
        done = [each for side in sides for each in _windows(side, load, drift * seed)][: next(per_boot)]
        is_whole = len(done) == len(sides) * (load.windows + 1)
        guests = [each for each in sides if each.environment == "guest"]
        exits = [{"hlt": 3 * load.requests, "npf": load.requests}] * len(guests) if is_whole else []
        return Boot(seed, "passed" if is_whole else "hung", done, exits, "HOST 6.12\n", 1.0)

    return boot
