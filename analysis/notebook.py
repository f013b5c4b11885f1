"""Notebooks are py:percent files in analysis/notebooks; this runs one on a run, without a browser or a network."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jupytext
import papermill
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from nbconvert import HTMLExporter
from traitlets.config import Config

from analysis.load import LoadError
from analysis.page import TEMPLATES

FOLDER = Path(__file__).parent / "notebooks"
PLAIN: Any = {
    "template_name": "basic",
    "exclude_input": True,
    "exclude_output_prompt": True,
    "exclude_anchor_links": True,
}
SOCKETS = Config({"KernelManager": {"transport": "ipc"}})  # to the kernel by files, not by ports of this machine


def names() -> list[str]:
    """The notebooks there are."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def execute(name: str, run_dir: Path | str, parameters: Mapping[str, Any] | None = None) -> Path:
    """Run a notebook on a run and write `<name>.html`, without its code, into the run's folder; returns its path.

    `parameters` take the place of those in its parameters cell. Raises LoadError when there is no such notebook or
    parameter or a cell of it fails; nothing is written then.
    """
    if name not in names():
        raise LoadError(f"no notebook {name!r}; there are: {', '.join(names())}")
    run = Path(run_dir).resolve()
    with tempfile.TemporaryDirectory() as folder:
        source, done = Path(folder) / "source.ipynb", Path(folder) / "done.ipynb"
        jupytext.write(jupytext.read(FOLDER / f"{name}.py"), source)
        chosen = dict(parameters or {})
        if chosen:
            _check(FOLDER / f"{name}.py", papermill.inspect_notebook(source), chosen)
        chosen["RUN"] = str(run)
        try:
            papermill.execute_notebook(
                source, done, chosen, kernel_name="python3", progress_bar=False, cwd=FOLDER, config=SOCKETS
            )
        except papermill.PapermillExecutionError as error:
            raise LoadError(f"{FOLDER / name}.py: cell {error.exec_count}: {error.ename}: {error.evalue}") from error
        body, _ = HTMLExporter(**PLAIN).from_filename(str(done))  # type: ignore[no-untyped-call]
    path = run / f"{name}.html"
    page = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True).get_template("notebook.html.j2")
    path.write_text(page.render(title=f"{run.name}: {name}", body=Markup(body)), encoding="utf-8")
    return path


def _check(file: Path, known: Mapping[str, Mapping[str, str]], parameters: Mapping[str, Any]) -> None:
    """Each is one of the notebook's, RUN excepted, and a number where the notebook's own is one. Raises LoadError."""
    for key, value in parameters.items():
        if key not in known or key == "RUN":
            there_are = ", ".join(name for name in known if name != "RUN") or "none"
            raise LoadError(f"{file}: no parameter {key!r} to set; there are: {there_are}")
        default = known[key]["default"]
        if default.replace(".", "", 1).isdigit() and not isinstance(value, int | float):
            raise LoadError(f"{file}: {key}: {value!r} is no number; give one, such as {default}")
