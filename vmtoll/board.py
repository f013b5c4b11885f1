"""Many logs at once: on a terminal one live line each, elsewhere nothing."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from vmtoll.fan_out import Task

TAIL_BYTES = 4096


def last_line(log: Path) -> str:
    """The last thing a command said, without the program's name; empty when it said nothing yet."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return next((line.strip().removeprefix("vmtoll: ") for line in reversed(lines) if line.strip()), "")


class Board:
    """Shows the last line of each task's log until the task has ended."""

    def __init__(self, logs: Mapping[Task, Path]) -> None:
        self._logs = dict(logs)
        console = Console(stderr=True)
        self._live = Live(get_renderable=self._table, console=console, refresh_per_second=1, transient=True)

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def end(self, task: Task) -> None:
        self._logs.pop(task, None)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for (cell, experiment), log in self._logs.copy().items():
            if said := last_line(log):
                table.add_row(cell, experiment, said)
        return table
