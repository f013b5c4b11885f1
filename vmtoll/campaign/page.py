"""The page of a campaign.

It has one chart per experiment, guest and headline metric: a row per scenario, a mark per test bed, a bar for the
campaign.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from vmtoll.campaign.dataset import Latency, Subject
from vmtoll.campaign.effects import BedEffect, Effect, Figures
from vmtoll.model.message import spread
from vmtoll.model.metric import TAIL, THROUGHPUT
from vmtoll.model.trial import METAL, Accelerator
from vmtoll.model.verdict import Estimate, Kind, VerdictReason
from vmtoll.report import page as pages
from vmtoll.report.plot import GUESTS, INK, SOFT, Chart, log_ticks, new_figure, row_axis, style
from vmtoll.report.words import (
    DASH,
    METRIC_LABELS,
    Sides,
    estimate_text,
    load_text,
    platform_text,
    plural,
    verdict_text,
)
from vmtoll.statistics.thresholds import MIN_TEST_BEDS

HEADLINES = (THROUGHPUT.name, TAIL.name)
MOST_ROWS = 24
# A page lists test beds one by one, and draws a mark for each, up to MOST_BEDS; of more it says how they are
# distributed, and lists the MOST_ODD oddest.
MOST_BEDS, MOST_ODD = 50, 20
_BINS = 60


def draw(effects: Sequence[Effect]) -> list[tuple[str, Chart]]:
    """(unique name, chart) of each group. A chart draws at most MOST_ROWS scenarios; the caption then says so."""
    groups: dict[tuple[str, ...], list[Effect]] = {}
    for effect in effects:
        if effect.verdict.metric.name in HEADLINES:
            platform = effect.accelerator.value, effect.hardware.value
            key = effect.experiment, effect.verdict.metric.name, str(effect.baseline), str(effect.arm), *platform
            groups.setdefault(key, []).append(effect)
    with style():
        return [(f"testbeds-{number}", _chart(entries)) for number, entries in enumerate(groups.values(), start=1)]


def label(row: Effect | Latency | Subject) -> str:
    """The scenario in words."""
    return f"{row.scenario.server} · {row.scenario.workload}, {load_text(row.scenario.load)}"


def text(effect: Effect) -> str:
    """The verdict in words, with `test bed` in place of a run's `block`."""
    verdict = effect.verdict
    if verdict.because is VerdictReason.FEW_BLOCKS:
        return f"undecided ({plural(MIN_TEST_BEDS - verdict.blocks, 'more test bed')} needed)"
    return verdict_text(verdict, Sides(str(effect.arm), str(effect.baseline))).replace("block", "test bed")


def _chart(entries: Sequence[Effect]) -> Chart:
    shown, first = entries[:MOST_ROWS], entries[0]
    figure, (axes,) = new_figure(2.2 * len(shown))
    axes.axvline(0, color=INK, lw=1.0, zorder=1)
    for row, effect in enumerate(shown):
        beds = np.log([bed.estimate.value for bed in effect.by_testbed if bed.estimate])
        if len(beds) > MOST_BEDS:
            _distribution(axes, row, beds)
        else:
            jitter = np.linspace(-0.2, 0.2, len(beds)) if len(beds) > 1 else np.zeros(len(beds))
            axes.scatter(
                beds, row + jitter, s=20, alpha=0.8, zorder=3, marker="o", facecolors="none", edgecolors=GUESTS[0]
            )  # fmt: skip
        for estimate, colour, width, order in (
            (effect.prediction, SOFT, 1.0, 2),
            (effect.verdict.estimate, INK, 3.0, 4),
        ):
            if estimate and estimate.ends:
                axes.plot(np.log(estimate.ends), [row + 0.32] * 2, color=colour, lw=width, zorder=order)
        if effect.verdict.estimate:
            mean = math.log(effect.verdict.estimate.value)
            axes.scatter(mean, row + 0.32, s=42, marker="D", color=INK, zorder=5)
    row_axis(axes, [label(effect) for effect in shown])
    _ratio_ticks(axes)
    axes.set_xlabel(f"{first.arm} ÷ {first.baseline}")
    platform = platform_text(first.accelerator, first.hardware, " ({})")
    alternative = "; ".join(
        f"{label(e)}: {text(e)}, {estimate_text(e.verdict)}, {plural(e.verdict.blocks, 'test bed')}" for e in shown
    )
    is_many = any(len(effect.by_testbed) > MOST_BEDS for effect in shown)
    marks = "Shape: how the test beds are distributed" if is_many else "Circle: a test bed"
    caption = (
        f"{marks}. Diamond: their mean; thick: its interval over test beds, as far as findings allow; "
        "thin: where one further test bed lies."
    )
    if len(entries) > len(shown):
        caption += f" The first {len(shown)} of {len(entries)} scenarios; the table has all."
    metric = METRIC_LABELS[first.verdict.metric.name].label
    title = f"{first.experiment}: {metric}, {first.arm}{platform} against {first.baseline}"
    return Chart(title, caption, alternative + ".", figure)


def _distribution(axes: Any, row: int, beds: NDArray[np.float64]) -> None:
    """Draw how many test beds lie where, as a shape above the line of a row; the height is of the largest bin."""
    counts, edges = np.histogram(beds, bins=_BINS)
    heights = 0.42 * counts / counts.max()
    axes.fill_between(
        np.repeat(edges, 2)[1:-1], row + 0.22, row + 0.22 - np.repeat(heights, 2), color=GUESTS[0], alpha=0.35, lw=0,
        zorder=3,
    )  # fmt: skip


def _ratio_ticks(axes: Any) -> None:
    """Put ticks at 1× and a few round ratios, more than an eighth of the axis apart."""
    low, high = axes.get_xlim()
    ends = math.exp(low), math.exp(high)
    marks = MaxNLocator(6).tick_values(*ends) if high - low < 1 else log_ticks(*ends)
    kept_ratios = [1.0]
    for ratio in sorted((m for m in marks if m > 0 and low <= math.log(m) <= high), key=lambda m: abs(math.log(m))):
        if all(abs(math.log(ratio / other)) > (high - low) / 8 for other in kept_ratios):
            kept_ratios.append(ratio)
    axes.xaxis.set_major_locator(FixedLocator([math.log(r) for r in kept_ratios]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{math.exp(x):.3g}×"))
    axes.set_xlim(low, high)


_KINDS = {
    Kind.SLOWER: "slower",
    Kind.FASTER: "faster",
    Kind.EQUIVALENT: "equivalent",
    Kind.UNDECIDED: "undecided",
    Kind.NOT_JUDGED: "not judged",
}


def write_page(figures: Figures, output: Path, dataset: str = "") -> Path:
    """Write the page of these figures to the file `output` (replaced whole) and return its path. `dataset`: where the
    page links to the files of a test bed; empty: it does not.
    """
    template = pages.environment()
    template.filters |= {
        "scenario": label, "text": text, "estimate": lambda effect: estimate_text(effect.verdict),
        "prediction": _prediction, "spread": _spread, "ratio": _ratio,
    }  # fmt: skip
    html = template.get_template("campaign.html.j2").render(
        figures=figures,
        sentence=sentence(figures),
        heading=_heading(figures.effects),
        experiments=list(dict.fromkeys(effect.experiment for effect in figures.effects)),
        labels={name: words.label for name, words in METRIC_LABELS.items()},
        on_testbed=_on_testbed,
        beds=len({row.testbed for row in figures.testbeds}),
        most_beds=MOST_BEDS,
        odd=figures.fleet.odd[:MOST_ODD],
        totals=_totals(figures),
        dataset=dataset,
        charts=[(name, chart, Markup(pages.inline_svg(chart, name))) for name, chart in draw(figures.effects)],
    )
    return pages.write(output, html)


def sentence(figures: Figures) -> str:
    """The campaign in one sentence."""
    trials = sum(row.valid + row.suspect + row.invalid for row in figures.testbeds)
    start = f"{plural(len({row.testbed for row in figures.testbeds}), 'test bed')}, {trials:,} trials"
    headline = [effect for effect in figures.effects if effect.verdict.metric.name in HEADLINES]
    if not headline:
        return f"{start}: no environments were compared."
    if len(headline) == 1:
        return f"{start}: {text(headline[0])} ({estimate_text(headline[0].verdict)})."
    counts = Counter(effect.verdict.kind for effect in headline)
    kinds = ", ".join(f"{words} in {counts[kind]}" for kind, words in _KINDS.items() if counts[kind])
    return f"{start}, {len(headline)} comparisons of throughput or tail: {kinds}."


def _heading(effects: Sequence[Effect]) -> str:
    is_cost = all(e.baseline.environment == METAL and e.accelerator is not Accelerator.NONE for e in effects)
    return "What virtualization costs" if is_cost else "Every environment against its baseline"


def _totals(figures: Figures) -> list[dict[str, Any]]:
    """For each experiment, the sums over its test beds."""
    totals: dict[str, Counter[str]] = {}
    for row in figures.testbeds:
        counts = totals.setdefault(row.experiment, Counter())
        counts.update(
            testbeds=1, runs=row.runs, blocks=row.blocks, valid=row.valid, suspect=row.suspect, invalid=row.invalid
        )
    return [{"experiment": experiment, **counts} for experiment, counts in totals.items()]


def _on_testbed(effect: Effect, bed: BedEffect) -> str:
    """The estimate of a test bed with the level of its interval; without an estimate, the reason."""
    if bed.estimate is None:
        return "no value" if bed.because is None else bed.because.value.replace("-", " ")
    level = "" if bed.confidence is None else f" at {100 * bed.confidence:.4g}%"
    verdict = replace(effect.verdict, estimate=bed.estimate, by_every_block=False)
    return estimate_text(verdict) + level


def _prediction(effect: Effect) -> str:
    """The interval of the ratio for a further test bed, as that of the mean beside it."""
    ends = effect.prediction and effect.prediction.ends
    return f"{ends[0]:.3g}× to {ends[1]:.3g}×" if ends else DASH


def _ratio(estimate: Estimate) -> str:
    return spread(estimate.value, estimate.ends, "{:.3f}".format, "×")


def _spread(effect: Effect) -> str:
    """The standard deviation of the log ratio between test beds, in percent."""
    return DASH if effect.between_sd is None else f"±{100 * effect.between_sd:.2g}%"
