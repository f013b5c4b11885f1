"""The command `replay`: a published experiment, run again on the available machines."""

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from vmtoll.commands import compare, plans
from vmtoll.commands.answer import ask
from vmtoll.commands.conclude import conclude, judge
from vmtoll.commands.help import describe
from vmtoll.commands.options import (
    BundleArgument,
    DryRunOption,
    InventoryOption,
    JsonOption,
    ResultsOption,
    ResumeOption,
    YesOption,
)
from vmtoll.commands.progress import Progress
from vmtoll.lab import embedded
from vmtoll.model.errors import SiteError, UserError
from vmtoll.model.event import Listener
from vmtoll.model.experiment import SMALLEST_BLOCKS, Claim, Experiment, NoiseFloor, TuningSteps
from vmtoll.model.run import Manifest
from vmtoll.model.site import Site
from vmtoll.model.workload import ClosedWorkload, Workload, listed
from vmtoll.paths import RESULTS
from vmtoll.runner.run import Plan, plan, remaining_plan, run
from vmtoll.shell import say
from vmtoll.sites import load_site
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, resolve
from vmtoll.spec.inventory import environments_of
from vmtoll.spec.profiles import environment_names

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


describe("replay", "vmtoll replay bundle -i lab.yml", exits={3: "not reproduced"})


def replay(
    folder: BundleArgument,
    inventory: InventoryOption = None,
    blocks: Annotated[int | None, typer.Option(min=1, help="Number of blocks (default: as published).")] = None,
    resume: ResumeOption = None,
    results: ResultsOption = RESULTS,
    dry_run: DryRunOption = False,
    between_runs_pct: compare.BetweenRunsOption = 0.0,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Re-run a published experiment here and report, per scenario, whether it was reproduced."""
    from vmtoll.publish.bundle import open_bundle, open_run  # noqa: PLC0415 (loads the analysis)

    published = open_bundle(folder)
    if dry_run:
        planned = preview(published.manifest, inventory, blocks=blocks, resume=resume)
        plans.show(planned, resumed=resume is not None, as_json=as_json)
        return
    interventions = list(interventions_of(published.manifest.experiment))
    if inventory and (restarts := published.manifest.experiment.boots - 1):
        interventions.append(f"restarts every machine under test and its KVM host, boots: {restarts + 1}")
    if interventions:
        ask(
            "the bundle's experiment runs commands, changes settings or restarts your machines: "
            + "; ".join(interventions),
            yes=yes,
        )
    machines = inventory or embedded.require()
    if not inventory:
        embedded.equip(published.manifest.workloads.values(), say)
    with Progress() as progress:
        new_run = measure_again(published.manifest, machines, results, blocks=blocks, resume=resume, listener=progress)
    conclude(new_run).show(file=sys.stderr)
    raise SystemExit(compare.show(published, open_run(new_run), between_runs_pct, as_json=as_json))


def interventions_of(experiment: Experiment) -> Iterator[str]:
    """What an experiment runs and sets on machines, beside its servers and loads: `changed: runs `make``."""
    for name, change in experiment.changes.items():
        yield from (f"{name}: runs `{command}`" for command in (change.apply, change.revert) if command)
        yield from (f"{name}: sets {key} = {value}" for key, value in {**change.values, **change.sysctls}.items())
    for name, operation in experiment.during.items():
        yield f"{name}: {operation.do}"
        yield from (f"{name}: runs `{command}`" for command in (operation.command, operation.revert) if command)


def measure_again(
    published: Manifest,
    inventory: Path,
    results: Path,
    *,
    blocks: int | None = None,
    resume: Path | None = None,
    listener: Listener | None = None,
    registry: Registry | None = None,
) -> Path:
    """Measure the experiment of a bundle's run.json again, as far as these machines can; return the new run's folder.

    Environments, servers and tools that the machines or this checkout lack are left out. Raises UserError if nothing is
    left or the site differs, and VmtollError as every run does.
    """
    resolved = _resolved_here(published, registry or Registry(), environments_of(inventory), blocks)
    return run(plan(resolved, inventory, resume=resume), results, resume, listener=listener, judge=judge)


def preview(published: Manifest, inventory: Path | None, *, blocks: int | None, resume: Path | None) -> Plan:
    """The plan of `measure_again`, without contacting a machine; without an inventory, for all environments.

    Raises UserError as `measure_again` does.
    """
    registry = Registry()
    environments = environments_of(inventory) if inventory else set(environment_names(registry))
    planned = plan(_resolved_here(published, registry, environments, blocks), inventory, resume=resume)
    return remaining_plan(planned, resume) if resume else planned


def _resolved_here(published: Manifest, registry: Registry, environments: set[str], blocks: int | None) -> Resolved:
    """The part of the published experiment that can run here, resolved. Raises UserError."""
    site = published.site
    if site is None:
        raise UserError(
            f"{published.run_id}: measured a service, which is not in the bundle; vmtoll cannot measure it again"
        )
    available = _available_part(published, registry, environments)
    experiment = available.experiment
    for name in (experiment.name, site.name, *available.workloads, *experiment.environments):
        _check_name(name)
    keys: dict[str, object] = {"boots": experiment.boots}  # set, so that no default of these machines replaces them
    if blocks is not None:
        purpose = "smoke" if blocks < SMALLEST_BLOCKS else experiment.purpose
        keys = {"blocks": blocks, "boots": min(experiment.boots, blocks), "purpose": purpose, "until": None}
    experiment = experiment.model_copy(update=keys)
    _check_site(site, registry)
    file = registry.experiment_file(experiment.name)
    return resolve(file, experiment, available.workloads, site, registry)


def _available_part(published: Manifest, registry: Registry, environments: set[str]) -> Manifest:
    """The manifest without what these machines and this checkout lack."""
    experiment, tools = published.experiment, set(registry.tools())
    workloads = {name: workload for name, workload in published.workloads.items() if tools.issuperset(workload.tools)}
    known_environments = environments & set(environment_names(registry))
    known_environments |= {name for name in experiment.profiles if name in environments}
    known_environments |= {name for name, variant in experiment.variants.items() if variant.of in known_environments}
    names_here = {
        "environments": [name for name in experiment.environments if name in known_environments],
        "servers": [name for name in experiment.servers if name in registry.servers()],
        "workloads": [name for name in experiment.workloads if name in workloads],
    }
    baseline = experiment.baseline_arm.environment
    for key, names in names_here.items():
        if not names or (key == "environments" and (baseline not in names or len(names) < 2)):
            raise UserError(
                f"experiment {experiment.name} cannot run here: of its {key} ({', '.join(getattr(experiment, key))}) "
                f"these are available: {', '.join(names) or 'none'}"
            )
    others = {
        "users": {name: users for name, users in experiment.users.items() if name in workloads},
        "noise_floor": _noise_floor(experiment.noise_floor, names_here["servers"], known_environments),
        "tuning_steps": _tuning_steps(experiment.tuning_steps, known_environments),
        "changes": {name: change for name, change in experiment.changes.items() if name in known_environments},
        "profiles": {name: made for name, made in experiment.profiles.items() if name in known_environments},
        "during": {name: operation for name, operation in experiment.during.items() if name in known_environments},
        # A replay compares verdicts, in which starts and explained trials have no part.
        "first_answer": None,
        "explain": None,
        "claims": [claim for claim in experiment.claims if _is_about(claim, names_here, workloads)],
    }
    experiment = experiment.model_copy(update=names_here | others)
    return published.model_copy(update={"experiment": experiment, "workloads": workloads})


def _noise_floor(floor: NoiseFloor | None, servers: Collection[str], known: Collection[str]) -> NoiseFloor | None:
    available = (
        [server for server in floor.servers if server in servers and floor.environment in known] if floor else []
    )
    return NoiseFloor(environment=floor.environment, servers=available) if floor and available else None


def _tuning_steps(steps: TuningSteps | None, known: Collection[str]) -> TuningSteps | None:
    """The tuning steps between available profiles; None if fewer than two profiles are left."""
    cumulative = [name for name in steps.cumulative if name in known] if steps else []
    if not steps or len(cumulative) < 2:
        return None
    single = [name for name in steps.single if name in known and steps.base in known]
    return TuningSteps(cumulative=cumulative, base=steps.base if single else None, single=single)


def _is_about(claim: Claim, names_here: Mapping[str, Collection[str]], workloads: Mapping[str, Workload]) -> bool:
    """Return whether the experiment still has every name and number of users that the claim is about."""
    sides = [side for side in (claim.of, claim.over) if side]
    names = all(
        name in names_here[f"{kind}s"]
        for side in sides
        for kind in ("server", "environment", "workload")
        for name in listed(getattr(side, kind))
    )
    return names and all(_has_users(workloads[name], side.users) for side in sides for name in listed(side.workload))


def _has_users(workload: Workload, users: int | list[int] | None) -> bool:
    if users is None or not isinstance(workload, ClosedWorkload):
        return True
    return set(listed(users)) <= set(listed(workload.users))


def _check_site(site: Site, registry: Registry) -> None:
    """Raise UserError unless the site of this checkout, which the machines serve, is the published one."""
    file = registry.site_file(site.name)
    try:
        local_site = load_site(file).model_copy(update={"description": site.description})
    except SiteError:
        local_site = None
    if local_site != site:
        raise UserError(
            f"{file} differs from the published site; write `site` of the bundle's run.json "
            "there (without its name) and provision the machines again"
        )


def _check_name(name: str) -> None:
    """Raise UserError unless this is a plain name: names from a bundle become names of folders and files."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"run.json of the bundle: {name!r} is not a name of an experiment, a workload, a site or an environment"
        )
