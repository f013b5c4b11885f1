"""Erlang C: the rate that a queue with given CPUs and work per request could carry, as a bound to check against.

M/M/c: requests come at random, each takes an exponentially distributed time on one of c CPUs. A tool that sends at
an even pace makes shorter queues than that, so the bound is not strict. A capacity far above it contradicts its own CPU
figures; one far below it means that something other than the CPU binds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import lambertw


def waiting_probability(erlangs: float, servers: int) -> float:
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


def share_slower_than(seconds: float, rate_rps: float, work_s: float, servers: int) -> float:
    """The share of requests whose waiting and work together last longer than `seconds`; M/M/c, first come first served.

    Gross et al., Fundamentals of Queueing Theory, section 3.3. 1 when the servers cannot keep up.
    """
    erlangs = rate_rps * work_s
    if erlangs >= servers:
        return 1.0
    return _share_longer_than(seconds / work_s, waiting_probability(erlangs, servers), servers - erlangs)


def _share_longer_than(time: float, waiting: float, rest: float) -> float:
    """The share of requests that takes longer than `time`, with exponential work of mean 1.

    `waiting`: the share that waits, for an exponential time with the rate `rest`.
    """
    alone, drained = math.exp(-time), math.exp(-rest * time)
    queued = time * alone if abs(rest - 1) < 1e-9 else (alone - drained) / (rest - 1)
    return alone + waiting * queued


def rate_within(seconds: float, share: float, work_s: float, servers: int) -> float:
    """The highest rate, in requests per second, at which at most `share` of them last longer than `seconds`.

    0 when the work of lone requests alone is too long.
    """
    return _highest_rate(
        lambda rate_rps: share_slower_than(seconds, rate_rps, work_s, servers), share, servers / work_s
    )


def _highest_rate(share_slower_at: Callable[[float], float], share: float, saturated_rps: float) -> float:
    if share_slower_at(1e-9 * saturated_rps) > share:
        return 0.0
    # Rounding may put the highest rate a hair below saturation, where work much shorter than the objective still fits.
    if share_slower_at(saturated_rps) <= share:
        return saturated_rps
    return float(brentq(lambda rate_rps: share_slower_at(rate_rps) - share, 1e-9 * saturated_rps, saturated_rps))


@dataclass(frozen=True)
class RandomArrivals:
    """Rate of random (Poisson) arrivals that a queue carries within an objective, as a share of its rate of even ones.
    `fixed_work`: each request takes the same work; `exponential_work`: the work is exponential. None where no rate
    meets the objective.
    """

    fixed_work: float | None
    exponential_work: float | None


def random_arrivals(seconds: float, share: float, work_s: float, servers: int) -> RandomArrivals:
    """Return the shares of the even rate that the queue still carries with random arrivals.

    Even arrivals with the same work each do not wait below saturation (D/D/c). In the other queues a share waits, and
    the tail of the wait is exponential. Its rate is the θ of (1 + θ/λ)^c = exp(θ · work) for M/D/c, and c · (1 − ω) /
    work with ω = exp(−c · (1 − ω) / (λ · work)) for D/M/c (Tijms, A First Course in Stochastic Models, section 9.6).
    The share that waits is Erlang C's; for D/M/c times ω ÷ utilization, which is exact for one server. The ratios agree
    with simulations of 1, 2 and 4 servers to two percentage points.
    """
    saturated_rps = servers / work_s
    fixed = _highest_rate(lambda rate: _share_slower_fixed_work(seconds, rate, work_s, servers), share, saturated_rps)
    even = _highest_rate(lambda rate: _share_slower_even_arrivals(seconds, rate, work_s, servers), share, saturated_rps)
    return RandomArrivals(
        fixed_work=fixed / saturated_rps if fixed else None,
        exponential_work=rate_within(seconds, share, work_s, servers) / even if even else None,
    )


def _share_slower_fixed_work(seconds: float, rate_rps: float, work_s: float, servers: int) -> float:
    """The same as `share_slower_than` for M/D/c; computed in units of the work."""
    erlangs, slack = rate_rps * work_s, seconds / work_s - 1
    if slack < 0 or erlangs >= servers:
        return 1.0
    if slack == 0:
        return waiting_probability(erlangs, servers)

    def decay(theta: float) -> float:
        return theta - servers * math.log1p(theta / erlangs)

    upper = 1.0
    while decay(upper) < 0:
        upper *= 2
    lower = servers - erlangs  # the minimum of decay, which is still below zero
    return (
        waiting_probability(erlangs, servers) * math.exp(-slack * float(brentq(decay, lower, upper)))
        if upper > lower
        else 1.0
    )


def _share_slower_even_arrivals(seconds: float, rate_rps: float, work_s: float, servers: int) -> float:
    """The same as `share_slower_than` for D/M/c."""
    erlangs = rate_rps * work_s
    if erlangs >= servers:
        return 1.0
    # The only fixed point below 1 of ω = exp(−(1 − ω) · c / A), by Lambert's W (Corless et al., 1996); near saturation,
    # where W has its branch point and yields no number, by the first term of its series.
    load = erlangs / servers
    near = 1 - load < 1e-6
    omega = 1 - 2 * (1 - load) if near else float(-load * np.real(lambertw(-math.exp(-1 / load) / load)))
    waiting = waiting_probability(erlangs, servers) * omega * servers / erlangs
    return _share_longer_than(seconds / work_s, min(waiting, 1.0), servers * (1 - omega))
