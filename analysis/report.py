"""report.html: one self-contained file that says what the run shows and what that rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis import charts
from analysis.equality import DECLARED, EQUAL, UNDECLARED, equality
from analysis.judge import MARGIN, estimate_words, percent
from analysis.load import Run, load_run
from analysis.metrics import METRICS
from analysis.svg import inline_svg
from analysis.tables import host_facts, numbers
from analysis.verdict import verdict_of

TEMPLATES = Path(__file__).parent / "templates"
GATES = {
    "client-saturated": "the load generator, not the server, was the bottleneck: throughput is a lower bound",
    "twin-client-saturated": "the twin load generator was the bottleneck: its throughput is a lower bound",
    "link-bound": "the link was full: equal figures are no evidence of low overhead",
    "littles-law": "users, throughput and response time do not fit together",
    "steal": "the hypervisor took CPU time away from the machine under test",
    "failed-requests": "requests failed",
    "wrong-body": "a response was not the file that was asked for",
    "fingerprint": "binary, configuration, content or worker count differ between the sides",
    "tool-failed": "the load tool failed or was cut off",
    "server-failed": "the server did not start or did not stay up",
    "host-lost": "the machine under test was lost during the trial",
}


def write_report(run_dir: Path | str) -> Path:
    """Write `report.html` into the run directory (replaced whole) and return its path.

    Raises LoadError when the run breaks the contract, ValueError when a histogram cannot be read.
    """
    run = load_run(run_dir)
    path = run.path / "report.html"
    draft = path.with_suffix(".html.part")
    draft.write_text(render(run), encoding="utf-8")
    return draft.replace(path)


def render(run: Run) -> str:
    """The whole page as text; the same run gives the same bytes."""
    outcome = verdict_of(run)
    facts = equality(run)
    names, rows = host_facts(run)
    drawn = [(name, chart, Markup(inline_svg(chart, name))) for name, chart in charts.draw_all(run, outcome)]
    page = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    page.filters |= {"percent": percent, "estimate": _estimate, "number": _number}
    return page.get_template("report.html.j2").render(
        run=run,
        meta=run.meta,
        outcome=outcome,
        metrics=_shown_metrics(outcome),
        margin=MARGIN,
        question=_question(run.meta["experiment"]),
        accelerators={e: run.accelerator(e) for e in run.environments},
        link=_link(run.meta),
        gates=[(code, count, GATES.get(code, "")) for code, count in outcome["gates"].items()],
        left_out=_left_out(run),
        facts={status: [f for f in facts if f.status == status] for status in (UNDECLARED, DECLARED, EQUAL)},
        charts=drawn,
        numbers=numbers(run).to_dict("records"),
        host_names=names,
        host_rows=rows,
    )


def _shown_metrics(outcome: dict[str, Any]) -> list[Any]:
    """The metrics for which at least one comparison has a figure, and always throughput."""
    return [
        metric
        for i, metric in enumerate(METRICS)
        if i == 0 or any(r["metrics"][metric.name]["blocks"] for r in outcome["results"])
    ]


def _question(experiment: Any) -> str:
    return str(experiment.get("question") or "") if isinstance(experiment, dict) else ""


def _link(meta: dict[str, Any]) -> str:
    rate = meta.get("link_mbit")
    name = str(meta.get("link") or "unknown")
    return f"{name} ({rate:g} Mbit/s)" if isinstance(rate, int | float) else name


def _left_out(run: Run) -> list[dict[str, Any]]:
    """Trials that the gates refused, and earlier attempts, as they stand in trials.csv."""
    trials = run.trials
    bad = trials[trials["verdict"] == "invalid"]
    columns = ["block", "order", "attempt", "environment", "server", "reasons"]
    return [{str(k): v for k, v in row.items()} for row in bad[columns].to_dict("records")]


def _estimate(one: dict[str, Any]) -> str:
    return estimate_words(one) if one.get("ratio") is not None else ""


def _number(value: Any) -> str:
    """Three significant digits below a thousand, whole above; a dash where there is none."""
    if value is None or pd.isna(value):
        return "–"
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
