"""The answer of a verb that writes files: a line for each, or JSON."""

import json
from collections.abc import Mapping


def answer(values: Mapping[str, object], *, as_json: bool) -> None:
    """Print `name: value` lines, or one object."""
    if as_json:
        print(json.dumps(values, indent=1, default=str, ensure_ascii=False))
        return
    for name, value in values.items():
        print(f"{name}: {value}")
