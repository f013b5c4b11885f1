"""Cold caches: what comes off the disk per second, and what one file takes."""

from __future__ import annotations

from typing import Any

from analysis.load import Run, scenario_labels
from analysis.plot import Chart, lanes_of, medians_in_words, strip

ORDER = 37


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """Two charts of the workloads with `cold: true`; none where there are none."""
    cold = {name for name, workload in _workloads(run).items() if workload.get("cold")}
    labels = {scenario: label for scenario, label in scenario_labels(run).items() if scenario[1] in cold}
    read = (
        "Nothing that was asked for was in a page cache, of the machine under test or of its host, and each file was"
        " asked for once."
    )
    charts = []
    for title, column, unit in (
        ("Cold caches: megabytes per second", "throughput_mb_per_s", "MB/s"),
        ("Cold caches: half of the files take less", "service_time_p50_us", "µs"),
    ):
        lanes = lanes_of(run, labels, dict.fromkeys(run.environments, column))
        if lanes:
            charts.append(Chart(title, read, medians_in_words(lanes, unit), strip(lanes, unit)))
    return charts


def _workloads(run: Run) -> dict[str, Any]:
    experiment = run.meta["experiment"]
    known: dict[str, Any] = experiment.get("resolved", {}).get("workloads", {}) if isinstance(experiment, dict) else {}
    return known
