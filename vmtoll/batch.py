"""Every experiment that repeats a published one, one after the other: resumable, and one page at the end."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vmtoll import lab
from vmtoll.conclude import conclude, replication_page
from vmtoll.progress import Progress, say
from vmtoll.shell import UserError
from workloads.runner.errors import RunnerError, WrongLinkError
from workloads.runner.experiment import Resolved, Scale
from workloads.runner.registry import Registry
from workloads.runner.results import write_durably
from workloads.runner.run import Plan, plan, resolved_document
from workloads.runner.run import run as measure

PAGE = "replication.html"


def plans(scale: Scale, registry: Registry | None = None) -> dict[str, Plan]:
    """Name → plan, of every experiment that has claims. Raises ExperimentError."""
    registry = registry or Registry()
    found = {name: plan(registry.experiment_file(name), registry, scale=scale) for name in registry.experiments()}
    return {name: planned for name, planned in found.items() if planned.resolved.experiment.claims}


class Batch:
    """What `results/all-<scale>.json` holds: the finished run of each experiment, by name; whether all is done."""

    def __init__(self, results: Path, scale: Scale) -> None:
        self.results, self.file = results, results / f"all-{scale}.json"
        self.runs: dict[str, str] = {}
        try:
            recorded = json.loads(self.file.read_text())
        except FileNotFoundError:
            return
        if not recorded["done"]:
            self.runs = recorded["runs"]

    def finished(self, resolved: Resolved) -> Path | None:
        """The experiment's run of this batch, if the experiment still says the same."""
        run_id = self.runs.get(resolved.experiment.name, "")
        folder = self.results / resolved.experiment.name / run_id
        return folder if run_id and _run_of(folder, resolved, "complete") else None

    def unfinished(self, resolved: Resolved) -> Path | None:
        """The experiment's newest run that was killed, if it was one of what the experiment says today."""
        folders = sorted((self.results / resolved.experiment.name).glob("*/run.json"), reverse=True)
        return next((file.parent for file in folders if _run_of(file.parent, resolved, "running")), None)

    def keep(self, folder: Path) -> None:
        self.runs[folder.parent.name] = folder.name
        self._write(done=False)

    def end(self) -> None:
        """The next batch begins anew."""
        self._write(done=True)

    def _write(self, *, done: bool) -> None:
        content = {"done": done, "runs": self.runs}
        write_durably(self.file, (json.dumps(content, indent=1) + "\n").encode())


def newest(results: Path) -> list[Path]:
    """The runs of the newest batch. Raises UserError when there is none."""
    files = sorted(results.glob("all-*.json"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise UserError(f"{results}: no batch (all-<scale>.json); name the runs, or begin with `vmtoll run all`.")
    return [results / name / run_id for name, run_id in json.loads(files[-1].read_text())["runs"].items()]


def run_all(
    scale: Scale, inventory: Path | None, results: Path, registry: Registry | None = None, limit: str | None = None
) -> int:
    """Measure all that is left of the batch and write the page; the exit code: 1 when an experiment failed, else 0.

    `limit`: Ansible's pattern of the hosts that take part.
    Without an inventory the embedded lab is brought up, and its link changed as each experiment wants it.
    """
    registry = registry or Registry()
    todo, batch = plans(scale, registry), Batch(results, scale)
    left = {name: planned for name, planned in todo.items() if not batch.finished(planned.resolved)}
    if batch.runs:
        say(f"going on with {batch.file}; without that file all would begin anew")
    say(f"{len(left)} of {len(todo)} experiments to measure, about {_minutes(left.values())} minutes")
    results.mkdir(parents=True, exist_ok=True)
    if left and not inventory:
        lab.up(next(iter(left.values())).resolved.experiment.link, say)
    failed: list[str] = []
    for n, (name, planned) in enumerate(todo.items(), start=1):
        say(f"experiment {n} of {len(todo)}: {name}" + (f", about {_minutes([planned])} minutes" * (name in left)))
        try:
            print(_one(planned, batch, inventory, scale, registry, limit))
        except WrongLinkError as error:
            say(f"skipped: {error}")
        except (UserError, RunnerError) as error:
            say(f"failed: {name}: {error}")
            failed.append(name)
    page = replication_page([batch.results / name / run_id for name, run_id in batch.runs.items()], results / PAGE)
    print(f"page:   {page}")
    if failed:
        say(f"{len(failed)} of {len(todo)} experiments failed: {', '.join(failed)}; the same command tries them again")
        return 1
    batch.end()
    return 0


def _minutes(planned: Iterable[Plan]) -> str:
    return f"{sum(one.total_s for one in planned) / 60:.0f}"


def _one(
    planned: Plan, batch: Batch, inventory: Path | None, scale: Scale, registry: Registry, limit: str | None
) -> str:
    """Measure one experiment, where that is still to do, and judge it; what there is to read."""
    experiment = planned.resolved.experiment
    folder = batch.finished(planned.resolved)
    if folder is None:
        file, killed = registry.experiment_file(experiment.name), batch.unfinished(planned.resolved)
        machines = inventory or lab.shaped(experiment.link, say)
        with Progress() as progress:
            folder = measure(
                file, machines, batch.results, killed, progress=progress, registry=registry, scale=scale, limit=limit
            )
        batch.keep(folder)
    return conclude(folder)


def _run_of(folder: Path, resolved: Resolved, status: str) -> bool:
    try:
        recorded: dict[str, Any] = json.loads((folder / "run.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return bool(recorded["status"] == status and recorded["experiment"] == resolved_document(resolved))
