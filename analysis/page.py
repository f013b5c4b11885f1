"""What the pages share: the templates, and how numbers are written in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.judge import percent
from analysis.load import load_words

TEMPLATES = Path(__file__).parent / "templates"
UNIT_WORDS = {"1/s": "/s", "1": "", "%": "%", "percent": "%", "none": "", "": ""}


def environment() -> Environment:
    """Jinja with the filters that every page uses; what a template lacks is an error."""
    page = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    page.filters |= {"percent": percent, "number": number, "figure": figure, "share": _share, "load": load_words}
    return page


def number(value: Any) -> str:
    """Three significant digits below a thousand, whole above; a dash where there is none."""
    if value is None or pd.isna(value):
        return "–"
    amount = float(value)
    return f"{amount:,.0f}" if abs(amount) >= 1000 else f"{amount:.3g}"


def figure(value: Any, unit: str) -> str:
    """A number with its unit: `14,719/s`."""
    text = number(value)
    return text if text == "–" else text + UNIT_WORDS.get(unit, f" {unit}")


def _share(value: float) -> str:
    """A share close to one, with the digits that tell it from one."""
    return f"{100 * value:.5g}%"
