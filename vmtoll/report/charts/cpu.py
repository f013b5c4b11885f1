"""CPU per request: of the server in its own machine, and of the whole guest on its host."""

from dataclasses import replace

from vmtoll.analysis.run import Run
from vmtoll.model.columns import CROSSCHECK
from vmtoll.model.trial import MachineKind
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.panels import shown_labels
from vmtoll.report.plot import GUESTS, Chart, Lane, SeriesStyle, lanes_of, strip_chart

ORDER = 40


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart, from the tool's window; from the cross-check's when the tool has no figures."""
    labels = shown_labels(run)
    for prefix in ("", CROSSCHECK):
        lanes = lanes_of(run, labels, run.arms, f"{prefix}server_cpu_us_per_request")
        if not lanes:
            continue
        hosted = [arm for arm in run.arms if run.kind(arm) is not MachineKind.METAL and not arm.is_control]
        lanes += [_on_host(lane) for lane in lanes_of(run, labels, hosted, f"{prefix}host_cpu_us_per_request")]
        caption = (
            "Server: CPU time of the server's processes as their own machine accounts it. On the host: QEMU and"
            " vhost threads, so the guest's whole kernel as well, or the container's control group."
        )
        return [strip_chart("CPU time per request", caption, lanes, "µs", "µs of CPU per request")]
    return []


def _on_host(lane: Lane) -> Lane:
    """The lane of the guest as its host sees it: two colors further in the palette, another shape, hollow."""
    index = GUESTS.index(lane.style.colour) if lane.style.colour in GUESTS else 1
    colour = GUESTS[(index + 2) % len(GUESTS)]
    label = f"{lane.style.label.split(' ')[0]}, on its host"
    return replace(lane, style=SeriesStyle(label, colour, "X", False))
