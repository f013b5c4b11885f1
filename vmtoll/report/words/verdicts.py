"""Verdicts in words: of a comparison, of a tuning step, and where two loops disagree."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from vmtoll.analysis.judge import MARGIN
from vmtoll.analysis.statistics import fewest_requests
from vmtoll.model.finding import DISTORTING
from vmtoll.model.metric import CPU, Metric, loop_of
from vmtoll.model.trial import METAL, Arm
from vmtoll.model.verdict import (
    Because,
    Bound,
    Comparison,
    Disagreement,
    DisagreementSide,
    Estimate,
    Kind,
    Limit,
    Note,
    NoteCode,
    PercentileLevel,
    Share,
    TrialShare,
    TuningStep,
    VarianceShares,
    Verdict,
)
from vmtoll.report.words.terms import DASH, LIMITERS, METRIC_LABELS, number, p_value, percent, plural

KINDS = {
    Kind.SLOWER: "slower",
    Kind.FASTER: "faster",
    Kind.EQUIVALENT: "equivalent",
    Kind.UNDECIDED: "undecided",
    Kind.INVALID: "invalid",
}
BOUNDS = {Bound.AT_LEAST: "at least ", Bound.AT_MOST: "at most ", None: ""}
_OPPOSITE = {Bound.AT_LEAST: Bound.AT_MOST, Bound.AT_MOST: Bound.AT_LEAST, None: None}
FEWEST = fewest_requests(0.99)
HOPELESS = 1000.0  # a difference of that size, as a fraction, is no figure to plan with
REACHED = 0.98  # of the offered rate; as the gate `rate-not-reached` has it


def verdict_text(verdict: Verdict, guest: str = "the guest") -> str:
    """One line: `the guest loses 95.5% of the requests per second`; `guest` names the compared side."""
    return "".join(verdict_parts(verdict, guest))


def verdict_parts(verdict: Verdict, guest: str = "the guest") -> tuple[str, str]:
    """The same in two parts: what a page emphasizes, and the reason that follows it, empty where there is none."""
    if verdict.because is Because.NOT_MEASURED:
        return "not measured", f" ({because_text(verdict)})"
    if verdict.because is not None:
        return KINDS[verdict.kind] if verdict.applies else "not applicable", f": {because_text(verdict)}"
    if verdict.kind is Kind.EQUIVALENT:
        return f"equivalent within {percent(verdict.margin)}", ""
    if verdict.kind is Kind.UNDECIDED or verdict.estimate is None:
        return KINDS[verdict.kind], f" ({undecided_text(verdict)})"
    return effect_text([verdict], amount_text(verdict, form_of([verdict])), guest), ""


def undecided_text(verdict: Verdict | TuningStep, margin: float | None = None) -> str:
    """Text on what these blocks could have shown, and how many more show the margin: `differences below 6.2% would
    not have been detected; 14 more blocks show 2%`, both with 80% power. A doubling and more is a factor, `below 11×`.
    """
    smallest = verdict.margin if isinstance(verdict, Verdict) else margin
    more, seen = verdict.blocks_needed, verdict.detectable
    if seen is None:
        return f"{plural(more, 'more block')} needed" if more else "more blocks alone will not settle it"
    size = percent(seen) if seen < 1 else _factor(1 + seen)
    text = (
        f"differences below {size} would not have been detected"
        if seen < HOPELESS
        else "the blocks differ too much to show any difference"
    )
    if more is None:
        return text
    return f"{text}; {plural(more, 'more block')} {'shows' if more == 1 else 'show'} {percent(smallest)}"


def _factor(ratio: float) -> str:
    return f"{ratio:.0f}×" if ratio >= 10 else f"{ratio:.1f}×" if ratio >= 2 else f"{ratio:.2f}×"


def form_of(verdicts: Sequence[Verdict]) -> str:
    """Form in which verdicts of one metric and kind are summarised: `less`, `more` or `times`."""
    ratios = [verdict.estimate.ratio for verdict in verdicts if verdict.estimate]
    return "less" if max(ratios) < 1 else "times" if max(ratios) >= 2 else "more"


def effect_text(verdicts: Sequence[Verdict], amount: str, guest: str) -> str:
    """Summarise verdicts of one metric and kind, with an amount in their form."""
    template: str = getattr(METRIC_LABELS[verdicts[0].metric.name], form_of(verdicts))
    return template.format(guest=guest, amount=amount)


def amount_text(verdict: Verdict, form: str, *, interval: bool = False) -> str:
    """`at least 12%` or `2.1×`; `interval`: with the one that decided, `12% [10, 14]`."""
    assert verdict.estimate is not None
    ratio, decided = verdict.estimate.ratio, verdict.adjusted
    if form == "times":
        size = _factor(ratio)
    else:
        change = abs(ratio - 1)
        size = "more than 99.9%" if form == "less" and change > 0.9995 else percent(change)
    if not interval or decided is None or decided.low is None or decided.high is None or size.startswith("more"):
        return BOUNDS[verdict.bound] + size
    ends = (decided.low, decided.high)
    if form == "times":
        return f"{BOUNDS[verdict.bound]}{size} [{number(ends[0])}, {number(ends[1])}]"
    low, high = sorted(100 * (1 - end if form == "less" else end - 1) for end in ends)
    return f"{BOUNDS[verdict.bound]}{size} [{number(low)}, {number(high)}]"


def estimate_text(verdict: Verdict, estimate: Estimate | None = None, prefix: str = "overhead ") -> str:
    """`overhead at least 95.5% [95.4, 95.7]` or `1.20× [1.18, 1.22]`; empty without an estimate.

    `estimate`: another one than the verdict's own, such as its Hodges–Lehmann; `prefix`: before a rate's.
    """
    ratio = estimate or verdict.estimate
    if ratio is None:
        return ""
    rate = verdict.metric.higher_is_better
    value, low, high = ratio.ratio, ratio.low, ratio.high
    if rate:
        value, low, high = 100 * (1 - value), _percent_lost(high), _percent_lost(low)
    decimals = 1 if rate or value >= 10 else 2
    if low is not None and high is not None and high - low < 2 * 10**-decimals:
        decimals += 1
    falls = (ratio.ratio > 1) == rate  # the figure, as the difference grows: that of a gain, or of a ratio below 1
    bound = _OPPOSITE[verdict.bound] if falls else verdict.bound
    text = f"{prefix if rate else ''}{BOUNDS[bound]}{_sized(value, decimals)}{'%' if rate else '×'}"
    return text if low is None or high is None else f"{text} [{_sized(low, decimals)}, {_sized(high, decimals)}]"


def _percent_lost(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * (1 - ratio)


def _sized(value: float, decimals: int) -> str:
    """Beyond ten thousand the size says no more than that nothing is known."""
    if abs(value) >= 10_000:
        return "below -10,000" if value < 0 else "above 10,000"
    return f"{value:.{decimals}f}"


def percentile_text(level: PercentileLevel) -> str:
    """`1,234 µs [1,200, 1,270], 4,000 requests or more`."""
    ends = "" if level.low is None else f" [{number(level.low)}, {number(level.high)}]"
    within = ", interval within trials" if level.within else ""
    return f"{number(level.value_us)} µs{ends}, {plural(level.requests, 'request')} or more{within}"


def variance_text(shares: VarianceShares | None) -> str:
    """`sd 2.1%: boot 60%, block 30%, trial 10%`; without a share that is not known."""
    if shares is None:
        return DASH
    parts_by_name = {"boot": shares.boot, "block": shares.block, "trial": shares.trial}
    parts = [f"{name} {100 * part:.0f}%" for name, part in parts_by_name.items() if part is not None]
    return f"sd {percent(math.expm1(shares.sd))}: {', '.join(parts)}"


def limiters_text(comparison: Comparison) -> str:
    """`client CPU on metal, server CPU on the guest`, of the figure that its loop is measured for."""
    loop = loop_of(comparison.scenario.load)
    verdict = next(v for v in comparison.verdicts.values() if loop in v.metric.loops and v.metric.is_primary)
    sides = (verdict.baseline_limiter, verdict.compared_limiter)
    names = ["unknown" if side is None else LIMITERS[side] for side in sides]
    return names[0] if sides[0] is sides[1] else f"{names[0]} on {METAL}, {names[1]} on the guest"


def trials_text(side: TrialShare) -> str:
    """`6 of 10 (60%) [26%, 88%], in the end 10`."""
    share = f"{side.at_first} of {side.trials} ({percent(side.at_first / side.trials)})"
    return f"{share} [{percent(side.low)}, {percent(side.high)}], in the end {side.valid}"


# ---- why a verdict is invalid


def because_text(verdict: Verdict) -> str:
    """Reason why a verdict is invalid or does not apply; empty where it is neither."""
    return "" if verdict.because is None else _BECAUSE[verdict.because](verdict)


def limited_text(limits: Sequence[Limit]) -> str:
    """`client-limited`, `client-limited and link-limited`."""
    return " and ".join(f"{limit}-limited" for limit in limits) or "client-limited or link-limited"


def _no_figures(verdict: Verdict) -> str:
    sides = (verdict.baseline, verdict.compared)
    return f"no figure in {sum(s.empty for s in sides)} of {sum(s.trials for s in sides)} trials"


def _not_measured(verdict: Verdict) -> str:
    return (
        f"{verdict.tool or 'the tool'} {'prints no percentiles' if verdict.metric.percentile else 'has no such figure'}"
    )


def _no_valid_pair(verdict: Verdict) -> str:
    sides = (verdict.baseline, verdict.compared)
    excluded = Counter(verdict.baseline.excluded_by) + Counter(verdict.compared.excluded_by)
    codes = sorted(excluded, key=lambda code: (-excluded[code], code))
    empty = sum(s.empty for s in sides)
    return (
        f"no valid pair of trials; {sum(s.invalid for s in sides)} of {sum(s.trials for s in sides)} trials are invalid"
        + (f" ({', '.join(codes)})" if codes else "")
        + (f", {empty} without a figure" if empty else "")
    )


def _no_throughput(verdict: Verdict) -> str:
    reached = [note_text(note, verdict) for note in verdict.notes if note.code is NoteCode.ATTAINED]
    return "; ".join(["the load sets the rate", *reached])


def _distorted(verdict: Verdict) -> str:
    """The gates that distort, each with its trials: `background-cpu in 6 of 12 trials`."""
    trials_by_code = Counter(verdict.baseline.findings) + Counter(verdict.compared.findings)
    gates = [f"{code} in {count}" for code, count in trials_by_code.most_common() if code in DISTORTING]
    return f"{', '.join(gates) or 'findings'} of {verdict.baseline.used + verdict.compared.used} trials"


def _lost(verdict: Verdict) -> str:
    """`metal 0 of 12 invalid, 0 tried again; the guest 4 of 10 invalid, 0 tried again`."""
    sides = ((METAL, verdict.baseline), ("the guest", verdict.compared))
    return "; ".join(f"{name} {s.invalid} of {s.trials} invalid, {s.retried} tried again" for name, s in sides)


def _two_modes(verdict: Verdict) -> str:
    notes = [note_text(note, verdict) for note in verdict.notes if note.code is NoteCode.TWO_MODES]
    return "; ".join(notes) or "the ratio is one of two"


_BECAUSE: dict[Because, Callable[[Verdict], str]] = {
    Because.NO_FIGURES: _no_figures,
    Because.NOT_MEASURED: _not_measured,
    Because.NO_VALID_PAIR: _no_valid_pair,
    Because.LIMITED_ON_BOTH_SIDES: lambda v: f"{limited_text(v.limited_by)} on both sides",
    Because.LIMITED_ON_THE_SLOWER_SIDE: lambda v: f"{limited_text(v.limited_by)} on the slower side",
    Because.LIMITED_SO_NO_EQUALITY: lambda v: f"{limited_text(v.limited_by)}, so equal figures do not show equality",
    Because.DISTORTED: lambda v: f"something else may have made the difference: {_distorted(v)}",
    Because.FEW_REQUESTS: lambda v: f"too few requests for a p99: {FEWEST} are needed in every trial",
    Because.UNEQUAL_REQUESTS: lambda v: "one side has over a fifth more requests per trial, and no histogram of them",
    Because.UNEQUAL_LOSSES: lambda v: f"one side lost more trials: {_lost(v)}",
    Because.LOSSES_DECIDE: lambda v: f"equality rests on the trials that one side lost: {_lost(v)}",
    Because.CONTROL_DIFFERS: lambda v: "the A/A control differs from itself by as much",
    Because.TWO_MODES: _two_modes,
    Because.SKEWED: lambda v: "within the margin by one interval and not by the other",
    Because.LIMITED_TAIL: lambda v: f"{limited_text(v.limited_by)}, so the tail is not the server's",
    Because.CLOSED_LOOP_HAS_NO_TAIL: lambda v: "a closed loop hides stalls, so it has no tail",
    Because.LOAD_SETS_THE_RATE: _no_throughput,
    Because.OPEN_LOOP_SEE_TAIL: lambda v: "an open loop is judged by its tail",
}


# ---- notes on a verdict


def notes_text(verdict: Verdict, guest: str = "the guest") -> list[str]:
    """All notes of a verdict, as sentences without full stops."""
    return [note_text(note, verdict, guest) for note in verdict.notes]


def note_text(note: Note, verdict: Verdict, guest: str = "the guest") -> str:
    """One note of a verdict; `guest` names the compared side."""
    return _NOTES[note.code](note, verdict, guest)


NoteWords = Callable[[Note, Verdict, str], str]


def _fixed(text: str) -> NoteWords:
    return lambda note, verdict, guest: text.format(subject=note.subject)


def _lost_to_holm(claim: str) -> NoteWords:
    return lambda note, verdict, guest: (
        f"{claim} does not survive Holm's correction among {note.values['family']:.0f} comparisons:"
        f" p {p_value(note.values['p'])} becomes {p_value(note.values['holm'])}"
    )


def _limited(note: Note, verdict: Verdict, guest: str) -> str:
    sides = ((METAL, verdict.baseline), (guest, verdict.compared))
    counts = [f"{side.limited} of {side.used} trials on {name}" for name, side in sides if side.limited]
    return f"{limited_text(verdict.limited_by)}: {' and '.join(counts)}"


def _sided(outcome: str) -> NoteWords:
    return lambda note, verdict, guest: (
        f"trials {outcome}: {note.values['baseline']:.0f} of {verdict.baseline.trials} on {METAL},"
        f" {note.values['compared']:.0f} of {verdict.compared.trials} on {guest}"
    )


def _failed(note: Note, verdict: Verdict, guest: str) -> str:
    sides = ((METAL, verdict.baseline_available), (guest, verdict.compared_available))
    return f"failed requests: {' and '.join(_failed_share(s, name) for name, s in sides if s and s.share < 1)}"


def _failed_share(available: Share, name: str) -> str:
    rate, low, high = (f"{100 * (1 - end):.2g}" for end in (available.share, available.high, available.low))
    return f"{rate}% [{low}, {high}] on {name}"


def _attained(note: Note, verdict: Verdict, guest: str) -> str:
    """Share of an open loop's rate that each side answered."""
    short = []
    for name, side in ((METAL, "baseline"), (guest, "compared")):
        attained = note.values.get(f"{side}_attained")
        if attained is None:
            short.append(f"{name} has no valid trial")
        elif attained < REACHED:
            short.append(f"{name} answered {percent(attained)} of {note.values[f'{side}_offered']:,.0f}/s")
    return " and ".join(short) or "both sides answered the offered rate"


def _correlation(inflation: float) -> float:
    """The ρ of a first-order process whose mean has this inflation of the variance, (1 + ρ) / (1 − ρ)."""
    return (inflation - 1) / (inflation + 1)


_NOTES: dict[NoteCode, NoteWords] = {
    NoteCode.INTERVALS_DISAGREE: _fixed(
        "the paired-t and the signed-rank interval disagree on whether there is a difference"
    ),
    NoteCode.DIFFERENCE_LOST_TO_HOLM: _lost_to_holm("the difference"),
    NoteCode.EQUIVALENCE_LOST_TO_HOLM: _lost_to_holm("equivalence"),
    NoteCode.FEW_BLOCKS: lambda note, v, guest: (
        f"{note.values['blocks']:.0f} of at least {note.values['needed']:.0f} blocks"
    ),
    NoteCode.NO_NOISE_FLOOR: _fixed("noise floor unknown: no A/A control with two blocks or more"),
    NoteCode.NOISE_FLOOR_OF_OTHER_SERVER: _fixed("noise floor taken from the A/A control of {subject}"),
    NoteCode.CONTROL_DIFFERS: lambda note, v, guest: (
        f"the A/A control differs from itself, {note.values['low']:.3f} to {note.values['high']:.3f} times"
        " (one in twenty does by chance): doubt the size"
    ),
    NoteCode.LIMITED: _limited,
    NoteCode.SUSPECT: lambda note, v, guest: (
        f"{note.values['suspect']:.0f} of {note.values['trials']:.0f} trials suspect"
        + (f", {note.values['distorted']:.0f} of them distorted" if note.values["distorted"] else "")
    ),
    NoteCode.DEPENDS_ON_SUSPECT: lambda note, v, guest: (
        f"depends on {plural(int(note.values['pairs']), 'distorted pair')}: without them the verdict is another one"
        + (f" ({estimate_text(v, v.clean)})" if v.clean else "")
    ),
    NoteCode.EXCLUDED: _sided("invalid and excluded"),
    NoteCode.RETRIED: _sided("tried a second time"),
    NoteCode.TWO_MODES: lambda note, v, guest: (
        f"two modes: {guest} ÷ metal {note.values['low']:.2f} in {plural(int(note.values['n_low']), 'block')} and"
        f" {note.values['high']:.2f} in {note.values['n_high']:.0f}"
    ),
    NoteCode.AUTOCORRELATED: lambda note, v, guest: (
        f"successive blocks of this page are correlated (bias-corrected ρ ="
        f" {_correlation(note.values['inflation']):.2f}, p {p_value(note.values['p'])}), so they count as"
        f" {1 / note.values['inflation']:.0%} as many independent blocks"
    ),
    NoteCode.UNEQUAL_REQUESTS: lambda note, v, guest: (
        f"{plural(int(note.values['blocks']), 'block')} left out: one side has over a fifth more requests"
    ),
    NoteCode.CLIENT_ON_SAME_MACHINE: _fixed("the client ran on the same machine and used part of the server's CPUs"),
    NoteCode.FAILED_REQUESTS: _failed,
    NoteCode.OWN_RATES: lambda note, v, guest: (
        "each side at its own rate: "
        + ", ".join(
            f"{note.values[side]:,.0f}/s on {name}"
            for name, side in ((METAL, "baseline"), (guest, "compared"))
            if side in note.values
        )
    ),
    NoteCode.ATTAINED: _attained,
    NoteCode.CROSSCHECK_DISAGREES: lambda note, v, guest: (
        f"the cross-check by {note.subject} disagrees:"
        f" guest ÷ metal {note.values['low']:.2f} to {note.values['high']:.2f}"
    ),
}


# ---- tuning steps, and where closed and open loop disagree


def step_text(step: TuningStep, metric: Metric) -> str:
    """`gains at least 340 req/s (4.2%)`, `costs 12 µs`."""
    return "".join(step_parts(step, metric))


def step_parts(step: TuningStep, metric: Metric) -> tuple[str, str]:
    """The same in two parts, as `verdict_parts`."""
    if step.because is not None:
        return KINDS[step.kind], f": {_STEP_BECAUSE.get(step.because, 'no block has a figure of both')}"
    if step.kind not in (Kind.FASTER, Kind.SLOWER) or step.gain is None:
        return KINDS[step.kind], f" ({undecided_text(step, MARGIN)})"
    verb, size = "gains" if step.kind is Kind.FASTER else "costs", abs(step.gain.value)
    unit = "req/s" if metric.unit == "1/s" else metric.unit
    relative = f" ({percent(size / step.start)})" if metric.higher_is_better and step.start else ""
    return f"{verb} {BOUNDS[step.bound]}{number(size)} {unit}{relative}", ""


_STEP_BECAUSE = {
    Because.LIMITED_TAIL: "client-limited or link-limited, so the tail is not the server's",
    Because.LIMITED_ON_THE_SLOWER_SIDE: "client-limited or link-limited on the slower side",
    Because.LIMITED_ON_BOTH_SIDES: "client-limited or link-limited on both sides",
    Because.DISTORTED: "something else may have made the difference",
    Because.FEW_REQUESTS: f"fewer than {FEWEST} requests in a trial, too few for a p99",
    Because.UNEQUAL_REQUESTS: "one guest has over a fifth more requests per trial, and no histogram of them",
    Because.UNEQUAL_LOSSES: "the better guest lost more trials",
    Because.CONTROL_DIFFERS: "the A/A control differs from itself by as much",
}


def disagreement_text(disagreement: Disagreement) -> str:
    """Explanation that the data offer."""
    closed, opened = disagreement.closed, disagreement.open
    parts = [
        "CPU per request depends on the load"
        if closed.verdict.metric == CPU
        else "a closed loop sends its next request after the answer, so it hides stalls and queues"
    ]
    if stalled := disagreement.stalled:
        parts.append(f"{plural(stalled, 'open-loop trial')} {'was' if stalled == 1 else 'were'} stalled")
    loads = [_drawn(side, closed, opened, disagreement.arm) for side in ("baseline_rps", "compared_rps")]
    if all(loads):
        parts.append(f"the open loop offered {' and '.join(loads)}")
    for loop, verdict in (("closed", closed.verdict), ("open", opened.verdict)):
        if verdict.limited:
            parts.append(f"{limited_text(verdict.limited_by)}: {plural(verdict.limited, f'{loop}-loop trial')}")
        if verdict.kind is Kind.UNDECIDED:
            parts.append(f"the {loop} loop is undecided after {plural(verdict.blocks, 'block')}")
    return "; ".join(parts)


def _drawn(side: str, closed: DisagreementSide, opened: DisagreementSide, arm: Arm) -> str:
    """Rate of the open loop as a share of the rate that the closed loop drew; empty when unknown."""
    drawn, offered = getattr(closed, side), getattr(opened, side)
    if not drawn or offered is None:
        return ""
    name = METAL if side == "baseline_rps" else str(arm)
    return f"{offered:,.0f}/s to {name}, {offered / drawn:.0%} of what the closed loop drew from it"
