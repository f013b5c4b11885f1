"""How long each stage of a command took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Stages:
    """Names of stages with their wall clock in s, in the order in which they ended."""

    taken_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block of code."""
        started_s = time.monotonic()
        try:
            yield
        finally:
            self.taken_s[name] = time.monotonic() - started_s

    def __str__(self) -> str:
        """`lab 4 min 55 s, measuring 3 min 5 s`."""
        return ", ".join(f"{name} {_duration(taken_s)}" for name, taken_s in self.taken_s.items())


def _duration(taken_s: float) -> str:
    minutes, seconds = divmod(round(taken_s), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
