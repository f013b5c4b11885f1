"""Sample a machine's counters and the bytes that it receives."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from vmtoll.agent.conditions import mhz
from vmtoll.agent.machine import counters
from vmtoll.agent.protocol import Counters, Samples
from vmtoll.agent.waits import WaitCounter


class Sampler:
    """Read counters every `interval_s`, the bytes received so far every `pulse_s` (if given), and the clock rate every
    `mhz_s` (by default `interval_s`), if the kernel governs it. `wait_counter`: threads whose waits are counters too.

    The bytes are those of every interface but the loopback; with `loopback`, of the loopback alone.
    """

    def __init__(
        self,
        interval_s: float,
        pulse_s: float | None = None,
        loopback: bool = False,
        mhz_s: float | None = None,
        wait_counter: WaitCounter | None = None,
    ) -> None:
        self.interval_s, self.pulse_s, self.mhz_s, self.wait_counter = (
            interval_s,
            pulse_s,
            mhz_s or interval_s,
            wait_counter,
        )
        self.counters = [self._counters()]
        self.pulse: list[tuple[float, float]] = []
        self.mhz: list[tuple[float, float]] = []
        self._sample_mhz()
        self.tick_s = min(interval_s, pulse_s or interval_s, self.mhz_s if self.mhz else interval_s)
        files = [p for p in Path("/sys/class/net").glob("*/statistics/rx_bytes") if (p.parts[4] == "lo") == loopback]
        self.rx_files = [os.open(path, os.O_RDONLY) for path in files] if pulse_s else []
        self.stopped = threading.Event()
        self.cpu_s = 0.0
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        begin_s = time.monotonic()
        while not self.stopped.wait(self.tick_s):
            if self.pulse_s:
                self.pulse.append((time.time(), sum(int(os.pread(file, 32, 0)) for file in self.rx_files)))
            elapsed_s = time.monotonic() - begin_s
            if self.mhz and elapsed_s >= self.mhz_s * len(self.mhz):
                self._sample_mhz()
            if elapsed_s >= self.interval_s * len(self.counters):
                self.counters.append(self._counters())
        self.cpu_s = time.thread_time()

    def _counters(self) -> Counters:
        wait_s = self.wait_counter.total_s() if self.wait_counter else None
        return counters() | ({} if wait_s is None else {"wait_s": wait_s})

    def _sample_mhz(self) -> None:
        rate = mhz()
        if rate is not None:
            self.mhz.append((time.time(), rate))

    def stop(self) -> Samples:
        """Stop sampling and return the samples."""
        self.stopped.set()
        self.thread.join()
        for file in self.rx_files:
            os.close(file)
        self._sample_mhz()
        last = self._counters()
        return {"counters": [*self.counters, last], "mhz": self.mhz, "pulse": self.pulse, "cpu_s": self.cpu_s}
