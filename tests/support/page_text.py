"""The words of an HTML page, without its pictures, styles and scripts: a line for each block of text."""

import re
from html.parser import HTMLParser

SILENT = frozenset({"style", "script", "svg", "title"})
INLINE = frozenset({"a", "b", "code", "em", "i", "small", "strong", "span", "sub", "sup"})
CELLS = frozenset({"td", "th"})


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text, self.silent = "", 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.silent += tag in SILENT
        self.text += " | " if tag in CELLS else " / " if tag == "br" else "" if tag in INLINE else "\n"

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in SILENT
        self.text += "" if tag in INLINE | CELLS else "\n"

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.text += re.sub(r"\s+", " ", data)


def words_of(html: str) -> list[str]:
    """The lines of a page or of a part of it; a row of a table has bars before its cells."""
    parser = _Words()
    parser.feed(html)
    parser.close()
    lines = (re.sub(r"\s+", " ", line).strip() for line in parser.text.split("\n"))
    return [line for line in lines if line]


def section(page: str, name: str) -> str:
    """The HTML of a section by the id of its heading, up to the next section."""
    _, found, rest = page.partition(f'aria-labelledby="{name}">')
    assert found, f"no section {name}"
    return re.split(r"<section\b|</section>", rest, maxsplit=1)[0]


def banners(page: str) -> list[str]:
    """The kinds of the notes above the headline, as they follow each other."""
    return re.findall(r'<p class="banner ([a-z]+)"', page.partition('<header class="answer">')[0])


def banners_text(page: str) -> list[str]:
    """What these notes say."""
    return words_of(page.partition("<main>")[2].partition('<header class="answer">')[0])
