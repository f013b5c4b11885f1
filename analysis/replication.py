"""The published figures of an experiment, each beside what a run of ours has to say to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import published as sources
from analysis.claims import HELD, NOT_HELD, decide
from analysis.evidence import Side, emulated, estimate, prescribes_link, ratio, select, side
from analysis.load import Run
from analysis.published import FIGURES, OURS
from analysis.verdict import margin_of

SAME, NOT_SAME, UNKNOWN, MEASURE = "same shape", "not the same shape", "cannot be told", "the measure"
ALIKE_PCT = 10.0  # published figures have no spread; those so close to each other are read as alike

NOT_COMPARED = {"elapsed": "how long a test lasts is set by who makes it"}


@dataclass(frozen=True)
class Point:
    """Our side of one published figure; `side` None where there is none, and `why` says so."""

    side: Side | None
    ours: float | None
    why: str
    group: tuple[str, ...] = ()
    metric: str = ""
    servers: str = ""


def replication(run: Run, published: Path = FIGURES) -> pd.DataFrame:
    """One row per published figure of the run's experiment: its columns, and `here` (our server, environment and
    workload), `ours` (in the published unit, by the experiment's `published_estimator`), `ratio` (ours ÷ published),
    `shape` and `why`.

    The shape compares relations, not figures of machines that are decades apart. In a group (one metric under one of
    our workloads) every figure is set against the first, there and here: the same shape is the same direction, or
    both alike within ALIKE_PCT, where the 95% interval over blocks says so (`claims.decide`).
    """
    name = str(run.meta["experiment"].get("name", ""))
    rows = sources.figures(name, published)
    points = [_point(run, row) for _, row in rows.iterrows()]
    firsts: dict[tuple[str, ...], int] = {}
    for place, point in enumerate(points):
        if point.side is not None:
            firsts.setdefault(point.group, place)
    shapes = [
        _shape(run, points, place, firsts.get(point.group, place), rows["value"]) for place, point in enumerate(points)
    ]
    rows["here"] = [point.servers for point in points]
    rows["ours"] = pd.Series([point.ours for point in points], dtype=float)
    rows["ratio"] = rows["ours"] / rows["value"].where(rows["value"] > 0)
    rows["shape"] = [shape for shape, _ in shapes]
    rows["why"] = ["; ".join(filter(None, (why, point.why))) for (_, why), point in zip(shapes, points, strict=True)]
    return rows


def _point(run: Run, row: pd.Series) -> Point:
    metric, of_trial = OURS.get((row["metric"], row["unit"]), ("", None))
    if of_trial is None:
        return Point(None, None, NOT_COMPARED.get(row["metric"], "not measured here"))
    servers, there = sources.servers(run, row["server"]), sources.environments(run, row["environment"])
    workloads = sources.workloads(run, row)
    skipped = {one.get("server") for one in run.meta.get("skipped") or []}
    if not servers:
        lacking = "source not at hand" if row["server"] in skipped else f"this run has no {row['server']}"
        return Point(None, None, lacking)
    if not workloads:
        return Point(None, None, "no workload of this run sends that")
    trials = select(run, {"server": servers, "environment": there, "workload": workloads})
    found = side(run, trials, metric, lambda used: of_trial(used, row))
    if row["server"] == "best":
        found = max(
            (side(run, trials[trials["server"] == s], metric, lambda used: of_trial(used, row)) for s in servers),
            key=lambda one: float(one.figures.median()) if len(one.figures) else -1.0,
        )
        servers = sorted(set(found.trials["server"]))
    here = f"{', '.join(servers)} on {', '.join(there)}, {', '.join(workloads)}"
    if found.figures.empty:
        codes = ", ".join(sorted(found.refused)) or "the run has no such figure"
        return Point(None, None, f"no usable trial: {codes}" if found.refused else codes, servers=here)
    ours, how = _figure(run, row["metric"], found)
    group = (row["metric"], row["environment"] if row["environment"] == "localhost" else "", *workloads)
    return Point(found, ours, "; ".join(_remarks(run, row, found, how)), group, metric, here)


def _figure(run: Run, metric: str, found: Side) -> tuple[float | None, str]:
    values = list(found.figures)
    if metric.endswith("_low"):
        return min(values), "lowest trial"
    if metric.endswith("_high"):
        return max(values), "highest trial"
    return estimate(values, str(run.meta["experiment"].get("published_estimator") or "median"))


def _shape(run: Run, points: list[Point], place: int, first: int, values: pd.Series) -> tuple[str, str]:
    """(shape, why) of one point against the first of its group."""
    point, base = points[place], points[first]
    if point.side is None or base.side is None:
        return UNKNOWN, ""
    if place == first:
        alone = sum(p.group == point.group and p.side is not None for p in points) == 1
        return ("", "no other figure to compare it with") if alone else (MEASURE, "")
    if emulated(run, (point.side, base.side)):
        return UNKNOWN, ""
    found = ratio(point.side, base.side, point.metric)
    if found is None or min(values[place], values[first]) <= 0:
        return UNKNOWN, "a figure of zero has no ratio"
    there = float(values[place] / values[first])
    alike = 1 / (1 + ALIKE_PCT / 100) <= there <= 1 + ALIKE_PCT / 100
    outcome, why = decide(found, there, ALIKE_PCT if alike else None, margin_of(run))
    shape = {HELD: SAME, NOT_HELD: NOT_SAME}.get(outcome, UNKNOWN)
    return shape, f"{there:.3g} there; here {why}"


def _remarks(run: Run, row: pd.Series, found: Side, how: str) -> list[str]:
    """How our figure was made, and what besides the machine differs from the source."""
    tools = ", ".join(sorted(set(found.trials["tool"])))
    parts = [how]
    if (found.trials["accelerator"] == "tcg").any():
        parts.append("emulated (TCG): no KVM figure")
    if row["tool"] not in {*tools.split(", "), "download"}:
        parts.append(f"{row['tool']} there, {tools} here")
    if found.limited:
        parts.append(f"{', '.join(found.limits)} in {found.limited} of {found.used} trials")
    if (row["load"].startswith("remote") or "Mbit" in row["load"]) and not prescribes_link(run):
        parts.append(f"link {run.meta.get('link', 'unknown')} here")
    if row["metric"] in {"transactions", "failed_transactions", "data_transferred"}:
        parts.append("ours set to a minute")
    return parts


def points(run: Run) -> list[dict[str, Any]]:
    """The rows of `replication` as a page shows them, those of one metric and load together, in the order of the
    file: `heading` names metric and load, `has_ours` says whether there is a figure of ours.
    """
    rows = [{str(k): v for k, v in row.items()} for row in replication(run).to_dict("records")]
    told = [row | {"heading": _heading(row), "has_ours": not pd.isna(row["ours"])} for row in rows]
    headings = list(dict.fromkeys(row["heading"] for row in told))
    return sorted(told, key=lambda row: headings.index(row["heading"]))


def _heading(row: dict[str, Any]) -> str:
    command = f"{row['tool']} {row['load']}{' -k' if row['keep_alive'] == 'yes' else ''}".strip()
    size = row["payload_bytes"] + (" bytes" if row["payload_bytes"].isdigit() else "")
    where = ", client on the same machine" if row["environment"] == "localhost" else ""
    return f"{row['metric'].replace('_', ' ')}: {command}, {size}{where}"
