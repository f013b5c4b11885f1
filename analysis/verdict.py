"""The verdict of a run: per server and metric, and one sentence for people."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from analysis.compare import Comparison, choose_source, compare, scenario_loop, twin_name
from analysis.disagree import disagreements
from analysis.entry import (
    as_dict,
    attained_words,
    client_note,
    cross_check_note,
    failure_note,
    not_applicable,
    rates_note,
)
from analysis.equality import UNDECLARED, equality
from analysis.family import judge_family
from analysis.judge import MARGIN, judge, testable
from analysis.ladder import ladder
from analysis.load import BASELINE, SCENARIO, VERDICTS, Run, load_run, scenario_labels
from analysis.metrics import LATENCY_P99, METRICS, TAIL, THROUGHPUT, Metric
from analysis.sentence import sentence
from analysis.sides import availability, trimmed

Cell = tuple[tuple[str, ...], str]  # scenario and guest


def verdict(run_dir: Path | str) -> dict[str, Any]:
    """Judge a run directory; JSON-serialisable, writes nothing. Raises LoadError.

    Keys: `sentence`, `emulated`, `complete`, `blocks`, `counts` (valid, suspect, invalid, attempts,
    planned), `gates` (code → trials), `margin` (of equivalence, a fraction), `noise_floor` (throughput, or
    the tail in a run without; the worst server; a fraction or null), `undeclared_differences` (how many),
    `disagreements` (of closed and open loop), `searches` (workloads that are not compared), `results`: one entry per
    server scenario and guest, with `metrics` (`throughput`, `tail`, `latency_p99`, `cpu`, `host_cpu`), each with its
    `kind` and figures.
    `ladder`: what each step of a ladder of guests gives back, see analysis/ladder.py; null where there is none.
    A metric that says nothing under a scenario's kind of load has `applies` false and no figure.
    """
    return verdict_of(load_run(run_dir))


def verdict_of(run: Run) -> dict[str, Any]:
    """The same for a run that is already loaded."""
    trials = run.trials
    counts: dict[str, Any] = {name: int((trials["verdict"] == name).sum()) for name in VERDICTS}
    counts["attempts"] = len(run.attempts)
    counts["planned"] = run.meta.get("trials_planned")
    margin = margin_of(run)
    results = _results(run, margin)
    gates: dict[str, int] = {}
    for row in trials["codes"]:
        for code in set(row):
            gates[code] = gates.get(code, 0) + 1
    outcome: dict[str, Any] = {
        "emulated": run.emulated,
        "complete": run.meta["status"] == "complete",
        "blocks": int(trials["block"].nunique()),
        "counts": counts,
        "gates": dict(sorted(gates.items(), key=lambda item: (-item[1], item[0]))),
        "margin": margin,
        "noise_floor": _worst_floor(results),
        "undeclared_differences": sum(fact.status == UNDECLARED for fact in equality(run)),
        "disagreements": disagreements(run, results),
        "ladder": ladder(run),
        "searches": sorted(run.searches),
        "results": results,
    }
    return {"sentence": sentence(outcome), **outcome}


def margin_of(run: Run) -> float:
    """The margin of practical equivalence, a fraction: the experiment's `margin_pct`, or 2%."""
    experiment = run.meta["experiment"]
    declared = experiment.get("margin_pct") if isinstance(experiment, dict) else None
    return MARGIN if declared is None else float(declared) / 100


def _worst_floor(results: list[dict[str, Any]]) -> float | None:
    for metric in (THROUGHPUT, TAIL):
        entries = [r["metrics"][metric.name] for r in results]
        if any(one["applies"] for one in entries):
            return max((one["noise_floor"] for one in entries if one["noise_floor"] is not None), default=None)
    return None


def _results(run: Run, margin: float) -> list[dict[str, Any]]:
    cells: list[Cell] = [(scenario, guest) for guest in run.guests for scenario in run.compared]
    sources = {(scenario, guest): choose_source(run, scenario, guest) for scenario, guest in cells}
    judged = {metric.name: _judged(run, metric, sources, margin) for metric in METRICS}
    labels = scenario_labels(run)
    return [
        {
            "label": labels[scenario],
            **dict(zip(SCENARIO, scenario, strict=True)),
            "environment": guest,
            "accelerator": run.accelerator(guest),
            "metrics": {name: entries[scenario, guest] for name, entries in judged.items()},
        }
        for scenario, guest in cells
    ]


def _judged(run: Run, metric: Metric, sources: dict[Cell, str], margin: float) -> dict[Cell, dict[str, Any]]:
    """One metric of every scenario and guest: these are a family."""
    entries = {
        cell: _not_applicable(run, metric, cell) for cell in sources if scenario_loop(cell[0]) not in metric.loops
    }
    chosen = {
        cell: source if source in metric.columns else next(iter(metric.columns))
        for cell, source in sources.items()
        if cell not in entries
    }
    comparisons = [compare(run, *cell, metric, source) for cell, source in chosen.items()]
    family = judge_family([testable(comparison) for comparison in comparisons], math.log1p(margin))
    for comparison, tested in zip(comparisons, family, strict=True):
        scenario, guest = comparison.scenario, comparison.guest
        tools = {"tool": scenario[SCENARIO.index("tool")], "twin": twin_name(run, scenario)}
        noun = "the emulated guest" if run.accelerator(guest) == "tcg" else "kvm"
        judgement = judge(comparison, tested, margin)
        one = as_dict(comparison, judgement, tested, len(family), tools[comparison.source], noun)
        one |= _both_sides(run, comparison)
        one["notes"] += client_note(run.cells[scenario])
        if metric in (TAIL, LATENCY_P99):
            one["notes"] += failure_note(one["availability"], guest)
        if metric is TAIL:
            one["notes"] += _tail_notes(run, comparison)
        entries[scenario, guest] = one
    return entries


def _both_sides(run: Run, comparison: Comparison) -> dict[str, Any]:
    metric, source, guest = comparison.metric, comparison.source, comparison.guest
    rows = run.cells[comparison.scenario]
    sides = {"metal": availability(rows, BASELINE, source), "guest": availability(rows, guest, source)}
    return {"availability": sides, "trimmed_2009": trimmed(rows, guest, BASELINE, metric, source)}


def _tail_notes(run: Run, comparison: Comparison) -> list[str]:
    rows = run.cells[comparison.scenario]
    twin = compare(run, comparison.scenario, comparison.guest, TAIL, "twin")
    return [
        *rates_note(rows, comparison.guest),
        *cross_check_note(comparison, twin, twin_name(run, comparison.scenario)),
    ]


def _not_applicable(run: Run, metric: Metric, cell: Cell) -> dict[str, Any]:
    scenario, guest = cell
    if metric is TAIL:
        return not_applicable(metric, "a closed loop has no tail: it hides stalls")
    if metric is THROUGHPUT:
        rows = run.cells[scenario]
        return not_applicable(metric, f"the load sets the rate, not the server: {attained_words(rows, guest)}")
    return not_applicable(metric, "this is an open loop: see its tail")
