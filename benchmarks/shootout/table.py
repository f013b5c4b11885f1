"""Count how often each rule is wrong and what it finds, and write the tables."""

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks import write_measured
from benchmarks.shootout.plan import EXTRA, MARGINS, SIDES_OF_TRUTH, Kind, Plan
from benchmarks.shootout.record import Recording
from benchmarks.shootout.rules import RULES, Judged, Opinion, Rule, engine_strength, is_equal, judged, samples_of
from vmtoll.analysis.recorded import Answer
from vmtoll.model.verdict import Estimate
from vmtoll.paths import PROJECT
from vmtoll.statistics.thresholds import MARGIN

DOCUMENT = PROJECT / "docs" / "shoot-out.md"
ENGINE_NAME = "vmtoll judge"
HALVES = "halves"
BLOCKS = "blocks"


@dataclass(frozen=True)
class Count:
    """What a rule said of the pages of a kind. `at`: its threshold, as text; `data`: recorded in blocks, or the same
    labelled first half A, second half B; `wrong`, `detected`: as docs/shoot-out.md defines them.
    """

    rule: str
    at: str
    data: str
    kind: Kind
    pages: int
    worse: int
    better: int
    equal: int
    undecided: int
    not_judged: int
    also_different: int
    wrong: int
    detected: int


def truths(pages: Sequence[Recording]) -> dict[str, Estimate]:
    """Side of the pages of truth → its ratio to A, over the blocks of all such pages."""
    logs: dict[str, list[float]] = {side: [] for side in SIDES_OF_TRUTH if side != "A"}
    width = len(SIDES_OF_TRUTH)
    for page in pages:
        if page.kind is not Kind.TRUTH:
            continue
        values = page.values["time"]
        for at in range(0, len(values), width):
            block = dict(zip(page.sides[at : at + width], values[at : at + width], strict=True))
            for side, ratios in logs.items():
                ratios.append(math.log(block[side] / block["A"]))
    return {side: _truth(np.array(ratios)) for side, ratios in logs.items() if len(ratios) > 1}


def _truth(logs: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> Estimate:
    """The measured ratio, B ÷ A, with its 95% interval: of trimmed means, without the tenth of the blocks at each end,
    which a disturbance may have made.
    """
    logs = np.sort(logs)
    cut = len(logs) // 10
    kept = logs[cut : len(logs) - cut]
    winsorized = np.clip(logs, kept[0], kept[-1])
    error = float(winsorized.std(ddof=1)) / (1 - 2 * cut / len(logs)) / math.sqrt(len(logs))
    half = float(stats.t.ppf(0.975, len(kept) - 1)) * error
    mean = float(kept.mean())
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def counts(pages: Sequence[Recording], say: Callable[[str], None] = print) -> Iterator[Count]:
    """What every rule said, by its published threshold and by the one that 5% of the equal pages exceed."""
    compared = [page for page in pages if page.kind is not Kind.TRUTH]
    equal = [page for page in compared if page.kind in (Kind.EQUAL, Kind.DISTURBED)]
    known = truths(pages)
    say(f"{ENGINE_NAME}: {len(compared)} pages")
    judged_pages = [judged(page) for page in compared]
    halves = [judged(page, halves=True) for page in equal]
    default = "5% for all rows of a page"
    yield from _of_engine(compared, judged_pages, BLOCKS, default, known)
    yield from _of_engine(equal, halves, HALVES, default, known)
    own = Rule(f"{ENGINE_NAME}, its p alone", -0.05, "", lambda _: None)
    strengths = [engine_strength(each) for each in judged_pages]
    level = own.at_5_percent(_of_equal(compared, strengths))
    yield from _of_rule(own, level, compared, strengths, BLOCKS)
    for rule in RULES:
        say(f"{rule.name}: {len(compared) + len(equal)} pages")
        opinions = _strongest(rule, compared)
        if opinions is None:
            say(f"{rule.name}: its program is not installed, and is left out")
            continue
        of_halves = _strongest(rule, equal, halves=True) or []
        level = rule.at_5_percent(_of_equal(compared, opinions))
        for threshold in (rule.default, level):
            yield from _of_rule(rule, threshold, compared, opinions, BLOCKS)
            yield from _of_rule(rule, threshold, equal, of_halves, HALVES)


def _of_equal(pages: Sequence[Recording], opinions: Sequence[Opinion]) -> list[float]:
    return [
        opinion.strength for page, opinion in zip(pages, opinions, strict=True)
        if page.kind in (Kind.EQUAL, Kind.DISTURBED)
    ]  # fmt: skip


def _strongest(rule: Rule, pages: Sequence[Recording], *, halves: bool = False) -> list[Opinion] | None:
    """The opinion on each page: that on the row that differs the most."""
    samples = [samples_of(page, halves=halves) for page in pages]
    opinions = rule.opinions([sample for of in samples for sample in of])
    if opinions is None:
        return None
    rows = iter(opinions)
    return [max((next(rows) for _ in of), key=lambda each: each.strength) for of in samples]


def _of_rule(
    rule: Rule, threshold: float, pages: Sequence[Recording], opinions: Sequence[Opinion], data: str
) -> Iterator[Count]:
    at = rule.threshold_text(threshold) + ("" if threshold == rule.default else ", at 5% wrong")
    for kind in sorted({page.kind for page in pages}, key=list(Kind).index):
        signs = Counter(
            opinion.sign if opinion.strength > threshold else 0
            for page, opinion in zip(pages, opinions, strict=True) if page.kind is kind
        )  # fmt: skip
        wrong = signs[-1] + (signs[1] if is_equal(kind) else 0)
        detected = 0 if is_equal(kind) else signs[1]
        yield Count(
            rule.name, at, data, kind, signs.total(), signs[1], signs[-1], 0, signs[0], 0, 0, wrong, detected
        )  # fmt: skip


def _of_engine(
    pages: Sequence[Recording], judged_pages: Sequence[Judged], data: str, at: str, known: dict[str, Estimate]
) -> Iterator[Count]:
    for kind in sorted({page.kind for page in pages}, key=list(Kind).index):
        of_kind = [each for page, each in zip(pages, judged_pages, strict=True) if page.kind is kind]
        answers = Counter(_answer_of(each) for each in of_kind)
        wrong = answers[Answer.BETTER] + (answers[Answer.WORSE] if is_equal(kind) else 0)
        if not is_equal(kind) and not _is_within(known.get(str(EXTRA[kind])), kind):
            wrong += answers[Answer.EQUAL]
        yield Count(
            ENGINE_NAME, at, data, kind, len(of_kind), answers[Answer.WORSE], answers[Answer.BETTER],
            answers[Answer.EQUAL], answers[Answer.UNDECIDED], answers[Answer.NOT_JUDGED],
            sum(each.also_different for each in of_kind), wrong, 0 if is_equal(kind) else answers[Answer.WORSE],
        )  # fmt: skip


def _is_within(truth: Estimate | None, kind: Kind) -> bool:
    """Return whether the truth lies within the margin of such pages; not known is not within."""
    return truth is not None and abs(math.log(truth.value)) <= math.log1p(MARGINS.get(kind, MARGIN))


def _answer_of(page: Judged) -> Answer:
    """The answer to a page: any difference first, then what is undecided."""
    order = (Answer.WORSE, Answer.BETTER, Answer.UNDECIDED, Answer.NOT_JUDGED, Answer.EQUAL)
    return next(answer for answer in order if answer in page.answers)


def share_text(count: int, pages: int) -> str:
    """`38 of 1000 (2.7 to 5.2%)`: with the exact 95% interval of the share."""
    interval = stats.binomtest(count, pages).proportion_ci(0.95)
    return f"{count} of {pages} ({100 * interval.low:.1f} to {100 * interval.high:.1f}%)"


def _sum(rows: Sequence[Count], kinds: Sequence[Kind], data: str = BLOCKS) -> tuple[int, int, int]:
    """Pages, wrong ones and those that found the difference."""
    chosen = [row for row in rows if row.kind in kinds and row.data == data]
    return sum(row.pages for row in chosen), sum(row.wrong for row in chosen), sum(row.detected for row in chosen)


def rules_table(rows: Sequence[Count]) -> str:
    """A Markdown table: a row for each rule and threshold."""
    lines = [
        "| rule | differs at | wrong of equal pages | of the same, first half A, second half B "
        "| wrong pages of ten rows | wrong, web server | finds 1% | finds 2% | finds 5% |",
        "|---|" + "---|" * 8,
    ]
    for key in dict.fromkeys((row.rule, row.at) for row in rows):
        of_rule = [row for row in rows if (row.rule, row.at) == key]
        equal = (Kind.EQUAL, Kind.DISTURBED)
        cells = []
        for kinds, data in ((equal, BLOCKS), (equal, HALVES), ((Kind.TEN,), BLOCKS), ((Kind.WEB,), BLOCKS)):
            pages, wrong, _ = _sum(of_rule, kinds, data)
            skipped = sum(row.not_judged for row in of_rule if row.kind in kinds and row.data == data)
            cells.append("not judged" if pages and skipped == pages else share_text(wrong, pages) if pages else "")
        for kind in EXTRA:
            pages, wrong, detected = _sum(of_rule, (kind,))
            cells.append(f"{detected} of {pages}{f', {wrong} wrong' if wrong else ''}" if pages else "")
        lines.append(f"| {' | '.join([*key, *cells])} |")
    return "\n".join(lines)


def answers_table(rows: Sequence[Count]) -> str:
    """A Markdown table: what `vmtoll judge` answered to the pages of each kind."""
    lines = [
        '| pages | recorded | "worse" | "better" | "equal" | "undecided" | "equal", and different for sure | wrong |',
        "|---|" + "---|" * 7,
    ]
    for row in rows:
        if row.rule == ENGINE_NAME and row.data == BLOCKS:
            cells = (row.pages, row.worse, row.better, row.equal, row.undecided, row.also_different, row.wrong)
            lines.append(f"| {row.kind} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def truth_table(known: dict[str, Estimate]) -> str:
    """A Markdown table: the measured ratio of each load to that of A."""
    lines = ["| iterations more | time, B ÷ A | 95% interval |", "|---|---|---|"]
    for side, truth in known.items():
        name = f"{SIDES_OF_TRUTH[side]}%"
        lines.append(f"| {name} | {truth.value:.4f}× | {' to '.join(f'{end:.4f}' for end in truth.ends or ())} |")
    return "\n".join(lines)


def plan_table(plan: Plan, pages: Sequence[Recording]) -> str:
    """A Markdown table: what was recorded, where."""
    lines = ["| what | value |", "|---|---|"]
    busy = np.quantile([page.cpus for page in pages], (0.1, 0.5, 0.9))
    rows = {
        "plan": f"[plan.json](shootout/plan.json), written {plan.written} at commit {plan.commit[:12]}",
        "data": "[every trial](shootout/pages.jsonl.gz), [every count](shootout/counts.csv)",
        "pages": "; ".join(f"{kind}: {count}" for kind, count in plan.counts.items()),
        "load": f"{plan.iterations:,} iterations, about {plan.trial_ms:g} ms, on "
                + ("any CPU" if plan.cpu is None else f"CPU {plan.cpu}"),
        "blocks": f"{plan.blocks}; web server {plan.web_blocks}, of {plan.web_requests} requests a trial",
        "machine": ", ".join(f"{value} {key}" if key == "cpus" else f"{value}" for key, value in plan.machine.items()),
        "busy CPUs during a page": "{:.2f} in the quietest tenth, {:.2f} in the median, {:.2f} in the busiest tenth"
                                   .format(*busy),
        "measured": f"{sum(page.seconds for page in pages) / 60:.0f} minutes",
    }  # fmt: skip
    return "\n".join([*lines, *(f"| {key} | {value} |" for key, value in rows.items())])


def sources_table() -> str:
    """A Markdown table: each rule, its threshold and where it comes from."""
    lines = ["| rule | default | program, or source of the rule |", "|---|---|---|"]
    lines += [f"| {rule.name} | {rule.threshold_text(rule.default)} | {rule.source} |" for rule in RULES]
    return "\n".join(lines)


def write(plan: Plan, pages: Sequence[Recording], rows: Sequence[Count], folder: Path, document: Path) -> None:
    """Write the tables into the document, and the counts as CSV into the folder."""
    for name, text in (
        ("shoot-out", rules_table(rows)), ("shoot-out answers", answers_table(rows)),
        ("shoot-out truth", truth_table(truths(pages))), ("shoot-out plan", plan_table(plan, pages)),
        ("shoot-out rules", sources_table()),
    ):  # fmt: skip
        write_measured(document, name, text)
    with (folder / "counts.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Count)])
        writer.writerows(astuple(row) for row in rows)
