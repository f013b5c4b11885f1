"""What a run says first if it compares no environments: how many guests a host carries, or when one serves."""

from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.report import density, words


def leading_text(run: Run, analysis: RunAnalysis) -> str:
    """The first sentence; empty for a run whose comparisons come first, or that has neither answer."""
    if analysis.comparisons:
        return ""
    starts = [words.first_answer_text(start) for start in (analysis.first_answers or ())[:1]]
    return " ".join(density.sentences(run) or starts)
