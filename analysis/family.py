"""Many comparisons at once: Holm's correction within the declared family.

The family is declared by the experiment's matrix before anything is measured: all comparisons of one metric,
every scenario with every guest. A comparison that came to nothing stays in the family and counts as p = 1.
Differences and equivalences are two kinds of claim; each kind holds its own error below 5% in its family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.stats import ALPHA, Paired


@dataclass(frozen=True)
class Adjusted:
    """A p-value, as it is and after Holm; `step` is what Holm multiplied it by."""

    p: float
    holm: float
    step: int

    @property
    def holds(self) -> bool:
        """True when it survives the correction."""
        return self.holm < ALPHA


@dataclass(frozen=True)
class Tested:
    """One comparison within its family of `size`: how sure a difference is, and how sure equivalence."""

    size: int
    difference: Adjusted
    equivalence: Adjusted


def holm(p_values: Sequence[float | None]) -> list[Adjusted | None]:
    """Holm's step-down adjustment (Holm 1979): p in ascending order times m, m − 1, …, never falling, at most 1.

    A missing p counts in m, and is the last.
    """
    size = len(p_values)
    adjusted: list[Adjusted | None] = [None] * size
    highest = 0.0
    for rank, (p, place) in enumerate(sorted((p, i) for i, p in enumerate(p_values) if p is not None)):
        highest = max(highest, min(1.0, (size - rank) * p))
        adjusted[place] = Adjusted(p, highest, size - rank)
    return adjusted


def judge_family(effects: Sequence[Paired | None], limit: float) -> list[Tested | None]:
    """Test the effects of one family against zero and against ±limit (log ratios); None stays None."""
    differences = holm([effect.p_difference if effect else None for effect in effects])
    equivalences = holm([effect.p_equivalence(limit) if effect else None for effect in effects])
    return [
        Tested(len(effects), difference, equivalence) if difference and equivalence else None
        for difference, equivalence in zip(differences, equivalences, strict=True)
    ]
