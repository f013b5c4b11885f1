"""Axes with few, round, plainly written ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

LOG_ABOVE = 6.0  # a wider range of values gets a logarithmic axis


def value_axis(axes: Axes, low: float, high: float, unit: str) -> None:
    """Linear from zero, or logarithmic over a wide range, with few, round, plainly written ticks."""
    if low > 0 and high / low > LOG_ABOVE:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.25, high * 1.25)
        ticks = log_ticks(low / 1.25, high * 1.25)
        unit += " (logarithmic)"
    else:
        axes.set_xlim(0, high * 1.06)
        ticks = [t for t in mpl.ticker.MaxNLocator(5).tick_values(0, high * 1.06) if t <= high * 1.06]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axes.set_xlabel(unit)


def latency_axis(axis: Axis, low_us: float, high_us: float) -> None:
    """Logarithmic, from µs to s, each tick with its unit."""
    log_axis(axis, low_us, high_us)
    axis.set_major_formatter(FuncFormatter(lambda value, _: time_words(value)))


def log_axis(axis: Axis, low: float, high: float, *, zero: bool = False) -> None:
    """A logarithmic axis, x or y, with few, round ticks; `low` above zero. `zero` adds room for zero below."""
    low, high = low / 1.1, high * 1.1
    if zero:
        _scale(axis, "symlog", linthresh=low, linscale=0.4)
    else:
        _scale(axis, "log")
    _limits(axis, 0 if zero else low, high)
    ticks = log_ticks(low, high, most=4 if axis is axis.axes.xaxis else 5)
    if len(ticks) < 2:
        ticks = [t for t in mpl.ticker.MaxNLocator(3).tick_values(low, high) if low <= t <= high]
    _ticks(axis, ([0.0] if zero else []) + ticks)


def plain_axis(axis: Axis, high: float) -> None:
    """A linear axis, x or y, from zero, with few, round ticks."""
    _limits(axis, 0, high * 1.06)
    _ticks(axis, [t for t in mpl.ticker.MaxNLocator(4).tick_values(0, high * 1.06) if t <= high * 1.06])


def _scale(axis: Axis, scale: str, **settings: float) -> None:
    (axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale)(scale, **settings)


def _limits(axis: Axis, low: float, high: float) -> None:
    (axis.axes.set_xlim if axis is axis.axes.xaxis else axis.axes.set_ylim)(low, high)


def _ticks(axis: Axis, ticks: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def time_words(time_us: float) -> str:
    """250 → `250 µs`, 1200 → `1.2 ms`, 2e6 → `2 s`; three digits at most."""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if time_us >= size:
            return f"{time_us / size:.3g} {unit}"
    return f"{time_us:.3g} µs"


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """1-2-5 ticks within the range, thinned to 1-5, then decades, until at most `most` are left."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [s * 10.0**e for e in exponents for s in steps if low <= s * 10.0**e <= high]
        if len(ticks) <= most:
            break
    return ticks


def short_number(value: float) -> str:
    """12000 → `12k`, 0.5 → `0.5`, 450 → `450`."""
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"
