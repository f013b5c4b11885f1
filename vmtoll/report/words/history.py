"""The histories of `vmtoll watch` in words."""

from collections.abc import Sequence

from vmtoll.analysis.history import FigureHistory, LevelChange
from vmtoll.model.agreement import RunDifference
from vmtoll.model.message import figure, percent, plural
from vmtoll.report.words.terms import METRIC_LABELS, labels_of

MOST_FACTS = 6


def history_labels(histories: Sequence[FigureHistory]) -> list[str]:
    """`nginx, site-steady on kvm-default: requests per second` of each."""
    labels = labels_of([history.scenario for history in histories])
    return [f"{labels[each.scenario]} on {each.arm}: {METRIC_LABELS[each.metric.name].label}" for each in histories]


def level_text(history: FigureHistory) -> str:
    """The newest night's figure, with its unit."""
    if history.is_missing:
        return "no value"
    return figure(history.nights[-1].figure, history.metric.unit)


def state_text(history: FigureHistory, least: float) -> str:
    """How its level changed last, in a phrase."""
    if history.is_missing:
        last = history.nights[-1]
        date = last.started_at[:10]
        return f"no value in the newest run; its report says why. The last value is from {date}, run {last.run}"
    if history.needed:
        return f"not judged: {plural(history.needed, 'more night')} needed"
    if not history.changes:
        return f"no change of level in {plural(len(history.nights), 'night')}"
    if len(history.steps(least)) > 1 and history.is_worse(least):
        return _steps_text(history, least)
    return change_text(history, history.changes[-1], least)


def _steps_text(history: FigureHistory, least: float) -> str:
    """`worse: 20.8% less, in 2 steps since 2026-11-20, run 20261120T021500Z-1a2b`."""
    steps, ratio = history.steps(least), history.ratio(least)
    night = history.nights[steps[0].first]
    amount = f"{percent(abs(ratio - 1))} {'less' if ratio < 1 else 'more'}"
    return f"worse: {amount}, in {plural(len(steps), 'step')} since {night.started_at[:10]}, run {night.run}"


def change_text(history: FigureHistory, change: LevelChange, least: float) -> str:
    """`worse: 4.8% less (3.9 to 5.7%) since 2026-11-20, run 20261120T021500Z-1a2b`."""
    low, high = sorted(abs(end - 1) for end in (change.ratio.low or 0.0, change.ratio.high or 0.0))
    night = history.nights[change.first]
    kind = ("worse" if change.is_worse else "better") if change.size >= least else "about the same"
    amount = f"{percent(change.size)} {'less' if change.ratio.value < 1 else 'more'}"
    return f"{kind}: {amount} ({percent(low)} to {percent(high)}) since {night.started_at[:10]}, run {night.run}"


def facts_text(facts: Sequence[RunDifference]) -> str:
    """What else changed with the level: `kernel 6.1.0-27 → 6.1.0-28`; a phrase where nothing recorded did."""
    if not facts:
        return "nothing that vmtoll records changed with it"
    shown = [f"{each.fact} {each.published or 'none'} → {each.again or 'none'}" for each in facts[:MOST_FACTS]]
    more = len(facts) - len(shown)
    return "changed with it: " + "; ".join(shown) + (f"; {plural(more, 'more fact')}" if more > 0 else "")
