"""What benchmarks write into documents."""

from pathlib import Path

import pytest

from benchmarks import write_measured


@pytest.mark.parametrize("before", ["", "old\n"])
def test_a_table_takes_its_place_and_no_others(before: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- measured: a -->\n{before}<!-- end -->\nkept\n<!-- measured: b -->\nother\n<!-- end -->\n")
    write_measured(page, "a", "new")
    assert page.read_text() == (
        "<!-- measured: a -->\nnew\n<!-- end -->\nkept\n<!-- measured: b -->\nother\n<!-- end -->\n"
    )
