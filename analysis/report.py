"""report.html: one self-contained file that says what the run shows and what that rests on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from analysis import charts
from analysis.capacity.section import section as capacity_section
from analysis.claims import counts, judge_claims
from analysis.equality import DECLARED, EQUAL, UNDECLARED, equality
from analysis.judge import estimate_words, percent
from analysis.load import Run, load_run
from analysis.metrics import METRICS, Metric
from analysis.page import environment, number
from analysis.panels import ladders
from analysis.replication import points
from analysis.svg import inline_svg
from analysis.tables import availability, gates, host_facts, numbers
from analysis.verdict import verdict_of

HEADINGS = ("requests per second", "p99", "server CPU per request", "CPU per request on the host")


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
    waterfalls = [one for one in drawn if one[0].startswith("waterfall")]
    judged = judge_claims(run)
    page = environment()
    page.filters |= {"estimate": _estimate, "rank_estimate": _rank_estimate, "p": _p, "gain": _gain}
    fired, quiet = gates(run)
    return page.get_template("report.html.j2").render(
        run=run,
        meta=run.meta,
        outcome=outcome,
        judged=judged,
        outcomes=counts(judged),
        points=points(run),
        subject="server" if len({r["offered_load"] for r in outcome["results"]}) < 2 else "server and load",
        several=len(run.guests) > 1,
        headings=HEADINGS,
        verdicts=[(result, _cells(result)) for result in outcome["results"]],
        trimmed=_trimmed(outcome),
        margin=outcome["margin"],
        question=_question(run.meta["experiment"]),
        accelerators={e: run.accelerator(e) for e in run.environments},
        link=_link(run.meta),
        gates=fired,
        quiet_gates=quiet,
        availability=availability(run),
        left_out=_left_out(run),
        facts={status: [f for f in facts if f.status == status] for status in (UNDECLARED, DECLARED, EQUAL)},
        ladder=any(len(group.loads) > 2 for group in ladders(run)),
        charts=[one for one in drawn if one not in waterfalls],
        waterfalls=waterfalls,
        number_headings=list(NUMBER_CELLS),
        numbers=[row | {"cells": _number_cells(row)} for row in numbers(run).to_dict("records")],
        host_names=names,
        host_rows=rows,
        capacity=capacity_section(run),
    )


def _cells(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry per heading; the p99 is the open loop's where there is one, and says which it is."""
    metrics = result["metrics"]
    loop, p99 = ("open", metrics["tail"]) if metrics["tail"]["applies"] else ("closed", metrics["latency_p99"])
    p99 = p99 | {"detail": "open loop" if loop == "open" else "closed loop: no tail"}
    return [metrics["throughput"], p99, metrics["cpu"], metrics["host_cpu"]]


def _trimmed(outcome: dict[str, Any]) -> list[tuple[dict[str, Any], Metric, dict[str, Any]]]:
    """(result, metric, its entry) wherever the 2009 estimator has both sides."""
    entries = [(result, metric, result["metrics"][metric.name]) for result in outcome["results"] for metric in METRICS]
    return [entry for entry in entries if (entry[2]["trimmed_2009"] or {}).get("ratio") is not None]


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


def _rank_estimate(one: dict[str, Any]) -> str:
    if one.get("ratio") is None:
        return ""
    keys = ("effect", "effect_low", "effect_high")
    return estimate_words(one | {key: one[f"hodges_lehmann_{key}"] for key in keys})


def _gain(value: float) -> str:
    """With its sign, as finely as `number` writes it."""
    return ("+" if value > 0 else "−" if value < 0 else "") + number(abs(value))


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return "< 0.0001" if value < 0.0001 else f"{value:.2g}"


def _number_cells(row: dict[Any, Any]) -> list[str]:
    return [
        words(next((row[c] for c in columns if not pd.isna(row[c])), None)) for columns, words in NUMBER_CELLS.values()
    ]


def _part(value: Any) -> str:
    return "–" if value is None else percent(value)


def _mib(value: Any) -> str:
    return number(None if value is None else value / 1024)


# Heading → (columns of `numbers`, the first that has a figure; how it is written).
NUMBER_CELLS: dict[str, tuple[tuple[str, ...], Callable[[Any], str]]] = {
    "valid": (("valid",), number), "suspect": (("suspect",), number), "invalid": (("invalid",), number),
    "offered req/s": (("offered_rps",), number), "req/s, tool": (("throughput_rps",), number),
    "req/s, twin": (("twin_throughput_rps",), number), "good req/s": (("goodput_rps",), number),
    "p50 µs": (("merged_p50_us", "response_time_p50_us", "service_time_p50_us"), number),
    "p99 µs": (("merged_p99_us", "response_time_p99_us", "service_time_p99_us"), number),
    "p99.9 µs": (("merged_p999_us", "response_time_p999_us", "service_time_p999_us"), number),
    "failed, twin": (("twin_failure_rate",), _part),
    "server CPU µs/req": (("server_cpu_us_per_request",), number),
    "host CPU µs/req": (("host_cpu_us_per_request",), number),
    "memory MiB": (("memory_pss_kib",), _mib), "client CPU": (("client_cpu_share",), _part),
    "steal %": (("steal_pct",), number),
}  # fmt: skip
