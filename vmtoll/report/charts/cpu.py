"""CPU per request: of the server in its own machine, and of the whole guest or container on its host."""

from dataclasses import replace

from vmtoll.analysis.run import Run
from vmtoll.model.trial import CROSSCHECK, MachineKind
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.panels import shown_labels
from vmtoll.report.plot import GUESTS, SKY, Chart, Lane, SeriesStyle, lanes_of, strip_chart

ORDER = 40
_ON_HOST = {
    MachineKind.GUEST: "QEMU and vhost threads of a guest, so its whole kernel as well",
    MachineKind.CONTAINER: "the control group of a container",
    MachineKind.PROCESS: "the control group of a plain process",
}


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart, from the tool's window; from the cross-check's when the tool has no figures."""
    labels = shown_labels(run)
    for prefix in ("", CROSSCHECK):
        lanes = lanes_of(run, labels, run.arms, f"{prefix}server_cpu_us_per_request")
        if not lanes:
            continue
        hosted = [arm for arm in run.arms if run.kind(arm) in _ON_HOST and not arm.is_control]
        lanes += [_on_host(lane) for lane in lanes_of(run, labels, hosted, f"{prefix}host_cpu_us_per_request")]
        caption = "Server: CPU time of the server's processes as their own machine accounts it."
        if kinds := {run.kind(arm) for arm in hosted}:
            caption += f" On the host: {'; '.join(text for kind, text in _ON_HOST.items() if kind in kinds)}."
        return [strip_chart("CPU time per request", caption, lanes, "µs", "µs of CPU per request")]
    return []


def _on_host(lane: Lane) -> Lane:
    """The lane of the guest as its host sees it: two colors further in the palette, of the baseline the color of
    controls; another shape, hollow.
    """
    colour = lane.style.colour
    colour = GUESTS[(GUESTS.index(colour) + 2) % len(GUESTS)] if colour in GUESTS else SKY
    label = f"{lane.style.label.split(' ')[0]}, on its host"
    return replace(lane, style=SeriesStyle(label, colour, "X", False))
