"""The claims of a published experiment: each ratio as published, and as measured here with its interval."""

from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.claim import ClaimResult, Outcome
from vmtoll.model.verdict import Estimate
from vmtoll.report.plot import GUESTS, INK, SOFT, Chart, SeriesStyle, legend, log_axis, new_figure, row_axis
from vmtoll.report.words import published_text

ORDER = 5
COLOURS = {Outcome.CONFIRMED: GUESTS[1], Outcome.REFUTED: GUESTS[0], Outcome.INCONCLUSIVE: SOFT}
MARKS = {Outcome.CONFIRMED: "o", Outcome.REFUTED: "s", Outcome.INCONCLUSIVE: "o"}


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart if any claim compares two sides and has figures; its rows have the claims' numbers."""
    claims = enumerate(analysis.claims, start=1)
    shown = [(number, claim, claim.ratio) for number, claim in claims if claim.ratio is not None]
    return [_chart(shown)] if shown else []


def _chart(shown: list[tuple[int, ClaimResult, Estimate]]) -> Chart:
    figure, (axes,) = new_figure(0.95 * len(shown) + 0.6)
    visible_values = [1.0]
    for row, (_, claim, ratio) in enumerate(shown):
        colour = COLOURS[claim.outcome]
        ends = [ratio.value if end is None else end for end in (ratio.low, ratio.high)]
        axes.plot(ends, [row] * 2, color=colour, lw=2.4, solid_capstyle="butt", zorder=3)
        axes.scatter(ratio.value, row, s=46, marker=MARKS[claim.outcome], color=colour, zorder=4)
        visible_values += ends
        if (published := claim.published_ratio) is not None:
            axes.scatter(published, row, s=70, marker="D", facecolors="none", edgecolors=INK, linewidths=1.3, zorder=5)
            visible_values.append(published)
    axes.axvline(1, color=INK, lw=1.0, zorder=1)
    log_axis(axes.xaxis, min(visible_values), max(visible_values))
    axes.set_xlabel("ratio of the two sides, logarithmic")
    row_axis(axes, [str(number) for number, *_ in shown])
    outcomes = dict.fromkeys(claim.outcome for _, claim, _ in shown)
    styles = [SeriesStyle(f"here: {outcome.text}", COLOURS[outcome], MARKS[outcome], True) for outcome in outcomes]
    legend(figure, [SeriesStyle("published", INK, "D", False), *styles])
    caption = "Numbers as in the table of claims. First side ÷ second side; bar: the 95% interval over blocks."
    if any(claim.published_ratio is None for _, claim, _ in shown):
        caption += " Without a diamond: the source prints no values."
    texts = [f"{number}, {claim.says}: {published_text(claim)}" for number, claim, _ in shown]
    return Chart.of("Claims: ratios published and here", caption, texts, figure)
