"""Experiments: YAML in, a validated model or one clear error out."""

from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError, model_validator

from workloads.runner import sources
from workloads.runner.beside import Beside
from workloads.runner.claims import Claim, check_claims
from workloads.runner.documents import Model, check_names, mistake, read
from workloads.runner.errors import ExperimentError
from workloads.runner.ladder import Ladder
from workloads.runner.registry import METAL, Registry, unknown
from workloads.runner.workload import MailWorkload, Workload
from workloads.runner.workload_file import load_workload
from workloads.sites import Site, SiteError, load_site, manifest

# Facts that two machines of a comparison may differ in, when the experiment says so.
COMPARED_FACTS = [
    "kernel",
    "cmdline",
    "cpu_model",
    "cpus_allowed",
    "microcode",
    "mitigations",
    "governor",
    "smt",
    "numa_nodes",
    "clock_source",
    "memory_kib",
    "virtualization",
    "container",
    "nic",
    "sysctls",
    "packages",
    "servers",
    "content_digest",
    "workers",
]
# One root filesystem booted two ways: in these a metal machine and its guest always differ.
ALWAYS_DIFFER = [
    fact for fact in COMPARED_FACTS if fact not in {"sysctls", "packages", "servers", "content_digest", "workers"}
]
SMALLEST_BLOCKS = 6

Scale = Literal["full", "small"]


class NoiseFloor(Model):
    """The A/A arm: `environment` again, as `<environment>-b`, for these servers."""

    environment: str
    servers: list[str] = Field(min_length=1)


class Experiment(Model):
    """A question and its matrix. Seconds are wall-clock; `margin_pct`: a smaller difference is of no importance."""

    name: str
    question: str
    source: str | None = None  # the article that it repeats: title as in results/published
    purpose: Literal["measure", "smoke"] = "measure"
    scale: Scale | None = None  # which of the document's `scales` these keys are of; None: it has one size
    environments: list[str] = Field(min_length=1)
    servers: list[str] = Field(min_length=1)
    workloads: list[str] = Field(min_length=1)
    blocks: int = Field(default=10, gt=0)
    warmup_s: float = Field(gt=0)
    duration_s: float = Field(gt=0)
    twin_duration_s: float | None = Field(default=None, gt=0)
    link: str = "unshaped"
    seed: int | None = Field(default=None, ge=0)
    noise_floor: NoiseFloor | None = None
    margin_pct: float = Field(default=2.0, gt=0, le=50)
    declared_differences: list[str] = Field(default_factory=lambda: list(ALWAYS_DIFFER))
    published_estimator: Literal["median", "mean-of-three", "trimmed-six"] = "median"
    claims: list[Claim] = Field(default_factory=list)
    ladder: Ladder | None = None

    @model_validator(mode="after")
    def _enough_blocks(self) -> "Experiment":
        if self.blocks < SMALLEST_BLOCKS and self.purpose != "smoke" and self.scale != "small":
            raise ValueError(
                f"blocks: {self.blocks} is below {SMALLEST_BLOCKS}, too few for an interval; "
                "only an experiment with `purpose: smoke` or at `scale: small` may have fewer"
            )
        return self

    @property
    def twin_s(self) -> float:
        """How long the twin should run."""
        return self.twin_duration_s if self.twin_duration_s is not None else self.duration_s


class Resolved(Model):
    """An experiment with everything it names."""

    experiment: Experiment
    workloads: dict[str, Workload]
    site: Site
    skipped: dict[str, str] = Field(default_factory=dict)  # server → why it is not measured
    sources: dict[str, str] = Field(default_factory=dict)  # server → version and digest of the archive it is made of
    absent: dict[str, str] = Field(default_factory=dict)  # environment of the ladder → why it is not measured

    @property
    def servers(self) -> list[str]:
        """Those that are measured."""
        return [server for server in self.experiment.servers if server not in self.skipped]

    @property
    def environments(self) -> list[str]:
        """Those that are measured."""
        return [environment for environment in self.experiment.environments if environment not in self.absent]

    @property
    def guests(self) -> int:
        """How many guests of one environment must stand beside each other on one KVM host."""
        return max((w.needed for w in self.workloads.values() if isinstance(w, Beside)), default=1)


def load(path: Path, registry: Registry | None = None, scale: Scale | None = None) -> Resolved:
    """Read an experiment and everything it names; check all of it before anything starts.

    An experiment that has `scales` is taken at `scale` (default: small); one that has none has one size, whatever
    `scale` says. Raises ExperimentError naming the file, the key and the allowed values.
    """
    registry = registry or Registry()
    if not path.is_file():
        raise ExperimentError(f"{path}: {unknown('experiment', path.stem, registry.experiments())}")
    document = read(path)
    data = _at_scale(path, document, scale)
    try:
        experiment = Experiment(name=path.stem, **data)
    except ValidationError as error:
        raise mistake(path, Experiment, error) from None
    check_names(path, "environments[]", "environment", experiment.environments, registry.environments())
    check_names(path, "servers[]", "server", experiment.servers, registry.servers())
    check_names(path, "workloads[]", "workload", experiment.workloads, registry.workloads())
    check_names(path, "declared_differences[]", "fact", experiment.declared_differences, COMPARED_FACTS)
    if experiment.noise_floor:
        floor = experiment.noise_floor
        check_names(path, "noise_floor.environment", "environment", [floor.environment], experiment.environments)
        check_names(path, "noise_floor.servers[]", "server", floor.servers, experiment.servers)
    if experiment.ladder:
        guests = [environment for environment in experiment.environments if environment != METAL]
        for key, rungs in experiment.ladder.named():
            check_names(path, f"ladder.{key}", "environment", rungs, guests)
    names = {kind: _at_any_scale(document, f"{kind}s") for kind in ("server", "environment", "workload")}
    check_claims(path, experiment.claims, names)
    workloads = {name: load_workload(registry.workload_file(name), registry) for name in experiment.workloads}
    _check_kinds(path, experiment.servers, workloads, registry)
    sites = sorted({w.site for w in workloads.values()})
    if len(sites) > 1:
        raise ExperimentError(f"{path}: workloads: they use the sites {', '.join(sites)}; a run uses one")
    try:
        site = load_site(registry.site_file(sites[0]))
    except SiteError as error:
        raise ExperimentError(" ".join(str(error).split())) from error
    for name, workload in workloads.items():
        if workload.page:
            pages = [file["path"] for file in manifest(site)["files"]]
            check_names(registry.workload_file(name), "page", "page", [workload.page], pages)
    found = sources.look(registry, experiment.servers)
    resolved = Resolved(
        experiment=experiment, workloads=workloads, site=site, skipped=found.skipped, sources=found.versions
    )
    if not resolved.servers:
        raise ExperimentError(f"{path}: servers: none is left to measure: {'; '.join(found.skipped.values())}")
    return resolved


def _check_kinds(path: Path, servers: list[str], workloads: dict[str, Workload], registry: Registry) -> None:
    """Mail goes to mail servers, requests for pages to the others. Raises ExperimentError."""
    for server in servers:
        serves = "mail" if "mail" in read(registry.server_file(server)) else "pages"
        for name, workload in workloads.items():
            asks = "mail" if isinstance(workload, MailWorkload) else "pages"
            if asks != serves:
                raise ExperimentError(f"{path}: servers: {server} serves {serves}, the workload {name} is for {asks}")


def _at_scale(path: Path, data: dict[str, Any], scale: Scale | None) -> dict[str, Any]:
    """The document's keys with those of the chosen scale laid over them."""
    if "scales" not in data:
        return data
    if "scale" in data:
        raise ExperimentError(f"{path}: scale: is chosen when it is run; the document says `scales`")
    scales = data["scales"]
    known = list(get_args(Scale))
    if not isinstance(scales, dict) or not all(isinstance(keys, dict) for keys in scales.values()):
        raise ExperimentError(f"{path}: scales: must be a mapping of {' and '.join(known)} to keys and values")
    check_names(path, "scales", "scale", list(scales), known)
    chosen = scale or "small"
    if chosen not in scales:
        raise ExperimentError(f"{path}: scales.{chosen}: is missing; there is: {', '.join(scales) or 'none'}")
    kept = {key: value for key, value in data.items() if key != "scales"}
    return {**kept, **scales[chosen], "scale": chosen}


def _at_any_scale(document: dict[str, Any], key: str) -> list[str]:
    """A claim may be about what only the other scale measures; then this one cannot tell."""
    said = [document.get(key, []), *(keys.get(key, []) for keys in document.get("scales", {}).values())]
    return list(dict.fromkeys(name for names in said for name in names))


__all__ = ["COMPARED_FACTS", "METAL", "Experiment", "NoiseFloor", "Resolved", "Scale", "Workload", "load"]
