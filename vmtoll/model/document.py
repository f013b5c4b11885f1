"""The base of every document that a user writes or a run records."""

from pydantic import BaseModel, ConfigDict, ValidationError


class Document(BaseModel):
    """No unknown key, no value of a wrong type, no infinity."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def plain(message: str) -> str:
    """Pydantic's message as a part of a sentence; one of our own as it is."""
    without_prefix = message.removeprefix("Value error, ")
    if without_prefix != message:
        return without_prefix
    text = message.partition(", unable to parse")[0].replace("Input should be", "must be")
    return {"Field required": "is missing"}.get(text, f"{text[:1].lower()}{text[1:]}")


def first_mistake(error: ValidationError) -> str:
    """`key block: what is wrong (got 3)`, of one error on one line.

    Where a value fits none of several types, an error of our own says more than those of the types.
    """
    first = min(error.errors(), key=lambda entry: entry["type"] != "value_error")
    key = ".".join(str(part) for part in first["loc"])
    given = "" if first["type"] == "missing" else f" (got {first['input']!r})"
    return f"{f'key {key}: ' if key else ''}{plain(first['msg'])}{given if len(given) < 80 else ''}"
