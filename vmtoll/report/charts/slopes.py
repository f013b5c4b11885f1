"""Paired slopes: each block's figures on the baseline and on another arm, joined; parallel lines: a steady effect."""

import pandas as pd

from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.metric import TAIL, THROUGHPUT
from vmtoll.model.trial import CROSSCHECK, Arm
from vmtoll.report.panels import PanelGroup, arm_suffix, grid, single_loads
from vmtoll.report.plot import SOFT, Chart, arm_style, latency_axis, log_axis, scatter, usable_trials

ORDER = 25


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per load and arm, one panel per server: throughput of closed loops, p99 of open ones."""
    return [chart for group in single_loads(run) for arm in run.compared_arms if (chart := _chart(run, group, arm))]


def _chart(run: Run, group: PanelGroup, arm: Arm) -> Chart | None:
    blocks = {server: pairs for server in group.servers if len(pairs := _pairs(run, group, server, arm))}
    if not blocks:
        return None
    figure, panels = grid(list(blocks))
    arms = (run.baseline, arm)
    sides = (arm_style(run, run.baseline), arm_style(run, arm))
    words = []
    for axes, (server, pairs) in zip(panels, blocks.items(), strict=True):
        for _, pair in pairs.iterrows():
            axes.plot([0, 1], pair, color=SOFT, lw=0.9, zorder=2)
        for index, (side, item) in enumerate(zip(arms, sides, strict=True)):
            scatter(axes, [index] * len(pairs), pairs[side], item)
        axes.set_xticks([0, 1], [str(arm) for arm in arms])
        axes.set_xlim(-0.35, 1.35)
        axes.grid(visible=False, axis="x")
        higher = int((pairs[arm] > pairs[run.baseline]).sum())
        words.append(f"{server}: {sides[1].label} higher than {run.baseline} in {higher} of {len(pairs)} blocks")
    all_pairs = pd.concat(blocks.values())
    (latency_axis if group.is_open else log_axis)(
        panels[0].yaxis, float(all_pairs.min().min()), float(all_pairs.max().max())
    )
    caption = (
        f"Left {run.baseline}, right {sides[1].label}; one line per block. Parallel lines: every block says the same."
        " On the logarithmic axis equal slopes are equal ratios."
    )
    title = f"{'p99' if group.is_open else 'Requests per second'} by block ({group.text}{arm_suffix(run, arm)})"
    return Chart.of(title, caption, words, figure, y="p99" if group.is_open else "requests per second")


def _pairs(run: Run, group: PanelGroup, server: str, other: Arm) -> pd.DataFrame:
    """Block × (baseline, other) for blocks with both figures above zero; the cross-check's where the tool has none."""
    scenario = group.scenario(server, group.loads[0])
    field = (TAIL if group.is_open else THROUGHPUT).field
    pairs = pd.DataFrame()
    for column in (field, CROSSCHECK + field):
        arms = {arm: usable_trials(run, scenario, arm).set_index("block")[column] for arm in (run.baseline, other)}
        pairs = pd.DataFrame(arms).dropna()
        pairs = pairs[(pairs > 0).all(axis=1)]
        if len(pairs):
            break
    return pairs
