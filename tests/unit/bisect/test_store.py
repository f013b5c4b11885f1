"""The folder of a bisection."""

from pathlib import Path

import pytest

from vmtoll.bisect import search
from vmtoll.bisect.store import FILE, name_of, opened, read, slug
from vmtoll.model.bisection import SittingAnswer, SittingResult
from vmtoll.model.errors import ResultsError, UserError


def test_a_sitting_that_was_begun_goes_on_with_the_same_share(tmp_path: Path) -> None:
    folder = tmp_path / "bisection"
    with opened(folder, ["a", "b", "c"], {}) as kept:
        sitting = search.next_sitting(kept.bisection)
        assert sitting
        kept.begin(sitting)
    with opened(folder, ["a", "b", "c"], {}) as kept:
        assert search.next_sitting(kept.bisection) == sitting
        kept.end(SittingResult(sitting=sitting, answer=SittingAnswer.BAD))
    assert (read(folder).pending, read(folder).findings[0].answer) == (None, SittingAnswer.BAD)


def test_a_skipped_candidate_does_not_end_another_sitting(tmp_path: Path) -> None:
    with opened(tmp_path / "bisection", ["a", "b", "c", "d"], {}) as kept:
        pending = search.step(kept.bisection, "b")
        kept.begin(pending)
        kept.end(
            SittingResult(
                sitting=search.step(kept.bisection, "c"), answer=SittingAnswer.SKIPPED, why="is to be skipped"
            )
        )
        assert kept.bisection.pending == pending


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "bisection", ["a", "b"], {}),
        pytest.raises(UserError, match=r"another vmtoll .*this bisection"),
        opened(tmp_path / "bisection", ["a", "b"], {}),
    ):
        pass


def test_a_bisection_without_a_record_leaves_no_folder(tmp_path: Path) -> None:
    with opened(tmp_path / "bisection", ["a", "b"], {}):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"candidates": 3}')
    with pytest.raises(ResultsError, match=rf"{FILE}: key candidates: .*move the folder"):
        read(tmp_path)


def test_names_differ_where_what_is_asked_for_differs() -> None:
    assert name_of(["a", "b"], {"apply": "x"}) != name_of(["a", "b"], {"apply": "y"})
    assert slug("c" * 40) == "c" * 12
    assert slug("linux-image-6.1") != slug("linux-image-6-1") == "linux-image-6-1"
