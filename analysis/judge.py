"""From one comparison to one of five judgements, in words and numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from analysis.compare import Comparison
from analysis.family import Tested
from analysis.stats import ALPHA, MIN_BLOCKS, Paired, blocks_needed, noise_floor

METAL_FASTER = "metal is faster by"
KVM_FASTER = "kvm is faster by"
EQUIVALENT = "equivalent within"
NOT_DISTINGUISHABLE = "not distinguishable"
INVALID = "invalid because"
KINDS = (METAL_FASTER, KVM_FASTER, EQUIVALENT, NOT_DISTINGUISHABLE, INVALID)

MARGIN = 0.02  # practical equivalence: ±2%


@dataclass(frozen=True)
class Judgement:
    """`kind` is one of KINDS; `bound` is `at least`, `at most` or empty; `amount` completes the kind."""

    kind: str
    amount: str
    bound: str = ""
    more_blocks: int | None = None
    notes: list[str] = field(default_factory=list)

    def text(self, guest: str = "kvm") -> str:
        """One line; `guest` replaces the word kvm where the guest is no KVM guest."""
        kind = self.kind.replace("kvm", guest, 1) if self.kind == KVM_FASTER else self.kind
        amount = f"({self.amount})" if self.kind == NOT_DISTINGUISHABLE else self.amount
        return " ".join(word for word in (kind, self.bound, amount) if word)


def refused(comparison: Comparison) -> str:
    """Why these figures decide nothing, whatever they say; empty when they may."""
    limited, pairs = (comparison.baseline_limited, comparison.guest_limited), comparison.pairs
    if pairs == 0:
        return _no_figures(comparison)
    if comparison.metric.open_only:
        if 2 * max(limited) > pairs:
            return _limit_words(comparison) + ", not the server, made the tail"
    elif 2 * min(limited) > pairs:
        return _limit_words(comparison) + " set the pace on both sides"
    return ""


def testable(comparison: Comparison) -> Paired | None:
    """The effect, when a test of it may decide: it is not refused and has six blocks or more."""
    effect = comparison.effect
    return effect if effect and effect.n >= MIN_BLOCKS and not refused(comparison) else None


def judge(comparison: Comparison, tested: Tested | None, margin: float = MARGIN) -> Judgement:
    """Decide. `tested` is what the family's tests say of it, None when it is not testable; `margin` a fraction.

    Equivalent when the interval lies within ±margin, faster when it excludes zero, each only where the claim
    survives Holm in its family and the noise floor allows it.
    """
    effect = comparison.effect
    notes = _notes(comparison, effect, tested) if effect else []
    if reason := refused(comparison):
        return Judgement(INVALID, reason, notes=notes)
    if effect is None or tested is None:
        missing = MIN_BLOCKS - comparison.pairs
        return Judgement(NOT_DISTINGUISHABLE, more_words(missing), more_blocks=missing, notes=notes)
    limit, floor = math.log1p(margin), noise_floor(comparison.same)
    if tested.equivalence.holds and (floor is None or floor <= limit):
        if comparison.limited:
            return Judgement(INVALID, _limit_words(comparison) + " set the pace: no evidence of equality", notes=notes)
        return Judgement(EQUIVALENT, percent(margin), notes=notes)
    if tested.difference.holds and (floor is None or abs(effect.mean) > floor):
        return _faster(comparison, effect, notes)
    alphas = (ALPHA / tested.difference.step, ALPHA / tested.equivalence.step)
    more = blocks_needed(effect, limit, comparison.same, alphas)
    return Judgement(NOT_DISTINGUISHABLE, more_words(more), more_blocks=more, notes=notes)


def _faster(comparison: Comparison, effect: Paired, notes: list[str]) -> Judgement:
    metal = effect.mean > 0
    fast, slow = comparison.baseline_limited, comparison.guest_limited
    if not metal:
        fast, slow = slow, fast
    bound = ""
    if not comparison.metric.open_only:
        if 2 * slow > effect.n:
            return Judgement(INVALID, _limit_words(comparison) + " set the pace of the slower side", notes=notes)
        bound = "at least" if fast else ("at most" if slow else "")
    return Judgement(METAL_FASTER if metal else KVM_FASTER, factor(abs(effect.mean)), bound, notes=notes)


def _no_figures(comparison: Comparison) -> str:
    if comparison.excluded:
        code, _ = comparison.invalid.most_common(1)[0] if comparison.invalid else ("no reason given", 0)
        count = f"{comparison.excluded} of {comparison.trials} trials invalid"
        lacking = f", {comparison.empty} without a figure" if comparison.empty else ""
        return f"{code} ({count}{lacking}, no valid pair of trials is left)"
    if comparison.empty:
        return f"no figure in {comparison.empty} of {comparison.trials} trials"
    return ""


def _limit_words(comparison: Comparison) -> str:
    words = ["the link" if code == "link-bound" else "the client" for code in comparison.limits]
    return " and ".join(sorted(set(words)))


def _notes(comparison: Comparison, effect: Paired, tested: Tested | None) -> list[str]:
    notes, floor = [], noise_floor(comparison.same)
    if effect.disagree:
        notes.append("the paired-t and the signed-rank interval disagree on whether there is a difference")
    notes += _holm_notes(tested) if tested else []
    if effect.n < MIN_BLOCKS:
        notes.append(f"{effect.n} of at least {MIN_BLOCKS} blocks")
    if floor is None:
        notes.append("noise floor unknown: no A/A arm with two blocks or more")
    elif comparison.same_server:
        notes.append(f"noise floor taken from the A/A arm of {comparison.same_server}")
    elif comparison.same and comparison.same.t and comparison.same.t.excludes_zero:
        notes.append("the A/A arm differs from itself (one in twenty does by chance)")
    if floor is not None and abs(effect.mean) <= floor:
        notes.append(f"smaller than the noise floor of {percent(math.expm1(floor))}")
    if comparison.limited:
        sides = []
        for name, count in (("metal", comparison.baseline_limited), (comparison.guest, comparison.guest_limited)):
            if count:
                sides.append(f"{count} of {effect.n} trials on {name}")
        notes.append(f"{_limit_words(comparison)} set the pace in {' and '.join(sides)}")
    if comparison.excluded:
        notes.append(f"{comparison.excluded} invalid trial(s) excluded")
    return notes


def _holm_notes(tested: Tested) -> list[str]:
    return [
        f"{claim} does not survive Holm among {tested.size} comparisons: p {p_words(one.p)} becomes {p_words(one.holm)}"
        for claim, one in (("the difference", tested.difference), ("equivalence", tested.equivalence))
        if one.p < ALPHA and not one.holds
    ]


def percent(fraction: float) -> str:
    """0.0213 → `2.1%`; whole numbers without a decimal."""
    value = 100 * fraction
    text = f"{value:.0f}" if abs(value) >= 99.95 or abs(value - round(value)) < 0.05 else f"{value:.1f}"
    return ("0" if text == "-0" else text) + "%"


def estimate_words(one: dict[str, Any]) -> str:
    """`overhead at least 95.5% [95.4, 95.7]` or `1.20× [1.18, 1.22]`, of an entry made by as_dict."""
    bound = f"{one['bound']} " if one["bound"] else ""
    overhead = one["effect_is"] == "overhead"
    scale, unit = (100.0, "%") if overhead else (1.0, "×")
    low, high = one["effect_low"], one["effect_high"]
    value = scale * one["effect"]
    decimals = 1 if overhead or value >= 10 else 2
    if low is not None and scale * (high - low) < 2 * 10**-decimals:
        decimals += 1
    text = f"{'overhead ' if overhead else ''}{bound}{_figure(value, decimals)}{unit}"
    if low is None:
        return text
    return f"{text} [{_figure(scale * low, decimals)}, {_figure(scale * high, decimals)}]"


def _figure(value: float, decimals: int) -> str:
    """Beyond ten thousand the size says no more than that nothing is known."""
    if abs(value) >= 10_000:
        return "below -10,000" if value < 0 else "above 10,000"
    return f"{value:.{decimals}f}"


def factor(log_ratio: float) -> str:
    """How much faster: a percentage below double, a factor above (`a factor of 22`)."""
    ratio = math.exp(log_ratio)
    if ratio < 2:
        return percent(ratio - 1)
    return f"a factor of {ratio:.1f}" if ratio < 10 else f"a factor of {ratio:.0f}"


def p_words(p: float) -> str:
    """Two significant digits; `below 0.0001` where more would be pretence."""
    return "below 0.0001" if p < 0.0001 else f"{p:.2g}"


def more_words(more: int | None) -> str:
    """The words in the brackets of `not distinguishable`."""
    if more is None:
        return "more blocks alone will not settle it"
    return f"{more} more block{'' if more == 1 else 's'} needed"
