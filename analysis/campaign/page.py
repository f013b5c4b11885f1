"""campaign.html: what virtualization costs over all cells, how much they differ, and what each rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from analysis.campaign.chart import HEADLINES, draw, label
from analysis.judge import EQUIVALENT, INVALID, KVM_FASTER, METAL_FASTER, NOT_DISTINGUISHABLE, estimate_words
from analysis.page import environment
from analysis.svg import inline_svg

_WORDS = {
    METAL_FASTER: "metal is faster",
    KVM_FASTER: "the guest is faster",
    EQUIVALENT: "they are equivalent",
    NOT_DISTINGUISHABLE: "they are not distinguishable",
    INVALID: "nothing can be said",
}


def write_page(figures: Mapping[str, Any], output: Path) -> Path:
    """Write the page of what analysis.campaign returned to the file `output`, replaced whole; its path."""
    effects = figures["effects"]
    page = environment()
    page.filters |= {"estimate": estimate_words, "scenario": label, "prediction": _prediction, "spread": _spread}
    text = page.get_template("campaign.html.j2").render(
        figures=figures,
        effects=effects,
        sentence=_sentence(figures),
        experiments=list(dict.fromkeys(one["experiment"] for one in effects)),
        charts=[(name, chart, Markup(inline_svg(chart, name))) for name, chart in draw(effects)],
    )
    draft = output.with_suffix(".html.part")
    draft.write_text(text, encoding="utf-8")
    return draft.replace(output)


def _sentence(figures: Mapping[str, Any]) -> str:
    cells = len({row["cell"] for row in figures["cells"]})
    headline = [one for one in figures["effects"] if one["metric"] in HEADLINES]
    words = f"{cells} cell{'' if cells == 1 else 's'}, {_trials(figures['cells'])} trials"
    if not headline:
        return f"{words}: no guest was compared with metal."
    if len(headline) == 1:
        return f"{words}: {headline[0]['text']} ({estimate_words(headline[0])})."
    counted = Counter(one["kind"] for one in headline)
    told = ", ".join(f"{word} in {counted[kind]}" for kind, word in _WORDS.items() if counted[kind])
    return f"{words}, {len(headline)} comparisons of throughput or tail: {told}."


def _trials(rows: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(row[verdict] for row in rows for verdict in ('valid', 'suspect', 'invalid')):,}"


def _prediction(one: Mapping[str, Any]) -> str:
    """The interval for a further cell, in the units of the estimate."""
    low, high = one["prediction_low"], one["prediction_high"]
    if low is None:
        return "–"
    if one["effect_is"] == "overhead":
        return f"{100 * (1 - high):.1f}% to {100 * (1 - low):.1f}%"
    return f"{low:.2f}× to {high:.2f}×"


def _spread(one: Mapping[str, Any]) -> str:
    """The standard deviation between cells, of the ratio, in percent."""
    return "–" if one["between_sd"] is None else f"±{100 * one['between_sd']:.2g}%"
