"""Judge a sitting of a bisection: its candidate against the good and the bad anchor, in the same blocks.

One history has one change, so of "the candidate equals the good anchor" and "… the bad anchor" at most one is true once
the anchors differ. Each comparison is therefore judged at the sitting's whole level (Shaffer 1986: after the first
rejection among three means, only one hypothesis can still be true):

    anchors differ    = the bad anchor is worse than the good one
    candidate is bad  = anchors differ, and it is worse than the good anchor
    candidate is good = anchors differ, and it is better than the bad anchor
    both              = it lies between: the history has more than one change
"""

from collections.abc import Sequence
from dataclasses import replace

from vmtoll.analysis.judge import Evidence, Family
from vmtoll.analysis.judged import evidence_of
from vmtoll.analysis.pairs import choose_role, pair_arms, role_of
from vmtoll.analysis.run import Run
from vmtoll.model.bisection import AFTER, BAD, BEFORE, CANDIDATE, GOOD, Contrast, Sitting, SittingAnswer, Task
from vmtoll.model.metric import Metric
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import Kind

# (arm, baseline) of each comparison, those that decide first.
PAIRS = {
    Task.ANCHORS: ((BAD, GOOD),),
    Task.STEP: ((BAD, GOOD), (CANDIDATE, GOOD), (CANDIDATE, BAD)),
    Task.CONFIRMATION: ((AFTER, BEFORE), (BAD, GOOD), (BEFORE, GOOD), (AFTER, BAD)),
}


def judge_sitting(run: Run, sitting: Sitting, metric: Metric) -> list[Contrast]:
    """Judge the comparisons of a sitting, ended or at a look."""
    (scenario,) = run.compared_scenarios
    role = choose_role(run, scenario, Arm(GOOD), Arm(BAD))
    role = role_of(metric, role, run.trials)
    evidence = []
    for arm, baseline in PAIRS[sitting.task]:
        pairs = pair_arms(run, scenario, Arm(baseline), Arm(arm), metric, role)
        evident = evidence_of(run, pairs, metric, None)
        evidence.append(replace(evident, share=evident.share * sitting.share))
    return [_contrast(*arms, page) for arms, page in zip(PAIRS[sitting.task], pages_of(evidence), strict=True)]


def pages_of(evidence: Sequence[Evidence]) -> list[Family]:
    """A page for each comparison, so that it is judged at its own whole level, with the autocorrelation of all."""
    correlation = Family(evidence, None).correlation
    return [Family([each], None, correlation=correlation) for each in evidence]


def answer_of(task: Task, kinds: Sequence[Kind]) -> SittingAnswer:
    """What the comparisons of a sitting say, in the order of PAIRS."""
    first, *others = kinds
    if first is not Kind.SLOWER:
        return SittingAnswer.UNDECIDED
    if task is not Task.STEP:
        return SittingAnswer.BAD
    is_worse, is_better = others[0] is Kind.SLOWER, others[1] is Kind.FASTER
    if is_worse and is_better:
        return SittingAnswer.BETWEEN
    return SittingAnswer.BAD if is_worse else SittingAnswer.GOOD if is_better else SittingAnswer.UNDECIDED


def is_narrow(contrasts: Sequence[Contrast], half_width_pct: float) -> bool:
    """Return whether every comparison is known this well: then more blocks are not worth their time."""
    return all(c.half_width_pct is not None and c.half_width_pct <= half_width_pct for c in contrasts)


def _contrast(arm: str, baseline: str, page: Family) -> Contrast:
    (judged,) = page.judge()
    estimate = judged.estimate
    return Contrast(
        arm=arm,
        baseline=baseline,
        kind=judged.kind,
        ratio=estimate.value if estimate else None,
        low=estimate.low if estimate else None,
        high=estimate.high if estimate else None,
        level=page.difference[0].level if judged.confidence is not None else None,
        p=judged.tests.difference,
        blocks=judged.blocks,
        half_width_pct=None if judged.half_width is None else 100 * judged.half_width,
    )
