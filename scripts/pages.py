"""What mkdocs does not do by itself with pages that are written for a repository's browser."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_LINK = re.compile(r"\[([^]]*)\]\(([^)#:\s]+)/\)")


def _slug(heading: str, separator: str) -> str:
    """The anchor of a heading, as repositories' browsers make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", separator)


def on_config(config: "MkDocsConfig") -> None:
    """Give headings the anchors that the pages' links name."""
    config.mdx_configs["toc"] = {"slugify": _slug, "permalink": True}


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Link to what a folder has for a reader: its page or its report. A folder without either is named only."""
    pages = Path(config.docs_dir)
    folder = (pages / page.file.src_uri).parent

    def to_file(link: re.Match[str]) -> str:
        text, target = link.groups()
        for name in ("README.md", "report.html", "replication.html"):
            if (folder / target / name).is_file():
                return f"[{text}]({target}/{name})"
        return text

    return _LINK.sub(to_file, markdown)
