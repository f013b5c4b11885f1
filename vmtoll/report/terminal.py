"""A run on a terminal, in 80 columns: its answer, a row for each server and figure, and remarks on the verdicts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import wrap

from rich.text import Text

from vmtoll.analysis.claims import count_outcomes
from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.metric import CPU, HOST_CPU, LATENCY_P99, METRICS, TAIL, THROUGHPUT, Metric
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import Comparison, Kind, Verdict
from vmtoll.report import words
from vmtoll.report.density import sentences
from vmtoll.report.leading import leading_text

WIDTH = 80
_GAP, _INDENT = "  ", "  "
_LONGEST_HEAD = 18  # with it, labels keep a third of a line
_STYLES = {Kind.SLOWER: "red", Kind.FASTER: "green", Kind.UNDECIDED: "yellow", Kind.NOT_JUDGED: "yellow"}
# The parts of a row's label: the first choice that fits. The heading above the rows has the rest.
_LABELS = (("server", "load", "workload", "arm"), ("server", "arm"), ("server",))
Row = tuple[Comparison, Verdict]


def rows_of(
    analysis: RunAnalysis,
    metrics: Collection[str] = (),
    servers: Collection[str] = (),
    *,
    with_inapplicable: bool = False,
) -> list[Row]:
    """The verdicts to show, by metric.

    `metrics`: by default requests per second, p99 and CPU per request (on the host where it is known); `servers`: by
    default all; `with_inapplicable`: also metrics that do not apply under the load, and by default all metrics.
    """
    shown = metrics or (METRICS if with_inapplicable else [metric.name for metric in _main_metrics(analysis)])
    rows = [
        (comparison, comparison.verdicts[name])
        for name in METRICS if name in shown
        for comparison in analysis.comparisons if not servers or comparison.scenario.server in servers
    ]  # fmt: skip
    applicable = [(comparison, verdict) for comparison, verdict in rows if verdict.applies]
    return rows if with_inapplicable or (metrics and not applicable) else applicable


def summary(run: Run, analysis: RunAnalysis, rows: Sequence[Row]) -> Text:
    """The answer, what it rests on, the table of these rows, and remarks; no line has more than 80 columns."""
    leading = leading_text(run, analysis)
    text = leading or words.headline(analysis).answers[0].text
    emulated = [words.EMULATION] if analysis.emulated else []
    answer = [*map(Text, emulated), *(Text(line, style="bold") for line in wrap(text, WIDTH))]
    parts = [[*answer, *map(Text, wrap(", ".join(_basis(run, analysis)), WIDTH))], list(_table(run, analysis, rows))]
    for effect in analysis.operations or ():
        parts.append([Text(_shortened(line, WIDTH)) for line in words.operation_lines(effect)])
    for start in analysis.first_answers or ():
        texts = [text for text in words.start_lines(start) if text != leading]
        parts.append([Text(line) for text in texts for line in wrap(text, WIDTH, subsequent_indent="    ")])
    if analysis.comparisons:
        parts.append([Text(line) for text in sentences(run) for line in wrap(text, WIDTH)])
    parts.append(
        [Text(line) for text in words.remarks(run, rows) for line in wrap(text, WIDTH, subsequent_indent=_INDENT)]
    )
    parts.append([Text(line) for step in words.next_steps(run, analysis) for line in _step_lines(*step)])
    return Text("\n\n").join(Text("\n").join(lines) for lines in parts if lines)


def _step_lines(step: str, command: str) -> list[str]:
    return wrap(
        f"Next: {step}: {command}", WIDTH, subsequent_indent=_INDENT, break_on_hyphens=False, break_long_words=False
    )


def _main_metrics(analysis: RunAnalysis) -> list[Metric]:
    host = any(comparison.verdicts[HOST_CPU.name].estimate for comparison in analysis.comparisons)
    return [THROUGHPUT, TAIL, LATENCY_P99, HOST_CPU if host else CPU]


def _basis(run: Run, analysis: RunAnalysis) -> Iterator[str]:
    """What the answer rests on: `metal and kvm-default`, `6 blocks`, `of 7 published claims 5 confirmed`."""
    if not analysis.complete:
        yield f"incomplete: {sum(analysis.counts.values())} of {analysis.planned} trials"
    if others := dict.fromkeys(str(comparison.arm) for comparison in analysis.comparisons):
        kinds = {run.kind(comparison.arm) for comparison in analysis.comparisons}
        kind = next(iter(kinds)) if len(kinds) == 1 and {run.kind(run.baseline)} != kinds else None
        arms_text = f"{len(others)} {words.several(kind.value) if kind else 'others'}"
        container = " (a container)" if run.is_container_as_metal(run.baseline) else ""
        yield f"{_head(run, run.baseline)}{container} and {arms_text if len(others) > 1 else next(iter(others))}"
    yield from words.headline(analysis).basis
    if analysis.claims:
        outcomes = count_outcomes(analysis.claims).items()
        counts = ", ".join(f"{count} {outcome.text}" for outcome, count in outcomes if count)
        yield f"of {words.plural(len(analysis.claims), 'published claim')} {counts}"


def _table(run: Run, analysis: RunAnalysis, rows: Sequence[Row]) -> Iterator[Text]:
    """A line of headings, then for each metric its name and its rows; nothing without rows."""
    if not rows:
        return
    cells = {id(verdict): _cells(verdict) for _, verdict in rows}
    sides = words.sides_of(comparison for comparison, _ in rows)
    side_names = {sides(comparison) for comparison, _ in rows}
    baseline = _head(run, run.baseline)
    compared = next(iter(side_names)).compared.removeprefix("the ") if len(side_names) == 1 else "other"
    if max(len(baseline), len(compared)) > _LONGEST_HEAD:  # the line above names both
        baseline, compared = "baseline", "other"
    heads = (baseline, compared, "ratio (interval)", "verdict")
    widths = [max(len(head), *(len(row[n]) for row in cells.values())) for n, head in enumerate(heads)]
    label_width = WIDTH - len(_INDENT) - sum(len(_GAP) + width for width in widths)
    groups = list(_groups(analysis, rows, label_width))
    width = min(label_width, max(len(label) for _, members in groups for label, _ in members))
    yield _line("", width, heads, widths, "dim")
    for heading, members in groups:
        yield Text(_shortened(heading, WIDTH), style="bold")
        for label, verdict in members:
            yield _line(_cut(label, width), width, cells[id(verdict)], widths, _STYLES.get(verdict.kind, ""))


def _head(run: Run, arm: Arm) -> str:
    """The name of an environment; a star marks metal that is a container, as the line above the table says."""
    return f"{arm}*" if run.is_container_as_metal(arm) else str(arm)


def _line(label: str, width: int, cells: Sequence[str], widths: Sequence[int], style: str) -> Text:
    """One line of the table; its last cell has the style."""
    before, after, ratio, verdict = cells
    columns = (f"{_INDENT}{label:{width}}", f"{before:>{widths[0]}}", f"{after:>{widths[1]}}", f"{ratio:{widths[2]}}")
    return Text(_GAP.join(columns) + _GAP).append(verdict, style)


def _cells(verdict: Verdict) -> tuple[str, str, str, str]:
    before, after = (words.level(side.level, verdict.metric.unit) for side in (verdict.baseline, verdict.compared))
    return before, after, words.estimate_text(verdict) or words.DASH, words.word_text(verdict)


def _groups(
    analysis: RunAnalysis, rows: Sequence[Row], label_width: int
) -> Iterator[tuple[str, list[tuple[str, Verdict]]]]:  # fmt: skip
    """(heading, labeled rows) for each metric, and for each part that the labels have no room for."""
    for metric, grouped in groupby(rows, key=lambda row: row[1].metric):
        members = list(grouped)
        listed = [(_parts(comparison, metric), verdict) for comparison, verdict in members]
        varying = {key for key in listed[0][0] if len({parts[key] for parts, _ in listed}) > 1}
        if len({parts["load"] for parts, _ in listed}) == len({(p["load"], p["workload"]) for p, _ in listed}):
            varying.discard("workload")  # the load is enough to distinguish the rows
        for label_keys in _LABELS:
            keys = [key for key in label_keys if key in varying] or ["server"]
            if max(len(_joined(parts, keys)) for parts, _ in listed) <= label_width:
                break
        heading_keys = [
            key for key in listed[0][0] if key not in keys and (key in varying or key in ("server", "load"))
        ]
        groups: dict[str, list[tuple[str, Verdict]]] = {}
        for (parts, verdict), (comparison, _) in zip(listed, members, strict=True):
            control = words.control_text(analysis, comparison, metric)
            heading = " · ".join(
                filter(None, [words.METRIC_LABELS[metric.name].label, _joined(parts, heading_keys), control])
            )
            groups.setdefault(heading, []).append((_joined(parts, keys), verdict))
        yield from groups.items()


def _parts(comparison: Comparison, metric: Metric) -> dict[str, str]:
    scenario = comparison.scenario
    client = ", client included" if metric is THROUGHPUT and scenario.load.is_one_user else ""
    return {
        "server": scenario.server, "load": words.load_text(scenario.load) + client, "workload": scenario.workload,
        "arm": f"on {comparison.arm}",
    }  # fmt: skip


def _joined(parts: Mapping[str, str], keys: Sequence[str]) -> str:
    return " · ".join(parts[key] for key in keys)


def _cut(label: str, width: int) -> str:
    """The label, cut in its middle to fit the width: servers often differ in their last letters."""
    return label if len(label) <= width else f"{label[: width // 2]}…{label[-(width - width // 2 - 1) :]}"


def _shortened(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"
