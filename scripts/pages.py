"""What mkdocs does not do by itself with pages that are written for a repository's browser."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_STYLE = """<style>
pre, .table-scroll { overflow-x: auto; }
pre:focus-visible, .table-scroll:focus-visible { outline: 3px solid #b35c00; outline-offset: 2px; }
[role=main] { overflow-wrap: break-word; }
[role=main] img { max-width: 100%; height: auto; }
:not(pre) > code { overflow-wrap: anywhere; white-space: normal; }
.table-scroll code { overflow-wrap: normal; }
[data-bs-theme=light] { --bs-link-color-rgb: 0, 90, 156; --bs-link-hover-color-rgb: 0, 60, 110; }
[data-bs-theme=light] .bs-sidebar .nav-link { color: #005a9c; }
@media print {
  .navbar, footer, .bs-sidebar, .headerlink { display: none; }
  :root { color-scheme: light !important; }
  body { background: #fff !important; padding: 0; }
  [role=main], [role=main] * { color: #000 !important; background: none !important; box-shadow: none !important; }
  pre, pre code { white-space: pre-wrap !important; overflow-wrap: anywhere; }
  pre, .table-scroll { overflow: visible; }
  tr, pre, img { break-inside: avoid; }
}
</style>
"""
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
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


def on_page_content(html: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Let wide tables and code scroll by themselves, also by the keyboard."""
    html = html.replace("<pre>", '<pre tabindex="0">')
    return _TABLE.sub(lambda table: f'<div class="table-scroll" tabindex="0">{table[0]}</div>', html)


def on_post_page(output: str, page: "Page", config: "MkDocsConfig") -> str:
    """Make the bar of links a landmark, and add the styles of the two."""
    output = output.replace(
        '<div class="navbar fixed-top', '<div role="navigation" aria-label="Pages" class="navbar fixed-top'
    )
    return output.replace("</head>", f"{_STYLE}</head>")
