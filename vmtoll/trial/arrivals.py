"""The schedule of an open loop's random arrivals, drawn before the load is sent."""

import hashlib

import numpy as np


def poisson_ns(requests: int, rate_rps: float, seed: int) -> tuple[int, ...]:
    """Arrival times of a Poisson process with exactly `requests` arrivals in `requests` ÷ `rate_rps` seconds, in ns.

    The gaps are exponential and independent, then scaled so that the schedule lasts as long as one at even intervals:
    a Poisson process conditioned on its number of arrivals. So each trial gets exactly the experiment's rate.
    """
    gaps = np.random.default_rng(seed).exponential(size=requests + 1)
    times = np.cumsum(gaps)
    return tuple(np.rint(times[:-1] / times[-1] * (1e9 * requests / rate_rps)).astype(np.int64).tolist())


def seed_of(*parts: object) -> int:
    """A 48-bit seed derived from `parts`; the same in every process."""
    return int.from_bytes(hashlib.sha256(":".join(map(str, parts)).encode()).digest()[:6], "big")
