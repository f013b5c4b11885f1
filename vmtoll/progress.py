"""Progress: a live line on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar


def say(message: str) -> None:
    """Print one line of what is being done."""
    print(f"vmtoll: {message}", file=sys.stderr, flush=True)


def time_left(seconds: float | None) -> str:
    """Return "4 min left", "40 s left", or nothing when it is not known."""
    if seconds is None:
        return ""
    return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


class Progress:
    """Callable with (stage, trial n, of m, message, seconds left or None), as the runner calls it.

    Stages: connect, facts, measure (a step within a trial), trial (its end), done.
    """

    def __init__(self) -> None:
        self._bar: Bar | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.fields[stage]}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None, stage="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, stage: str, n: int, m: int, message: str, seconds_left: float | None) -> None:
        left = time_left(seconds_left)
        if self._bar:
            text = f"{message}  {left}"
            self._bar.update(self._task, completed=n, total=m or None, description=text, stage=stage)
            return
        if stage == "measure":  # the steps within a trial: for the live line only
            return
        count = f" {n} of {m}" if stage == "trial" else ""
        say(f"{stage}{count}: {message}{', ' + left if left else ''}")
