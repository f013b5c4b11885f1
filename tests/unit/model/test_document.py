"""Pydantic's mistakes as vmtoll says them."""

from typing import Any, Literal

import pytest
from pydantic import Field, ValidationError, field_validator

from vmtoll.model.document import Document, first_mistake, plain_message


class Inner(Document):
    blocks: int = 1


class Made(Document):
    number: int = 1
    names: list[str] = Field(default=["a"], min_length=1, max_length=2)
    keys: dict[str, int] = Field(default={})
    inner: Inner | None = None
    word: Literal["a", "b"] = "a"
    share: float = Field(default=0.5, gt=0)

    @field_validator("number")
    @classmethod
    def _is_no_seven(cls, number: int) -> int:
        if number == 7:
            raise ValueError("Value error, or seven: give another one")
        return number


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"number": "x"}, "must be a valid integer"),
        ({"number": 7}, "Value error, or seven: give another one"),
        ({"names": []}, "must have at least 1 item, and has 0"),
        ({"names": ["a", "b", "c"]}, "must have at most 2 items, and has 3"),
        ({"keys": 3}, "must be a mapping"),
        ({"inner": 3}, "must be a mapping"),
        ({"word": "c"}, "must be 'a' or 'b'"),
        ({"share": 0.0}, "must be greater than 0"),
    ],
)
def test_a_mistake_is_part_of_a_sentence(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Made.model_validate(keys)
    assert plain_message(refused.value.errors()[0]) == said


def test_the_first_mistake_of_a_record_is_one_line() -> None:
    with pytest.raises(ValidationError) as refused:
        Made.model_validate_json('{"inner": 5, "number": "x"}')
    assert first_mistake(refused.value) == "key number: must be a valid integer (got 'x')"
