"""A campaign: experiments in every cell of an inventory, the cells at the same time.

A cell is measured by a `vmtoll run --limit` of its own, which Ansible starts and waits for. What there is of a
campaign is read from its folder alone, so that the same command goes on with what is unfinished.
"""

import fcntl
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vmtoll.board import Board, last_line
from vmtoll.cells import Cell
from vmtoll.dataset import keep, write_page
from vmtoll.fan_out import FORKS, Command, Task, fan_out
from vmtoll.progress import say
from vmtoll.shell import UserError
from workloads.runner.results import write_durably
from workloads.runner.run import Plan, resolved_document

SCHEMA = 1
MEMORY_MB = 1000  # of DuckDB, when the page is written
PROGRAM = (str(Path(sys.executable).parent / "vmtoll"),)


@dataclass
class Campaign:
    """What is asked for, and `folder`, which holds what there is of it; `dataset` gets the finished runs."""

    folder: Path
    dataset: Path
    inventory: Path
    plans: Mapping[str, Plan]
    cells: Sequence[Cell]
    forks: int = FORKS
    program: Sequence[str] = PROGRAM
    failures: dict[Task, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def tasks(self) -> list[Task]:
        return [(cell.name, experiment) for cell in self.cells for experiment in self.plans]

    @property
    def total_s(self) -> float:
        """Expected wall clock, in seconds, with as many cells at once as there are forks."""
        return math.ceil(len(self.cells) / self.forks) * sum(planned.total_s for planned in self.plans.values())

    def results(self, cell: str) -> Path:
        """The folder of a cell's runs, as `results/` is that of runs alone."""
        return self.folder / "cells" / cell

    def log(self, task: Task) -> Path:
        cell, experiment = task
        return self.results(cell) / f"{experiment}.log"

    def run_of(self, task: Task, status: str) -> Path | None:
        """The newest run of a task that is `complete`, or `running`: then it was interrupted."""
        cell, experiment = task
        files = sorted((self.results(cell) / experiment).glob("*/run.json"), reverse=True)
        return next((file.parent for file in files if json.loads(file.read_text())["status"] == status), None)

    def measure(self) -> int:
        """Measure what is left, keep each finished run in the dataset, write campaign.json and the page.

        The exit code: 1 when a run is still missing. Raises UserError when another process is at it, or when an
        experiment is no longer what it was when the campaign began.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._held():
            begun = self._begun()
            left = [task for task in self.tasks if not self.run_of(task, "complete")]
            say(f"campaign {self.name}: {len(left)} of {len(self.tasks)} runs to measure, {len(self.cells)} cells")
            self._write(begun)
            with Board({task: self.log(task) for task in left}) as board:
                for task in fan_out(self._commands(left), self.folder, self.forks) if left else ():
                    board.end(task)
                    say(f"{task[0]}: {task[1]}: {'complete' if self._keep(task) else self.failures[task]}")
                    self._write(begun)
            missing = [task for task in self.tasks if not self._keep(task)]
            self._write(begun if missing else begun | {"ended_at": _now()})
            if len(missing) < len(self.tasks):
                print(f"page: {write_page(str(self.dataset), self.name, self.folder, MEMORY_MB)}")
        if missing:
            say(f"{len(missing)} of {len(self.tasks)} runs are missing; the same command goes on with these alone")
        return 1 if missing else 0

    @contextmanager
    def _held(self) -> Iterator[None]:
        with (self.folder / ".lock").open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{self.folder}: another process is running this campaign.") from None
            yield

    def _begun(self) -> dict[str, Any]:
        """What campaign.json says of the campaign as a whole. Raises UserError when an experiment has changed."""
        documents = {name: resolved_document(planned.resolved) for name, planned in self.plans.items()}
        asked: dict[str, Any] = json.loads(json.dumps(documents))
        file = self.folder / "campaign.json"
        recorded: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        before = recorded.get("experiments", {})
        for name, document in asked.items():
            if before.get(name, document) != document:
                raise UserError(
                    f"{file}: experiment {name} has changed since the campaign began (or has another scale): "
                    "begin another one with --output."
                )
        return {
            "schema": SCHEMA,
            "campaign": self.name,
            "inventory": str(self.inventory),
            "dataset": str(self.dataset),
            "started_at": recorded.get("started_at", _now()),
            "ended_at": None,
            "experiments": before | asked,
            "cells": recorded.get("cells", {}),
        }

    def _write(self, begun: Mapping[str, Any]) -> None:
        cells: dict[str, Any] = dict(begun["cells"])
        for cell in self.cells:
            runs = cells.get(cell.name, {}).get("runs", {}) | self._outcomes(cell.name)
            cells[cell.name] = {"hosts": list(cell.hosts), "runs": runs}
        text = json.dumps({**begun, "cells": cells}, indent=1, ensure_ascii=False)
        write_durably(self.folder / "campaign.json", text.encode() + b"\n")

    def _outcomes(self, cell: str) -> dict[str, dict[str, str | None]]:
        """Experiment → its run (a folder, as seen from the campaign's), its status, why it failed."""
        found: dict[str, dict[str, str | None]] = {}
        for experiment in self.plans:
            task = cell, experiment
            complete, begun = self.run_of(task, "complete"), self.run_of(task, "running")
            run, why = complete or begun, self.failures.get(task)
            status = "complete" if complete else "failed" if why else "running" if begun else "waiting"
            found[experiment] = {
                "status": status, "run": str(run.relative_to(self.folder)) if run else None, "why": why
            }  # fmt: skip
        return found

    def _keep(self, task: Task) -> bool:
        """Add the finished run of a task to the dataset, if it is not there yet; False when there is none."""
        run = self.run_of(task, "complete")
        try:
            if run is None:
                raise UserError(last_line(self.log(task)) or "it did not begin")
            keep(run, self.dataset, self.name, task[0])
        except UserError as error:
            self.failures[task] = str(error)
            return False
        self.failures.pop(task, None)
        return True

    def _commands(self, left: Sequence[Task]) -> dict[Task, Command]:
        cells = {cell.name: cell for cell in self.cells}
        return {task: Command(self._argv(cells[task[0]], task), self.log(task)) for task in left}

    def _argv(self, cell: Cell, task: Task) -> list[str]:
        """The run that measures an experiment in a cell, or goes on with one that was interrupted."""
        experiment = task[1]
        argv = [*self.program, "run", experiment, "--inventory", str(self.inventory.absolute())]
        argv += ["--results", str(self.results(cell.name).absolute())]
        if cell.limit:
            argv += ["--limit", cell.limit]
        if scale := self.plans[experiment].resolved.experiment.scale:
            argv += ["--scale", scale]
        if begun := self.run_of(task, "running"):
            argv += ["--resume", str(begun.absolute())]
        return argv


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
