"""A machine's counters over time, and the pulse of what it receives."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from vmtoll.agent.conditions import mhz
from vmtoll.agent.machine import counters
from vmtoll.agent.protocol import Samples


def sample() -> dict[str, float]:
    """The counters; `mhz` where the kernel governs the clock rate."""
    rate = mhz()
    return {**counters(), **({} if rate is None else {"mhz": rate})}


class Sampler:
    """Counters every `interval_s`; with `pulse_s`, also the bytes received so far, that often.

    These are of every interface but the loopback, or of the loopback alone.
    """

    def __init__(self, interval_s: float, pulse_s: float | None, loopback: bool = False) -> None:
        self.interval_s = interval_s
        self.tick_s = pulse_s or interval_s
        self.counters = [sample()]
        self.pulse: list[tuple[float, float]] = []
        files = [p for p in Path("/sys/class/net").glob("*/statistics/rx_bytes") if (p.parts[4] == "lo") == loopback]
        self.received = [os.open(path, os.O_RDONLY) for path in files] if pulse_s else []
        self.enough = threading.Event()
        self.cpu_s = 0.0
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        began = time.monotonic()
        while not self.enough.wait(self.tick_s):
            if self.tick_s < self.interval_s:
                self.pulse.append((time.time(), sum(int(os.pread(file, 32, 0)) for file in self.received)))
            if time.monotonic() - began >= self.interval_s * len(self.counters):
                self.counters.append(sample())
        self.cpu_s = time.thread_time()

    def stop(self) -> Samples:
        """End the sampling; what it gave."""
        self.enough.set()
        self.thread.join()
        for file in self.received:
            os.close(file)
        return {"counters": [*self.counters, sample()], "pulse": self.pulse, "cpu_s": self.cpu_s}
