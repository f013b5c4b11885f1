"""Run the commands of many test beds: the test beds in parallel, the commands of each one in sequence."""

import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

FORKS = 20
GRACE_S = 30.0  # time that an interrupted run has to release its machines

Task = tuple[str, str]  # a test bed, and an experiment on it


@dataclass(frozen=True)
class LoggedCommand:
    """The command of a task; it appends all its output to `log`."""

    argv: Sequence[str]
    log: Path


def fan_out(commands: Mapping[Task, LoggedCommand], forks: int = FORKS) -> Generator[Task]:
    """Run all commands, as many test beds in parallel as there are forks; yield each task when its command has ended.

    A command that fails ends like any other: its log says why. Stopping the iteration, by Ctrl-C too, interrupts the
    commands that still run and waits for them.
    """
    ended_tasks: SimpleQueue[Task] = SimpleQueue()
    children = _Children()
    with ThreadPoolExecutor(forks, thread_name_prefix="testbed") as pool:
        for testbed in dict.fromkeys(testbed for testbed, _ in commands):
            pool.submit(_run_in_sequence, {t: c for t, c in commands.items() if t[0] == testbed}, children, ended_tasks)
        try:
            for _ in commands:
                yield ended_tasks.get()
        finally:
            children.interrupt()


def _run_in_sequence(
    commands: Mapping[Task, LoggedCommand], children: "_Children", ended_tasks: SimpleQueue[Task]
) -> None:
    for task, command in commands.items():
        try:
            children.run(command)
        finally:
            ended_tasks.put(task)


class _Children:
    """The running commands. Each has its own session, so that Ctrl-C reaches it only once, through `interrupt`."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, command: LoggedCommand) -> None:
        command.log.parent.mkdir(parents=True, exist_ok=True)
        with command.log.open("ab") as log:
            with self._lock:
                if self._closed:
                    return
                try:
                    child = subprocess.Popen(
                        command.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                    )
                except OSError as error:
                    log.write(f"{error}\n".encode())
                    return
                self._running.add(child)
            child.wait()
            with self._lock:
                self._running.discard(child)

    def interrupt(self) -> None:
        """Start no further command; interrupt the running ones, and kill those that do not end within GRACE_S."""
        with self._lock:
            self._closed = True
            children = list(self._running)
        for child in children:
            child.send_signal(signal.SIGINT)
        for child in children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
            child.kill()


TAIL_BYTES = 4096


def last_line(log: Path) -> str:
    """The last line in a command's log, without the program's name; empty if there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return next((line.strip().removeprefix("vmtoll: ") for line in reversed(lines) if line.strip()), "")


class Board:
    """A live table on the terminal: the last line of each task's log until the task has ended."""

    def __init__(self, logs: Mapping[Task, Path]) -> None:
        self._logs = dict(logs)
        console = Console(stderr=True)
        self._live = Live(get_renderable=self._table, console=console, refresh_per_second=1, transient=True)

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def remove(self, task: Task) -> None:
        self._logs.pop(task, None)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for (testbed, experiment), log in self._logs.copy().items():
            if line := last_line(log):
                table.add_row(testbed, experiment, line)
        return table
