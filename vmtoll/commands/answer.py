"""The answer of a command: the files that it wrote, what it changed on each machine, or a table; and its question."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

from rich.console import Console
from rich.text import Text

from vmtoll.model.errors import UserError
from vmtoll.shell import Changes

# Replacements in a terminal whose encoding lacks these characters; one column each, so tables stay aligned.
_PLAIN = str.maketrans("×·–−µ…≤", "x---u~<")


def print_json(document: object, file: TextIO | None = None) -> None:
    """Print a document as JSON; values that JSON cannot hold, such as paths, become text."""
    print(json.dumps(document, indent=1, default=str, ensure_ascii=False), file=file)


def print_either(as_json: bool, document: Callable[[], object], text: Callable[[], str | Iterable[str]]) -> None:
    """Print what the user asked for, a document as JSON or a text or its lines, and make only that."""
    if as_json:
        print_json(document())
    else:
        made = text()
        print(made if isinstance(made, str) else "\n".join(made))


def answer(values: Mapping[str, object], *, as_json: bool) -> None:
    """Print `name: value` lines, or one JSON object."""
    if as_json:
        print_json(values)
        return
    for name, value in values.items():
        print(f"{name}: {value}")


def print_text(text: Text, file: TextIO | None = None) -> None:
    """Print to a file, by default stdout; in color on a terminal that supports it, unless NO_COLOR is set."""
    console = Console(file=file or sys.stdout, highlight=False)
    try:
        text.plain.encode(console.encoding)
    except UnicodeEncodeError:
        text = text.copy()
        text.plain = text.plain.translate(_PLAIN)
    console.print(text, soft_wrap=True)


def answer_changes(changes: Changes, *, check: bool) -> None:
    """Print what a playbook changed on each machine (with --check: would change) as one object."""
    machines = [{"name": name, "changes": machine_changes} for name, machine_changes in sorted(changes.items())]
    print_json({"check": check, "machines": machines})


def ask(text: str, *, yes: bool) -> None:
    """Print what vmtoll is about to do, and ask on a terminal, unless `yes`. Raises UserError without consent."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(f"nothing was done: {text}; agree with --yes")
    print(f"{text}.\nGo on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("nothing was done")
