"""A comparison of two environments that a command asks for: its experiment, its plan, its cost, its measurement."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from vmtoll.commands.answer import print_json
from vmtoll.commands.conclude import judge
from vmtoll.commands.progress import Progress
from vmtoll.commands.run import print_plan, schedule
from vmtoll.files import write_durably
from vmtoll.guests import profiles
from vmtoll.lab import embedded, topology
from vmtoll.model.change import Change
from vmtoll.model.errors import ExperimentError, UserError
from vmtoll.model.trial import CONTAINER, CONTAINER_HOST_NETWORK
from vmtoll.model.until import Until
from vmtoll.model.workload import ClosedWorkload
from vmtoll.runner.plan import ASSUMED_RPS
from vmtoll.runner.run import Plan, on_machines, plan
from vmtoll.runner.run import run as measure
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load
from vmtoll.spec.inventory import environments_of

FOLDER = "ab"  # in the results folder: the experiments that commands wrote


@dataclass(frozen=True)
class Pair:
    """Two environments to compare. `change`: what makes the second out of the first."""

    baseline: str
    other: str
    servers: Sequence[str] = ("nginx",)
    workloads: Sequence[str] = ("site-steady",)
    blocks: int = 8
    duration_s: float = 2.0
    link: str = "unshaped"
    change: Change | None = None

    def file(self, results: Path) -> Path:
        """Where its experiment is written."""
        return results / FOLDER / f"{self.baseline}-{self.other}.yml"

    def keys(self) -> dict[str, Any]:
        """The keys of its experiment."""
        change = self.change.model_dump(exclude_defaults=True) | {"of": self.baseline} if self.change else {}
        return {
            "question": f"is {self.other} worse than {self.baseline}?",
            "environments": [self.baseline, self.other],
            "baseline": self.baseline,
            "servers": list(self.servers),
            "workloads": list(self.workloads),
            "blocks": self.blocks,
            "warmup_s": min(0.5, self.duration_s),
            "duration_s": self.duration_s,
            "link": self.link,
            "shares_of": "slowest",
            **({"changes": {self.other: change}} if change else {}),
        }

    def plan(
        self, results: Path, until: Until | None, resume: Path | None, inventory: Path | None, limit: str | None,
        at_most_min: float | None,
    ) -> Plan:  # fmt: skip
        """The plan, read from a draft of its file. Raises UserError if it would take more than `at_most_min`."""
        with TemporaryDirectory(prefix="vmtoll-ab-") as folder:
            draft = Path(folder) / self.file(results).name
            _write(draft, self.keys())
            try:
                planned = plan(load(draft, Registry()), until=until, resume=resume)
            except ExperimentError as error:
                raise error.without(draft) from None
        if inventory:
            planned = on_machines(planned, inventory, limit)
        else:
            profiles.check(planned.resolved.machines)
        _check_time(planned, at_most_min)
        return planned

    def measure(
        self, planned: Plan, results: Path, resume: Path | None, inventory: Path | None, limit: str | None
    ) -> Path:
        """Write its experiment and measure it; return the run's folder. Without an inventory: in the embedded lab."""
        say(cost_text(planned))
        _write(self.file(results), self.keys())
        machines = inventory or lab_for(planned, self.link)
        with Progress() as progress:
            return measure(planned, machines, results, resume, listener=progress, limit=limit, judge=judge)


def show(planned: Plan, *, resumed: bool, as_json: bool) -> None:
    """Print the schedule and the time it will take."""
    if as_json:
        print_json(schedule(planned))
    else:
        print_plan(planned, resumed=resumed)


def _write(file: Path, keys: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_durably(file, yaml.safe_dump(keys, sort_keys=False).encode())


def _check_time(planned: Plan, at_most_min: float | None) -> None:
    minutes = planned.total_s / 60
    if at_most_min is not None and minutes > at_most_min:
        raise UserError(
            f"it would take about {minutes:.0f} minutes, and --at-most-min is {at_most_min:g}: give fewer servers, "
            "workloads or --blocks, or a shorter --duration-s"
        )


def requests_of(planned: Plan) -> float:
    """The order of magnitude of a plan's requests, warm-ups included."""
    experiment = planned.resolved.experiment
    requests = 0.0
    for trial in planned.trials:
        load, workload = trial.scenario.load, planned.resolved.workloads[trial.scenario.workload]
        crosscheck_s = experiment.crosscheck_s if workload.crosscheck else 0.0
        seconds = experiment.warmup_s + experiment.duration_s + crosscheck_s
        request_count = workload.count(experiment.scale) if isinstance(workload, ClosedWorkload) else None
        requests += request_count or seconds * (load.value if load.kind.value == "rate" else ASSUMED_RPS)
    return requests


def requests_text(requests: float) -> str:
    """`1.2 million`, `270,000`."""
    return f"{requests / 1e6:.1f} million" if requests >= 1e6 else f"{requests:,.0f}"


def cost_text(planned: Plan) -> str:
    """`54 trials, about 9 minutes, in the order of 1.2 million requests to nginx: 10 users`; with `until` "at most"."""
    from vmtoll.report.words import load_text, plural  # noqa: PLC0415 (loads pandas)

    experiment = planned.resolved.experiment
    loads = sorted({trial.scenario.load for trial in planned.trials}, key=lambda load: load.sort_key)
    minutes = plural(math.ceil(planned.total_s / 60), "minute")
    qualifier = "at most" if experiment.until else "about"
    amount = requests_text(requests_of(planned))
    return (
        f"{len(planned.trials)} trials, {qualifier} {minutes}, in the order of {amount} requests to "
        f"{', '.join(experiment.servers)}: {', '.join(map(load_text, loads))}"
    )


def lab_for(planned: Plan, link: str) -> Path:
    """Bring up the embedded lab with the plan's environments, unless it has them; return its inventory."""
    environments = planned.resolved.machines
    if CONTAINER_HOST_NETWORK in environments:
        raise UserError(
            f"{CONTAINER_HOST_NETWORK}: the embedded lab has no such container; give an --inventory with one"
        )
    embedded.require_root()
    if not embedded.status()["up"] or not set(environments) <= environments_of(embedded.require()):
        guests = [name for name in environments if name not in Registry().no_guests()]
        described = "containers" if CONTAINER in environments else "single"
        if set(environments) & set(Registry().paths["runtime"].names()):
            described = "runtimes"
        embedded.up(link, say, topology.shape(described, guests))
    return embedded.prepare(planned.resolved, say)
