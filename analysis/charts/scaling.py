"""Throughput over users, or over the CPUs of guests, with the Universal Scalability Law through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.axes import log_axis, plain_axis
from analysis.capacity.scaling import GUESTS, USERS, Sweep, sweeps
from analysis.load import Run
from analysis.panels import WIDE, grid
from analysis.plot import GUESTS as COLOURS
from analysis.plot import Chart, Look, legend, look, scatter

ORDER = 36
POINTS = 100  # of a curve


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart per load, one panel per server."""
    alike: dict[tuple[str, str, str], list[Sweep]] = {}
    for sweep in sweeps(run):
        alike.setdefault((sweep.over, sweep.tool, sweep.sent), []).append(sweep)
    return [_chart(run, found) for found in alike.values()]


def _chart(run: Run, found: Sequence[Sweep]) -> Chart:
    first = found[0]
    servers = sorted({sweep.server for sweep in found})
    figure, panels = grid(servers)
    looks = {sweep.environment: _look(run, sweep) for sweep in found}
    for sweep in found:
        axes, item = panels[servers.index(sweep.server)], looks[sweep.environment]
        scatter(axes, sweep.trials["level"], sweep.trials["throughput_rps"], item)
        levels = np.geomspace(sweep.trials["level"].min(), sweep.law.largest, POINTS)
        axes.plot(levels, [sweep.law.throughput(level) for level in levels], color=item.colour, lw=1.4, ls=item.line)
    low = min(float(sweep.trials["level"].min()) for sweep in found)
    high = max(sweep.law.largest for sweep in found)
    if high / low > WIDE:
        log_axis(panels[0].xaxis, low, high)
    else:
        plain_axis(panels[0].xaxis, high)
    plain_axis(panels[0].yaxis, max(float(sweep.trials["throughput_rps"].max()) for sweep in found))
    figure.supxlabel("users" if first.over == USERS else "CPUs of the guest", fontsize=10)
    figure.supylabel("requests per second", fontsize=10)
    legend(figure, list(looks.values()), lines=True)
    said = "; ".join(f"{sweep.server} on {looks[sweep.environment].label}: {sweep.words}" for sweep in found)
    caption = (
        "One point per trial whose pace neither the client nor the link set; the line is the Universal Scalability Law,"
        " γN / (1 + σ(N − 1) + κN(N − 1)), fitted to them: σ is contention, a queue for something shared, κ coherency,"
        " the cost of agreeing, in brackets their 95% intervals over blocks."
    )
    over = "users" if first.over == USERS else "the CPUs of guests"
    return Chart(f"Throughput over {over} ({first.tool})", caption, f"{said}.", figure)


def _look(run: Run, sweep: Sweep) -> Look:
    if sweep.environment != GUESTS:
        return look(run, sweep.environment)
    return Look(GUESTS + (" (emulated)" if sweep.emulated else ""), COLOURS[0], "s", True)
