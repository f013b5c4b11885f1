"""Measure what a command asks for without an experiment of the user's: its file, its plan, its machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtoll.commands.measured import measured
from vmtoll.commands.plans import check_time, cost_text
from vmtoll.guests import profiles
from vmtoll.lab import embedded, topology
from vmtoll.model.change import Change
from vmtoll.model.errors import UserError
from vmtoll.model.trial import CONTAINER, CONTAINER_HOST_NETWORK
from vmtoll.model.until import Until
from vmtoll.runner.run import Plan, on_machines, plan
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry
from vmtoll.spec.documents import Keys, drafted, write
from vmtoll.spec.experiment import load
from vmtoll.spec.inventory import environments_of

FOLDER = "ab"  # in the results folder: the experiments that commands wrote


def pair_keys(
    baseline: str, other: str, servers: Sequence[str] | None, workloads: Sequence[str] | None, *,
    blocks: int, duration_s: float, link: str, change: Change | None = None,
) -> Keys:  # fmt: skip
    """The keys of an experiment that compares two environments. `change`: what makes the second out of the first."""
    made = change.model_dump(exclude_defaults=True) | {"of": baseline} if change else {}
    return {
        "question": f"is {other} worse than {baseline}?",
        "environments": [baseline, other],
        "baseline": baseline,
        "servers": list(servers or ["nginx"]),
        "workloads": list(workloads or ["site-steady"]),
        "blocks": blocks,
        "warmup_s": min(0.5, duration_s),
        "duration_s": duration_s,
        "link": link,
        "shares_of": "slowest",
        **({"changes": {other: made}} if made else {}),
    }


@dataclass(frozen=True)
class Adhoc:
    """An experiment that a command writes, by its keys, and where it is measured: without inventory, in the lab."""

    keys: Keys
    results: Path
    inventory: Path | None
    limit: str | None = None
    resume: Path | None = None

    def plan(self, until: Until | None, at_most_min: float | None) -> Plan:
        """Plan it from a draft of its file. Raises UserError if it would take more than `at_most_min`."""
        with drafted(self.keys, self._file.name) as draft:
            planned = plan(load(draft, Registry()), self.inventory, self.limit, until=until, resume=self.resume)
        if not self.inventory:
            profiles.check(planned.resolved.machines)
        minutes = planned.total_s / 60
        way_out = "give fewer servers, workloads or --blocks, or a shorter --duration-s"
        check_time(minutes, at_most_min, f"would take about {minutes:.0f}", way_out)
        return planned

    def measure(self, planned: Plan) -> Path:
        """Write its file and measure the plan; return the run's folder."""
        say(cost_text(planned))
        write(self._file, self.keys)
        if not self.inventory:
            planned = on_machines(planned, lab_for(planned), self.limit)
        return measured(planned, self.results, self.resume)

    @property
    def _file(self) -> Path:
        return self.results / FOLDER / f"{'-'.join(self.keys['environments'])}.yml"


def lab_for(planned: Plan) -> Path:
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
        embedded.up(planned.resolved.experiment.link, say, topology.shape(described, guests))
    return embedded.prepare(planned.resolved, say)
