"""Verdicts in words: the direction and the size first, then the interval, then the doubts."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vmtoll.model.finding import Code
from vmtoll.model.metric import Metric, loop_of
from vmtoll.model.note import (
    Attained,
    ClientOnSameMachine,
    ClientTime,
    ControlDiffers,
    CrosscheckDisagrees,
    FailedRequests,
    FewBlocks,
    NoControl,
    Note,
    OwnRates,
)
from vmtoll.model.trial import METAL, Accelerator, Arm
from vmtoll.model.verdict import (
    DIFFERENT,
    NOT_APPLICABLE,
    Cause,
    Comparison,
    Doubt,
    Estimate,
    Judged,
    Kind,
    PercentileLevel,
    Share,
    TrialShare,
    TuningStep,
    Verdict,
    VerdictReason,
)
from vmtoll.report.words.terms import LIMITERS, METRIC_LABELS, number, percent, plural
from vmtoll.statistics.thresholds import ALPHA, MARGIN, MIN_BLOCKS, RATE_REACHED

KINDS = {
    Kind.SLOWER: "slower",
    Kind.FASTER: "faster",
    Kind.EQUIVALENT: "equivalent",
    Kind.UNDECIDED: "undecided",
    Kind.NOT_JUDGED: "not judged",
}
_TIMES = 2.0  # from this factor on, a difference is written as a factor, below as a percentage
_LEAST_SHOWN, _MOST_SHOWN, _TENTH = 0.001, 10_000, 0.1  # of a ratio in a column
_SHOWN_DOUBTS = 3
FINDINGS_LIMIT = 1.005  # a doubt that explains less is not named


GUEST = "the guest"


@dataclass(frozen=True)
class Sides:
    """The names of the two sides of a comparison in sentences."""

    compared: str
    baseline: str


Naming = Callable[["Comparison"], Sides]


def sides_of(comparisons: Iterable[Comparison]) -> Naming:
    """A function that names the sides: `the guest` and `metal` if only one guest is compared with metal, else the arms.

    `comparisons`: all of the page.
    """
    pairs = {(comparison.baseline, comparison.arm) for comparison in comparisons}

    def sides(comparison: Comparison) -> Sides:
        is_guest = comparison.accelerator is not Accelerator.NONE
        is_only_guest = len(pairs) == 1 and comparison.baseline == Arm(METAL) and is_guest
        return Sides(GUEST if is_only_guest else str(comparison.arm), str(comparison.baseline))

    return sides


def verdict_text(verdict: Verdict, sides: Sides) -> str:
    """One line: `the guest serves 8.9× fewer requests per second than metal (5.6 to 22×)`."""
    return "".join(verdict_parts(verdict, sides))


def verdict_parts(verdict: Verdict, sides: Sides) -> tuple[str, str]:
    """The line of `verdict_text` in two parts: what a page emphasizes, and the rest, which may be empty."""
    if verdict.kind is Kind.NOT_JUDGED:
        if verdict.because is VerdictReason.NOT_MEASURED:
            return "not measured", f" ({because_text(verdict, sides)})"
        lead = "not applicable" if verdict.because in NOT_APPLICABLE else "not judged"
        return lead, f": {because_text(verdict, sides)}"
    if verdict.kind is Kind.EQUIVALENT:
        return _equivalent_parts(verdict)
    if verdict.kind in DIFFERENT:
        size = amount_text(verdict, form_of([verdict]))
        return effect_text([verdict], size, sides), f" ({interval_text(verdict)})"
    return _undecided_parts(verdict, sides)


def word_text(verdict: Verdict) -> str:
    """The verdict in a word: `slower`, `equal`, `undecided`; for CPU that differs, `more CPU` or `less CPU`."""
    if verdict.kind in DIFFERENT and not verdict.metric.higher_is_better and verdict.metric.percentile is None:
        return "more CPU" if verdict.kind is Kind.SLOWER else "less CPU"
    return "equal" if verdict.kind is Kind.EQUIVALENT else KINDS[verdict.kind]


def _equivalent_parts(judged: Judged) -> tuple[str, str]:
    if judged.also_different and judged.estimate:
        word = direction(judged)
        size = percent(abs(judged.estimate.ratio - 1))
        return f"{word} by {size}", f" ({interval_text(judged)}), within the margin of {percent(judged.margin)}"
    missed_share = 1 - ALPHA ** (1 / judged.blocks) if judged.blocks else 1.0
    return (
        f"equal within {percent(judged.margin)}",
        f" ({interval_text(judged)}); a state rarer than {percent(missed_share)} of trials would have been missed",
    )


def direction(judged: Judged) -> str:
    """As measured: `slower` or `faster`; for a percentile `longer` or `shorter`, for CPU `more` or `less`."""
    ratio = judged.estimate.ratio if judged.estimate else 1.0
    if isinstance(judged, Verdict):
        if judged.metric.higher_is_better:
            return "slower" if ratio < 1 else "faster"
        return ("longer", "shorter")[ratio < 1] if judged.metric.percentile else ("more", "less")[ratio < 1]
    return "slower" if ratio < 1 else "faster"


def _undecided_parts(verdict: Verdict, sides: Sides) -> tuple[str, str]:
    """What the blocks show, and why that does not decide."""
    why = undecided_text(verdict, sides)
    blocks, size = verdict.blocks_range, ratio_text(verdict.estimate)
    if verdict.because is VerdictReason.NO_LOOK_YET:
        return "no look yet", f": {why}"
    if blocks and shows_in_all_blocks(verdict):
        ends = " to ".join(dict.fromkeys(_factor_texts(blocks)))
        count = "both" if verdict.blocks == 2 else f"all {verdict.blocks}"
        return f"{direction(verdict)} in {count} blocks ({ends}×)", f"; {why}"
    return f"{size} undecided" if size else "undecided", f"{_parenthesis(verdict)}; {why}"


def shows_in_all_blocks(judged: Judged) -> bool:
    """Return whether all blocks, two or more, show the same direction by a factor of two or more."""
    blocks = judged.blocks_range
    is_consistent = blocks is not None and ((blocks.low or 0) > 1 or (blocks.high or 2) < 1)
    return blocks is not None and is_consistent and judged.blocks > 1 and _least_factor(blocks) >= _TIMES


def _parenthesis(judged: Judged) -> str:
    return f" ({text})" if (text := interval_text(judged)) else ""


def _least_factor(blocks: Estimate) -> float:
    """The least difference of any block, as a factor."""
    ends = [end for end in (blocks.low, blocks.high) if end]
    return min(max(end, 1 / end) for end in ends) if ends else 1.0


def _factor_texts(blocks: Estimate) -> list[str]:
    return _common_decimals([max(end, 1 / end) for end in (blocks.low, blocks.high) if end])


def _common_decimals(factors: Sequence[float]) -> list[str]:
    """Factors in ascending order, with the decimals of the smallest."""
    least = min(factors, default=1.0)
    decimals = 2 if least < _TIMES else 1 if least < 10 else 0
    return [f"{factor:,.{decimals if factor < 10 else 0}f}" for factor in sorted(factors)]


def _factor_text(value: float) -> str:
    """A factor with two decimals below 2, one below 10, and none from 10 on."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= _TIMES else f"{value:.2f}"


def undecided_text(judged: Judged, sides: Sides) -> str:
    """Why a comparison is undecided, and what would decide it."""
    match judged.because:
        case VerdictReason.NO_LOOK_YET:
            return "this run decides at its looks, and has not had one"
        case VerdictReason.FEW_BLOCKS:
            return f"a verdict needs {max(MIN_BLOCKS, judged.blocks + 1) if judged.boots > 1 else MIN_BLOCKS}" + (
                " boots" if judged.boots > 1 else " blocks"
            )
        case VerdictReason.LIMIT:
            return f"{_limited_text(judged)}, not the server, set the figure in every block"
        case VerdictReason.FINDINGS:
            size = ratio_text(judged.estimate)
            return f"{size} if nothing had disturbed; open because of {doubts_text(judged, sides)}"
    detectable = judged.detectable
    parts = []
    if judged.noise_floor and judged.blocks_range and _least_factor(judged.blocks_range) >= _TIMES:
        parts.append(
            "not shown beyond chance: the A/A control differed from itself by up to"
            f" {_factor_text(1 + judged.noise_floor)}×"
        )
    elif detectable is not None:
        size = percent(detectable) if detectable < 1 else f"{_factor_text(1 + detectable)}×"
        parts.append(f"differences below {size} would not have been seen")
    else:
        parts.append("these blocks differ too much to show any difference")
    if judged.blocks_needed:
        more = judged.blocks_needed
        margin = judged.margin or MARGIN
        parts.append(f"{plural(more, 'more block')} {'shows' if more == 1 else 'show'} {percent(margin)}")
    return "; ".join(parts)


def _limited_text(judged: Judged) -> str:
    codes = {doubt.cause for doubt in judged.doubts}
    if Code.LINK_BOUND in codes:
        return "the link" if codes.isdisjoint({Code.CLIENT_SATURATED, Code.CLIENT_STARVED}) else "client and link"
    return "the client"


def form_of(verdicts: Sequence[Verdict]) -> str:
    """The form of a summary of verdicts of one metric and kind: `less`, `more`, `times less` or `times more`."""
    ratios = [verdict.estimate.ratio for verdict in verdicts if verdict.estimate]
    times = "times " if max(max(ratio, 1 / ratio) for ratio in ratios) >= _TIMES else ""
    return times + ("less" if max(ratios) < 1 else "more")


def effect_text(verdicts: Sequence[Verdict], amount: str, sides: Sides) -> str:
    """The sentence that summarizes verdicts of one metric and kind; `amount`: in the form of `form_of`."""
    words = METRIC_LABELS[verdicts[0].metric.name]
    template: str = getattr(words, form_of(verdicts).replace(" ", "_"))
    return template.format(compared=sides.compared, baseline=sides.baseline, amount=amount)


def amount_text(verdict: Verdict, form: str, *, interval: bool = False) -> str:
    """`12%`, `2.1×` or `at least 4.6×`; `interval`: with the interval that decided, `12% (10 to 14%)`."""
    assert verdict.estimate is not None
    size = _amount(verdict.estimate.ratio, form)
    if verdict.is_at_least and (near := near_end(verdict)):
        size = f"at least {_amount(near, form)}"
    return f"{size} ({interval_text(verdict, form)})" if interval else size


def _amount(ratio: float, form: str) -> str:
    if form.startswith("times"):
        return f"{_factor_text(max(ratio, 1 / ratio))}×"
    change = abs(ratio - 1)
    return "more than 99.9%" if form == "less" and change > 0.9995 else percent(change)


def near_end(judged: Judged) -> float | None:
    """The end of the interval, or of the blocks' range, that is nearer to no difference."""
    ends = judged.blocks_range if judged.by_every_block else judged.estimate
    ratio = judged.estimate.ratio if judged.estimate else 1.0
    return None if ends is None else ends.low if ratio > 1 else ends.high


def interval_text(judged: Judged, form: str = "") -> str:
    """The interval that decided: `5.6 to 22×`, `10 to 14%`, `−0.6 to +0.7%`; an open far end adds `or more`.

    For a difference shown by every block, the range of blocks: `each of 6 blocks: 10 to 1,100×`. Empty without either.
    """
    estimate, blocks = judged.estimate, judged.blocks_range
    if judged.by_every_block and blocks:
        return f"each of {judged.blocks} blocks: {' to '.join(dict.fromkeys(_factor_texts(blocks)))}×"
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    ends = (estimate.low, estimate.high)
    more = " or more" if judged.is_at_least else ""
    if ends[0] <= 1 <= ends[1]:
        is_wide = ends[1] > _TIMES or ends[0] < 1 / _TIMES
        texts = map(_ratio_number if is_wide else _signed, ends)
        return f"{' to '.join(texts)}{'×' if is_wide else '%'}"
    ratio = estimate.ratio
    if form.startswith("times") if form else max(ratio, 1 / ratio) >= _TIMES:
        return f"{' to '.join(_common_decimals([max(end, 1 / end) for end in ends]))}×{more}"
    return f"{' to '.join(number(value) for value in sorted(100 * abs(end - 1) for end in ends))}%{more}"


def _signed(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return ("+" if change > 0 else "−" if change < 0 else "") + number(abs(change))


def _ratio_number(ratio: float) -> str:
    return _factor_text(ratio) if ratio >= 1 else number(ratio)


def ratio_text(estimate: Estimate | None) -> str:
    """The ratio, compared ÷ baseline: `0.98×`, `8.9×`; empty without one."""
    return "" if estimate is None else f"{_ratio_number(estimate.ratio)}×"


def estimate_text(judged: Judged) -> str:
    """The ratio with the interval that decided, `0.112× (0.101 to 0.122)`; empty without a ratio."""
    estimate = judged.estimate
    if estimate is None:
        return ""
    text = ratio_text(estimate)
    if judged.by_every_block and (blocks := judged.blocks_range) and blocks.low and blocks.high:
        return f"{text}, blocks from {_ratio_number(blocks.low)} to {_ratio_number(blocks.high)}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} ({_ratio_number(estimate.low)} to {_ratio_number(estimate.high)})"


def column_text(judged: Judged) -> str:
    """The estimate for a narrow column: `0.181× (<0.039 to 0.235)`.

    `<` or `>` marks an end that is open, or beyond 0.001 or 10,000. For a difference shown by every block:
    `each block 47 to 107×`.
    """
    estimate, blocks = judged.estimate, judged.blocks_range
    if estimate is None:
        return ""
    if judged.by_every_block and blocks:
        return f"each block {' to '.join(dict.fromkeys(_factor_texts(blocks)))}×"
    text = f"{_column_number(estimate.ratio)}×"
    if estimate.low is None or estimate.high is None:
        return text
    ends = _column_number(estimate.low, "<" * judged.open_low), _column_number(estimate.high, ">" * judged.open_high)
    return f"{text} ({ends[0]} to {ends[1]})"


def _column_number(ratio: float, open_end: str = "") -> str:
    if not _LEAST_SHOWN <= ratio <= _MOST_SHOWN:
        return "<0.001" if ratio < 1 else ">10,000"
    return open_end + (f"{ratio:.2g}" if ratio < _TENTH else _ratio_number(ratio))


def percentile_text(level: PercentileLevel) -> str:
    """`1,234 µs (1,200 to 1,270), 4,000 requests or more`."""
    ends = "" if level.low is None else f" ({number(level.low)} to {number(level.high)})"
    within = ", interval within trials" if level.within else ""
    return f"{number(level.value_us)} µs{ends}, {plural(level.requests, 'request')} or more{within}"


def limiters_text(comparison: Comparison, sides: Sides) -> str:
    """`client CPU on metal, server CPU on the guest`, for the primary metric of the load's loop."""
    loop = loop_of(comparison.scenario.load)
    verdict = next(v for v in comparison.verdicts.values() if loop in v.metric.loops and v.metric.is_primary)
    limiters = (verdict.baseline_limiter, verdict.compared_limiter)
    names = ["unknown" if limiter is None else LIMITERS[limiter] for limiter in limiters]
    both_limiters = f"{names[0]} on {sides.baseline}, {names[1]} on {sides.compared}"
    return names[0] if limiters[0] is limiters[1] else both_limiters


def trials_text(side: TrialShare) -> str:
    """`6 of 10 (60%, 26% to 88%), in the end 10`."""
    share = f"{side.at_first} of {side.trials} ({percent(side.at_first / side.trials)}"
    return f"{share}, {percent(side.low)} to {percent(side.high)}), in the end {side.valid}"


# ---- what is in doubt


def doubts_text(judged: Judged, sides: Sides) -> str:
    """What widens a comparison, the largest three first: `background-cpu on the guest (3 trials), second attempts: 2
    on metal`.
    """
    shown = [doubt for doubt in judged.doubts if doubt.size >= FINDINGS_LIMIT][:_SHOWN_DOUBTS]
    return ", ".join(_doubt(doubt, sides) for doubt in shown) or "findings"


def explained_text(judged: Judged, sides: Sides, least: float = 0.0) -> str:
    """How much of a decided difference the doubts can explain at most; empty if negligible, or less than `least`, a
    fraction.
    """
    total = math.prod(doubt.size for doubt in judged.doubts)
    estimate = judged.estimate
    if judged.kind not in DIFFERENT or estimate is None or total < FINDINGS_LIMIT or estimate.ratio == 1:
        return ""
    share = math.log(total) / abs(math.log(estimate.ratio))
    if share < least:
        return ""
    return f"{doubts_text(judged, sides)} can explain at most {percent(min(share, 1.0))} of the difference"


def _doubt(doubt: Doubt, sides: Sides) -> str:
    name = _CAUSES.get(doubt.cause, str(doubt.cause))
    counts = [
        f"{count} on {side}" if isinstance(doubt.cause, Cause) else f"on {side} ({plural(count, 'trial')})"
        for side, count in ((sides.baseline, doubt.baseline), (sides.compared, doubt.compared)) if count
    ]  # fmt: skip
    return f"{name} {' and '.join(counts)}".strip()


_CAUSES: dict[Code | Cause, str] = {
    Cause.LOST: "lost trials:",
    Cause.SECOND_ATTEMPTS: "second attempts:",
    Cause.UNEQUAL_REQUESTS: "unequal numbers of requests without their histograms:",
    Cause.CONTROL: "an A/A control that differs from itself",
}


def because_text(judged: Judged, sides: Sides) -> str:
    """The reason why a comparison is not judged; empty if it is."""
    words = _BECAUSE.get(judged.because) if judged.because else None
    return words(judged, sides) if words else ""


def _no_figure(judged: Judged, sides: Sides) -> str:
    texts = [
        f"{name} gave no figure in {s.trials - s.used} of {plural(s.trials, 'trial')}"
        + (f" ({', '.join(s.excluded_by)})" if s.excluded_by else "")
        for name, s in ((sides.baseline, judged.baseline), (sides.compared, judged.compared)) if not s.used
    ]  # fmt: skip
    return " and ".join(texts) or "no block has a figure of both sides"


def _not_comparable(judged: Judged, sides: Sides) -> str:
    codes = sorted({*judged.baseline.excluded_by, *judged.compared.excluded_by})
    return f"the sides are not the same thing: {', '.join(codes)}"


def _not_measured(judged: Judged, sides: Sides) -> str:
    tool = judged.tool if isinstance(judged, Verdict) else None
    is_percentile = isinstance(judged, Verdict) and judged.metric.percentile
    return f"{tool or 'the tool'} {'prints no percentiles' if is_percentile else 'has no such figure'}"


def _no_throughput(judged: Judged, sides: Sides) -> str:
    notes = judged.notes if isinstance(judged, Verdict) else ()
    reached = [_attained(note, sides) for note in notes if isinstance(note, Attained)]
    return "; ".join(["the load sets the rate", *reached])


_BECAUSE: dict[VerdictReason, Callable[[Judged, Sides], str]] = {
    VerdictReason.NO_FIGURE: _no_figure,
    VerdictReason.NOT_COMPARABLE: _not_comparable,
    VerdictReason.NOT_MEASURED: _not_measured,
    VerdictReason.HOST_NOT_SEEN: lambda *_: "not seen: the host belongs to others",
    VerdictReason.CLOSED_LOOP_HAS_NO_TAIL: lambda *_: "a closed loop hides stalls, so it has no tail",
    VerdictReason.LOAD_SETS_THE_RATE: _no_throughput,
    VerdictReason.OPEN_LOOP_SEE_TAIL: lambda *_: "an open loop is judged by its tail",
}


# ---- notes on a verdict


def notes_text(verdict: Verdict, sides: Sides) -> list[str]:
    """All notes of a verdict, as sentences without periods: first what the doubts explain, then the lost trials."""
    counts = [
        f"{name} lost {s.lost} of {plural(s.trials, 'trial')}"
        for name, s in ((sides.baseline, verdict.baseline), (sides.compared, verdict.compared)) if s.lost
    ]  # fmt: skip
    texts = [explained_text(verdict, sides), *counts]
    return [text for text in texts if text] + [note_text(note, verdict, sides) for note in verdict.notes]


def note_text(note: Note, verdict: Verdict, sides: Sides) -> str:
    """One note of a verdict."""
    match note:
        case ControlDiffers(size):
            more = percent(size - 1)
            text = f"the A/A control differs from itself by {more} for sure: the interval is wider by as much"
        case NoControl():
            text = "no A/A control"
        case FewBlocks(blocks):
            text = f"{plural(blocks, 'block')}: assumes that the machines' state changes in between"
        case ClientOnSameMachine():
            text = "the client ran on the same machine and used part of the server's CPUs"
        case ClientTime(baseline, compared):
            named = ((sides.baseline, baseline), (sides.compared, compared))
            own = " and ".join(f"{percent(part)} on {name}" for name, part in named if part is not None)
            text = f"one user, client included: the client's own time is {own or 'an unknown part'} of a request's"
        case FailedRequests():
            shares = ((sides.baseline, verdict.baseline_available), (sides.compared, verdict.compared_available))
            text = f"failed requests: {' and '.join(_failed_share(s, name) for name, s in shares if s and s.share < 1)}"
        case OwnRates(baseline, compared):
            rates = ((sides.baseline, baseline), (sides.compared, compared))
            texts = [f"{rate:,.0f}/s on {name}" for name, rate in rates if rate is not None]
            text = f"each side at its own rate: {', '.join(texts)}"
        case Attained():
            text = _attained(note, sides)
        case CrosscheckDisagrees(tool, low, high):
            ratio = f"{sides.compared} ÷ {sides.baseline} {low:.2f} to {high:.2f}"
            text = f"the cross-check by {tool} disagrees: {ratio}"
    return text


def _failed_share(available: Share, name: str) -> str:
    rate, low, high = (f"{100 * (1 - end):.2g}" for end in (available.share, available.high, available.low))
    return f"{rate}% ({low} to {high}%) on {name}"


def _attained(note: Attained, sides: Sides) -> str:
    """The share of an open loop's rate that each side answered, where that is less than the whole."""
    texts = []
    for name, side in ((sides.baseline, note.baseline), (sides.compared, note.compared)):
        if side is None:
            texts.append(f"{name} has no valid trial")
        elif side.attained < RATE_REACHED:
            texts.append(f"{name} answered {percent(side.attained)} of {side.offered_rps:,.0f}/s")
    return " and ".join(texts) or "both sides answered the offered rate"


# ---- tuning steps


def step_text(step: TuningStep, metric: Metric) -> str:
    """`gains 340 req/s (4.2%)`, `costs 12 µs`."""
    return "".join(step_parts(step, metric))


def step_parts(step: TuningStep, metric: Metric) -> tuple[str, str]:
    """The line of `step_text` in two parts, like those of `verdict_parts`."""
    sides = Sides(str(step.after), str(step.before))
    if step.kind is Kind.NOT_JUDGED:
        return KINDS[step.kind], f": {because_text(step, sides) or 'no block has both'}"
    if step.kind not in DIFFERENT or step.gain is None:
        return KINDS[step.kind], f" ({undecided_text(step, sides)})"
    verb, size = "gains" if step.kind is Kind.FASTER else "costs", abs(step.gain.value)
    unit = "req/s" if metric.unit == "1/s" else metric.unit
    relative = f" ({percent(size / step.start)})" if metric.higher_is_better and step.start else ""
    return f"{verb} {'at least ' if step.is_at_least else ''}{number(size)} {unit}{relative}", ""
