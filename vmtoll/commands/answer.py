"""The answer of a command: the files that it wrote, or what it changed on each machine."""

import json
from collections.abc import Mapping

from vmtoll.shell import Changes


def answer(values: Mapping[str, object], *, as_json: bool) -> None:
    """Print `name: value` lines, or one object."""
    if as_json:
        print(json.dumps(values, indent=1, default=str, ensure_ascii=False))
        return
    for name, value in values.items():
        print(f"{name}: {value}")


def answer_changes(changes: Changes, *, check: bool) -> None:
    """Print what a playbook changed on each machine (with --check: would change) as one object."""
    machines = [{"name": name, "changes": of_machine} for name, of_machine in sorted(changes.items())]
    print(json.dumps({"check": check, "machines": machines}, indent=1, ensure_ascii=False))
