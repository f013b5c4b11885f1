"""Rate sweeps: goodput against offered load, and what every further request per second costs in waiting."""

import pandas as pd
from matplotlib.axes import Axes

from vmtoll.analysis.run import Run
from vmtoll.analysis.selection import KNEE
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.finding import Code, Role
from vmtoll.model.trial import CROSSCHECK, TrialRecord
from vmtoll.report.panels import PanelGroup, curves, each_arm, every_trial, grid, line_legend, panel_groups, sweep_curve
from vmtoll.report.plot import INK, SOFT, Chart, latency_axis, load_axis, log_axis, plain_axis
from vmtoll.report.words import duration

X, Y = "offered_rps", "goodput_rps"


def draw_goodput(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per rate sweep, one panel per server."""
    sweeps = [group for group in panel_groups(run) if group.is_open and len(group.loads) > 1]
    return [chart for group in sweeps if (chart := _goodput(run, group))]


def _goodput(run: Run, group: PanelGroup) -> Chart | None:
    sweeps = curves(run, group, X, Y)
    if not sweeps:
        return None
    trials = every_trial(sweeps)
    ceiling = link_ceiling_rps(run, trials)
    figure, panels = grid(list(sweeps))
    words, end_before_knee = [], []
    for axes, server, item, side in each_arm(run, panels, sweeps):
        steps = sweep_curve(axes, side, X, Y, item)
        steps_sent = steps.drop(unsent_loads(side))
        best, knee_step = steps.loc[steps[Y].idxmax()], knee_of(steps_sent)
        if ends_early := knee_step.index.equals(steps_sent.index[-1:]):
            end_before_knee.append(f"{server} on {item.label} ({_why_end(group, steps, steps_sent)})")
        else:
            axes.scatter(
                knee_step[X], knee_step[Y], s=130, facecolors="none", edgecolors=item.colour, linewidths=1.4, zorder=4
            )
        words.append(
            f"{server} on {item.label}: at most {best[Y]:,.0f} good answers per second, of {best[X]:,.0f} offered;"
            + (f" keeps up to {knee_step[X].iloc[0]:,.0f}" if len(knee_step) else " keeps up with none of the rates")
            + (", the highest that counts" if ends_early and len(knee_step) else "")
        )
    _axes(panels, trials, ceiling)
    line_legend(run, figure, sweeps)
    deadlines = sorted(trials["deadline_ms"].dropna().unique())
    deadline_text = f" within {' or '.join(f'{d:g}' for d in deadlines)} ms" if deadlines else " within the deadline"
    caption = f"Good: correct{deadline_text}, counted from the intended send. One point per trial, "
    caption += "a line through the medians. Dotted diagonal: every request answered in time."
    caption += f" Ring, the knee_of: the last rate up to which {KNEE:.0%} came back in time."
    if end_before_knee:
        caption += f" The rates end before the knee_of, so that none is drawn: {', '.join(end_before_knee)}."
    if ceiling:
        caption += f" Dashed grey line: what the link of the client carries, {ceiling:,.0f} bodies per second."
    else:
        caption += " The link has no set rate, so that no ceiling is drawn."
    title = f"Goodput against offered load ({group.kind})"
    return Chart.of(title, caption, words, figure, "offered, requests per second", "good answers per second")


def knee_of(steps: pd.DataFrame) -> pd.DataFrame:
    """The last step up to which every step's goodput is at least KNEE of its offered rate; empty if none is."""
    served = (steps[Y] >= KNEE * steps[X]).cumprod().astype(bool)
    return steps[served].tail(1)


def unsent_loads(trials: pd.DataFrame) -> list[float]:
    """The loads, from the highest down, at which the load tool, not the server, fell behind in most trials."""
    behind = trials["record"].map(_is_behind).astype(float).groupby(trials["load_value"]).mean() > 0.5
    rates = trials.groupby("load_value")[X].median().sort_values(ascending=False)
    return list(rates.index[behind[rates.index].cummin()])


def _is_behind(record: TrialRecord) -> bool:
    """Return whether the tool was saturated, or missed its rate and sent so late that the delay is most of the p99.

    An overloaded server makes a tool late, too, but by less than its own response time.
    """
    measured, limits = record.primary, record.limits(Role.PRIMARY)
    if measured is None or Code.RATE_NOT_REACHED not in limits:
        return Code.CLIENT_SATURATED in limits
    late_us, p99_us = measured.lateness.p99_us, measured.response_time.p99_us
    return late_us is None or p99_us is None or late_us > p99_us / 2


def _why_end(group: PanelGroup, steps: pd.DataFrame, steps_sent: pd.DataFrame) -> str:
    """The reason why the rates end where they do."""
    if len(steps_sent) < len(steps):
        return f"the load tool fell behind at {steps[X].iloc[len(steps_sent)]:,.0f}"
    if steps.index[-1] < max(load.value for load in group.loads):
        return f"no trial above {steps_sent[X].iloc[-1]:,.0f} was valid"
    return f"no rate above {steps_sent[X].iloc[-1]:,.0f} was asked for"


def link_ceiling_rps(run: Run, trials: pd.DataFrame) -> float | None:
    """Answers per second that fill the client's link with bodies alone; None for a link without a rate."""
    rate_mbit = run.manifest.link_mbit
    size_mb = (trials["transferred_mb"] / trials["transactions"].astype(float)).dropna().median()
    return float(rate_mbit / 8 / size_mb) if rate_mbit and size_mb > 0 else None


def _axes(panels: list[Axes], trials: pd.DataFrame, ceiling: float | None) -> None:
    first, low, high = panels[0], float(trials[X].min()), float(trials[X].max())
    for axes in panels:
        axes.plot([low, high], [low, high], color=SOFT, lw=1.0, ls=":", zorder=1)
        if ceiling and ceiling < 1.5 * high:
            axes.axhline(ceiling, color=INK, lw=1.0, ls="--", alpha=0.6, zorder=1)
    if load_axis(first.xaxis, low, high):
        least = float(trials[Y][trials[Y] > 0].min()) if (trials[Y] > 0).any() else 1.0
        log_axis(first.yaxis, least, high, with_zero=bool((trials[Y] <= 0).any()))
    else:
        plain_axis(first.yaxis, high)


def draw_knee(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per sweep, closed and open loops apart, one panel per server."""
    sweeps = [group for group in panel_groups(run) if len(group.loads) > 1]
    return [chart for group in sweeps if (chart := _knee(run, group))]


def _knee(run: Run, group: PanelGroup) -> Chart | None:
    time = "response_time_p99_us" if group.is_open else "service_time_p99_us"
    for prefix in ("", CROSSCHECK):  # in a closed loop the cross-check's, where the tool logs no latencies
        x, y = f"{prefix}throughput_rps", prefix + time
        if sweeps := curves(run, group, x, y):
            break
    else:
        return None
    figure, panels = grid(list(sweeps))
    words = []
    for axes, server, item, side in each_arm(run, panels, sweeps):
        steps = sweep_curve(axes, side, x, y, item)
        texts = ", ".join(f"{duration(p99)} at {rps:,.0f}" for rps, p99 in zip(steps[x], steps[y], strict=True))
        words.append(f"{server} on {item.label}: p99 {texts} requests per second")
    trials = every_trial(sweeps)
    load_axis(panels[0].xaxis, float(trials[x].min()), float(trials[x].max()))
    latency_axis(panels[0].yaxis, float(trials[y].min()), float(trials[y].max()))
    line_legend(run, figure, sweeps)
    caption = f"One point per trial, a line through the medians of each load. {group.latency_caption}"
    title = f"p99 against throughput ({group.kind})"
    return Chart.of(title, caption, words, figure, "answered, requests per second", "p99")


CHARTS = {"goodput": (33, draw_goodput), "knee": (34, draw_knee)}
