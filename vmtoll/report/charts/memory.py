"""Memory of the server's processes: peak proportional set size."""

from dataclasses import replace

from vmtoll.analysis.run import Run
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.panels import shown_labels
from vmtoll.report.plot import Chart, lanes_of, strip_chart

ORDER = 50


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart, in MiB."""
    raw = lanes_of(run, shown_labels(run), run.arms, "memory_pss_kib")
    lanes = [replace(lane, values=lane.values / 1024) for lane in raw]
    caption = "Peak during the trial; pages shared between processes are counted once (PSS)."
    return [strip_chart("Memory of the server", caption, lanes, "MiB", "MiB, peak PSS")] if lanes else []
