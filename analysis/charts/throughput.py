"""Requests per second, every trial as a point: the tool and its cheap twin, one panel each."""

from __future__ import annotations

from typing import Any

from analysis.compare import twin_name
from analysis.load import Run
from analysis.metrics import CLOSED, LIMITING, THROUGHPUT, loop_of
from analysis.panels import shown_labels
from analysis.plot import Chart, lanes_of, medians_in_words, strip

ORDER = 20


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart per source that has figures."""
    labels = shown_labels(run, (CLOSED,))
    charts = []
    for source, column in THROUGHPUT.columns.items():
        lanes = lanes_of(run, labels, dict.fromkeys(run.environments, column))
        if not lanes:
            continue
        tools = {s[2] if source == "tool" else twin_name(run, s) for s in labels}
        name = ", ".join(sorted(tools))
        closed = run.trials["offered_load"].map(loop_of) == CLOSED
        limited = sum(bool(LIMITING[source].intersection(codes)) for codes in run.trials.loc[closed, "codes"])
        caption = "One point per trial, a bar at the median. Closed loop: a fixed number of users, no think time."
        if limited:
            caption += f" In {limited} trials the client or the link, not the server, set the pace."
        charts.append(
            Chart(
                f"Requests per second, {name}", caption, medians_in_words(lanes, "requests per second"),
                strip(lanes, "requests per second"),
            )
        )  # fmt: skip
    return charts
