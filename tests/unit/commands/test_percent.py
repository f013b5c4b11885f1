"""Options in percent: a number that may be a fraction is questioned."""

import pytest
import typer

from vmtoll.commands.options import percent


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("99.9%", 99.9), ("0.5%", 0.5), ("0", 0), (30.0, 30), ("1e1", 10)]
)
def test_percentages(text: str | float, value: float) -> None:
    assert percent(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.999", "write 99.9% if .* or 0.999% if"),
        ("0.05", "write 5% if"),
        (".3", "write 30% if"),
        ("-1", "at least 0%"),
        ("nan", "limits"),
        ("five", "not a percentage"),
    ],
)
def test_what_is_questioned(text: str, words: str) -> None:
    with pytest.raises(typer.BadParameter, match=words):
        percent(text)
