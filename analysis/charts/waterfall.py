"""Waterfall: what each step of a ladder of guests gives back, from the first rung up, with metal as the level to reach.

Below it the changes that were made one at a time.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from analysis.axes import short_number
from analysis.ladder import COSTS, GIVES_BACK, INVALID, OPEN_QUESTION, amount
from analysis.load import BASELINE, Run
from analysis.metrics import CLOSED, OPEN, loop_of
from analysis.plot import GUESTS, INK, METAL, SOFT, Chart, Look, legend, new_figure, row_axis

ORDER = 5
BAR = 0.5
LOOKS = {
    GIVES_BACK: Look("gives back", GUESTS[1], "s", True),
    COSTS: Look("costs", GUESTS[0], "s", True),
    OPEN_QUESTION: Look("not distinguishable", SOFT, "s", False),
}
# Of every load one figure that it is about; what a request costs the host is shown where the rate is the same for all.
SHOWN: dict[str, tuple[str, ...]] = {CLOSED: ("throughput",), OPEN: ("tail", "host_cpu")}


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart per scenario and figure that has a level on two rungs at least; none without a ladder."""
    ladder = outcome.get("ladder")
    if not ladder:
        return []
    loops = {loop_of(scenario["offered_load"]) for scenario in ladder["scenarios"]}
    shown = SHOWN if len(loops) > 1 else {loop: (*SHOWN[loop], "host_cpu") for loop in loops}
    drawn = [
        (scenario, scenario["metrics"][name])
        for scenario in ladder["scenarios"]
        for name in dict.fromkeys(shown[loop_of(scenario["offered_load"])])
        if len(scenario["metrics"].get(name, {}).get("levels", {}).keys() - {BASELINE}) > 1
    ]
    return [_chart(run, ladder, *one, first=not place) for place, one in enumerate(drawn)]


def _chart(run: Run, ladder: dict[str, Any], scenario: dict[str, Any], entry: dict[str, Any], *, first: bool) -> Chart:
    rows = _rows(ladder, entry)
    figure, (axes,) = new_figure(1.5 * len(rows))
    for place, row in enumerate(rows):
        _bar(axes, place, row)
        if row["from"] is not None and row["step"] and row["step"]["kind"] == "cumulative":
            axes.plot([row["from"]] * 2, [place - 1 + BAR / 2, place + BAR / 2], color=SOFT, lw=0.8, zorder=2)
    singles = [place for place, row in enumerate(rows) if row["step"] and row["step"]["kind"] == "single"]
    looks = [one for kind, one in LOOKS.items() if any(row["kind"] == kind for row in rows)]
    metal = entry["levels"].get(BASELINE)
    if metal:
        axes.axvline(metal, color=METAL, lw=1.6, zorder=1)
        looks.append(Look("metal", METAL, "|", True))
    row_axis(axes, [f"{row['name']}\n{row['under']}" for row in rows])
    if singles:
        axes.axhline(singles[0] - 1.5, color=INK, lw=1.2)
    axes.set_xlim(0, 1.06 * max([*(value for row in rows for value in row["reach"]), metal or 0.0]))
    axes.xaxis.set_major_formatter(lambda value, _: short_number(value))
    axes.set_xlabel(entry["label"] + (", µs" if entry["unit"] == "µs" else ""))
    legend(figure, looks)
    emulated = ", emulated" if "tcg" in {run.accelerator(rung) for rung in ladder["rungs"]} else ""
    words = "; ".join(f"{row['name']}: {row['told']}" for row in rows)
    return Chart(
        f"What each step gives back: {entry['label']} ({scenario['label']}{emulated})",
        _caption(ladder, bool(singles)) if first else "Read as the first figure.",
        f"{words}." + (f" Metal: {amount(metal)} {entry['unit']}." if metal else ""), figure,
    )  # fmt: skip


def _rows(ladder: dict[str, Any], entry: dict[str, Any]) -> list[dict[str, Any]]:
    """From top to bottom: `name`, `under` (the line below it), `told`, `kind`, `step` (None of a level), `from`, `to`,
    and `reach`, every value that must be visible.
    """
    unit, levels = entry["unit"], entry["levels"]
    climbing = [step for step in entry["steps"] if step["kind"] == "cumulative"]
    single = [step for step in entry["steps"] if step["kind"] == "single"]
    first = climbing[0]["before"] if climbing else ""
    rows = [_level(first, levels[first], unit)] if first in levels else []
    rows += [_step(step, unit) for step in climbing]
    if single and ladder["base"] in levels:
        rows.append(_level(ladder["base"], levels[ladder["base"]], unit) | {"name": f"{ladder['base']}, and on it:"})
    return rows + [_step(step, unit) for step in single]


def _level(environment: str, level: float, unit: str) -> dict[str, Any]:
    text = f"{amount(level)} {unit}"
    return {
        "name": environment, "under": text, "told": text, "kind": "", "step": None, "from": 0.0, "to": level,
        "reach": [level],
    }  # fmt: skip


def _step(step: dict[str, Any], unit: str) -> dict[str, Any]:
    start, end = step["start"], step["end"]
    row = {"name": step["after"], "told": step["text"], "kind": step["verdict"], "step": step, "from": start, "to": end}
    if start is None:
        return row | {"under": "no figure", "reach": []}
    signed = f"{step['gain']:+,.0f}" if abs(step["gain"]) >= 1000 else f"{step['gain']:+.3g}"
    interval = "" if step["gain_low"] is None else f" [{amount(step['gain_low'])}, {amount(step['gain_high'])}]"
    under = "invalid" if step["verdict"] == INVALID else f"{signed}{interval} {unit}".replace("-", "−")
    return row | {"under": under, "reach": [start, end, *_ends(step)]}


def _ends(step: dict[str, Any]) -> list[float]:
    """Where the step may end: the interval of what it gives back, seen from its start."""
    if step["gain_low"] is None:
        return []
    sign = 1.0 if (step["end"] - step["start"]) * step["gain"] > 0 else -1.0
    return [step["start"] + sign * step[f"gain_{side}"] for side in ("low", "high")]


def _bar(axes: Axes, place: int, row: dict[str, Any]) -> None:
    if row["from"] is None:
        return
    look = LOOKS.get(row["kind"])
    colour = look.colour if look else SOFT
    axes.barh(
        place, row["to"] - row["from"], left=row["from"], height=BAR, edgecolor=colour, lw=1.2, zorder=3,
        facecolor=colour if row["step"] is None or (look and look.filled) else "none",
        alpha=0.45 if row["step"] is None else 1.0,
    )  # fmt: skip
    if row["step"]:
        axes.plot(_ends(row["step"]), [place] * len(_ends(row["step"])), color=INK, lw=1.4, zorder=4)


def _caption(ladder: dict[str, Any], singles: bool) -> str:
    words = (
        "From the top: the level of the first rung, then what each rung adds to or takes from the one above it. Black"
        " line: the 95% interval of the step (paired t over blocks). Signed figures: above zero the step is a gain."
    )
    if singles:
        words += f" Below the thick line: each change by itself, from {ladder['base']}."
    if ladder["skipped"]:
        words += f" Not measured: {', '.join(one['environment'] for one in ladder['skipped'])}."
    return words
