"""`run all`: measure each experiment that repeats a published one, in turn; resumable, with one page at the end."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from vmtoll.commands.answer import print_either
from vmtoll.commands.conclude import Conclusion, conclude, replication_page
from vmtoll.commands.measured import measured
from vmtoll.files import write_durably
from vmtoll.lab import embedded
from vmtoll.model.document import Document
from vmtoll.model.errors import LoadError, UserError, VmtollError, WrongLinkError
from vmtoll.model.experiment import Scale
from vmtoll.model.until import Until
from vmtoll.runner.run import Plan, on_machines, plan, same_experiment
from vmtoll.runs.folder import read_manifest, runs_of
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, load

PAGE = "replication.html"


def plans(scale: Scale, registry: Registry | None = None, until: Until | None = None) -> dict[str, Plan]:
    """Name → plan of every experiment with claims; `until` applies to all of them. Raises ExperimentError."""
    registry = registry or Registry()
    experiments = [load(registry.experiment_file(name), registry, scale) for name in registry.experiments()]
    return {
        resolved.experiment.name: plan(resolved, until=until) for resolved in experiments if resolved.experiment.claims
    }


class _BatchRecord(Document):
    """Content of a batch's file."""

    done: bool
    runs: dict[str, str]


class Batch:
    """The finished runs in `results/all-<scale>.json`, by experiment; empty if that batch is done."""

    def __init__(self, results: Path, scale: Scale) -> None:
        self.results, self.file = results, results / f"all-{scale}.json"
        self.runs: dict[str, str] = {}
        record = _read(self.file) if self.file.exists() else _BatchRecord(done=True, runs={})
        if not record.done:
            self.runs = dict(record.runs)

    def finished(self, resolved: Resolved) -> Path | None:
        """The experiment's run of this batch, if the experiment has not changed."""
        run_id = self.runs.get(resolved.experiment.name, "")
        folder = self.results / resolved.experiment.name / run_id
        return folder if run_id and _is_run_of(folder, resolved, "complete") else None

    def unfinished(self, resolved: Resolved) -> Path | None:
        """The experiment's newest run that was killed, if the experiment has not changed since."""
        folders = reversed(runs_of(self.results / resolved.experiment.name))
        return next((folder for folder in folders if _is_run_of(folder, resolved, "running")), None)

    def record_run(self, folder: Path) -> None:
        self.runs[folder.parent.name] = folder.name
        self._write(done=False)

    def mark_done(self) -> None:
        """Mark the batch as done, so that the next one starts over."""
        self._write(done=True)

    def _write(self, *, done: bool) -> None:
        content = {"done": done, "runs": self.runs}
        write_durably(self.file, (json.dumps(content, indent=1) + "\n").encode())


def newest_runs(results: Path) -> list[Path]:
    """The runs of the newest batch. Raises UserError when there is none."""
    files = sorted(results.glob("all-*.json"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise UserError(f"{results}: no batch (all-<scale>.json); name the runs, or begin with `vmtoll run all`")
    return [results / name / run_id for name, run_id in _read(files[-1]).runs.items()]


def _read(file: Path) -> _BatchRecord:
    try:
        return _BatchRecord.model_validate_json(file.read_bytes())
    except ValidationError:
        raise UserError(f"{file}: not the record of a batch; remove it, and run `vmtoll run all` again") from None


@dataclass(frozen=True)
class PageWriters:
    """Functions that write the report of a run, and the page over all runs."""

    report: Callable[[Path], Conclusion] = conclude
    page: Callable[[Sequence[Path], Path], Path] = replication_page


def run_all(
    scale: Scale,
    inventory: Path | None,
    results: Path,
    registry: Registry | None = None,
    limit: str | None = None,
    writers: PageWriters = PageWriters(),
    until: Until | None = None,
    *,
    as_json: bool = False,
) -> int:
    """Measure the rest of the batch and write the page; return the exit code: 1 if an experiment failed, else 0.

    `limit`: Ansible host pattern of the machines that take part; `until`: replaces each experiment's own; `as_json`:
    print the results as one object at the end, not line by line as they come. Without an inventory, vmtoll brings up
    the embedded lab and sets its link to the rate that each experiment names.
    """
    registry = registry or Registry()
    all_plans, batch = plans(scale, registry, until), Batch(results, scale)
    pending = {name: planned for name, planned in all_plans.items() if not batch.finished(planned.resolved)}
    if batch.runs:
        say(f"resuming {batch.file}; without that file all experiments would be measured")
    say(f"{len(pending)} of {len(all_plans)} experiments to measure, about {_minutes(pending.values())} minutes")
    results.mkdir(parents=True, exist_ok=True)
    if pending and not inventory:
        embedded.up(next(iter(pending.values())).resolved.experiment.link, say)
    failed, outcomes = list[str](), list[dict[str, object]]()
    for n, (name, planned) in enumerate(all_plans.items(), start=1):
        say(
            f"experiment {n} of {len(all_plans)}: {name}"
            + (f", about {_minutes([planned])} minutes" * (name in pending))
        )
        try:
            conclusion = writers.report(_measure_if_needed(planned, batch, inventory, limit))
            if as_json:
                outcomes.append({"experiment": name, "status": "complete", **conclusion.document()})
            else:
                print(conclusion)
        except WrongLinkError as error:
            say(f"skipped: {error}")
            outcomes.append({"experiment": name, "status": "skipped", "why": str(error)})
        except VmtollError as error:
            say(f"failed: {name}: {error}")
            failed.append(name)
            outcomes.append({"experiment": name, "status": "failed", "why": str(error)})
    page = writers.page([batch.results / name / run_id for name, run_id in batch.runs.items()], results / PAGE)
    print_either(as_json, lambda: {"experiments": outcomes, "page": page}, lambda: f"page:   {page}")
    if failed:
        say(
            f"{len(failed)} of {len(all_plans)} experiments failed: {', '.join(failed)}; "
            "the same command tries them again"
        )
        return 1
    batch.mark_done()
    return 0


def _minutes(plans: Iterable[Plan]) -> str:
    return f"{sum(planned.total_s for planned in plans) / 60:.0f}"


def _measure_if_needed(planned: Plan, batch: Batch, inventory: Path | None, limit: str | None) -> Path:
    """The run of one experiment; measured or resumed if the batch has none."""
    folder = batch.finished(planned.resolved)
    if folder is None:
        if unfinished := batch.unfinished(planned.resolved):
            planned = plan(planned.resolved, resume=unfinished)
        planned = on_machines(planned, inventory or embedded.prepare(planned.resolved, say), limit)
        folder = measured(planned, batch.results, unfinished)
        batch.record_run(folder)
    return folder


def _is_run_of(folder: Path, resolved: Resolved, status: Literal["running", "complete"]) -> bool:
    try:
        manifest = read_manifest(folder)
    except LoadError:
        return False
    return manifest.status == status and same_experiment(manifest, resolved)
