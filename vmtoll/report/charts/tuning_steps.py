"""Waterfall: the gain of each tuning step, from the untuned guest up, with the baseline as the level to reach.

Below it are the changes made one at a time.
"""

from dataclasses import dataclass

from matplotlib.axes import Axes

from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.metric import HOST_CPU, TAIL, THROUGHPUT, Loop, Metric, loop_of
from vmtoll.model.trial import Arm, Scenario
from vmtoll.model.verdict import Kind, StepKind, StepMetric, TuningResult, TuningStep
from vmtoll.report.plot import BLUE, GUESTS, INK, SOFT, Chart, SeriesStyle, legend, new_figure, row_axis, short_number
from vmtoll.report.words import METRIC_LABELS, amount_text, number, platform_text, scenario_labels, signed, step_text

ORDER = 5
BAR = 0.5
STYLES = {
    Kind.FASTER: SeriesStyle("gain", GUESTS[1], "s", True),
    Kind.SLOWER: SeriesStyle("loss", GUESTS[0], "s", True),
    Kind.UNDECIDED: SeriesStyle("undecided", SOFT, "s", False),
}
UNITS = {"1/s": "req/s"}
# For each loop its primary metric. Host CPU per request is shown in the open loop, where all guests have the same rate;
# a run with loads of one loop alone shows it as well.
SHOWN = {Loop.CLOSED: (THROUGHPUT.name,), Loop.OPEN: (TAIL.name, HOST_CPU.name)}


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per scenario and metric with levels of two or more profiles; none without tuning steps."""
    result = analysis.tuning_steps
    if not result:
        return []
    loops = {loop_of(item.scenario.load) for item in result.scenarios}
    shown = SHOWN if len(loops) > 1 else {loop: (*SHOWN[loop], HOST_CPU.name) for loop in loops}
    shown_metrics = [
        (item.scenario, item.metrics[name])
        for item in result.scenarios
        for name in dict.fromkeys(shown[loop_of(item.scenario.load)])
        if name in item.metrics and len(item.metrics[name].levels.keys() & set(result.profiles)) > 1
    ]
    return [_chart(run, result, *item, first=not index) for index, item in enumerate(shown_metrics)]


@dataclass(frozen=True)
class _Bar:
    """One row of the chart."""

    name: str
    subtitle: str  # the line below its name
    text: str
    start: float | None
    end: float | None
    step: TuningStep | None = None
    ends: tuple[float, ...] = ()  # of the step's interval

    @property
    def visible_values(self) -> list[float]:
        """Every value that must be visible."""
        return [value for value in (self.start, self.end, *self.ends) if value is not None]


def _chart(run: Run, result: TuningResult, scenario: Scenario, entry: StepMetric, *, first: bool) -> Chart:
    bars = _bars(result, entry)
    figure, (axes,) = new_figure(1.5 * len(bars))
    for index, bar in enumerate(bars):
        _draw(axes, index, bar)
        if bar.start is not None and bar.step and bar.step.step is StepKind.CUMULATIVE:
            axes.plot([bar.start] * 2, [index - 1 + BAR / 2, index + BAR / 2], color=SOFT, lw=0.8, zorder=2)
    singles = [index for index, bar in enumerate(bars) if bar.step and bar.step.step is StepKind.SINGLE]
    styles = [item for kind, item in STYLES.items() if any(bar.step and bar.step.kind is kind for bar in bars)]
    name = run.baseline.environment
    level = entry.levels.get(name) if name not in result.profiles else None
    if level:
        axes.axvline(level, color=BLUE, lw=1.6, zorder=1)
        styles.append(SeriesStyle(name, BLUE, "|", True))
    row_axis(axes, [f"{bar.name}\n{bar.subtitle}" for bar in bars])
    if singles:
        axes.axhline(singles[0] - 1.5, color=INK, lw=1.2)
    axes.set_xlim(0, 1.06 * max([*(value for bar in bars for value in bar.visible_values), level or 0.0]))
    axes.xaxis.set_major_formatter(lambda value, _: short_number(value))
    label = METRIC_LABELS[entry.metric.name].label
    axes.set_xlabel(label + (", µs" if entry.metric.unit == "µs" else ""))
    legend(figure, styles)
    arms = map(Arm, result.profiles)
    platforms = "".join(dict.fromkeys(platform_text(run.accelerator(arm), run.hardware(arm), ", {}") for arm in arms))
    alt = "; ".join(f"{bar.name}: {bar.text}" for bar in bars)
    return Chart(
        f"Gain of each step: {label} ({scenario_labels(run)[scenario]}{platforms})",
        _caption(result, singles=bool(singles)) if first else "Read it like the first chart.",
        f"{alt}." + (f" {name.capitalize()}: {_level_text(level, entry.metric)}." if level else ""), figure,
    )  # fmt: skip


def _bars(result: TuningResult, entry: StepMetric) -> list[_Bar]:
    cumulative = [step for step in entry.steps if step.step is StepKind.CUMULATIVE]
    single = [step for step in entry.steps if step.step is StepKind.SINGLE]
    bars = _levels(entry, str(cumulative[0].before) if cumulative else None)
    bars += [_step(step, entry.metric) for step in cumulative]
    if single:
        bars += _levels(entry, result.base, ", and on it:")
    return bars + [_step(step, entry.metric) for step in single]


def _levels(entry: StepMetric, profile: str | None, suffix: str = "") -> list[_Bar]:
    """The level that steps start from; none where the profile has no value."""
    if profile is None or profile not in entry.levels:
        return []
    text = _level_text(entry.levels[profile], entry.metric)
    return [_Bar(profile + suffix, text, text, 0.0, entry.levels[profile])]


def _step(step: TuningStep, metric: Metric) -> _Bar:
    name, text = str(step.after), step_text(step, metric)
    if step.start is None or step.gain is None:
        return _Bar(name, "no value", text, None, None, step)
    subtitle = f"{amount_text(step.gain, text=signed)} {_unit(metric)}"
    return _Bar(name, subtitle, text, step.start, step.end, step, _ends(step))


def _ends(step: TuningStep) -> tuple[float, ...]:
    """The interval of the step's gain, as levels: its start plus or minus each end; empty without an interval."""
    if step.gain is None or step.gain.ends is None or step.start is None:
        return ()
    start = step.start
    sign = 1.0 if ((step.end or 0.0) - step.start) * step.gain.value > 0 else -1.0
    return tuple(start + sign * end for end in step.gain.ends)


def _draw(axes: Axes, index: int, bar: _Bar) -> None:
    if bar.start is None or bar.end is None:
        return
    item = STYLES.get(bar.step.kind) if bar.step else None
    colour = item.colour if item else SOFT
    axes.barh(
        index, bar.end - bar.start, left=bar.start, height=BAR, edgecolor=colour, lw=1.2, zorder=3,
        facecolor=colour if bar.step is None or (item and item.filled) else "none",
        alpha=0.45 if bar.step is None else 1.0,
    )  # fmt: skip
    if bar.ends:
        axes.plot(bar.ends, [index] * len(bar.ends), color=INK, lw=1.4, zorder=4)


def _unit(metric: Metric) -> str:
    return UNITS.get(metric.unit, metric.unit)


def _level_text(value: float, metric: Metric) -> str:
    return f"{number(value)} {_unit(metric)}"


def _caption(result: TuningResult, *, singles: bool) -> str:
    text = (
        "From the top: the level of the first profile, then what each step adds to or takes from the one above it."
        " Thin line: the 95% interval of the step (paired t over blocks). Signed numbers: above zero the step is a"
        " gain."
    )
    if singles:
        text += f" Below the thick line: each change alone, from {result.base}."
    if result.skipped:
        text += f" Not measured: {', '.join(result.skipped)}."
    return text
