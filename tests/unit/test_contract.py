"""The comparison of two folders of golden outputs, and what it overlooks."""

from pathlib import Path

import pytest

from benchmarks.contract.__main__ import normal
from benchmarks.contract.compare import compare


def folders(tmp_path: Path, old: dict[str, str], new: dict[str, str]) -> tuple[Path, Path]:
    for name, files in (("old", old), ("new", new)):
        for path, text in files.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return tmp_path / "old", tmp_path / "new"


def test_equal_folders_have_no_diff(tmp_path: Path) -> None:
    files = {"help/run/stdout": "a\n", "agent/operations.txt": "b\n", ".inputs/run.json": "{}"}
    old, new = folders(tmp_path, files, files | {".inputs/run.json": "[]"})
    assert list(compare(old, new, [])) == ["part agent: equal, 1 files", "part help: equal, 1 files"]


def test_a_changed_a_missing_and_a_new_file_are_named(tmp_path: Path) -> None:
    long = "x" * 5000
    old, new = folders(
        tmp_path, {"help/a": f"{long}old\n", "help/b": "b\n", "agent/c": "c\n"},
        {"help/a": f"{long}new\n", "help/d": "d\n", "agent/c": "c\n"},
    )  # fmt: skip
    lines = list(compare(old, new, []))
    assert lines[-1] == "part help: DIFFERS: 1 changed, 1 missing, 1 new, of 2 files"
    assert "part agent: equal, 1 files" in lines
    assert {"--- old/help/a", "-b", "+d"} <= set(lines)
    assert [line[0] for line in lines if line.endswith(("xold…", "xnew…"))] == ["-", "+"], "the end of a long line"


def test_a_part_that_neither_has_is_not_equal(tmp_path: Path) -> None:
    old, new = folders(tmp_path, {"help/a": "a"}, {"help/a": "a"})
    assert list(compare(old, new, ["watch"])) == ["part watch: DIFFERS: neither folder has a file of it"]


@pytest.mark.parametrize("kept", ["p = 0.0123456789012", "2026-01-01T02:00:00Z", "results/demo/run"])
def test_figures_and_the_times_of_inputs_are_compared(kept: str) -> None:
    assert normal(kept) == kept


def test_the_temporary_folder_is_not_compared() -> None:
    assert normal("/tmp/contract-ab12cd34/tree/x") == normal("/tmp/contract-zz98yy76/tree/x")
