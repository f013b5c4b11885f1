"""Every run of a results folder, as the explorer shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from analysis.compare import twin_name
from analysis.grounds import DECISIVE, grounds, machine
from analysis.judge import estimate_words
from analysis.load import SCENARIO, VERDICTS, Run, load_run, load_words
from analysis.metrics import METRICS, THROUGHPUT, Metric
from analysis.sides import availability, usable
from analysis.verdict import verdict_of

Scenario = tuple[str, ...]


def collect(results: Path) -> list[dict[str, Any]]:
    """One entry per run, the newest first. A run that cannot be loaded has an `error` and no rows."""
    folders = [file.parent for file in results.glob("*/*/run.json")]
    return [_entry(results, folder) for folder in sorted(folders, key=lambda f: (f.name, f.parent.name), reverse=True)]


def _entry(results: Path, folder: Path) -> dict[str, Any]:
    name = folder.relative_to(results).as_posix()
    report = f"runs/{name}/report.html" if (folder / "report.html").is_file() else None
    entry: dict[str, Any] = {"id": name, "report": report, "error": None, "rows": []}
    try:
        return entry | _described(load_run(folder))
    except ValueError as error:
        return entry | {"error": str(error).replace(f"{folder}/", "")}


def _described(run: Run) -> dict[str, Any]:
    outcome = verdict_of(run)
    experiment = run.meta["experiment"]
    judged = {(*(r[key] for key in SCENARIO), r["environment"]): r["metrics"] for r in outcome["results"]}
    return {
        "started_at": run.meta.get("started_at"),
        "question": experiment.get("question") or "",
        "smoke": experiment.get("purpose") == "smoke",
        "lab": run.meta.get("lab"),
        "link": run.meta.get("link"),
        "accelerators": {e: run.accelerator(e) for e in run.environments},
        **{key: outcome[key] for key in ("sentence", "emulated", "complete", "blocks", "counts", "disagreements")},
        "rows": [
            _row(run, scenario, environment, trials, judged)
            for scenario in run.scenarios
            for environment, trials in _by_environment(run, scenario)
        ],
    }


def _by_environment(run: Run, scenario: Scenario) -> list[tuple[str, pd.DataFrame]]:
    """The trials of a scenario in each environment that has any, the baseline first."""
    trials = run.cells[scenario]
    found = [(environment, trials[trials["environment"] == environment]) for environment in run.environments]
    return [(environment, rows) for environment, rows in found if not rows.empty]


def _row(
    run: Run, scenario: Scenario, environment: str, trials: pd.DataFrame, judged: dict[tuple[str, ...], Any]
) -> dict[str, Any]:
    """One scenario in one environment: medians over the trials that are not invalid, and the verdicts."""
    verdicts = judged.get((*scenario, environment), {})
    # Metal stands beside the first guest: the figure is of the tool that this comparison took.
    compared: dict[str, Any] = verdicts or next(
        (judged[*scenario, guest] for guest in run.guests if (*scenario, guest) in judged), {}
    )
    row: dict[str, Any] = dict(zip(SCENARIO, scenario, strict=True))
    row |= {"environment": environment, "accelerator": run.accelerator(environment)}
    row["load"] = _load(row["offered_load"], trials)
    row["trials"] = {name: int((trials["verdict"] == name).sum()) for name in VERDICTS}
    names = {"tool": row["tool"], "twin": twin_name(run, scenario)}
    figures = {
        metric.name: _figure(trials, environment, metric, names, compared.get(metric.name, {}).get("source"))
        for metric in METRICS
        if environment in run.guests or not metric.guest_columns
    }
    row["figures"] = {name: figure for name, figure in figures.items() if figure}
    row["verdicts"] = {
        name: _verdict(one)
        for name, one in verdicts.items()
        if one["blocks"] or one["excluded"] or (name == THROUGHPUT.name and not one["applies"])
    }
    facts = machine(run, scenario, environment)
    row["grounds"] = grounds(run, scenario, environment) | {k: v for k, v in facts.items() if k in DECISIVE}
    row["others"] = {name: value for name, value in facts.items() if name not in DECISIVE}
    return row


def _load(offered_load: str, trials: pd.DataFrame) -> str:
    """The load in words; of a share of the capacity also what that came to."""
    words, offered_rps = load_words(offered_load), trials["offered_rps"].dropna()
    if not offered_load.startswith("share:") or offered_rps.empty:
        return words
    return f"{words}, {offered_rps.median():,.0f} req/s"


def _figure(
    trials: pd.DataFrame, environment: str, metric: Metric, names: dict[str, str], compared: str | None
) -> dict[str, Any] | None:
    """The median by the tool that the verdict took (`compared`), else by the first that can have it.

    `failed` is the share of requests that failed, where that colours the figure (not CPU).
    """
    source = next((key for key in metric.columns if names[key] == compared), next(iter(metric.columns)))
    values = usable(trials, environment, metric.column(source, guest=bool(metric.guest_columns)))
    if values.empty:
        return None
    requests = availability(trials, environment, source) if metric.limits else None
    return {
        "median": float(f"{float(values.median()):.6g}"),
        "source": names[source],
        "failed": float(f"{1 - requests['share']:.3g}") if requests else None,
    }


def _verdict(one: dict[str, Any]) -> dict[str, Any]:
    estimate = estimate_words(one) if one.get("ratio") is not None else ""
    return {"text": one["text"], "estimate": estimate, "notes": one["notes"]}
