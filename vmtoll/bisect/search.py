"""The search of a bisection: which candidate comes next, and how much of the error it may spend. Pure functions.

The 5% is split over the sittings that are still needed: the anchors, log2 of the candidates in between, one
confirmation. A sitting's share is what is left, divided by the number of sittings that are left, so that all shares
add up to 1 at most, whatever is skipped or stays undecided on the way. A skipped candidate spends nothing.
"""

import math
from dataclasses import dataclass

from vmtoll.model.bisection import (
    AFTER,
    BAD,
    BEFORE,
    CANDIDATE,
    GOOD,
    Bisection,
    Contrast,
    Sitting,
    SittingAnswer,
    SittingResult,
    Task,
)
from vmtoll.model.verdict import Kind

# After this many undecided candidates the search ends with the suspects that it has: a difference that the minutes of a
# sitting do not show for two will not be shown for the next.
MOST_UNDECIDED = 2
_NOT_GOOD = frozenset({SittingAnswer.BAD, SittingAnswer.BETWEEN})


@dataclass(frozen=True)
class Range:
    """Where the change is: after candidate `low` and up to candidate `high`, by index."""

    low: int
    high: int
    untested: tuple[int, ...]  # the candidates in between that may still be measured

    @property
    def steps(self) -> int:
        """The most steps that are needed if none is skipped or stays undecided."""
        return math.ceil(math.log2(len(self.untested) + 1))


def range_of(bisection: Bisection) -> Range:
    """The range that the steps have left."""
    answers, low, high = bisection.answers(), 0, len(bisection.candidates) - 1
    for index, candidate in enumerate(bisection.candidates):
        if answers.get(candidate) is SittingAnswer.GOOD and index < high:
            low = max(low, index)
        if answers.get(candidate) in _NOT_GOOD:
            high = min(high, index)
    between = range(low + 1, high) if undecided(bisection) < MOST_UNDECIDED else ()
    return Range(low, high, tuple(i for i in between if bisection.candidates[i] not in answers))


def undecided(bisection: Bisection) -> int:
    """The number of candidates whose step ended undecided."""
    return sum(answer is SittingAnswer.UNDECIDED for answer in bisection.answers().values())


def most_sittings(bisection: Bisection) -> int:
    """The most sittings that are still to come, with those that may stay undecided; a skipped one takes no time."""
    left = sittings_left(bisection)
    more = MOST_UNDECIDED - undecided(bisection) if range_of(bisection).untested else 0
    return left + min(more, max(0, len(range_of(bisection).untested) - range_of(bisection).steps))


def suspects(bisection: Bisection) -> list[str]:
    """The candidates one of which brought the change, the earliest first: one where the bisection has found it."""
    left = range_of(bisection)
    return bisection.candidates[left.low + 1 : left.high + 1]


def sittings_left(bisection: Bisection) -> int:
    """The number of sittings that are still needed if none is skipped or stays undecided; 0 at the end."""
    steps = range_of(bisection).steps
    confirms = confirmation(bisection) is None and (steps > 0 or _needs_confirmation(bisection))
    return (not anchors_differ(bisection)) + steps + confirms


def next_sitting(bisection: Bisection) -> Sitting | None:
    """The sitting that comes next; None at the end."""
    if bisection.pending:
        return bisection.pending
    if not anchors_differ(bisection):
        return _sitting(bisection, Task.ANCHORS, {})
    left = range_of(bisection)
    if left.untested:
        middle = (left.low + left.high) / 2
        index = min(left.untested, key=lambda untested: (abs(untested - middle), untested))
        return step(bisection, bisection.candidates[index])
    if confirmation(bisection) is None and _needs_confirmation(bisection):
        before, after = bisection.candidates[left.low], bisection.candidates[left.high]
        return _sitting(bisection, Task.CONFIRMATION, {BEFORE: before, AFTER: after})
    return None


def step(bisection: Bisection, candidate: str) -> Sitting:
    """The sitting that judges this candidate."""
    return _sitting(bisection, Task.STEP, {CANDIDATE: candidate})


def _sitting(bisection: Bisection, task: Task, arms: dict[str, str]) -> Sitting:
    left = 1.0 - math.fsum(finding.spent for finding in bisection.findings)
    return Sitting(
        number=len(bisection.findings) + 1,
        task=task,
        arms={GOOD: bisection.good, BAD: bisection.bad, **arms},
        share=left / max(1 if task is Task.CONFIRMATION else 2, sittings_left(bisection)),
    )


def anchors_differ(bisection: Bisection) -> bool:
    """Return whether the bad anchor was found worse than the good one."""
    return any(f.sitting.task is Task.ANCHORS and f.answer is SittingAnswer.BAD for f in bisection.findings)


def confirmation(bisection: Bisection) -> SittingResult | None:
    """The finding that compares the suspect with the candidate before it; None without one."""
    return next((f for f in bisection.findings if f.sitting.task is Task.CONFIRMATION), None)


def cost_of(bisection: Bisection) -> Contrast | None:
    """What the only suspect costs against the candidate before it, as a contrast of AFTER with BEFORE: by the
    confirmation, or where one of the two is an anchor by the sitting that compared them. None with several suspects.
    """
    left = range_of(bisection)
    if left.high - left.low > 1:
        return None
    if finding := confirmation(bisection):
        return finding.contrast(AFTER, BEFORE)
    last = len(bisection.candidates) - 1
    if left.high < last:
        return _of_step(bisection, left.high, GOOD)
    if left.low > 0:
        contrast = _of_step(bisection, left.low, BAD)
        return contrast and _inverted(contrast)
    return next((f.contrast(BAD, GOOD) for f in bisection.findings if f.answer is SittingAnswer.BAD), None)


def _of_step(bisection: Bisection, index: int, anchor: str) -> Contrast | None:
    candidate = bisection.candidates[index]
    steps = [f for f in bisection.findings if f.sitting.task is Task.STEP and f.sitting.candidate == candidate]
    return steps[-1].contrast(CANDIDATE, anchor) if steps else None


def _inverted(contrast: Contrast) -> Contrast:
    """The same two arms, the other way round."""
    turned = {Kind.FASTER: Kind.SLOWER, Kind.SLOWER: Kind.FASTER}
    return contrast.model_copy(update={
        "arm": contrast.baseline, "baseline": contrast.arm, "kind": turned.get(contrast.kind, contrast.kind),
        "ratio": contrast.ratio and 1 / contrast.ratio, "low": contrast.high and 1 / contrast.high,
        "high": contrast.low and 1 / contrast.low,
    })  # fmt: skip


def _needs_confirmation(bisection: Bisection) -> bool:
    """Return whether one suspect is left whose own step, or that of its predecessor, did not compare the two."""
    left = range_of(bisection)
    return left.high - left.low == 1 and left.low > 0 and left.high < len(bisection.candidates) - 1


def spent(bisection: Bisection) -> float:
    """The fraction of the 5% that the sittings have spent."""
    return math.fsum(finding.spent for finding in bisection.findings)


def contradictions(bisection: Bisection) -> list[SittingResult]:
    """The findings that one change between the anchors does not explain: a candidate between the anchors or beyond
    them, a suspect that is not worse than the candidate before it, an answer that a later one contradicts.
    """
    return [finding for finding in bisection.findings if _contradicts(bisection, finding)]


def _contradicts(bisection: Bisection, finding: SittingResult) -> bool:
    kinds = {(c.arm, c.baseline): c.kind for c in finding.contrasts}
    if finding.sitting.task is Task.CONFIRMATION:
        return (
            finding.answer is not SittingAnswer.BAD
            or kinds.get((BEFORE, GOOD)) is Kind.SLOWER
            or kinds.get((AFTER, BAD)) is Kind.FASTER
        )
    if finding.sitting.task is not Task.STEP:
        return False
    beyond = kinds.get((CANDIDATE, GOOD)) is Kind.FASTER or kinds.get((CANDIDATE, BAD)) is Kind.SLOWER
    return beyond or finding.answer is SittingAnswer.BETWEEN or _is_out_of_order(bisection, finding)


def _is_out_of_order(bisection: Bisection, finding: SittingResult) -> bool:
    """Return whether a candidate is good although it comes after one that is not; those outside of the list do not
    count.
    """
    if finding.answer is not SittingAnswer.GOOD or finding.sitting.candidate not in bisection.candidates:
        return False
    index = bisection.candidates.index(finding.sitting.candidate)
    return index >= range_of(bisection).high
