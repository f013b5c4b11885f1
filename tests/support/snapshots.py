"""What the program says, as text files beside the tests: one a page, compared as a whole, written again on demand."""

import os
from collections.abc import Iterable, Mapping
from difflib import unified_diff
from pathlib import Path

import pytest

WRITE = "WRITE_SNAPSHOTS"
# Heading → case → its text, or its lines.
Sections = Mapping[str, Mapping[str, Iterable[str]]]


def assert_snapshot(file: Path, sections: Sections) -> None:
    """Compare the sections with the file; with WRITE_SNAPSHOTS=1 in the environment, write the file."""
    text = "\n".join(f"# {heading}\n\n{_cases(cases)}" for heading, cases in sections.items())
    if os.environ.get(WRITE):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    kept = file.read_text(encoding="utf-8") if file.exists() else ""
    if text != kept:
        diff = unified_diff(kept.splitlines(), text.splitlines(), f"{file.name} (kept)", "now", lineterm="")
        again = f"If the words are right, write them again and read the diff: {WRITE}=1 pytest <this test>"
        pytest.fail("\n".join([*diff, again]), pytrace=False)


def _cases(cases: Mapping[str, Iterable[str]]) -> str:
    """The name of each case, with its text indented below."""
    texts = {name: said if isinstance(said, str) else "\n".join(said) for name, said in cases.items()}
    return "".join(f"{name}\n{_indented(text or '(nothing)')}\n" for name, text in texts.items())


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))
