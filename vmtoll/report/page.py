"""HTML pages: their Jinja environment, links to glossary terms, and charts as inline SVG."""

import io
import re
from collections import Counter
from collections.abc import Collection
from functools import cache
from html import escape
from pathlib import Path

import markupsafe
import matplotlib as mpl
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from vmtoll.analysis.run import Run
from vmtoll.files import replacing
from vmtoll.model.trial import Arm
from vmtoll.report import words
from vmtoll.report.plot import CSS_COLOURS, Chart, style

TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment(*folders: Path) -> Environment:
    """Jinja with the texts and filters of every page; `folders`: more templates. An undefined variable is an error.

    One for each set of folders, since it keeps the templates that it has compiled.
    """
    page = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    page.filters |= {
        "percent": words.percent, "number": words.number, "figure": words.figure, "share": words.share,
        "signed": words.signed, "p": words.p_value, "load": words.load_text, "arm": _arm,
        "plural": words.plural, "terms": link_terms,
    }  # fmt: skip
    page.globals["w"] = words
    return page


@pass_context
def _arm(context: Context, arm: Arm) -> str:
    """The name of an environment, on a page of one run as above its columns."""
    run = context.get("run")
    return words.head_text(run, arm) if isinstance(run, Run) else words.arm_text(arm)


# Entry of the glossary → the words that link to it.
TERMS = {
    "block": r"blocks?", "interval": "interval of the ratio", "equivalent": "equivalent", "undecided": "undecided",
    "noise-floor": "A/A difference", "aa-arm": "A/A (?:arm|control)", "bound": "at least", "p99": "p99",
    "closed-loop": "closed loop", "open-loop": "open (?:loop|load)", "goodput": "goodput", "holm": "Holm",
    "boot": "one boot", "suspect": "suspect", "invalid": "invalid", "confirmed": "confirmed", "refuted": "refuted",
    "inconclusive": "inconclusive here", "test-bed": "test beds?", "cross-check": "cross-check",
    "client-limited": "client-limited", "link-limited": "link-limited", "background-cpu": "background CPU",
    "rate-sweep": "rate sweeps?", "response-time": "response times?", "service-time": "service times?",
}  # fmt: skip
_NO_TERM = r"<(a|h[1-6])\b.*?</\1>|<[^>]*>"  # links, headings and tags
_TERM = re.compile(
    "|".join([_NO_TERM, *(rf"(?P<{name.replace('-', '_')}>\b(?:{term})\b)" for name, term in TERMS.items())]),
    re.IGNORECASE | re.DOTALL,
)


def link_terms(text: str, names: Collection[str] = words.REPORT_TERMS, glossary: str = "") -> Markup:
    """The text or Markup, with a link from the first use of each term to its entry in the glossary.

    `names`: the entries that the glossary has; `glossary`: its address, unless it is on the same page.
    """
    linked: set[str] = set()

    def link(match: re.Match[str]) -> str:
        name = (match.lastgroup or "").replace("_", "-")
        if name in linked or name not in names:
            return match[0]
        linked.add(name)
        return f'<a href="{glossary}#term-{name}">{match[0]}</a>'

    return Markup(_TERM.sub(link, str(markupsafe.escape(text))))


def write(path: Path, text: str) -> Path:
    """Write a page (replaced whole) and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
    return path


_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(?:xlink:)?href="#([^"]+)"')
_URL = re.compile(r"url\(#([^)]+)\)")
_FONT = re.compile(r"'DejaVu Sans'(?:, sans-serif)?|DejaVu Sans")
_STYLE = re.compile(r' style="([^"]+)"')


def inline_svg(chart: Chart, name: str) -> str:
    """The chart as an `<svg>` element that scales with its column and follows the page's colors.

    It has a title and a description for screen readers. Every id and class in it starts with `name`, so that one page
    can hold many charts.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415 (a fifth of a second, unless it draws)

    buffer = io.StringIO()
    for patch in (chart.figure.patch, *(axes.patch for axes in chart.figure.axes)):
        patch.set(facecolor="none", edgecolor="none")
    with style(), mpl.rc_context({"svg.hashsalt": name}):
        FigureCanvasSVG(chart.figure).print_svg(buffer, metadata={"Date": None})  # type: ignore[no-untyped-call]
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = _compact(text)
    text = _ID.sub(rf'id="{name}-\1"', text)
    text = _REFERENCE.sub(rf'href="#{name}-\1"', text)
    text = _URL.sub(rf"url(#{name}-\1)", text)
    text = _FONT.sub("system-ui, sans-serif", text)
    for colour, variable in CSS_COLOURS.items():
        text = text.replace(colour, variable)
    view = re.search(r'viewBox="[^"]+"', text)
    assert view is not None
    body, classes = _classes(text[text.index(">", text.index("<svg")) + 1 :], name)
    opening = (
        f'<svg {view[0]} role="img" aria-labelledby="{name}-title {name}-alt">'
        f'<title id="{name}-title">{escape(chart.title)}</title><desc id="{name}-alt">{escape(chart.alt)}</desc>'
    )
    return opening + classes + re.sub(r"\n\s*", "\n", body).strip()


def _compact(text: str) -> str:
    """The SVG at half its size: coordinates to a tenth of a point, groups without ids, paths without line breaks."""
    text = re.sub(r'(?<=<g) id="[^"]+"', "", text)
    text = re.sub(r"<g/>\s*", "", text)
    return re.sub(r' (?:d|x|y)="[^"]+"', _rounded, text)


def _rounded(attribute: re.Match[str]) -> str:
    text = re.sub(r"(?<=\d)(?:\.0|(\.\d))\d+", lambda match: match[1] or "", attribute[0])
    return re.sub(r"\s*([MLCQz])\s*", r"\1", text)


def _classes(body: str, name: str) -> tuple[str, str]:
    """(body, `<style>` element), with each style that occurs more than once turned into a class."""
    repeated_styles = [style for style, count in Counter(_STYLE.findall(body)).items() if count > 1]
    names = {style: f"{name}-s{index}" for index, style in enumerate(repeated_styles)}
    body = _STYLE.sub(lambda match: f' class="{names[match[1]]}"' if match[1] in names else match[0], body)
    return body, f"<style>{''.join(f'.{names[style]}{{{style}}}' for style in repeated_styles)}</style>"
