"""What other benchmarks recorded, judged, in words."""

from collections.abc import Iterator
from dataclasses import replace

from vmtoll.analysis.recorded import ALL_HOSTS, Answer, Blank, RecordedComparison, RecordedPage
from vmtoll.model.message import number, percent, plural
from vmtoll.model.verdict import VerdictReason
from vmtoll.report.words.verdicts import Sides, estimate_text, explained_text, undecided_text
from vmtoll.statistics.thresholds import MIN_BLOCKS, MIN_TEST_BEDS

HOW_TO_RECORD = (
    "run the sides in turn (A, B, B, A, …), each turn a block: `vmtoll judge --blocks a1:b1 a2:b2 …` pairs the files"
)


def size_text(comparison: RecordedComparison) -> str:
    """`1.043× (1.031 to 1.056)`; of sides without a common block what they show if nothing drifted."""
    if comparison.unpaired:
        return f"{estimate_text(replace(comparison.judged, estimate=comparison.unpaired))} if nothing drifted"
    return estimate_text(comparison.judged)


def levels_text(comparison: RecordedComparison) -> str:
    """`1.2 s → 1.25 s`: the geometric means of both sides; empty without them."""
    before, after = comparison.judged.baseline.level, comparison.judged.compared.level
    unit = f" {comparison.subject.unit}".rstrip()
    return "" if before is None or after is None else f"{number(before)}{unit} → {number(after)}{unit}"


def why_text(comparison: RecordedComparison, baseline: str) -> str:
    """Why it is undecided or not judged, or what findings explain of a difference; may be empty."""
    subject, judged = comparison.subject, comparison.judged
    sides = Sides(subject.side, baseline)
    if comparison.blank:
        where = "" if comparison.odd_block is None else f" (first in block {comparison.odd_block})"
        return f"{comparison.blank.text}{where}"
    if comparison.answer is Answer.UNDECIDED:
        return _few_text(comparison) if judged.because is VerdictReason.FEW_BLOCKS else undecided_text(judged, sides)
    texts = {
        Answer.IDENTICAL: "every value is zero",
        Answer.EQUAL: f"within {percent(judged.margin)}",
        Answer.HIGHER: _NO_BETTER,
        Answer.LOWER: _NO_BETTER,
    }
    return texts.get(comparison.answer) or explained_text(judged, sides)


_NO_BETTER = "which direction is better is unknown: give --better"


def _few_text(comparison: RecordedComparison) -> str:
    is_over_hosts = comparison.subject.host == ALL_HOSTS
    fewest, name = (MIN_TEST_BEDS, "host") if is_over_hosts else (MIN_BLOCKS, "block")
    return f"needs at least {plural(max(1, fewest - comparison.judged.blocks), f'more {name}')}"


HEADS = ("", "levels", "ratio (interval)", "answer", "")


def cells(comparison: RecordedComparison, page: RecordedPage) -> tuple[str, ...]:
    """The row of a comparison below HEADS."""
    subject = comparison.subject
    parts = [subject.name, f"of {subject.side}" if len({each.subject.side for each in page.comparisons}) > 1 else ""]
    label = " ".join(filter(None, [*parts, f"on {subject.host}" if subject.host else ""]))
    return (
        label, levels_text(comparison), size_text(comparison), str(comparison.answer),
        why_text(comparison, page.baseline),
    )  # fmt: skip


def title(page: RecordedPage) -> str:
    """`guest, guest+close compared with metal`."""
    sides = list(dict.fromkeys(each.subject.side for each in page.comparisons))
    return f"{', '.join(sides)} compared with {page.baseline}"


def shown_text(page: RecordedPage) -> str:
    """`These blocks would have shown a difference of 1.2% (parse time) to 4% (render time)`; empty with too few."""
    known = [
        (each.detectable, each.subject.name) for each in page.gates
        if each.detectable is not None and each.judged.because is not VerdictReason.FEW_BLOCKS
    ]  # fmt: skip
    if not known:
        return ""
    (least, first), (most, last) = min(known), max(known)
    size = (
        percent(least) if percent(least) == percent(most) else f"{percent(least)} ({first}) to {percent(most)} ({last})"
    )
    return f"These blocks would have shown a difference of {size} with a probability of 80%."


def page_lines(page: RecordedPage, *, is_measured: bool = False) -> Iterator[str]:
    """What stands below the table: what a side lacks, what the blocks would have shown, and how to go on.
    `is_measured`: vmtoll ran the commands, so that it allows for its looks.
    """
    for side, names in page.lacking.items():
        yield f"{side} lacks {', '.join(names)}: not compared"
    for old, new in page.alike:
        yield f"{new} may be {old} under another name: `--renamed '{old}={new}'` compares them"
    if 1 < len(page.hosts) < MIN_TEST_BEDS:
        yield f"{len(page.hosts)} hosts, each judged alone: a verdict over hosts needs {MIN_TEST_BEDS}"
    if any(each.blank is Blank.UNPAIRED for each in page.comparisons):
        yield f"To get a verdict, {HOW_TO_RECORD}."
    elif shown := shown_text(page):
        yield shown
    if not is_measured and any(each.answer is Answer.UNDECIDED for each in page.comparisons):
        yield "Record the missing blocks, then judge once: judging a growing file again and again is not a valid test."
