"""Schedule of an open loop's random arrivals, drawn before it is sent."""

import hashlib

import numpy as np


def poisson_ns(requests: int, rate_rps: float, seed: int) -> tuple[int, ...]:
    """The times of a Poisson process with this many arrivals in `requests` ÷ `rate_rps` seconds, in ns from its start.

    The gaps are exponential and independent, scaled so that the whole takes as long as at even intervals: a Poisson
    process, given the number of its arrivals. The rate of a trial is then that of the experiment, and no other by
    chance.
    """
    gaps = np.random.default_rng(seed).exponential(size=requests + 1)
    times = np.cumsum(gaps)
    return tuple(np.rint(times[:-1] / times[-1] * (1e9 * requests / rate_rps)).astype(np.int64).tolist())


def seed_of(*parts: object) -> int:
    """A seed of 48 bits that follows from these words; it does not depend on the process."""
    return int.from_bytes(hashlib.sha256(":".join(map(str, parts)).encode()).digest()[:6], "big")
