"""Consent of the user, asked for before machines are changed."""

import sys

from vmtoll.model.errors import UserError


def ask(text: str, *, yes: bool) -> None:
    """Print what vmtoll is about to do, and ask on a terminal, unless `yes`. Raises UserError without consent."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(f"nothing was done: {text}; agree with --yes")
    print(f"{text}.\nGo on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("nothing was done")
