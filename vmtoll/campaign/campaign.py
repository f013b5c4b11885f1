"""A campaign: experiments on every test bed of an inventory, the test beds in parallel.

A separate `vmtoll run --limit` measures each test bed. The state of a campaign is in its folder alone, so the same
command resumes it.
"""

import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from vmtoll.campaign.fan_out import FORKS, Board, LoggedCommand, Task, fan_out, last_line
from vmtoll.campaign.objects import Bucket, Location
from vmtoll.campaign.store import add_run, measured, write_page
from vmtoll.campaign.testbeds import Bed
from vmtoll.files import locked, write_durably
from vmtoll.model.document import Document
from vmtoll.model.errors import RunInterruptedError, UserError, VmtollError
from vmtoll.model.experiment import Experiment, Scale
from vmtoll.model.site import DrawnSite, ListedSite
from vmtoll.model.workload import Workload
from vmtoll.runner.run import Plan
from vmtoll.runs.folder import read_manifest, runs_of
from vmtoll.shell import say

MEMORY_MB = 1000  # of DuckDB, when the page is written
PROGRAM = (str(Path(sys.executable).parent / "vmtoll"),)


class PlannedExperiment(Document):
    """An experiment with everything it names, as it was when the campaign began."""

    experiment: Experiment
    workloads: dict[str, Workload]
    site: ListedSite | DrawnSite | None


class RunOutcome(Document):
    """The outcome of an experiment on a test bed."""

    status: Literal["complete", "failed", "running", "waiting"]
    run: str | None  # its folder, relative to the campaign's
    why: str | None  # why it failed


class BedOutcome(Document):
    """The machines of a test bed, and each experiment's outcome."""

    hosts: list[str]
    runs: dict[str, RunOutcome]


class Record(Document):
    """campaign.json."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal[2] = Field(default=2, alias="schema")
    campaign: str
    inventory: str
    dataset: str
    started_at: str
    ended_at: str | None = None
    experiments: dict[str, PlannedExperiment]
    testbeds: dict[str, BedOutcome] = Field(default_factory=dict)


@dataclass
class Campaign:
    """A planned campaign. `folder` holds its measurements so far; `dataset` gets the finished runs."""

    folder: Path
    dataset: Location
    inventory: Path
    plans: Mapping[str, Plan]
    testbeds: Sequence[Bed]
    forks: int = FORKS
    program: Sequence[str] = PROGRAM
    failures: dict[Task, str] = field(default_factory=dict)
    page: Path | None = None  # once it is written
    # the campaign that this one is a part of, as one test bed by itself: its name counts, and no page is written
    of: str | None = None

    @property
    def name(self) -> str:
        return self.of or self.folder.name

    @property
    def tasks(self) -> list[Task]:
        return [(bed.name, experiment) for bed in self.testbeds for experiment in self.plans]

    @property
    def total_s(self) -> float:
        """Expected wall clock, in seconds, with as many test beds in parallel as there are forks."""
        return math.ceil(len(self.testbeds) / self.forks) * sum(plan.total_s for plan in self.plans.values())

    def results(self, bed: str) -> Path:
        """The folder of a test bed's runs, laid out like `results/`."""
        return self.folder / "testbeds" / bed

    def log(self, task: Task) -> Path:
        bed, experiment = task
        return self.results(bed) / f"{experiment}.log"

    def run_of(self, task: Task, status: Literal["running", "complete"]) -> Path | None:
        """The newest run of a task with this status; a `running` one is under way or was interrupted."""
        bed, experiment = task
        folders = reversed(runs_of(self.results(bed) / experiment))
        return next((folder for folder in folders if read_manifest(folder).status == status), None)

    def measure(self) -> int:
        """Measure what is left, add each finished run to the dataset, and write campaign.json and the page.

        Returns the exit code: 1 when a run is still missing. Raises UserError when another process runs this campaign,
        or when an experiment has changed since the campaign began; RunInterruptedError on ^C after a run has begun. A
        new campaign that ^C stops before its first run leaves no folder.
        """
        is_new = not self.folder.exists()
        try:
            return self._measure()
        except KeyboardInterrupt:
            if any(self.run_of(task, "running") or self.run_of(task, "complete") for task in self.tasks):
                raise RunInterruptedError(self.folder) from None
            if is_new:
                shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _measure(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.locked():
            record = self._new_record()
            if isinstance(self.dataset, Bucket):
                self.dataset.check()
            remaining = [task for task in self.tasks if not self.is_done(task)]
            beds = len(self.testbeds)
            say(f"campaign {self.name}: {len(remaining)} of {len(self.tasks)} runs to measure, {beds} test beds")
            self._write(record)
            with (
                Board({task: self.log(task) for task in remaining}) as board,
                closing(fan_out(self._commands(remaining), self.forks)) as ended_tasks,
            ):
                for task in ended_tasks:
                    board.remove(task)
                    say(f"{task[0]}: {task[1]}: {'complete' if self._add_to_dataset(task) else self.failures[task]}")
                    self._write(record)
            missing = [task for task in self.tasks if not self._add_to_dataset(task)]
            self._write(record if missing else record.model_copy(update={"ended_at": _now()}))
            if len(missing) < len(self.tasks) and not self.of:
                self.page = write_page(str(self.dataset), self.name, self.folder, MEMORY_MB)
        if missing:
            say(f"{len(missing)} of {len(self.tasks)} runs are missing; the same command measures these alone")
        return 1 if missing else 0

    def locked(self) -> AbstractContextManager[None]:
        """Hold the campaign's folder, which is there. Raises UserError while another process holds it."""
        busy = f"{self.folder}: another process is running this campaign; wait for it, or choose another --output"
        return locked(self.folder / ".lock", UserError(busy))

    def _new_record(self) -> Record:
        """The record for campaign.json, with earlier experiments. Raises UserError when an experiment has changed."""
        planned = {
            name: PlannedExperiment(
                experiment=plan.resolved.experiment, workloads=dict(plan.resolved.workloads), site=plan.resolved.site
            )
            for name, plan in self.plans.items()
        }
        file = self.folder / "campaign.json"
        recorded = _read(file) if file.exists() else None
        recorded_experiments = recorded.experiments if recorded else {}
        for name, experiment in planned.items():
            if recorded_experiments.get(name, experiment) != experiment:
                raise UserError(
                    f"{file}: experiment {name} has changed since the campaign began (or has another scale); "
                    "begin another one with --output"
                )
        return Record(
            campaign=self.name,
            inventory=str(self.inventory),
            dataset=str(self.dataset),
            started_at=recorded.started_at if recorded else _now(),
            experiments=recorded_experiments | planned,
            testbeds=recorded.testbeds if recorded else {},
        )

    def _write(self, record: Record) -> None:
        beds = dict(record.testbeds)
        for bed in self.testbeds:
            earlier = beds[bed.name].runs if bed.name in beds else {}
            outcomes = {experiment: self.outcome((bed.name, experiment)) for experiment in self.plans}
            beds[bed.name] = BedOutcome(hosts=list(bed.hosts), runs=earlier | outcomes)
        text = record.model_copy(update={"testbeds": beds}).model_dump_json(indent=1, by_alias=True)
        write_durably(self.folder / "campaign.json", text.encode() + b"\n")

    def is_done(self, task: Task) -> bool:
        """Whether a task needs no run: it has a complete one here, or the dataset has one from another machine."""
        return self.run_of(task, "complete") is not None or self._is_elsewhere(task)

    def is_bed_done(self, bed: str) -> bool:
        """Whether all runs of a test bed are in the dataset, measured here or by its own job."""
        return all((bed, experiment) in self._in_dataset for experiment in self.plans)

    def _is_elsewhere(self, task: Task) -> bool:
        """Whether the dataset has a run of a task of which this folder knows nothing."""
        return task in self._in_dataset and not (self.run_of(task, "complete") or self.run_of(task, "running"))

    @cached_property
    def _in_dataset(self) -> set[Task]:
        """The tasks that the dataset had a run of when it was first asked; of a single test bed, its own alone."""
        return measured(self.dataset, self.name, self.testbeds[0].name if len(self.testbeds) == 1 else None)

    def outcome(self, task: Task) -> RunOutcome:
        """The outcome of a task so far."""
        running, why = self.run_of(task, "running"), self.failures.get(task)
        run = self.run_of(task, "complete") or running
        status: Literal["complete", "failed", "running", "waiting"] = "running" if running else "waiting"
        if why:
            status = "failed"
        if self.is_done(task):
            status = "complete"
        return RunOutcome(status=status, run=str(run.relative_to(self.folder)) if run else None, why=why)

    def _add_to_dataset(self, task: Task) -> bool:
        """Add the finished run of a task to the dataset, if it is not there yet.

        Returns False, and records the failure, when there is no such run or it cannot be added.
        """
        run = self.run_of(task, "complete")
        try:
            if run is None and self._is_elsewhere(task):
                return True
            if run is None:
                raise UserError(last_line(self.log(task)) or f"the run did not start; see {self.log(task)}")
            add_run(run, self.dataset, self.name, task[0])
        except VmtollError as error:
            self.failures[task] = str(error)
            return False
        self.failures.pop(task, None)
        return True

    def _commands(self, tasks: Sequence[Task]) -> dict[Task, LoggedCommand]:
        beds = {bed.name: bed for bed in self.testbeds}
        return {task: LoggedCommand(self._argv(beds[task[0]], task), self.log(task)) for task in tasks}

    def _argv(self, bed: Bed, task: Task) -> list[str]:
        """The command that measures an experiment on a test bed, or resumes an interrupted run of it."""
        experiment = task[1]
        argv = [*self.program, "run", experiment, "--inventory", str(self.inventory.absolute())]
        argv += ["--results", str(self.results(bed.name).absolute())]
        scale: Scale | None = self.plans[experiment].resolved.experiment.scale
        running = self.run_of(task, "running")
        options = {"--limit": bed.limit, "--scale": scale, "--resume": running and str(running.absolute())}
        return argv + [word for option, value in options.items() if value for word in (option, value)]


def bed_states(
    folder: Path, beds: Sequence[str], active: Mapping[str, str], last_lines: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Test bed → its `state`: that of its job while it is `active`, else `done`, or `ended` with `why`.

    `folder`: of a campaign whose test beds are jobs; each has its own campaign.json.
    """
    states: dict[str, dict[str, str]] = {}
    for bed in beds:
        file = folder / "jobs" / bed / "campaign.json"
        record = _read(file) if file.exists() else None
        outcomes = list(record.testbeds[bed].runs.values()) if record and bed in record.testbeds else []
        if bed in active:
            states[bed] = {"state": active[bed]}
        elif outcomes and all(outcome.status == "complete" for outcome in outcomes):
            states[bed] = {"state": "done"}
        else:
            causes = [outcome.why for outcome in outcomes if outcome.why] or [
                last_lines.get(bed, "its job printed nothing")
            ]
            states[bed] = {"state": "ended", "why": causes[0]}
    return states


def _read(file: Path) -> Record:
    try:
        return Record.model_validate_json(file.read_bytes())
    except ValidationError:
        raise UserError(f"{file}: not a campaign of this version; begin another one with --output") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
