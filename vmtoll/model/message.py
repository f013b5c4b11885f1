"""Sentences with blanks, each beside its code, and the one set of functions that write numbers."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from string import Formatter
from typing import Any, Self

UNITS = {"1/s": "/s", "1": "", "%": "%", "percent": "%", "none": "", "": ""}
DASH = "–"


class WithText(StrEnum):
    """A code with its words, which may have blanks: `EQUIVALENT = "equivalent", "equal"`; by default the code's own."""

    text: str

    def __new__(cls, code: str, text: str | None = None) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.text = code.replace("-", " ") if text is None else text
        return member


_LEAST_RATIO, _MOST_RATIO, _NEAR_ONE = 0.001, 10_000, 1.1


def _known(value: Any) -> float | None:
    """The value as a number; None for a missing one."""
    try:
        amount = float(value)
    except TypeError:  # None, pandas.NA
        return None
    return None if math.isnan(amount) else amount


def number(value: Any) -> str:
    """Three significant digits below a thousand, whole above; a dash for a missing value."""
    amount = _known(value)
    return DASH if amount is None else f"{amount:,.0f}" if abs(amount) >= 1000 else f"{amount:.3g}"


def digits(value: float) -> str:
    """Three significant digits with trailing zeros; whole above a thousand: `0.200`, `28.0`, `14,719`."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(float(f"{abs(value):.3g}"))))
    return f"{value:,.{decimals}f}"


def short(value: float) -> str:
    """Three significant digits, whole from a hundred."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(value: float) -> str:
    """A ratio to the baseline without its ×: as `digits`, but `1.007` near one; `<0.001` and `>10,000` beyond."""
    if not _LEAST_RATIO <= value <= _MOST_RATIO:
        return "<0.001" if value < 1 else ">10,000"
    return f"{value:.3f}" if 1 <= float(f"{value:.3f}") < _NEAR_ONE else digits(value)


def figure(value: Any, unit: str) -> str:
    """A number with its unit: `14,719/s`."""
    amount = _known(value)
    return DASH if amount is None else digits(amount) + UNITS.get(unit, f" {unit}")


def level(value: float | None, unit: str) -> str:
    """The level of a side: `14,719/s`, `28.0 µs`, `1.20 ms`."""
    return duration(value, digits) if value is not None and unit == "µs" else figure(value, unit)


def signed(value: float) -> str:
    """The number with its sign, as precisely as `number`."""
    return ("+" if value > 0 else "−" if value < 0 else "") + number(abs(value))


def percent(fraction: float | None) -> str:
    """0.0213 → `2.1%`; whole numbers without a decimal."""
    if fraction is None:
        return DASH
    value = 100 * fraction
    text = f"{value:.0f}" if abs(value) >= 99.95 or abs(value - round(value)) < 0.05 else f"{value:.1f}"
    return ("0" if text == "-0" else text) + "%"


def share(value: float) -> str:
    """A share close to one, in percent, with the digits that distinguish it from one."""
    return f"{100 * value:.5g}%"


def p_value(p: float | None) -> str:
    """Two significant digits; `< 0.0001` below that, where a digit would mean nothing."""
    return DASH if p is None else "< 0.0001" if p < 0.0001 else f"{p:.2g}"


def plural(count: float, noun: str) -> str:
    """`1 block`, `6 blocks`, `2 processes`."""
    return f"{count:,.0f} {noun if count == 1 else several(noun)}"


def several(noun: str) -> str:
    """The plural of a noun."""
    return noun + ("es" if noun.endswith("s") else "s")


def duration(time_us: float, text: Callable[[float], str] = "{:.3g}".format) -> str:
    """250 → `250 µs`, 1200 → `1.2 ms`, 2e6 → `2 s`; `text`: writes its number, by default three digits at most."""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if float(f"{time_us:.3g}") >= size:
            return f"{text(time_us / size)} {unit}"
    return f"{text(time_us)} µs"


def spread(value: float, ends: Sequence[float] | None, text: Callable[[float], str] = short, unit: str = "") -> str:
    """A value with its interval: `401 ms (396 to 406)`; the value alone without one."""
    shown = f"{text(value)}{unit}"
    return f"{shown} ({' to '.join(map(text, ends))})" if ends else shown


_SPECS: Mapping[str, Callable[[Any], str]] = {
    "number": number,
    "percent": percent,
    "ratio": ratio,
    "words": lambda value: str(value).replace("_", " ").replace("-", " "),
    "list": ", ".join,
}
_PART = re.compile(r"\[([^]]*)\]")


class _Sentence(Formatter):
    """Fills blanks: `{share:percent}`, `{blocks:plural block}`, `{names:list}`, or a format of Python's."""

    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        is_count = format_spec.startswith("plural ")
        if value is None:
            return f"unknown {several(format_spec.removeprefix('plural '))}" if is_count else "unknown"
        if is_count:
            return plural(value, format_spec.removeprefix("plural "))
        return _SPECS[format_spec](value) if format_spec in _SPECS else str(format(value, format_spec))


_SENTENCE = _Sentence()


def blanks(sentence: str) -> set[str]:
    """Names of the values that the sentence has."""
    return {name for _, name, _, _ in _SENTENCE.parse(sentence) if name}


def message(sentence: str, values: Mapping[str, Any]) -> str:
    """The sentence with its blanks filled in: `{value:number} MB[ (limit {limit:.3g})]`. A part in brackets is left out
    if one of its values is missing, zero or empty.
    """

    def part(match: re.Match[str]) -> str:
        return match[1] if all(values.get(name) for name in blanks(match[1])) else ""

    return _SENTENCE.vformat(_PART.sub(part, sentence), (), values)
