"""Judge a synthetic run, and find one verdict in the analysis."""

from pathlib import Path

from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.load import Load
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import Judged, Kind, Note, NoteCode, RunAnalysis, Verdict, from_json, to_json

GUEST = Arm("kvm-default")


def judged(folder: Path, truth: Truth) -> RunAnalysis:
    """The analysis of a synthetic run; checks that it survives JSON, and that no verdict contradicts its interval."""
    analysis = analyse(load_run(make_run(folder, truth)))
    assert to_json(from_json(to_json(analysis))) == to_json(analysis)
    for comparison in analysis.comparisons:
        for verdict in comparison.verdicts.values():
            assert not contradicts(verdict), verdict
    return analysis


def contradicts(judged: Judged) -> bool:
    """Return whether the kind contradicts the interval that decided."""
    estimate = judged.estimate
    if estimate is None or estimate.low is None or estimate.high is None:
        return judged.kind in (Kind.FASTER, Kind.SLOWER) and not judged.by_every_block
    contains = estimate.low <= 1 <= estimate.high
    within = 1 / (1 + judged.margin) <= estimate.low and estimate.high <= 1 + judged.margin
    expected = {Kind.FASTER: not contains, Kind.SLOWER: not contains, Kind.EQUIVALENT: within, Kind.UNDECIDED: contains}
    return not expected.get(judged.kind, True)


def verdict(
    analysis: RunAnalysis, metric: str = "throughput", load: Load | None = None, server: str = "nginx", arm: Arm = GUEST
) -> Verdict:
    """The verdict of one metric of one comparison; `load` if the run has several."""
    (comparison,) = [
        c for c in analysis.comparisons
        if (c.scenario.server, c.arm) == (server, arm) and load in (None, c.scenario.load)
    ]  # fmt: skip
    return comparison.verdicts[metric]


def notes(of: Verdict) -> dict[NoteCode, Note]:
    """The notes by code."""
    return {note.code: note for note in of.notes}


def ends(of: Judged) -> tuple[float, float, float]:
    """low, ratio, high of a judgement with an interval."""
    assert of.estimate is not None and of.estimate.low is not None and of.estimate.high is not None
    return of.estimate.low, of.estimate.ratio, of.estimate.high


def ratio(of: Judged) -> float:
    """The measured ratio."""
    assert of.estimate is not None
    return of.estimate.ratio
