"""Experiments and workloads: YAML in, validated models or one clear error out."""

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workloads import tools
from workloads.runner.errors import ExperimentError
from workloads.runner.registry import METAL, Registry, unknown
from workloads.sites import Site, SiteError, load_site

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
SMALLEST_BLOCKS = 6


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Workload(_Model):
    """What is sent and how. `users` simulated users, closed loop."""

    name: str
    description: str
    site: str
    tool: str
    twin: str | None = None
    users: int = Field(gt=0, le=1000)
    keep_alive: bool


class NoiseFloor(_Model):
    """The A/A arm: `environment` again, as `<environment>-b`, for these servers."""

    environment: str
    servers: list[str] = Field(min_length=1)


class Experiment(_Model):
    """A question and its matrix. Seconds are wall-clock."""

    name: str
    question: str
    purpose: Literal["measure", "smoke"] = "measure"
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
    declared_differences: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _enough_blocks(self) -> "Experiment":
        if self.blocks < SMALLEST_BLOCKS and self.purpose != "smoke":
            raise ValueError(
                f"blocks: {self.blocks} is below {SMALLEST_BLOCKS}, too few for an interval; "
                "only an experiment with `purpose: smoke` may have fewer"
            )
        return self

    @property
    def twin_s(self) -> float:
        """How long the twin should run."""
        return self.twin_duration_s if self.twin_duration_s is not None else self.duration_s


class Resolved(_Model):
    """An experiment with everything it names."""

    experiment: Experiment
    workloads: dict[str, Workload]
    site: Site


def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExperimentError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ExperimentError(f"{path}: must be a mapping of keys to values")
    if "name" in data:
        raise ExperimentError(f"{path}: name: must not be given, the file's name is the name")
    return data


def _key(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _allowed_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    here: Any = model
    for part in location[:-1]:
        field = here.model_fields.get(part) if isinstance(part, str) else None
        if field is not None:
            candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
            here = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), here)
    return [name for name in here.model_fields if name != "name"]


def _first(path: Path, model: type[BaseModel], error: ValidationError) -> ExperimentError:
    # A misspelt key is also a missing one: name the misspelling.
    found = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    location = found["loc"]
    if found["type"] == "extra_forbidden":
        text = f"{_key(location)}: {unknown('key', location[-1], _allowed_keys(model, location))}"
    elif found["type"] == "missing":
        text = f"{_key(location)}: is missing; keys: {', '.join(_allowed_keys(model, location))}"
    elif not location:
        text = found["msg"].removeprefix("Value error, ")
    else:
        text = f"{_key(location)}: {found['input']!r}: {found['msg'][:1].lower()}{found['msg'][1:]}"
    more = error.error_count() - 1
    return ExperimentError(f"{path}: {text}" + (f" (and {more} more)" if more else ""))


def _check(path: Path, key: str, kind: str, values: list[str], allowed: list[str]) -> None:
    for i, value in enumerate(values):
        where = key.replace("[]", f"[{i}]")
        if value not in allowed:
            raise ExperimentError(f"{path}: {where}: {unknown(kind, value, allowed)}")
        if value in values[:i]:
            raise ExperimentError(f"{path}: {where}: {value!r} is named twice")


def load_workload(path: Path, registry: Registry) -> Workload:
    """Read and check a workload. Raises ExperimentError."""
    data = _read(path)
    try:
        workload = Workload(name=path.stem, **data)
    except ValidationError as error:
        raise _first(path, Workload, error) from None
    _check(path, "site", "site", [workload.site], registry.sites())
    _check(path, "tool", "tool", [workload.tool], registry.tools())
    for key, name in (("tool", workload.tool), ("twin", workload.twin)):
        if name is None:
            continue
        _check(path, key, "tool", [name], registry.tools())
        if not workload.keep_alive and not tools.get(name, registry.root / "workloads" / "tools").CAN_CLOSE:
            raise ExperimentError(f"{path}: {key}: {name} cannot do keep_alive: false")
    return workload


def load(path: Path, registry: Registry | None = None) -> Resolved:
    """Read an experiment and everything it names; check all of it before anything starts.

    Raises ExperimentError naming the file, the key and the allowed values.
    """
    registry = registry or Registry()
    if not path.is_file():
        raise ExperimentError(f"{path}: {unknown('experiment', path.stem, registry.experiments())}")
    data = _read(path)
    try:
        experiment = Experiment(name=path.stem, **data)
    except ValidationError as error:
        raise _first(path, Experiment, error) from None
    _check(path, "environments[]", "environment", experiment.environments, registry.environments())
    _check(path, "servers[]", "server", experiment.servers, registry.servers())
    _check(path, "workloads[]", "workload", experiment.workloads, registry.workloads())
    _check(path, "declared_differences[]", "fact", experiment.declared_differences, COMPARED_FACTS)
    if experiment.noise_floor:
        floor = experiment.noise_floor
        _check(path, "noise_floor.environment", "environment", [floor.environment], experiment.environments)
        _check(path, "noise_floor.servers[]", "server", floor.servers, experiment.servers)
    workloads = {name: load_workload(registry.workload_file(name), registry) for name in experiment.workloads}
    sites = sorted({w.site for w in workloads.values()})
    if len(sites) > 1:
        raise ExperimentError(f"{path}: workloads: they use the sites {', '.join(sites)}; a run uses one")
    try:
        site = load_site(registry.site_file(sites[0]))
    except SiteError as error:
        raise ExperimentError(" ".join(str(error).split())) from error
    return Resolved(experiment=experiment, workloads=workloads, site=site)


__all__ = ["COMPARED_FACTS", "METAL", "Experiment", "NoiseFloor", "Resolved", "Workload", "load"]
