"""Gaps and slow starts of a load, from the bytes that the client received in short slices of time."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Below this share of the mean rate a slice holds no response: its bytes are the agent's line, and handshakes of
# connections that a tool opens while the server stalls, which the kernel answers for it.
_SILENT = 0.1
# The fewest slices for a comparison of the beginning with the rest.
FEWEST_SLICES = 12
# Standard errors between the beginning and the rest that rule out chance in the files' sizes.
_CRITICAL_T = 3.0


@dataclass(frozen=True)
class Slice:
    """Bytes that a client received in one interval."""

    length_s: float
    size_bytes: float


def slices(pulse: Sequence[tuple[float, float]], started_at_s: float, wall_s: float) -> list[Slice]:
    """The slices within a load, from the first to the last with responses. `pulse`: time (s), bytes received so far."""
    pulse_within = [(t, size) for t, size in pulse if started_at_s <= t <= started_at_s + wall_s]
    parts = [Slice(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(pulse_within)]
    with_responses = [i for i, part in enumerate(parts) if part.size_bytes > _silence(parts) * part.length_s]
    return parts[with_responses[0] : with_responses[-1] + 1] if with_responses else []


def _silence(parts: Sequence[Slice]) -> float:
    """Bytes per second up to which a slice holds no response."""
    return _SILENT * sum(s.size_bytes for s in parts) / sum(s.length_s for s in parts)


def longest_gap_s(parts: Sequence[Slice]) -> float | None:
    """The longest time without a response in s, in whole slices; None without slices."""
    if not parts:
        return None
    longest = gap = 0.0
    for part in parts:
        gap = gap + part.length_s if part.size_bytes <= _silence(parts) * part.length_s else 0.0
        longest = max(longest, gap)
    return longest


def slower_start_pct(parts: Sequence[Slice]) -> float | None:
    """How much slower the first third was than the rest, in percent; 0 if that may be chance (Welch's t of the rates).

    None with too few slices.
    """
    third = len(parts) // 3
    if third < FEWEST_SLICES // 3:
        return None
    rates = np.array([part.size_bytes / part.length_s for part in parts])
    first, rest = rates[:third], rates[third:]
    error = np.sqrt(first.var(ddof=1) / len(first) + rest.var(ddof=1) / len(rest))
    shortfall = rest.mean() - first.mean()
    return float(100 * shortfall / rest.mean()) if shortfall > _CRITICAL_T * error else 0.0
