"""Run a notebook, a py:percent file in analysis/notebooks, on a run, without a browser or a network."""

import base64
import io
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import jupytext
import pandas as pd
import papermill
from markupsafe import Markup
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell
from traitlets.config import Config

from vmtoll.analysis.run import Run, load_run
from vmtoll.files import replacing
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.errors import LoadError
from vmtoll.model.message import number
from vmtoll.paths import PROJECT
from vmtoll.report.charts import draw_all
from vmtoll.report.page import environment, link_terms
from vmtoll.report.plot import Chart, style
from vmtoll.report.words import GLOSSARY, KVM_HARDWARE
from vmtoll.runs.folder import MANIFEST, read_manifest, runs_of

FOLDER = PROJECT / "analysis" / "notebooks"
PLAIN: Any = {
    "template_name": "basic", "exclude_input": True, "exclude_output_prompt": True, "exclude_anchor_links": True,
}  # fmt: skip
GLOSSARY_PAGE = "../../docs/glossary.md"  # seen from FOLDER
# The target of a notebook's link to a term; the page replaces it with its own glossary.
GLOSSARY_LINK = re.compile(r'(?<=href=")[./]*/docs/glossary\.md(?=#term-([a-z0-9-]+)")')


def names() -> list[str]:
    """The names of all notebooks."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def execute(
    name: str, run_dir: Path | str, parameters: Mapping[str, Any] | None = None, output: Path | None = None
) -> Path:
    """Run a notebook on a run, write `<name>.html`, without its code, into `output`, and return its path.

    `output`: by default the run's folder. `parameters` override those in the notebook's parameters cell. Raises
    LoadError, and writes nothing, when there is no such notebook or parameter, a value has the wrong type, or a cell
    fails.
    """
    if name not in names():
        raise LoadError(f"no notebook {name!r}; there are: {', '.join(names())}")
    run = Path(run_dir).resolve()
    with tempfile.TemporaryDirectory() as folder:
        source, executed = Path(folder) / "source.ipynb", Path(folder) / "done.ipynb"
        jupytext.write(_as_script(jupytext.read(FOLDER / f"{name}.py"), name), source)
        values = dict(parameters or {})
        if values:
            _check_parameters(FOLDER / f"{name}.py", papermill.inspect_notebook(source), values)
        margin = read_manifest(_folder_of_run(run)).experiment.margin
        values["RUN"] = str(run)
        # The kernel gets its own sockets, so that two notebooks can run at once.
        sockets = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
        try:
            papermill.execute_notebook(
                source, executed, values, kernel_name="python3", progress_bar=False, cwd=FOLDER, config=sockets
            )
        except papermill.PapermillExecutionError as error:
            if error.ename == LoadError.__name__:
                raise LoadError(error.evalue) from error
            raise LoadError(f"{FOLDER / name}.py: cell {error.exec_count}: {error.ename}: {error.evalue}") from error
        body, _ = HTMLExporter(**PLAIN).from_notebook_node(  # type: ignore[no-untyped-call]
            _without_empty_sections(jupytext.read(executed))
        )
    path = (output or run) / f"{name}.html"
    page = environment().get_template("notebook.html.j2")
    text = page.render(
        title=f"{run.name}: {name}", body=Markup(GLOSSARY_LINK.sub("", body)),
        terms=list(dict.fromkeys(GLOSSARY_LINK.findall(body))),
        margin=margin,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
    return path


def _as_script(notebook: NotebookNode, name: str) -> NotebookNode:
    """The notebook with `__file__`, as in a script: without it, DuckDB asks for a package that shows a progress bar."""
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    first.source = f"__file__ = {name + '.py'!r}\n{first.source}"
    return notebook


def _without_empty_sections(notebook: NotebookNode) -> NotebookNode:
    """The notebook without the sections that show nothing; a last cell lists their headings."""
    sections: list[list[NotebookNode]] = [[]]
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            sections.append([])
        sections[-1].append(cell)
    title, *rest = sections
    empty = [section for section in rest if not any(_has_visible_output(cell) for cell in section)]
    notebook.cells = [*title, *(cell for section in rest if section not in empty for cell in section)]
    if empty:
        headings = "; ".join(section[0].source.partition("\n")[0].removeprefix("## ") for section in empty)
        text = f"This run has nothing to show for: {headings}."
        notebook.cells.append(new_markdown_cell(text))  # type: ignore[no-untyped-call]
    return notebook


def _has_visible_output(cell: NotebookNode) -> bool:
    """Return whether a cell has an output that a reader sees."""
    outputs = cell.get("outputs", ())
    return any(str(output.get("text") or output.get("data", {}).get("text/html", "")).strip() for output in outputs)


def _check_parameters(file: Path, declared: Mapping[str, Mapping[str, str]], parameters: Mapping[str, Any]) -> None:
    """Check each parameter: declared, not RUN, and a number where the declared default is one. Raises LoadError."""
    for key, value in parameters.items():
        if key not in declared or key == "RUN":
            declared_names = ", ".join(name for name in declared if name != "RUN") or "none"
            raise LoadError(f"{file}: no parameter {key!r} to set; there are: {declared_names}")
        default = declared[key]["default"]
        if default.replace(".", "", 1).isdigit() and not isinstance(value, int | float):
            raise LoadError(f"{file}: {key}: {value!r} is not a number; give one, such as {default}")


@dataclass(frozen=True)
class NotebookHtml:
    """HTML that a notebook shows when it is the last expression of a cell; its terms link to the glossary."""

    html: str

    def _repr_html_(self) -> str:
        return link_terms(Markup(self.html), GLOSSARY, GLOSSARY_PAGE)


def open_run(path: Path | str) -> Run:
    """The run in this folder, or the last run in an experiment's folder. Raises LoadError when there is none.

    Prints what the KVM host runs on, unless that is the hardware itself.
    """
    return _with_hardware_warning(load_run(_folder_of_run(Path(path))))


def _folder_of_run(folder: Path) -> Path:
    if (folder / MANIFEST).exists():
        return folder
    runs = runs_of(folder)
    if not runs:
        raise LoadError(f"{folder}: neither a run nor a folder of runs; set RUN to results/<experiment>/<run-id>")
    return runs[-1]


def _with_hardware_warning(run: Run) -> Run:
    for kind in run.kvm_hardware:
        if kind in KVM_HARDWARE:
            print(*KVM_HARDWARE[kind])
    return run


def charts(run: Run, analysis: RunAnalysis, names: Collection[str]) -> NotebookHtml:
    """The charts that the files `names` of vmtoll/report/charts draw, in the order of the report."""
    with style():
        page = "".join(_figure(chart) for _, chart in draw_all(run, analysis, names))
    return NotebookHtml(page)


def paragraphs(sentences: Iterable[str]) -> NotebookHtml:
    """Each sentence as a paragraph."""
    return NotebookHtml("".join(f"<p>{escape(sentence)}</p>" for sentence in sentences))


def tables(parts: Iterable[tuple[str, pd.DataFrame]]) -> NotebookHtml:
    """Each table under its heading."""
    return NotebookHtml(
        "".join(f"<h3>{escape(heading)}</h3>{table(frame).html}" for heading, frame in parts if len(frame))
    )


def table(frame: pd.DataFrame) -> NotebookHtml:
    """All rows of a table, without the index or truncated texts, numbers as in reports. Empty without rows."""
    if not len(frame):
        return NotebookHtml("")
    with pd.option_context("display.max_colwidth", None):
        inner = frame.to_html(index=False, border=0, justify="left", na_rep="–", float_format=number)
    scroll = "class='scroll' tabindex='0' role='group' aria-label='Table' style='overflow-x:auto'"
    return NotebookHtml(f"<div {scroll}>{inner}</div>")


def _figure(chart: Chart) -> str:
    buffer = io.BytesIO()
    chart.figure.savefig(buffer, format="svg", metadata={"Date": None})
    image = base64.b64encode(buffer.getvalue()).decode()
    return (
        f"<figure style='max-width:36rem;margin:1.5rem 0'><h3>{escape(chart.title)}</h3>"
        f"<img style='width:100%;background:#fff' alt='{escape(chart.alt)}' src='data:image/svg+xml;base64,{image}'>"
        f"<figcaption>{escape(chart.caption)}</figcaption></figure>"
    )
