"""What notebooks show: charts with their words, tables under headings, and the run that a path means."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd

from analysis.charts import draw_all
from analysis.load import LoadError, Run, load_run
from analysis.plot import Chart, style
from analysis.verdict import verdict_of


@dataclass(frozen=True)
class Shown:
    """HTML that a notebook shows when it is the last expression of a cell."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def open_run(path: Path | str) -> Run:
    """The run in this folder; of an experiment's folder its last run. Raises LoadError when there is none."""
    folder = Path(path)
    if (folder / "run.json").exists():
        return load_run(folder)
    runs = sorted(folder.glob("*/run.json"))
    if not runs:
        raise LoadError(f"{folder}: neither a run nor a folder of runs; set RUN to results/<experiment>/<run-id>")
    return load_run(runs[-1].parent)


def charts(run: Run, names: Collection[str]) -> Shown:
    """The charts of these files of analysis/charts, in the order of the report; says so when there are none."""
    with style():
        page = "".join(_figure(chart) for _, chart in draw_all(run, verdict_of(run), names))
    return Shown(page or f"<p>This run has nothing to draw for: {escape(', '.join(names))}.</p>")


def tables(parts: Iterable[tuple[str, pd.DataFrame]]) -> Shown:
    """Each table under its heading."""
    return Shown("".join(f"<h3>{escape(heading)}</h3>{table(frame).html}" for heading, frame in parts))


def table(frame: pd.DataFrame) -> Shown:
    """All of its rows, without the index and with nothing cut short; four digits of each number."""
    with pd.option_context("display.max_colwidth", None):
        inner = frame.to_html(index=False, border=0, justify="left", na_rep="–", float_format="{:,.4g}".format)
    return Shown(f"<div class='scroll' style='overflow-x:auto'>{inner}</div>")


def _figure(chart: Chart) -> str:
    buffer = io.BytesIO()
    chart.figure.savefig(buffer, format="svg", metadata={"Date": None})
    image = base64.b64encode(buffer.getvalue()).decode()
    return (
        f"<figure style='max-width:36rem;margin:1.5rem 0'><h3>{escape(chart.title)}</h3>"
        f"<img style='width:100%;background:#fff' alt='{escape(chart.alt)}' src='data:image/svg+xml;base64,{image}'>"
        f"<figcaption>{escape(chart.caption)}</figcaption></figure>"
    )
