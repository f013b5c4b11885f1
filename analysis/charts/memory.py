"""Memory of the server's processes: peak proportional set size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analysis.load import Run
from analysis.panels import shown_labels
from analysis.plot import Chart, lanes_of, medians_in_words, strip

ORDER = 50


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart, in MiB."""
    raw = lanes_of(run, shown_labels(run), dict.fromkeys(run.environments, "memory_pss_kib"))
    lanes = [replace(lane, values=lane.values.astype(float) / 1024) for lane in raw]
    if not lanes:
        return []
    caption = "Peak during the trial; pages shared between processes are counted once (PSS)."
    return [Chart("Memory of the server", caption, medians_in_words(lanes, "MiB"), strip(lanes, "MiB, peak PSS"))]
