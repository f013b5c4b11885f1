"""Values of single trials as points: throughput, CPU per request, memory, cold caches."""

from dataclasses import replace

from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.finding import Role
from vmtoll.model.metric import THROUGHPUT, Loop
from vmtoll.model.trial import CROSSCHECK, MachineKind
from vmtoll.report.panels import shown_labels
from vmtoll.report.plot import GUESTS, SKY, Chart, Lane, SeriesStyle, lanes_of, strip_chart
from vmtoll.report.words import labels_of


def draw_throughput(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per role, primary and cross-check, that has figures."""
    labels = shown_labels(run, (Loop.CLOSED,))
    charts = []
    for role, column in ((Role.PRIMARY, THROUGHPUT.field), (Role.CROSSCHECK, CROSSCHECK + THROUGHPUT.field)):
        lanes = lanes_of(run, labels, run.arms, column)
        if not lanes:
            continue
        tools = {run.tool(s) if role is Role.PRIMARY else run.crosscheck(s) for s in labels}
        limited = sum(THROUGHPUT.is_limited(t, role) for t in run.trials if not t.scenario.load.is_open)
        caption = "One point per trial, a bar at the median. Closed loop: a fixed number of users, no think time."
        if limited:
            caption += f" {limited} trials are client-limited or link-limited."
        title = f"Requests per second, {', '.join(sorted(filter(None, tools)))}"
        charts.append(strip_chart(title, caption, lanes, "requests per second"))
    return charts


_ON_HOST = {
    MachineKind.GUEST: "QEMU and vhost threads of a guest, so its whole kernel as well",
    MachineKind.CONTAINER: "the control group of a container",
    MachineKind.PROCESS: "the control group of a plain process",
}


def draw_cpu(run: Run, analysis: RunAnalysis) -> list[Chart]:
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


def draw_memory(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart, in MiB."""
    raw = lanes_of(run, shown_labels(run), run.arms, "memory_pss_kib")
    lanes = [replace(lane, values=lane.values / 1024) for lane in raw]
    caption = "Peak during the trial; pages shared between processes are counted once (PSS)."
    return [strip_chart("Memory of the server", caption, lanes, "MiB", "MiB, peak PSS")] if lanes else []


def draw_cold(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """Two charts of the workloads with `cold: true`; none without such workloads."""
    cold = {name for name, workload in run.manifest.workloads.items() if getattr(workload, "cold", False)}
    labels = {scenario: label for scenario, label in labels_of(run.scenarios).items() if scenario.workload in cold}
    caption = (
        "No requested file was in a page cache of the machine under test or of its host; each file was requested once."
    )
    return [
        strip_chart(f"Cold caches: {title}", caption, lanes, unit)
        for title, column, unit in (
            ("megabytes per second", "throughput_mb_per_s", "MB/s"),
            ("half of the files take less", "service_time_p50_us", "µs"),
        )
        if (lanes := lanes_of(run, labels, run.arms, column))
    ]


CHARTS = {
    "throughput": (20, draw_throughput),
    "cpu": (40, draw_cpu),
    "memory": (50, draw_memory),
    "cold": (37, draw_cold),
}
