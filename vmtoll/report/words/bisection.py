"""The answer of a bisection in words."""

from collections.abc import Callable, Sequence

from vmtoll.model.bisection import (
    AFTER,
    BAD,
    BEFORE,
    CANDIDATE,
    GOOD,
    Bisection,
    Contrast,
    SittingAnswer,
    SittingResult,
    Task,
)
from vmtoll.model.message import percent, plural, ratio, spread
from vmtoll.model.metric import Metric
from vmtoll.model.verdict import Kind
from vmtoll.report.words.terms import METRIC_LABELS
from vmtoll.statistics.thresholds import ALPHA

# Names a candidate, as the user knows it.
Named = Callable[[str], str]


def size_text(contrast: Contrast, metric: Metric) -> str:
    """`1.83× the CPU per request (1.79 to 1.87)`; `no value` without one."""
    if contrast.ratio is None:
        return "no value"
    ends = (contrast.low, contrast.high) if contrast.low and contrast.high else None
    return spread(contrast.ratio, ends, ratio, f"× the {METRIC_LABELS[metric.name].label.partition(' (')[0]}")


def error_text(spent: float) -> str:
    """`wrong with a probability of at most 4.4%`."""
    return f"wrong with a probability of at most {percent(ALPHA * spent)}"


def finding_text(finding: SittingResult, metric: Metric, named: Named) -> str:
    """One line on an ended sitting."""
    sitting, name = finding.sitting, named(finding.sitting.candidate)
    if finding.answer is SittingAnswer.SKIPPED:
        return f"{name} skipped: it {finding.why}"
    decisive = _decisive(finding)
    size = f"; {size_text(decisive, metric)} {_against(decisive)}" if decisive else ""
    blocks = f" after {plural(decisive.blocks, 'block')}" if decisive else ""
    if sitting.task is Task.ANCHORS:
        shown = "differ" if finding.answer is SittingAnswer.BAD else "are not shown to differ"
        verdict = f"known good and known bad {shown}"
    elif sitting.task is Task.CONFIRMATION:
        is_worse = "is worse" if finding.answer is SittingAnswer.BAD else "is not shown to be worse"
        verdict = f"{name} {is_worse} than {named(sitting.arms[BEFORE])}, which comes before it"
    else:
        verdict = f"{name} is {finding.answer.text}"
    return f"{verdict}{blocks}{size}"


def _decisive(finding: SittingResult) -> Contrast | None:
    """The comparison that a line on a sitting quotes."""
    of_step = (CANDIDATE, BAD) if finding.answer is SittingAnswer.GOOD else (CANDIDATE, GOOD)
    pair = {Task.ANCHORS: (BAD, GOOD), Task.CONFIRMATION: (AFTER, BEFORE), Task.STEP: of_step}
    return finding.contrast(*pair[finding.sitting.task])


def _against(contrast: Contrast) -> str:
    return "of the one before it" if contrast.baseline == BEFORE else f"of the known {contrast.baseline}"


def refusal_text(finding: SittingResult, metric: Metric, named: Named) -> str:
    """Why a bisection does not begin: its anchors do not differ, or the wrong way."""
    (contrast,) = finding.contrasts
    good, bad = (named(finding.sitting.arms[arm]) for arm in (GOOD, BAD))
    if contrast.kind is Kind.FASTER:
        return (
            f"{bad} is better than {good}: {size_text(contrast, metric)} of it after "
            f"{plural(contrast.blocks, 'block')}; exchange --good and --bad"
        )
    return (
        f"{good} and {bad} are not shown to differ after {plural(contrast.blocks, 'block')}: {bad} has "
        f"{size_text(contrast, metric)} of {good}; choose --good and --bad that differ more, another --metric, or more "
        "minutes with --until"
    )


def suspects_text(suspects: Sequence[str], named: Named) -> str:
    """`4f2c1d8a9b3e Add a cache is the first bad one`; with several: which they are."""
    if len(suspects) == 1:
        return f"{named(suspects[0])} is the first bad one"
    return f"the first bad one is among {len(suspects)}: {', '.join(map(named, suspects))}"


def cost_text(cost: Contrast, anchors: Contrast | None, metric: Metric) -> str:
    """What the suspect costs against the candidate before it, and the known bad against the known good."""
    whole = f"; the known bad has {size_text(anchors, metric)} of the known good" if anchors else ""
    return f"it has {size_text(cost, metric)} of the one before it{whole}"


def contradiction_text(finding: SittingResult, metric: Metric, named: Named) -> str:
    """One line on a finding that one change does not explain."""
    if finding.sitting.task is Task.CONFIRMATION and finding.answer is SittingAnswer.BAD:
        rest = [
            f"{named(finding.sitting.arms[arm])} has {size_text(contrast, metric)} of the known {anchor}"
            for arm, anchor, kind in ((BEFORE, GOOD, Kind.SLOWER), (AFTER, BAD, Kind.FASTER))
            if (contrast := finding.contrast(arm, anchor)) and contrast.kind is kind
        ]
        return "; ".join(rest)
    beyond = [
        f"{named(finding.sitting.candidate)} has {size_text(contrast, metric)} of the known {anchor}, and is {word}"
        for anchor, kind, word in (
            (GOOD, Kind.FASTER, "better than both"), (BAD, Kind.SLOWER, "worse than both"),
        )
        if (contrast := finding.contrast(CANDIDATE, anchor)) and contrast.kind is kind
    ]  # fmt: skip
    return beyond[0] if beyond else finding_text(finding, metric, named)


def answer_lines(
    bisection: Bisection, metric: Metric, named: Named, judged: str | None, *,
    suspects: Sequence[str], confirmed: SittingResult | None, cost: Contrast | None,
    contradictions: Sequence[SittingResult], spent: float,
) -> list[str]:  # fmt: skip
    """The answer: the suspects and how sure it is, what the change costs, what was skipped, what contradicts it.

    `judged`: the candidate that was judged alone.
    """
    if judged:
        answers = {bisection.good: SittingAnswer.GOOD, bisection.bad: SittingAnswer.BAD} | bisection.answers()
        return [f"{named(judged)}: {answers[judged].text}; {error_text(spent)} so far"]
    lines = [f"{suspects_text(suspects, named)}; {error_text(spent)}"]
    if confirmed and confirmed.answer is not SittingAnswer.BAD:
        before = named(confirmed.sitting.arms[BEFORE])
        lines = [
            f"not confirmed: {named(suspects[-1])} was worse than the known good, {before} better than the known bad, "
            "but the two are not shown to differ; the history may have more than one change"
        ]
    elif cost:
        lines.append(cost_text(cost, bisection.findings[0].contrast(BAD, GOOD), metric))
    left_out = [each for each in bisection.findings if each.answer in (SittingAnswer.SKIPPED, SittingAnswer.UNDECIDED)]
    lines += [finding_text(each, metric, named) for each in left_out if each.sitting.task is Task.STEP]
    told = [each for each in contradictions if each is not confirmed or each.answer is SittingAnswer.BAD]
    lines += [f"more than one change: {contradiction_text(each, metric, named)}" for each in told]
    return lines
