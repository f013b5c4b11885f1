"""The base of every document that a user writes or a run records."""

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails


class Document(BaseModel):
    """Refuses unknown keys, values of a wrong type, and infinities."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def plain_message(mistake: ErrorDetails) -> str:
    """A mistake as part of a sentence: Pydantic's in vmtoll's words, vmtoll's own unchanged."""
    match mistake:
        case {"type": "value_error", "ctx": {"error": error}}:
            return str(error)
        case {"type": "missing"}:
            return "is missing"
        case {"type": "dict_type" | "model_type" | "model_attributes_type" | "dataclass_type"}:
            return "must be a mapping"
        case {"type": "too_short", "ctx": {"min_length": least, "actual_length": count}}:
            return f"must have at least {_items(least)}, and has {count}"
        case {"type": "too_long", "ctx": {"max_length": most, "actual_length": count}}:
            return f"must have at most {_items(most)}, and has {count}"
    text = mistake["msg"].partition(", unable to parse")[0].replace("Input should be", "must be")
    return f"{text[:1].lower()}{text[1:]}"


def _items(count: int) -> str:
    return f"{count} item{'' if count == 1 else 's'}"


def first_mistake(error: ValidationError) -> str:
    """The first mistake on one line: `key blocks: what is wrong (got 3)`.

    Where a value fits none of several types, vmtoll's own error comes first: it says more than those of the types.
    """
    first = min(error.errors(), key=lambda entry: entry["type"] != "value_error")
    key = ".".join(str(part) for part in first["loc"])
    value_text = "" if first["type"] == "missing" else f" (got {first['input']!r})"
    return f"{f'key {key}: ' if key else ''}{plain_message(first)}{value_text if len(value_text) < 80 else ''}"
