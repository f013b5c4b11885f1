"""Remarks on a run: what its verdicts depend on, and what its reader can do next."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from vmtoll.analysis.equality import OPEN_STATUSES, equality
from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.finding import Code
from vmtoll.model.message import percent, plural
from vmtoll.model.note import FewBlocks, OwnRates
from vmtoll.model.trial import MachineKind
from vmtoll.model.verdict import Cause, Comparison, Kind, Verdict, VerdictReason
from vmtoll.report.words.verdicts import (
    FINDINGS_LIMIT,
    Naming,
    because_text,
    doubtful_text,
    explained_share,
    metric_text,
    note_text,
    sides_of,
)
from vmtoll.statistics.thresholds import MIN_BLOCKS, MIN_BOOTS

MOST_REMARKS = 5
_MOST_DOUBTS = 2
_LEAST_EXPLAINED = 0.01  # of a difference; less matters to no verdict
Row = tuple[Comparison, Verdict]


def remarks(run: Run, rows: Sequence[Row]) -> list[str]:
    """At most MOST_REMARKS lines: what widens these verdicts, the largest share of a difference first; what was not
    judged; why some are undecided; undeclared differences; few blocks; rates that differ.
    """
    sides = sides_of(comparison for comparison, _ in rows)
    remark_groups = [
        _doubts(rows, sides), _not_judged(rows, sides), _undecided(rows), _undeclared(run), _few_blocks(rows),
        _rates(rows, sides),
    ]  # fmt: skip
    return list(chain.from_iterable(remark_groups))[:MOST_REMARKS]


def _doubts(rows: Sequence[Row], sides: Naming) -> list[str]:
    """What the doubts of each verdict can explain, in the report's words, the largest share first. A verdict whose
    causes are all named already has no line.
    """
    named, lines = set[Code | Cause](), []
    for comparison, verdict in sorted(rows, key=lambda row: -explained_share(row[1])):
        causes = {doubt.cause for doubt in verdict.doubts if doubt.size >= FINDINGS_LIMIT}
        if explained_share(verdict) >= _LEAST_EXPLAINED and not causes <= named:
            metric = metric_text(verdict.metric, comparison.scenario.load)
            text = doubtful_text(verdict, sides(comparison), causes - named)
            named |= causes
            lines.append(f"{comparison.scenario.server}, {metric}: {text}")
    return lines[:_MOST_DOUBTS]


def _not_judged(rows: Sequence[Row], sides: Naming) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for comparison, verdict in rows:
        if verdict.kind is Kind.NOT_JUDGED:
            reasons.setdefault(because_text(verdict, sides(comparison)), []).append(comparison.scenario.server)
    for reason, servers in reasons.items():
        yield f"{len(servers)} not judged: {reason} ({', '.join(dict.fromkeys(servers))})"


def _undecided(rows: Sequence[Row]) -> Iterator[str]:
    verdicts = [verdict for _, verdict in rows if verdict.kind is Kind.UNDECIDED]
    for because, count in Counter(verdict.because for verdict in verdicts).most_common():
        yield f"{count} of {len(rows)} undecided: {_why_undecided([v for v in verdicts if v.because is because])}"


def _why_undecided(verdicts: Sequence[Verdict]) -> str:
    """Why these verdicts, all with the same `because`, are undecided."""
    first = verdicts[0]
    if first.because is VerdictReason.FEW_BLOCKS:
        units = f"{MIN_BOOTS} boots" if first.boots > 1 else f"{MIN_BLOCKS} blocks"
        return f"a verdict needs {units} or more"
    needed = [verdict.blocks_needed for verdict in verdicts if verdict.blocks_needed]
    if first.because is VerdictReason.NOISE and len(needed) == len(verdicts):
        return f"{plural(max(needed), 'more block')} would show a difference of {percent(first.margin)}"
    return (first.because or VerdictReason.NOISE).text


def _undeclared(run: Run) -> Iterator[str]:
    kinds = Counter(
        fact.name.partition(": ")[0].replace("_", " ") for fact in equality(run) if fact.status in OPEN_STATUSES
    )
    if kinds:
        texts = [kind if count == 1 else f"{kind} ({count})" for kind, count in kinds.most_common()]
        yield f"{plural(kinds.total(), 'undeclared difference')} between the machines: {', '.join(texts)}"


def _few_blocks(rows: Sequence[Row]) -> Iterator[str]:
    blocks = [v.blocks for _, v in rows if v.is_decided and any(isinstance(note, FewBlocks) for note in v.notes)]
    if blocks:
        fewest = plural(min(blocks), "block")
        yield f"{len(blocks)} of {plural(len(rows), 'row')} decided from as few as {fewest}, which count as independent"


def _rates(rows: Sequence[Row], sides: Naming) -> Iterator[str]:
    notes = [
        f"{note_text(note, verdict, sides(comparison))} ({comparison.scenario.server})"
        for comparison, verdict in rows for note in verdict.notes if isinstance(note, OwnRates)
    ]  # fmt: skip
    yield from notes[:1]


def next_steps(run: Run, analysis: RunAnalysis) -> list[tuple[str, str]]:
    """What the reader of a run can do next: at most two steps, each with its command."""
    verdicts = [(each, verdict.kind) for each in analysis.comparisons for verdict in each.verdicts.values()]
    is_guest_slower = run.kind(run.baseline) is not MachineKind.GUEST and any(
        kind is Kind.SLOWER and run.kind(comparison.arm) is MachineKind.GUEST for comparison, kind in verdicts
    )
    steps = [
        (not analysis.complete, "finish the run", "the same command with --resume RUN, its folder"),
        (analysis.emulated, "find out whether a machine has working KVM, and measure there", "vmtoll preflight"),
        (
            any(kind is Kind.UNDECIDED for _, kind in verdicts) and not analysis.emulated,
            "measure until all is decided, for an hour at most",
            "the same command with --until 2,60",
        ),
        (run.manifest.lab == "embedded", "measure your own machines", "vmtoll init my-lab"),
        (is_guest_slower, "list the settings that hold the guest back", "vmtoll diagnose --all"),
        (
            bool(verdicts),
            "publish the run, of the folder RUN, without machine names",
            "vmtoll publish RUN --output bundle",
        ),
    ]
    return [(step, command) for applies, step, command in steps if applies][:2]
