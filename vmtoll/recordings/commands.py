"""Run commands as trials: each a new process, both sides of a block in random order, and read what they measured."""

import hashlib
import os
import random
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtoll.model.errors import UserError
from vmtoll.recordings.rows import Better, Row, Value

_SHELL = set("|&;<>()$`\\*?[]{}~#!\n")
_LAST_LINES = 5  # of a failed command's output, in its error


class WorseError(Exception):
    """The compared side fails, hangs or prints something else: it is worse, whatever it takes."""


@dataclass(frozen=True)
class Trial:
    """One run of a command. `status`: its exit code, below zero for a signal; `output`: its standard output."""

    wall_s: float
    cpu_s: float  # user and system time of it and of the children that it waited for
    status: int
    timed_out: bool
    output: Path
    said: str  # `its last lines: …`, of both its streams

    @property
    def problem(self) -> str:
        """Why the trial does not count; empty if it does."""
        if self.timed_out:
            return f"did not end within the --timeout; {self.said}"
        return f"ended with exit code {self.status}; {self.said}" if self.status else ""


def run_once(command: str, folder: Path, timeout_s: float | None, cpus: Collection[int] | None) -> Trial:
    """Run a command to its end; by `sh -c` only if it needs a shell. It and its children are killed at the timeout.

    Raises UserError for a program that is not there.
    """
    argv = ["sh", "-c", command] if _SHELL & set(command) else shlex.split(command)
    output, errors = folder / "output", folder / "errors"
    killed = threading.Event()
    with output.open("wb") as stdout, errors.open("wb") as stderr:
        began = time.perf_counter()
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
                preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None,  # noqa: PLW1509 (no thread here)
            )  # fmt: skip
        except OSError as error:
            raise UserError(f"{argv[0]}: {error.strerror}; correct --run") from None

        def kill() -> None:
            killed.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(timeout_s or threading.TIMEOUT_MAX, kill)
        timer.daemon = True
        timer.start()
        try:
            _, waited, usage = os.wait4(process.pid, 0)
            wall_s = time.perf_counter() - began
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            timer.cancel()
    process.returncode = status = os.waitstatus_to_exitcode(waited)
    lines = [line for file in (output, errors) for line in file.read_text(errors="replace").splitlines()]
    said = f"its last lines: {' / '.join(lines[-_LAST_LINES:])}" if lines else "it printed nothing"
    return Trial(wall_s, usage.ru_utime + usage.ru_stime, status, killed.is_set(), output, said)


def time_values(trial: Trial) -> list[Value]:
    """What is measured without another way: the time of a trial, and its CPU time."""
    return [
        Value("time", trial.wall_s, Better.LOWER, unit="s"), Value("CPU time", trial.cpu_s, Better.LOWER, unit="s"),
    ]  # fmt: skip


def pattern_values(pattern: str, better: Better | None) -> Callable[[Trial], list[Value]]:
    """A reader of the numbers that a pattern finds in the output: of its group, or of the groups by their names.

    Raises UserError for a pattern without a group.
    """
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise UserError(f"--value {pattern}: {error}") from None
    if not compiled.groups:
        raise UserError(f"--value {pattern}: has no group; put the number in parentheses: 'Requests/sec: +([0-9.]+)'")
    names = {number: name for name, number in compiled.groupindex.items()}
    if not names:
        names = {group: f"value {group}" if compiled.groups > 1 else "value" for group in range(1, compiled.groups + 1)}

    def values(trial: Trial) -> list[Value]:
        found = list(compiled.finditer(trial.output.read_text(errors="replace")))
        if not found:
            raise UserError(f"--value {pattern}: not in the output; {trial.said}")
        try:
            return [
                Value(name, float(match[group]), better, replicate=number)
                for number, match in enumerate(found, start=1)
                for group, name in names.items() if match[group] is not None
            ]  # fmt: skip
        except ValueError:
            raise UserError(f"--value {pattern}: {found[0][0]!r} is not a number") from None

    return values


@dataclass
class Runner:
    """Runs the sides of each block. `sides`: name → command, the baseline first; `values`: reads what a trial measured;
    `prepare`: runs before each trial; `same_output`: both sides must print the same.
    """

    sides: dict[str, str]
    values: Callable[[Trial], list[Value]]
    prepare: str = ""
    timeout_s: float | None = None
    cpus: Collection[int] | None = None
    same_output: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        self._rng, self._order = random.Random(self.seed), list[str]()
        self._digest = ""
        self.baseline = next(iter(self.sides))

    def block(self, number: int) -> Iterator[Row]:
        """Run each side once. Every second block has the order of the one before it reversed.

        Raises UserError if the baseline fails, WorseError if another side does.
        """
        if self.same_output and not self._digest:
            self.trial(self.baseline)  # what the others must print
        if number % 2:
            self._order = self._rng.sample(list(self.sides), k=len(self.sides))
        for side in self._order if number % 2 else reversed(self._order):
            for value in self.trial(side):
                yield Row(number, side, value)

    def trial(self, side: str) -> list[Value]:
        """What one run of a side measured. Raises UserError, WorseError."""
        is_baseline = self.sides[side] == self.sides[self.baseline]
        with tempfile.TemporaryDirectory(prefix="vmtoll-judge-") as folder:
            if self.prepare and (problem := run_once(self.prepare, Path(folder), self.timeout_s, None).problem):
                raise UserError(f"--prepare {self.prepare}: {problem}")
            trial = run_once(self.sides[side], Path(folder), self.timeout_s, self.cpus)
            problem = trial.problem
            if not problem and self.same_output:
                digest = hashlib.sha256(trial.output.read_bytes()).hexdigest()
                self._digest = self._digest or (digest if is_baseline else "")
                problem = "" if digest == self._digest else f"printed something else; {trial.said}"
            if problem:
                text = f"{self.sides[side]}: {problem}"
                raise UserError(text) if is_baseline else WorseError(text)
            return self.values(trial)


def shell(commands: Sequence[str], option: str, timeout_s: float | None = None) -> None:
    """Run commands that prepare a page. Raises UserError for one that fails."""
    for command in commands:
        with tempfile.TemporaryDirectory(prefix="vmtoll-judge-") as folder:
            if problem := run_once(command, Path(folder), timeout_s, None).problem:
                raise UserError(f"{option} {command}: {problem}")
