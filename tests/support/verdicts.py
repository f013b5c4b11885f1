"""Judge a synthetic run, and find one verdict in the analysis."""

from pathlib import Path
from typing import Any, TypeVar

from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.analysis import RunAnalysis, from_json, to_json
from vmtoll.model.load import Load
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import Judged, Kind, Verdict

GUEST = Arm("kvm-default")
N = TypeVar("N")


def judge_run(folder: Path, truth: Truth) -> RunAnalysis:
    """The analysis of a synthetic run; checks that it survives JSON, and that no verdict contradicts its interval."""
    analysis = analyse(load_run(make_run(folder, truth)))
    assert to_json(from_json(to_json(analysis))) == to_json(analysis)
    for comparison in analysis.comparisons:
        for verdict in comparison.verdicts.values():
            assert not contradicts(verdict), verdict
    return analysis


def contradicts(judgement: Judged) -> bool:
    """Return whether the kind contradicts the interval that decided."""
    estimate = judgement.estimate
    if estimate is None or estimate.low is None or estimate.high is None:
        return judgement.kind in (Kind.FASTER, Kind.SLOWER) and not judgement.by_every_block
    contains = estimate.low <= 1 <= estimate.high
    within = 1 / (1 + judgement.margin) <= estimate.low and estimate.high <= 1 + judgement.margin
    expected = {Kind.FASTER: not contains, Kind.SLOWER: not contains, Kind.EQUIVALENT: within, Kind.UNDECIDED: contains}
    return not expected.get(judgement.kind, True)


def verdict(
    analysis: RunAnalysis, metric: str = "throughput", load: Load | None = None, server: str = "nginx", arm: Arm = GUEST
) -> Verdict:
    """The verdict of one metric of one comparison; `load` if the run has several."""
    (comparison,) = [
        c for c in analysis.comparisons
        if (c.scenario.server, c.arm) == (server, arm) and load in (None, c.scenario.load)
    ]  # fmt: skip
    return comparison.verdicts[metric]


def notes(verdict: Verdict) -> set[type[Any]]:
    """The kinds of the notes."""
    return {type(note) for note in verdict.notes}


def the_note(verdict: Verdict, kind: type[N]) -> N:
    """The only note of this kind."""
    (note,) = (note for note in verdict.notes if isinstance(note, kind))
    return note


def ends(judgement: Judged) -> tuple[float, float, float]:
    """low, ratio, high of a judgement with an interval."""
    assert judgement.estimate is not None and judgement.estimate.low is not None and judgement.estimate.high is not None
    return judgement.estimate.low, judgement.estimate.value, judgement.estimate.high


def ratio(judgement: Judged) -> float:
    """The measured ratio."""
    assert judgement.estimate is not None
    return judgement.estimate.value
