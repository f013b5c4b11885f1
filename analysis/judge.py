"""From one comparison to one of five judgements, in words and numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from analysis.compare import Comparison
from analysis.stats import MIN_BLOCKS, Interval, Paired, blocks_needed, noise_floor

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


def judge(comparison: Comparison, margin: float = MARGIN) -> Judgement:
    """Decide; `margin` is a fraction. The 95% interval that the report shows is the one that decides."""
    effect = comparison.effect
    if effect is None:
        return _without_figures(comparison)
    notes = _notes(comparison, effect, noise_floor(comparison.same))
    if _both_limited(comparison):
        return Judgement(INVALID, _limit_words(comparison) + " set the pace on both sides", notes=notes)
    if effect.t is None or effect.n < MIN_BLOCKS:
        missing = MIN_BLOCKS - effect.n
        return Judgement(NOT_DISTINGUISHABLE, more_words(missing), more_blocks=missing, notes=notes)
    return _by_interval(comparison, effect, effect.t, notes, margin)


def _by_interval(
    comparison: Comparison, effect: Paired, interval: Interval, notes: list[str], margin: float
) -> Judgement:
    limit, floor = math.log1p(margin), noise_floor(comparison.same)
    within = -limit < interval.low and interval.high < limit
    if within and (floor is None or floor <= limit):
        if comparison.limited:
            return Judgement(INVALID, _limit_words(comparison) + " set the pace: no evidence of equality", notes=notes)
        return Judgement(EQUIVALENT, percent(margin), notes=notes)
    if interval.excludes_zero and (floor is None or abs(effect.mean) > floor):
        return _faster(comparison, effect, notes)
    more = blocks_needed(effect.mean, effect.sd or 0.0, effect.n, limit, comparison.same)
    return Judgement(NOT_DISTINGUISHABLE, more_words(more), more_blocks=more, notes=notes)


def _faster(comparison: Comparison, effect: Paired, notes: list[str]) -> Judgement:
    metal = effect.mean > 0
    fast, slow = comparison.baseline_limited, comparison.guest_limited
    if not metal:
        fast, slow = slow, fast
    if 2 * slow > effect.n:
        return Judgement(INVALID, _limit_words(comparison) + " set the pace of the slower side", notes=notes)
    bound = "at least" if fast else ("at most" if slow else "")
    return Judgement(METAL_FASTER if metal else KVM_FASTER, factor(abs(effect.mean)), bound, notes=notes)


def _both_limited(comparison: Comparison) -> bool:
    """The client or the link set the pace of most trials on both sides: their ratio says nothing."""
    return 2 * min(comparison.baseline_limited, comparison.guest_limited) > comparison.pairs


def _without_figures(comparison: Comparison) -> Judgement:
    if comparison.excluded:
        code, _ = comparison.invalid.most_common(1)[0] if comparison.invalid else ("no reason given", 0)
        count = f"{comparison.excluded} of {comparison.trials} trials"
        return Judgement(INVALID, f"{code} ({count} invalid, no valid pair of trials is left)")
    if comparison.empty:
        return Judgement(INVALID, f"no figure in {comparison.empty} of {comparison.trials} trials")
    return Judgement(NOT_DISTINGUISHABLE, more_words(MIN_BLOCKS), more_blocks=MIN_BLOCKS)


def _limit_words(comparison: Comparison) -> str:
    words = ["the link" if code == "link-bound" else "the client" for code in comparison.limits]
    return " and ".join(sorted(set(words)))


def _notes(comparison: Comparison, effect: Paired, floor: float | None) -> list[str]:
    notes = []
    if effect.disagree:
        notes.append("the paired-t and the signed-rank interval disagree on whether there is a difference")
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


def as_dict(comparison: Comparison, judgement: Judgement, source: str, guest: str) -> dict[str, Any]:
    """JSON-serialisable. `ratio` is guest/metal; `effect` the overhead (throughput) or the cost ratio."""
    metric, effect = comparison.metric, comparison.effect
    floor = noise_floor(comparison.same)
    result: dict[str, Any] = {
        "kind": judgement.kind,
        "text": judgement.text(guest),
        "bound": judgement.bound or None,
        "more_blocks": judgement.more_blocks,
        "label": metric.label,
        "source": source,
        "effect_is": "overhead" if metric.higher_is_better else "cost ratio",
        "blocks": comparison.pairs,
        "noise_floor": None if floor is None else math.expm1(floor),
        "noise_floor_from": comparison.same_server or None,
        "suspect": comparison.suspect,
        "excluded": comparison.excluded,
        "notes": judgement.notes,
    }
    sign = -1.0 if metric.higher_is_better else 1.0
    if effect is not None:
        t, rank = _flip(effect.t, sign), _flip(effect.signed_rank, sign)
        result |= _in_units("", sign * effect.mean, t, metric.higher_is_better)
        result |= _in_units("hodges_lehmann_", sign * effect.median, rank, metric.higher_is_better)
        result["intervals_disagree"] = effect.disagree
    return result


def _flip(interval: Interval | None, sign: float) -> Interval | None:
    if interval is None or sign > 0:
        return interval
    return Interval(-interval.high, -interval.low)


def _in_units(prefix: str, mean: float, interval: Interval | None, overhead: bool) -> dict[str, float | None]:
    """log(guest/metal) → `ratio`, and `effect`: 1 − ratio for throughput, the ratio itself for costs."""
    low = high = None
    if interval is not None:
        low, high = math.exp(interval.low), math.exp(interval.high)
    ratio = math.exp(mean)
    effect = (1 - ratio, _less(high), _less(low)) if overhead else (ratio, low, high)
    return {
        f"{prefix}ratio": ratio, f"{prefix}ratio_low": low, f"{prefix}ratio_high": high,
        f"{prefix}effect": effect[0], f"{prefix}effect_low": effect[1], f"{prefix}effect_high": effect[2],
    }  # fmt: skip


def _less(ratio: float | None) -> float | None:
    return None if ratio is None else 1 - ratio


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
    text = f"{'overhead ' if overhead else ''}{bound}{value:.{decimals}f}{unit}"
    if low is None:
        return text
    return f"{text} [{scale * low:.{decimals}f}, {scale * high:.{decimals}f}]"


def factor(log_ratio: float) -> str:
    """How much faster: a percentage below double, a factor above (`a factor of 22`)."""
    ratio = math.exp(log_ratio)
    if ratio < 2:
        return percent(ratio - 1)
    return f"a factor of {ratio:.1f}" if ratio < 10 else f"a factor of {ratio:.0f}"


def more_words(more: int | None) -> str:
    """The words in the brackets of `not distinguishable`."""
    if more is None:
        return "more blocks alone will not settle it"
    return f"{more} more block{'' if more == 1 else 's'} needed"
