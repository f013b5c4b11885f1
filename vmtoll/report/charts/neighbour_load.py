"""A noisy neighbour: goodput or throughput, and the p99, against the load on the sibling guest."""

from collections.abc import Sequence

from vmtoll.analysis.neighbour_load import Curve, curves_of
from vmtoll.analysis.run import Run
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import MachineKind
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.panels import curve_with_bars, stack
from vmtoll.report.plot import Chart, arm_style, latency_axis, legend, plain_axis
from vmtoll.report.words import load_text, ratio_text

ORDER = 36
LABELS = {
    "goodput_rps": "good answers per second",
    "throughput_rps": "requests per second",
    "response_time_p99_us": "p99",
    "service_time_p99_us": "p99",
}


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per server and load that was measured with several neighbour loads."""
    members: dict[tuple[str, str, Load], list[Curve]] = {}
    for curve in curves_of(run):
        members.setdefault((curve.server, curve.workload, curve.load), []).append(curve)
    return [_chart(run, curves) for curves in members.values() if any(_has_neighbour(run, c) for c in curves)]


def _has_neighbour(run: Run, curve: Curve) -> bool:
    return run.kind(curve.arm) is MachineKind.GUEST


def _chart(run: Run, curves: Sequence[Curve]) -> Chart:
    first = curves[0]
    scale, unit = (
        (100, "% of its capacity") if first.steps[0].load.kind is LoadKind.SHARE else (1, "requests per second")
    )
    styles = [arm_style(run, curve.arm) for curve in curves]
    figure, panels = stack([LABELS[field] for field in first.fields], 4.6)
    for axes, field in zip(panels, first.fields, strict=True):
        for curve, item in zip(curves, styles, strict=True):
            levels = ((scale * step.load.value, step.level(run, field)) for step in curve.steps)
            points = ((load, level.value, level.low, level.high) for load, level in levels if level)
            curve_with_bars(axes, points, item, item.line)
    plain_axis(panels[0].yaxis, max(panels[0].dataLim.y1, 1.0))
    if panels[1].dataLim.y1 > panels[1].dataLim.y0 > 0:
        latency_axis(panels[1].yaxis, panels[1].dataLim.y0, panels[1].dataLim.y1)
    panels[1].set_xlabel(f"load on the neighbour, {unit}")
    legend(figure, styles, lines=True)
    caption = (
        "The neighbour is a second guest like the first, on the same host, under a load of its own. Bars: 95% intervals"
        f" over blocks.{_alone_text(run, curves)}"
    )
    texts = [text for curve in curves if _has_neighbour(run, curve) for text in _words(run, curve)]
    text = "; ".join(texts)
    title = f"A noisy neighbour: {first.server}, {load_text(first.load)}"
    return Chart(title, f"{caption} {text}.", f"{first.server}: {text}.", figure)


def _alone_text(run: Run, curves: Sequence[Curve]) -> str:
    """A sentence on the environments that are no guests; empty without one."""
    names = [str(curve.arm) for curve in curves if not _has_neighbour(run, curve)]
    return f" There is no neighbour on {' and '.join(names)}: a line moves by chance there." if names else ""


def _words(run: Run, curve: Curve) -> list[str]:
    """The effect of the heaviest neighbour load against none on each figure, with its paired interval."""
    heaviest = curve.steps[-1]
    effects = [
        f"{LABELS[field]} {ratio_text(effect)}{'' if effect.ends else ', one block'}"
        for field in curve.fields
        if (effect := curve.effect(run, heaviest, field))
    ]
    answers = "" if heaviest.answered_rps is None else f", which answers {heaviest.answered_rps:,.0f}/s,"
    guest = arm_style(run, curve.arm).label
    return [f"{guest}, with the busiest neighbour{answers} against an idle one: {', '.join(effects) or 'no figures'}"]
