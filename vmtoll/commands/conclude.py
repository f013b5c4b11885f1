"""Conclude a run: analyze it, write its pages and tables, and write the page over several runs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from vmtoll.commands.answer import print_json, print_text
from vmtoll.files import write_durably
from vmtoll.model.columns import to_csv
from vmtoll.model.until import Look, LookComparison

if TYPE_CHECKING:
    from vmtoll.analysis.run import Run
    from vmtoll.model.analysis import RunAnalysis

# Functions import the analysis themselves: `--help` should not wait for scipy and matplotlib.


@dataclass(frozen=True)
class Conclusion:
    """The files written for a run, the answer in one sentence, and what a terminal shows of the run."""

    run: Path
    analysis: Path
    report: Path
    table: Path
    spreadsheet: Path
    answer: str
    summary: Text

    def __str__(self) -> str:
        return f"{self.paths}\n{self.answer}"

    @property
    def paths(self) -> str:
        return f"report: {self.report}\ntable:  {self.table} · {self.spreadsheet}"

    def document(self) -> dict[str, object]:
        """The files and the answer, for programs."""
        return {key: value for key, value in asdict(self).items() if key != "summary"}

    def show(self, *, as_json: bool = False, file: TextIO | None = None) -> None:
        """Print the run as a table, then the files; or one object."""
        if as_json:
            print_json(self.document(), file)
        else:
            print_text(self.summary.copy().append(f"\n\n{self.paths}"), file)


def conclude(folder: Path) -> Conclusion:
    """Judge a run once, save the analysis, and write its pages and tables.

    Raises LoadError.
    """
    return write_conclusion(*load_and_analyse(folder))


def load_and_analyse(folder: Path) -> "tuple[Run, RunAnalysis]":
    """A run and its analysis; writes nothing. Raises LoadError."""
    from vmtoll.analysis.run import load_run  # noqa: PLC0415
    from vmtoll.analysis.verdict import analyse  # noqa: PLC0415

    run = load_run(folder)
    return run, analyse(run)


def write_conclusion(run: "Run", analysis: "RunAnalysis") -> Conclusion:
    """Save the analysis of a run, and write its pages and tables."""
    from vmtoll.analysis.verdict import ANALYSIS, write_analysis  # noqa: PLC0415
    from vmtoll.report.disclosure import write_disclosure  # noqa: PLC0415
    from vmtoll.report.html import write_report  # noqa: PLC0415
    from vmtoll.report.leading import leading_text  # noqa: PLC0415
    from vmtoll.report.ods import write_ods  # noqa: PLC0415
    from vmtoll.report.terminal import rows_of, summary  # noqa: PLC0415
    from vmtoll.report.words import sentence  # noqa: PLC0415

    folder = run.path
    write_analysis(run, analysis)
    table = folder / "trials.csv"
    write_durably(table, to_csv(run.records))
    page, sheet = write_report(run, analysis), write_ods(run, analysis)
    write_disclosure(run, folder)
    summary_text = summary(run, analysis, rows_of(analysis))
    answer = leading_text(run, analysis) or sentence(analysis)
    return Conclusion(folder, folder / ANALYSIS, page, table, sheet, answer, summary_text)


def judge(folder: Path, looks: Sequence[Look]) -> list[LookComparison]:
    """Compare the arms of an unfinished run, at a look. Raises LoadError."""
    from vmtoll.analysis.until import look_at  # noqa: PLC0415

    return look_at(folder, looks)


def replication_page(folders: Sequence[Path], output: Path) -> Path:
    """Judge these runs and write one page over their claims; return its path. Raises LoadError."""
    from vmtoll.analysis.run import load_run  # noqa: PLC0415
    from vmtoll.analysis.verdict import analyse  # noqa: PLC0415
    from vmtoll.report.replication import write_page  # noqa: PLC0415

    runs = {
        (run.manifest.experiment.name, run.manifest.run_id): run for run in map(load_run, reversed(folders))
    }  # a copy is the same run
    return write_page([(run, analyse(run)) for run in reversed(runs.values())], output)
