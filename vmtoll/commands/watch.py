"""The command `watch`: an experiment every night on one test bed, and where the level of its figures changed."""

from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtoll.commands import values
from vmtoll.commands.answer import print_json
from vmtoll.commands.conclude import conclude
from vmtoll.commands.help import ERROR, describe
from vmtoll.commands.options import (
    InventoryOption,
    JsonOption,
    LimitOption,
    MetricsOption,
    ResultsOption,
    ScaleOption,
    check_metrics,
    percent,
)
from vmtoll.commands.outcome import Case, Exit, check_folders, write_junit
from vmtoll.commands.run import run_one
from vmtoll.files import write_durably
from vmtoll.model.errors import UserError
from vmtoll.paths import RESULTS
from vmtoll.runs.folder import read_manifest, runs_of
from vmtoll.shell import say
from vmtoll.statistics.thresholds import MARGIN

if TYPE_CHECKING:
    from vmtoll.analysis.history import FigureHistory
    from vmtoll.analysis.run import Run

PAGE = "history.html"

describe(
    "watch",
    "vmtoll watch first -i lab.yml",
    "vmtoll watch first --judge --junit watch.xml",
    "vmtoll watch first --openmetrics /var/lib/prometheus/node-exporter/vmtoll.prom",
    "vmtoll watch first --judge --since 20261120T021500Z-1a2b",
    exits={
        Exit.WORSE: "a metric is worse than before its last change of level",
        Exit.UNDECIDED: "no metric is worse, and one has too few nights, or no value in the newest run",
        ERROR: "error",
        2: "",
    },
)


def watch(
    experiment: Annotated[
        str, typer.Argument(help="Name of an experiment (`vmtoll list`).", autocompletion=values.experiments)
    ],
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    scale: ScaleOption = None,
    judge: Annotated[bool, typer.Option("--judge", help="Measure nothing; judge the runs so far.")] = False,
    since: Annotated[
        str, typer.Option(metavar="RUN", help="Begin the history with this run, to accept its level.")
    ] = "",
    metric: MetricsOption = None,
    at_least: Annotated[
        float,
        typer.Option(
            parser=partial(percent, most=99),
            metavar="PERCENT",
            help="Smallest change of level that counts, in percent.",
        ),
    ] = 100 * MARGIN,
    junit: Annotated[
        Path | None, typer.Option(help="Write the values to this file as a JUnit report.", dir_okay=False)
    ] = None,
    openmetrics: Annotated[
        Path | None,
        typer.Option(
            help="Write the values to this file as OpenMetrics, for Prometheus' textfile collector.", dir_okay=False
        ),
    ] = None,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Measure an experiment once more, and judge its runs so far: where did the level of a metric change?

    Run it every night by cron or a systemd timer; the runs in results/EXPERIMENT are the history. For each change of
    level vmtoll prints its size, and what else changed between the two runs: kernel, QEMU, packages. The exit code
    stays 1 until the metric gets better again, or --since accepts the level. results/EXPERIMENT/history.html has the
    chart.
    """
    check_metrics(metric or [])
    if missing := [name for name in ("ruptures", "prometheus_client") if not find_spec(name)]:
        raise UserError(f"{missing[0]} is missing: install vmtoll with its extra, as in pipx install '.[watch]'")
    check_folders({"--junit": junit, "--openmetrics": openmetrics})
    if since:
        _complete(results / experiment, since)
    if not judge:
        conclude(run_one(experiment, inventory, results, limit=limit, scale=scale))
    runs = _runs(results / experiment, since)
    files = results / experiment / PAGE, junit, openmetrics
    raise SystemExit(_answer(experiment, runs, metric or [], at_least / 100, *files, as_json=as_json))


def _runs(folder: Path, since: str) -> "list[Run]":
    """The complete runs of an experiment, the oldest first. Raises UserError without any."""
    from vmtoll.analysis.history import MOST_NIGHTS  # noqa: PLC0415
    from vmtoll.analysis.run import load_run  # noqa: PLC0415

    chosen = _complete(folder, since)[-MOST_NIGHTS:]
    if not chosen:
        raise UserError(f"{folder}: no complete run; leave --judge out, or give another --results")
    return [load_run(run) for run in chosen]


def _complete(folder: Path, since: str) -> list[Path]:
    """The folders of the complete runs from `since` on, the oldest first; of a run and its copies, one.

    Raises UserError if `since` is not one of them.
    """
    manifests = {run: read_manifest(run) for run in runs_of(folder)}
    complete = [run for run, manifest in manifests.items() if manifest.status == "complete"]
    complete.sort(key=lambda run: (manifests[run].started_at, run.name != manifests[run].run_id, run.name))
    first_copies: dict[str, Path] = {}
    for run in complete:
        if (original := first_copies.setdefault(manifests[run].run_id, run)) != run:
            say(f"{run}: a copy of the run {original.name}; a run counts once")
    names = {run.name: list(first_copies).index(manifests[run].run_id) for run in complete}
    if since and since not in names:
        raise UserError(f"--since {since}: no complete run of this name in {folder}")
    return list(first_copies.values())[names[since] if since else 0 :]


def _answer(
    experiment: str, runs: "Sequence[Run]", metrics: Sequence[str], least: float, page: Path, junit: Path | None,
    openmetrics: Path | None, *, as_json: bool,
) -> Exit:  # fmt: skip
    from vmtoll.analysis.history import histories  # noqa: PLC0415
    from vmtoll.report.history import write_history  # noqa: PLC0415

    figures = histories(runs, metrics)
    if not figures:
        raise UserError(f"{runs[-1].path}: its experiment has none of these metrics; give another --metric")
    code = exit_of(figures, least)
    write_history(figures, experiment, least, page, emulated=runs[-1].emulated)
    write_junit(junit, experiment, junit_cases(figures, least))
    if openmetrics:
        write_durably(openmetrics, openmetrics_text(experiment, figures, least))
    if as_json:
        print_json({"exit": code, "page": page, "figures": [_document(each, least) for each in figures]})
    else:
        _show(figures, least, page, code)
    return code


def exit_of(histories: "Sequence[FigureHistory]", least: float) -> Exit:
    """WORSE if a figure is; else UNDECIDED if one has too few nights, or none of the newest."""
    if any(history.is_worse(least) for history in histories):
        return Exit.WORSE
    is_undecided = any(history.needed or history.is_missing for history in histories)
    return Exit.UNDECIDED if is_undecided else Exit.NOT_WORSE


def _show(histories: "Sequence[FigureHistory]", least: float, page: Path, code: Exit) -> None:
    from vmtoll.report.words.history import facts_text, history_labels, level_text, state_text  # noqa: PLC0415

    for history, label in zip(histories, history_labels(histories), strict=True):
        print(f"{label}: {level_text(history)}; {state_text(history, least)}")
        if history.changes:
            print(f"  {facts_text(history.changes[-1].facts)}")
    print(f"page: {page}")
    print(f"exit {code.value}: {_EXIT_TEXTS[code]}")


_EXIT_TEXTS = {
    Exit.NOT_WORSE: "no metric is worse than before its last change of level",
    Exit.WORSE: "worse",
    Exit.UNDECIDED: "too few nights, or no value in the newest",
}


def _document(history: "FigureHistory", least: float) -> dict[str, object]:
    scenario = history.scenario
    return {
        "server": scenario.server, "workload": scenario.workload, "load_kind": scenario.load.kind.value,
        "load_value": scenario.load.value, "environment": str(history.arm), "metric": history.metric.name,
        "unit": history.metric.unit, "nights": [vars(night) for night in history.nights],
        "nights_needed": history.needed, "missing": history.is_missing, "worse": history.is_worse(least),
        "changes": [
            {
                "run": history.nights[change.first].run, "ratio": change.ratio.value, "ratio_low": change.ratio.low,
                "ratio_high": change.ratio.high, "worse": change.is_worse,
                "facts": [
                    {"fact": fact.fact, "before": fact.published, "after": fact.again} for fact in change.facts
                ],
            }
            for change in history.changes
        ],
    }  # fmt: skip


def junit_cases(histories: "Sequence[FigureHistory]", least: float) -> Iterator[Case]:
    """A test case for each figure: worse fails, none in the newest night is an error, too few nights is skipped."""
    from vmtoll.report.words.history import facts_text, history_labels, state_text  # noqa: PLC0415

    for history, label in zip(histories, history_labels(histories), strict=True):
        is_worse = history.is_worse(least)
        outcome = "failure" if is_worse else "error" if history.is_missing else "skipped" if history.needed else ""
        text = facts_text(history.changes[-1].facts) if is_worse else None
        yield Case(f"vmtoll.watch.{history.arm}", label, outcome, state_text(history, least), text)


def openmetrics_text(experiment: str, histories: "Sequence[FigureHistory]", least: float) -> bytes:
    """Gauges of each figure: its newest value, its last change of level (a ratio), whether it is worse, its nights."""
    from prometheus_client import CollectorRegistry, Gauge  # noqa: PLC0415 (a separate extra)
    from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415

    registry = CollectorRegistry()
    labels = ("experiment", "environment", "server", "workload", "load", "metric", "unit")
    gauges = {
        name: Gauge(f"vmtoll_watch_{name}", text, labels, registry=registry)
        for name, text in (
            ("figure", "The newest night's value, in its unit; NaN if it has none."),
            ("change_ratio", "The present level divided by the one before; 1 without a change."),
            ("worse", "1 if the present level is worse than the one before, else 0."),
            ("nights", "Nights in the history."),
        )
    }
    for history in histories:
        load = history.scenario.load
        key = (
            experiment, str(history.arm), history.scenario.server, history.scenario.workload,
            f"{load.kind.value} {load.value:g}", history.metric.name, history.metric.unit,
        )  # fmt: skip
        gauges["figure"].labels(*key).set(nan if history.is_missing else history.nights[-1].figure)
        gauges["change_ratio"].labels(*key).set(history.changes[-1].ratio.value if history.changes else 1.0)
        gauges["worse"].labels(*key).set(history.is_worse(least))
        gauges["nights"].labels(*key).set(len(history.nights))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text
