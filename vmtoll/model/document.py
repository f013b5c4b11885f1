"""The base of every document that a user writes or a run records."""

import re

from pydantic import BaseModel, ConfigDict, ValidationError


class Document(BaseModel):
    """Refuses unknown keys, values of a wrong type, and infinities."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def plain_message(message: str) -> str:
    """Pydantic's message as part of a sentence; vmtoll's own messages unchanged."""
    without_prefix = message.removeprefix("Value error, ")
    if without_prefix != message:
        return without_prefix
    text = message.partition(", unable to parse")[0].replace("Input should be", "must be")
    text = re.sub(r"must be (a valid dictionary|an object)( or .*)?$", "must have keys of its own", text)
    text = re.sub(r"^\w+ should have (at \w+ \d+ \w+) after validation, not (\d+)$", r"must have \1, and has \2", text)
    return {"Field required": "is missing"}.get(text, f"{text[:1].lower()}{text[1:]}")


def first_mistake(error: ValidationError) -> str:
    """The first mistake on one line: `key blocks: what is wrong (got 3)`.

    Where a value fits none of several types, vmtoll's own error comes first: it says more than those of the types.
    """
    first = min(error.errors(), key=lambda entry: entry["type"] != "value_error")
    key = ".".join(str(part) for part in first["loc"])
    value_text = "" if first["type"] == "missing" else f" (got {first['input']!r})"
    return f"{f'key {key}: ' if key else ''}{plain_message(first['msg'])}{value_text if len(value_text) < 80 else ''}"
