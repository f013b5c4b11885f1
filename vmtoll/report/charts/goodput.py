"""Goodput against offered load: where the correct answers within the deadline fall behind what is asked."""

import pandas as pd
from matplotlib.axes import Axes

from vmtoll.analysis.claims import KNEE
from vmtoll.analysis.run import Run
from vmtoll.model.finding import Code
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.panels import Group, curves, each_arm, every_trial, grid, groups, line_legend, sweep_curve
from vmtoll.report.plot import INK, SOFT, Chart, load_axis, log_axis, plain_axis

ORDER = 33
X, Y = "offered_rps", "goodput_rps"


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per rate sweep, one panel per server."""
    sweeps = [group for group in groups(run) if group.open and len(group.loads) > 1]
    return [chart for group in sweeps if (chart := _chart(run, group))]


def _chart(run: Run, group: Group) -> Chart | None:
    sweeps = curves(run, group, X, Y)
    if not sweeps:
        return None
    trials = every_trial(sweeps)
    ceiling = link_ceiling_rps(run, trials)
    figure, panels = grid(list(sweeps))
    words, short = [], []
    for axes, server, item, side in each_arm(run, panels, sweeps):
        steps = sweep_curve(axes, side, X, Y, item)
        sent = steps.drop(unsent(side))
        best, bend = steps.loc[steps[Y].idxmax()], knee(sent)
        if ends_early := bool(len(bend)) and bend.index.equals(sent.index[-1:]):
            short.append(f"{server} on {item.label} ({_end(steps, sent)})")
        else:
            axes.scatter(bend[X], bend[Y], s=130, facecolors="none", edgecolors=item.colour, linewidths=1.4, zorder=4)
        kept = f" keeps up to {bend[X].iloc[0]:,.0f}" if len(bend) else " keeps up with none of the rates"
        words.append(
            f"{server} on {item.label}: at most {best[Y]:,.0f} good answers per second, of {best[X]:,.0f} offered;"
            f"{kept}{', the highest rate that was sent' if ends_early else ''}"
        )
    _axes(panels, trials, ceiling)
    line_legend(run, figure, sweeps)
    deadlines = sorted(trials["deadline_ms"].dropna().unique())
    within = f" within {' or '.join(f'{d:g}' for d in deadlines)} ms" if deadlines else " within the deadline"
    caption = f"Good: correct{within}, counted from the intended send. One point per trial, a line through the medians."
    caption += " Dotted diagonal: every request answered in time."
    caption += f" Ring, the knee: the last rate up to which {KNEE:.0%} came back in time."
    if short:
        caption += f" The rates end before the knee, so that none is drawn: {', '.join(short)}."
    if ceiling:
        caption += f" Dashed grey line: what the link of the client carries, {ceiling:,.0f} bodies per second."
    else:
        caption += " The link has no set rate, so that no ceiling is drawn."
    title = f"Goodput against offered load ({group.kind})"
    return Chart.of(title, caption, words, figure, "offered, requests per second", "good answers per second")


def knee(steps: pd.DataFrame) -> pd.DataFrame:
    """The last step up to which every step's goodput is KNEE of what it offers; empty where none is."""
    served = (steps[Y] >= KNEE * steps[X]).cumprod().astype(bool)
    return steps[served].tail(1)


def unsent(trials: pd.DataFrame) -> list[float]:
    """The loads from the first on at which the load tool fell behind its rate in most trials: from there it, and not
    the server, sets the goodput.
    """
    behind = trials["findings"].str.split().map(lambda codes: Code.RATE_NOT_REACHED in codes)
    shares = behind.groupby(trials["load_value"]).mean().loc[_loads(trials)]
    return list(shares.index[(shares > 0.5).cummax()])


def _loads(trials: pd.DataFrame) -> pd.Index:
    """The loads in ascending order of their rates."""
    return trials.groupby("load_value")[X].median().sort_values().index


def _end(steps: pd.DataFrame, sent: pd.DataFrame) -> str:
    """Why the rates end where they do."""
    if len(sent) == len(steps):
        return f"no rate above {sent[X].iloc[-1]:,.0f} was asked for"
    return f"the load tool fell behind at {steps[X].iloc[len(sent)]:,.0f}"


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
        log_axis(first.yaxis, least, high, zero=bool((trials[Y] <= 0).any()))
    else:
        plain_axis(first.yaxis, high)
