"""Erlang C: what a queue with that many CPUs and that much work per request could do, as a bound to check against.

M/M/c: requests come at random, each takes an exponentially distributed time on one of c CPUs. A tool that sends at
an even pace makes shorter queues than that, so the bound is no law; a capacity far above it contradicts its own CPU
figures, and one far below it says that something else than the CPU binds.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq


def waits(erlangs: float, servers: int) -> float:
    """The probability that a request must wait, C(A, c) (Erlang 1917), by the stable recursion over Erlang B.

    `erlangs`: arrivals per second times seconds of work each. 1 when the servers cannot keep up (A ≥ c).
    """
    if servers < 1 or erlangs < 0:
        raise ValueError(f"expected a load from 0 up and at least one server, got {erlangs} and {servers}")
    if erlangs >= servers:
        return 1.0
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = erlangs * blocked / (n + erlangs * blocked)
    return blocked / (1 - erlangs / servers * (1 - blocked))


def beyond(seconds: float, rate_rps: float, work_s: float, servers: int) -> float:
    """The share of requests whose waiting and work together last longer than `seconds`; M/M/c, first come first served.

    Gross et al., Fundamentals of Queueing Theory, section 3.3. 1 when the servers cannot keep up.
    """
    erlangs = rate_rps * work_s
    if erlangs >= servers:
        return 1.0
    t, rest = seconds / work_s, servers - erlangs  # in units of one request's work; `rest`: at what rate a queue drains
    alone, drained = math.exp(-t), math.exp(-rest * t)
    queued = t * alone if abs(rest - 1) < 1e-9 else (alone - drained) / (rest - 1)
    return alone + waits(erlangs, servers) * queued


def rate_within(seconds: float, share: float, work_s: float, servers: int) -> float:
    """The highest rate, in requests per second, at which at most `share` of them last longer than `seconds`.

    0 when even a lone request does: its work alone is then too long.
    """
    if beyond(seconds, 0.0, work_s, servers) > share:
        return 0.0
    return float(brentq(lambda rate: beyond(seconds, rate, work_s, servers) - share, 0.0, servers / work_s))
