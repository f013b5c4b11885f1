"""The report of a count of instructions: one self-contained page, without any time."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from vmtoll.analysis.recorded import RecordedPage
from vmtoll.report.page import environment, write
from vmtoll.report.words import recorded

TOP = 20  # symbols of each level that are shown
Symbols = Sequence[tuple[str, str, str, float]]  # side, level, symbol, instructions per request; most first
# Answer → the class that gives its cell a color.
_CLASSES = {"worse": "slower", "better": "faster", "equal": "equivalent", "undecided": "undecided"}


def table(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Each figure per request with its value on every side, the toll against the first side, exits by reason."""
    sides = document["sides"].values()
    first = next(iter(sides))["per_request"]
    for figure in first:
        digits = 2 if figure == "guest entries" else 0
        yield figure, *(f"{side['per_request'][figure]:,.{digits}f}" for side in sides)
    yield "toll", *(f"{side['per_request']['instructions'] / first['instructions']:.3f}×" for side in sides)
    yield "boots differ by", *(f"{side['boots_apart']:.2%} ({side['boots']})" for side in sides)
    for reason in dict.fromkeys(reason for side in sides for reason in side["exits"]):
        yield f"exits: {reason}", *(f"{side['exits'].get(reason, 0):.2f}" for side in sides)


def invalid_texts(document: Mapping[str, Any]) -> list[str]:
    """A sentence for each side whose boots lie too far apart."""
    most = document["most_boots_apart"]
    return [
        f"{name}: no valid count: its boots differ by {side['boots_apart']:.1%}, more than {most:.0%}"
        for name, side in document["sides"].items() if side["boots_apart"] > most
    ]  # fmt: skip


def top_symbols(profile: Symbols) -> Iterator[tuple[str, str, list[tuple[str, float]]]]:
    """(side, level, its symbols that take most instructions)."""
    for (side, level), rows in groupby(sorted(profile, key=lambda row: row[:2]), key=lambda row: row[:2]):
        yield side, level, [(symbol, number) for *_, symbol, number in rows][:TOP]


def write_report(folder: Path, document: Mapping[str, Any], page: RecordedPage | None, profile: Symbols) -> Path:
    """Write report.html (replaced whole) and return its path. `page`: the comparison, if there is one."""
    rows = [recorded.cells(each, page) for each in page.comparisons] if page else []
    columns = len(recorded.HEADS) if any(row[-1] for row in rows) else len(recorded.HEADS) - 1  # notes come last
    html = environment().get_template("counts.html.j2").render(
        document=document, name=folder.resolve().name, page=page, table=list(table(document)),
        invalid=invalid_texts(document), answers=_answers(document, page), headings=recorded.HEADS[:columns],
        verdicts=[
            (row[:columns], _CLASSES.get(each.answer, "not-judged"))
            for row, each in zip(rows, page.comparisons if page else [], strict=True)
        ],
        title=recorded.title(page) if page else "",
        remarks=list(recorded.page_lines(page, is_measured=True)) if page else [],
        symbols=list(top_symbols(profile)),
    )  # fmt: skip
    return write(folder / "report.html", html)


def _answers(document: Mapping[str, Any], page: RecordedPage | None) -> list[str]:
    """What the count found, a sentence for each comparison of instructions; the figure where nothing is compared."""
    if page is None:
        return [
            f"{name}: {side['per_request']['instructions']:,.0f} instructions per request"
            for name, side in document["sides"].items()
        ]
    return [
        f"{each.subject.benchmark or each.subject.side}: {recorded.size_text(each) or 'unknown ×'} the instructions "
        f"per request of {'the earlier count' if each.subject.benchmark else page.baseline}: {each.answer}"
        for each in page.gates
    ]  # fmt: skip
