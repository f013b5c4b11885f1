"""Turn a matplotlib figure into SVG that may stand in an HTML page many times over."""

from __future__ import annotations

import io
import re
from html import escape

import matplotlib as mpl

from analysis.plot import CSS_COLOURS, Chart, style

_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(?:xlink:)?href="#([^"]+)"')
_URL = re.compile(r"url\(#([^)]+)\)")
_FONT = re.compile(r"'DejaVu Sans'(?:, sans-serif)?|DejaVu Sans")


def inline_svg(chart: Chart, name: str) -> str:
    """The chart as an `<svg>` element: scales with its column, follows the page's colours, is named to
    screen readers, and every id in it starts with `name`.
    """
    with style(), mpl.rc_context({"svg.hashsalt": name}):
        buffer = io.StringIO()
        chart.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = _ID.sub(rf'id="{name}-\1"', text)
    text = _REFERENCE.sub(rf'href="#{name}-\1"', text)
    text = _URL.sub(rf"url(#{name}-\1)", text)
    text = _FONT.sub("system-ui, sans-serif", text)
    for colour, variable in CSS_COLOURS.items():
        text = text.replace(colour, variable)
    view = re.search(r'viewBox="[^"]+"', text)
    assert view is not None
    opening = (
        f'<svg {view[0]} role="img" aria-labelledby="{name}-title {name}-alt">'
        f'<title id="{name}-title">{escape(chart.title)}</title><desc id="{name}-alt">{escape(chart.alt)}</desc>'
    )
    body = text[text.index(">", text.index("<svg")) + 1 :]
    return opening + re.sub(r"\n\s*", "\n", body).strip()
