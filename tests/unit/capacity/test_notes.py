"""Notes on a capacity: each has exactly the numbers of its sentence."""

import pytest

from vmtoll.capacity.notes import NoteCode, note


@pytest.mark.parametrize("values", [{}, {"blocks": 1}, {"blocks": 1, "need": 6}, {"blocks": 1, "needed": 6, "more": 2}])
def test_a_note_with_other_numbers_than_its_sentence_is_an_error(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"few-blocks: .* for \['blocks', 'needed'\]"):
        note(NoteCode.FEW_BLOCKS, **values)


def test_a_note_has_the_numbers_of_its_sentence() -> None:
    assert note(NoteCode.FEW_BLOCKS, blocks=1, needed=6).text == "1 of at least 6 blocks"
