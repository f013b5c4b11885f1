"""Run a published experiment again on the machines at hand."""

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from vmtoll.shell import UserError
from workloads.runner.bench import Progress
from workloads.runner.experiment import SMALLEST_BLOCKS
from workloads.runner.inventory import read_inventory
from workloads.runner.registry import METAL, Registry
from workloads.runner.run import run
from workloads.sites import SiteError, load_site

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def replay(
    published: dict[str, Any],
    inventory: Path,
    results: Path,
    *,
    blocks: int | None = None,
    resume: Path | None = None,
    progress: Progress | None = None,
    registry: Registry | None = None,
) -> Path:
    """Measure the experiment of a bundle's run.json again, as far as these machines can; the new run's folder.

    What the machines or this checkout do not have (environments, servers, tools) is left out. Raises UserError
    when nothing is left or the site is another one, RunnerError as every run does.
    """
    registry = registry or Registry()
    experiment = _possible(published["experiment"], registry, _environments(inventory))
    if blocks is not None:
        purpose = "smoke" if blocks < SMALLEST_BLOCKS else experiment["purpose"]
        experiment |= {"blocks": blocks, "purpose": purpose}
    _same_site(experiment["resolved"]["site"], registry)
    with tempfile.TemporaryDirectory(prefix="vmtoll-replay-") as folder:
        file = _write_project(Path(folder), experiment, registry)
        return run(file, inventory, results, resume, progress=progress, registry=Registry(Path(folder)))


def _environments(inventory: Path) -> set[str]:
    hosts = read_inventory(inventory).get("_meta", {}).get("hostvars", {})
    return {str(facts["vmtoll_environment"]) for facts in hosts.values() if "vmtoll_environment" in facts}


def _possible(experiment: dict[str, Any], registry: Registry, environments: set[str]) -> dict[str, Any]:
    """The experiment without what is not here."""
    tools = set(registry.tools())
    workloads = {
        name: workload for name, workload in experiment["resolved"]["workloads"].items() if _tools(workload) <= tools
    }
    there = environments & set(registry.environments())
    kept = experiment | {
        "environments": [e for e in experiment["environments"] if e in there],
        "servers": [s for s in experiment["servers"] if s in registry.servers()],
        "workloads": list(workloads),
        "resolved": experiment["resolved"] | {"workloads": workloads},
    }
    for key in ("environments", "servers", "workloads"):
        if not kept[key] or (key == "environments" and (METAL not in kept[key] or len(kept[key]) < 2)):
            raise UserError(
                f"This experiment cannot be run here: of its {key} ({', '.join(experiment[key])}) "
                f"there are: {', '.join(kept[key]) or 'none'}."
            )
    floor = experiment.get("noise_floor")
    if floor:
        servers = [s for s in floor["servers"] if s in kept["servers"]]
        kept["noise_floor"] = floor | {"servers": servers} if servers else None
    kept["ladder"] = _rungs(experiment.get("ladder"), there)
    kept["claims"] = [claim for claim in experiment.get("claims", []) if _can_be_told(claim, kept)]
    return kept


def _rungs(ladder: dict[str, Any] | None, there: set[str]) -> dict[str, Any] | None:
    """The ladder with the guests that are here; none when no two are left to climb."""
    climb = [rung for rung in ladder["cumulative"] if rung in there] if ladder else []
    if not ladder or len(climb) < 2:
        return None
    single = [rung for rung in ladder["single"] if rung in there and ladder["base"] in there]
    return {"cumulative": climb, "base": ladder["base"] if single else None, "single": single}


def _can_be_told(claim: dict[str, Any], kept: dict[str, Any]) -> bool:
    """Every name of the claim is still in the experiment."""
    sides = [side for side in (claim["of"], claim.get("over")) if side]
    said = {(kind, name) for side in sides for kind, names in side.items() for name in _several(names)}
    return all(name in kept[f"{kind}s"] for kind, name in said)


def _several(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


def _tools(workload: dict[str, Any]) -> set[str]:
    capacity = workload.get("capacity") or {}
    return {workload["tool"], workload.get("twin"), capacity.get("tool")} - {None}


def _same_site(site: dict[str, Any], registry: Registry) -> None:
    """The machines serve the site of this checkout; it must be the published one."""
    file = registry.site_file(_safe(site["name"]))
    try:
        here = load_site(file).model_dump(mode="json")
    except SiteError:
        here = {}
    if here | {"description": ""} != {"pages": {}} | site | {"description": ""}:
        raise UserError(
            f"{file} is not the site that was published: write `experiment.resolved.site` of the bundle's run.json "
            "there (without its name) and provision the machines anew."
        )


def _write_project(root: Path, experiment: dict[str, Any], registry: Registry) -> Path:
    """Make the folders that a Registry lists; the experiment's file."""
    project = Registry(root)
    resolved = experiment["resolved"]
    for folder in ("workloads/experiments", "workloads/sites"):
        (root / folder).mkdir(parents=True)
    for shared in ("workloads/tools", "server-builds", "vm-images"):
        (root / shared).symlink_to(registry.root.resolve() / shared)
    for name, workload in resolved["workloads"].items():
        _write(project.workload_file(_safe(name)), workload, {"name"})
    _write(project.site_file(_safe(resolved["site"]["name"])), resolved["site"], {"name"})
    file = project.experiment_file(_safe(experiment["name"]))
    _write(file, experiment, {"name", "resolved"})
    return file


def _write(file: Path, content: dict[str, Any], without: Iterable[str]) -> None:
    said = {key: value for key, value in content.items() if key not in without and value is not None}
    file.write_text(yaml.safe_dump(said, allow_unicode=True), encoding="utf-8")


def _safe(name: str) -> str:
    """A name out of a bundle becomes a file's name here. Raises UserError when it is more than a name."""
    if not _NAME.fullmatch(name):
        raise UserError(f"run.json of the bundle: {name!r} is not a name of an experiment, a workload or a site.")
    return name
