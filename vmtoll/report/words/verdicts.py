"""Verdicts in words: the direction and the size first, then the interval, then the doubts."""

import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.finding import FINDINGS, Code
from vmtoll.model.limiter import Limiter
from vmtoll.model.load import Load
from vmtoll.model.message import message, number, percent, plural, ratio, several, spread
from vmtoll.model.metric import THROUGHPUT, Metric, loop_of
from vmtoll.model.note import (
    Attained,
    ClientTime,
    FailedRequests,
    Note,
    OwnRates,
)
from vmtoll.model.trial import METAL, Accelerator, Arm
from vmtoll.model.verdict import (
    COUNTED,
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
from vmtoll.report.words.terms import METRIC_LABELS
from vmtoll.statistics.thresholds import ALPHA, MARGIN, MIN_BLOCKS, RATE_REACHED

_CLEAR = 2.0  # from this factor on, a difference that every block shows is worth naming although it is undecided
_SHOWN_DOUBTS = 3
FINDINGS_LIMIT = 1.005  # a doubt that explains less is not named


GUEST = "the guest"
ONE_USER = ", one user, client included"


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
    """One line: `the guest serves 0.112× the requests per second of metal (0.0455 to 0.179)`."""
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
        return effect_text(verdict.metric, claimed_text(verdict), sides), f" ({interval_text(verdict)})"
    return _undecided_parts(verdict, sides)


def word_text(verdict: Verdict) -> str:
    """The verdict in a word: `slower`, `equal`, `undecided`; for CPU that differs, `more CPU` or `less CPU`."""
    if verdict.kind in DIFFERENT and not verdict.metric.higher_is_better and verdict.metric.percentile is None:
        return "more CPU" if verdict.kind is Kind.SLOWER else "less CPU"
    return "equal" if verdict.kind is Kind.EQUIVALENT else verdict.kind.text


def _equivalent_parts(judged: Judged) -> tuple[str, str]:
    if judged.also_different and judged.estimate:
        word = direction(judged)
        return f"{word}: {estimate_text(judged)}", f", within the margin of {percent(judged.margin)}"
    missed_share = 1 - ALPHA ** (1 / judged.blocks) if judged.blocks else 1.0
    return (
        f"equal within {percent(judged.margin)}",
        f" ({interval_text(judged)}); a state rarer than {percent(missed_share)} of trials would have been missed",
    )


def direction(judged: Judged) -> str:
    """As measured: `slower` or `faster`; for a percentile `longer` or `shorter`, for CPU `more` or `less`."""
    ratio = judged.estimate.value if judged.estimate else 1.0
    if isinstance(judged, Verdict):
        if judged.metric.higher_is_better:
            return "slower" if ratio < 1 else "faster"
        return ("longer", "shorter")[ratio < 1] if judged.metric.percentile else ("more", "less")[ratio < 1]
    return "slower" if ratio < 1 else "faster"


def _undecided_parts(verdict: Verdict, sides: Sides) -> tuple[str, str]:
    """What the blocks show, and why that does not decide."""
    why = undecided_text(verdict, sides)
    blocks, size = verdict.blocks_range, _ratio(verdict)
    if verdict.because is VerdictReason.NO_LOOK_YET:
        return "no look yet", f": {why}"
    if blocks and shows_in_all_blocks(verdict):
        count = "both" if verdict.blocks == 2 else f"all {verdict.blocks}"
        return f"{direction(verdict)} in {count} blocks ({_range_text(blocks)}×)", f"; {why}"
    return f"{size} undecided" if size else "undecided", f"{_parenthesis(verdict)}; {why}"


def shows_in_all_blocks(judged: Judged) -> bool:
    """Return whether all blocks, two or more, show the same direction by a factor of two or more."""
    blocks = judged.blocks_range
    is_consistent = blocks is not None and ((blocks.low or 0) > 1 or (blocks.high or 2) < 1)
    return blocks is not None and is_consistent and judged.blocks > 1 and _least_factor(blocks) >= _CLEAR


def _parenthesis(judged: Judged) -> str:
    return f" ({text})" if (text := interval_text(judged)) else ""


def _least_factor(blocks: Estimate) -> float:
    """The least difference of any block, as a factor."""
    ends = [end for end in (blocks.low, blocks.high) if end]
    return min(max(end, 1 / end) for end in ends) if ends else 1.0


def _range_text(ends: Estimate, low: str = "", high: str = "") -> str:
    """`0.162 to 0.266`; `low`, `high`: marks before the ends."""
    texts = [mark + ratio(end) for mark, end in ((low, ends.low), (high, ends.high)) if end is not None]
    return " to ".join(dict.fromkeys(text.replace("<<", "<").replace(">>", ">") for text in texts))


def undecided_text(judged: Judged, sides: Sides) -> str:
    """Why a comparison is undecided, and what would decide it."""
    match judged.because:
        case VerdictReason.NO_LOOK_YET:
            return judged.because.text
        case VerdictReason.FEW_BLOCKS:
            return f"a verdict needs {max(MIN_BLOCKS, judged.blocks + 1) if judged.boots > 1 else MIN_BLOCKS}" + (
                " boots" if judged.boots > 1 else " blocks"
            )
        case VerdictReason.LIMIT:
            return f"{_limited_text(judged)}, not the server, set the value in every block"
        case VerdictReason.FINDINGS:
            return doubtful_text(judged, sides)
    detectable = judged.detectable
    parts = []
    if judged.noise_floor and judged.blocks_range and _least_factor(judged.blocks_range) >= _CLEAR:
        parts.append(
            f"no larger than noise: the A/A control differed from itself by up to {ratio(1 + judged.noise_floor)}×"
        )
    elif detectable is not None:
        size = percent(detectable) if detectable < 1 else f"{ratio(1 + detectable)}×"
        parts.append(f"differences below {size} would not have been seen")
    else:
        parts.append("these blocks differ too much to show any difference")
    if judged.blocks_needed:
        more = judged.blocks_needed
        margin = judged.margin or MARGIN
        parts.append(f"{plural(more, 'more block')} would show {percent(margin)}")
    return "; ".join(parts)


def _limited_text(judged: Judged) -> str:
    codes = {doubt.cause for doubt in judged.doubts}
    if Code.LINK_BOUND in codes:
        return "the link" if codes.isdisjoint({Code.CLIENT_SATURATED, Code.CLIENT_STARVED}) else "client and link"
    return "the client"


def effect_text(metric: Metric, amount: str, sides: Sides) -> str:
    """The sentence that summarizes differences in one metric."""
    return METRIC_LABELS[metric.name].effect.format(compared=sides.compared, baseline=sides.baseline, amount=amount)


def claimed_text(judged: Judged) -> str:
    """`0.112×`; where the client, the link or lost trials leave its size open, `at most 0.179×`."""
    assert judged.estimate is not None
    return bound_text(judged) if judged.is_at_least else _ratio(judged)


def bound_text(judged: Judged) -> str:
    """What a difference is at least or at most, `at most 0.179×`: its claimed size, whether it is open or not."""
    assert judged.estimate is not None
    size = (near_end(judged) if judged.is_at_least else None) or judged.estimate.value
    return f"at {'least' if size > 1 else 'most'} {ratio(size)}×"


def near_end(judged: Judged) -> float | None:
    """The end of the interval, or of the blocks' range, that is nearer to no difference."""
    ends = judged.blocks_range if judged.by_every_block else judged.estimate
    measured = judged.estimate.value if judged.estimate else 1.0
    return None if ends is None else ends.low if measured > 1 else ends.high


def interval_text(judged: Judged) -> str:
    """The interval that decided: `0.0455 to 0.179`; `<` and `>` mark an open end. For a difference shown by every
    block, the range of blocks: `each of 6 blocks: 0.00091 to 0.100`. Empty without either.
    """
    estimate, blocks = judged.estimate, judged.blocks_range
    if judged.by_every_block and blocks:
        return f"each of {judged.blocks} blocks: {_range_text(blocks)}"
    if estimate is None or estimate.ends is None:
        return ""
    return _range_text(estimate, "<" * judged.open_low, ">" * judged.open_high)


def _ratio(judged: Judged) -> str:
    """The ratio, compared ÷ baseline: `0.980×`, `8.90×`; empty without one."""
    return "" if judged.estimate is None else f"{ratio(judged.estimate.value)}×"


def estimate_text(judged: Judged) -> str:
    """The ratio with the interval that decided, `0.112× (0.101 to 0.122)`; empty without a ratio. For a difference
    shown by every block, `each block 0.00909 to 0.0214×`, which has no interval.
    """
    if judged.by_every_block and judged.blocks_range:
        return f"each block {_range_text(judged.blocks_range)}×"
    return " ".join(filter(None, [_ratio(judged), _parenthesis(judged).strip()]))


def percentile_text(level: PercentileLevel) -> str:
    """`1,234 µs (1,200 to 1,270), 4,000 requests or more`."""
    ends = None if level.low is None or level.high is None else (level.low, level.high)
    within = ", interval within trials" if level.within else ""
    return f"{spread(level.value_us, ends, number, ' µs')}, {plural(level.requests, 'request')} or more{within}"


def metric_text(metric: Metric, load: Load) -> str:
    """The metric's label; for a single user in a closed loop with what it includes."""
    return METRIC_LABELS[metric.name].label + (ONE_USER if load.is_one_user and metric is THROUGHPUT else "")


def control_text(analysis: RunAnalysis, comparison: Comparison, metric: Metric) -> str:
    """The A/A difference of a metric with what it was measured on, `A/A ≤ 1.13× (nginx, 8 blocks)`; empty
    without a control.
    """
    verdict, loop = comparison.verdicts[metric.name], loop_of(comparison.scenario.load)
    controls = [
        control for control in analysis.controls
        if control.metric is metric and loop_of(control.scenario.load) is loop
    ]  # fmt: skip
    if verdict.noise_floor is None or not controls:
        return ""
    names = list(dict.fromkeys(control.scenario.server for control in controls))
    servers = names[0] if len(names) == 1 else plural(len(names), "server")
    blocks = sum(effect.mid is not None for effect in controls[0].effects)
    return f"A/A ≤ {ratio(1 + verdict.noise_floor)}× ({servers}, {plural(blocks, 'block')})"


def limiters_text(comparison: Comparison, sides: Sides) -> str:
    """`client CPU on metal, server CPU on the guest`, for the primary metric of the load's loop."""
    loop = loop_of(comparison.scenario.load)
    verdict = next(v for v in comparison.verdicts.values() if loop in v.metric.loops and v.metric.is_primary)
    limiters = (verdict.baseline_limiter, verdict.compared_limiter)
    is_one_user = comparison.scenario.load.is_one_user
    names = [
        "unknown" if limiter is None
        else "one user, client included" if is_one_user and limiter is Limiter.CONNECTIONS
        else limiter.text
        for limiter in limiters
    ]  # fmt: skip
    both_limiters = f"{names[0]} on {sides.baseline}, {names[1]} on {sides.compared}"
    return names[0] if limiters[0] is limiters[1] else both_limiters


def trials_text(side: TrialShare) -> str:
    """`6 of 10 (60%, 26% to 88%), in the end 10`."""
    share = f"{side.at_first} of {side.trials} ({percent(side.at_first / side.trials)}"
    return f"{share}, {percent(side.low)} to {percent(side.high)}), in the end {side.valid}"


# ---- what is in doubt


def doubts_text(judged: Judged, sides: Sides, explained: Container[Code | Cause] = ()) -> str:
    """What widens a comparison, the largest three first: `background-cpu on the guest, second attempts: 2 on metal`.

    `explained`: findings whose meaning is added.
    """
    shown = [doubt for doubt in judged.doubts if doubt.size >= FINDINGS_LIMIT][:_SHOWN_DOUBTS]
    return ", ".join(_doubt(doubt, sides, explained) for doubt in shown) or "findings"


def explained_share(judged: Judged) -> float:
    """The largest share of a difference, in logarithms, that the doubts can explain: from 0 to 1.

    0 if that is negligible, or if the comparison neither shows a difference nor is undecided because of findings.
    """
    total, estimate = math.prod(doubt.size for doubt in judged.doubts), judged.estimate
    is_open = judged.because is VerdictReason.FINDINGS
    if estimate is None or total < FINDINGS_LIMIT or not (judged.kind in DIFFERENT or is_open):
        return 0.0
    size = abs(math.log(estimate.value))
    return 1.0 if is_open or not size else min(math.log(total) / size, 1.0)


def doubtful_text(judged: Judged, sides: Sides, explained: Container[Code | Cause] = ()) -> str:
    """The sentence on a comparison whose `explained_share` is above 0: what its doubts can explain, or leave open."""
    doubts = doubts_text(judged, sides, explained)
    if judged.because is VerdictReason.FINDINGS:
        return f"{_ratio(judged)} without the findings, which leave it open: {doubts}"
    return f"at most {percent(explained_share(judged))} of the difference can come from {doubts}"


def explained_text(judged: Judged, sides: Sides, least: float = 0.0) -> str:
    """How much of a decided difference the doubts can explain at most; empty if negligible, or less than `least`, a
    fraction.
    """
    share = explained_share(judged)
    return doubtful_text(judged, sides) if judged.kind in DIFFERENT and share > 0 and share >= least else ""


def _doubt(doubt: Doubt, sides: Sides, explained: Container[Code | Cause]) -> str:
    cause = doubt.cause
    named = [(n, side) for side, n in ((sides.baseline, doubt.baseline), (sides.compared, doubt.compared)) if n]
    if not isinstance(cause, Cause):
        name = f"{cause} ({FINDINGS[cause].meaning})" if cause in explained else str(cause)
        return f"{name} {' and '.join(f'on {side}' for _, side in named)}".strip()
    name = several(cause.text) if cause in COUNTED else cause.text
    return f"{name}: {' and '.join(f'{count} on {side}' for count, side in named)}" if named else name


def because_text(judged: Judged, sides: Sides) -> str:
    """The reason why a comparison is not judged; empty if it is."""
    if judged.kind is not Kind.NOT_JUDGED or judged.because is None:
        return ""
    words = _BECAUSE.get(judged.because)
    return words(judged, sides) if words else judged.because.text


def _no_figure(judged: Judged, sides: Sides) -> str:
    texts = [
        f"{name} gave no value in {s.trials - s.used} of {plural(s.trials, 'trial')}"
        + (f" ({', '.join(s.excluded_by)})" if s.excluded_by else "")
        for name, s in ((sides.baseline, judged.baseline), (sides.compared, judged.compared)) if not s.used
    ]  # fmt: skip
    return " and ".join(texts) or "no block has a value on both sides"


def _not_comparable(judged: Judged, sides: Sides) -> str:
    codes = sorted({*judged.baseline.excluded_by, *judged.compared.excluded_by})
    return f"the sides are not the same thing: {', '.join(codes)}"


def _not_measured(judged: Judged, sides: Sides) -> str:
    tool = judged.tool if isinstance(judged, Verdict) else None
    is_percentile = isinstance(judged, Verdict) and judged.metric.percentile
    return f"{tool or 'the tool'} {'prints no percentiles' if is_percentile else 'does not report it'}"


def _no_throughput(judged: Judged, sides: Sides) -> str:
    notes = judged.notes if isinstance(judged, Verdict) else ()
    reached = [_attained(note, sides) for note in notes if isinstance(note, Attained)]
    return "; ".join([VerdictReason.LOAD_SETS_THE_RATE.text, *reached])


_BECAUSE: dict[VerdictReason, Callable[[Judged, Sides], str]] = {
    VerdictReason.NO_FIGURE: _no_figure,
    VerdictReason.NOT_COMPARABLE: _not_comparable,
    VerdictReason.NOT_MEASURED: _not_measured,
    VerdictReason.LOAD_SETS_THE_RATE: _no_throughput,
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


def client_text(verdict: Verdict, sides: Sides) -> str:
    """How much of a request's time is the client's own; empty unless there is a single user."""
    return "".join(note_text(note, verdict, sides) for note in verdict.notes if isinstance(note, ClientTime))


def note_text(note: Note, verdict: Verdict, sides: Sides) -> str:
    """One note of a verdict."""
    match note:
        case ClientTime(baseline, compared):
            named = ((sides.baseline, baseline), (sides.compared, compared))
            own = " and ".join(f"{percent(part)} on {name}" for name, part in named if part is not None)
            return f"one user, client included: the client's share of a request's time is {own or 'unknown'}"
        case FailedRequests():
            shares = ((sides.baseline, verdict.baseline_available), (sides.compared, verdict.compared_available))
            failed = [_failed_share(share, name) for name, share in shares if share and share.share < 1]
            return f"failed requests: {' and '.join(failed)}"
        case OwnRates(baseline, compared):
            rates = ((sides.baseline, baseline), (sides.compared, compared))
            texts = [f"{rate:,.0f}/s on {name}" for name, rate in rates if rate is not None]
            return f"the sides ran at different rates: {', '.join(texts)}"
        case Attained():
            return _attained(note, sides)
        case _:
            return message(note.sentence, vars(note) | {"baseline": sides.baseline})


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
        return step.kind.text, f": {because_text(step, sides) or 'no block has both'}"
    if step.kind not in DIFFERENT or step.gain is None:
        return step.kind.text, f" ({undecided_text(step, sides)})"
    verb, size = "gains" if step.kind is Kind.FASTER else "costs", abs(step.gain.value)
    unit = "req/s" if metric.unit == "1/s" else metric.unit
    relative = f" ({percent(size / step.start)})" if metric.higher_is_better and step.start else ""
    return f"{verb} {'at least ' if step.is_at_least else ''}{number(size)} {unit}{relative}", ""
