"""Read experiments from YAML, with everything that they name, as types of vmtoll.model, or raise one clear error."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from vmtoll.model.density import Density
from vmtoll.model.errors import ExperimentError, SiteError
from vmtoll.model.experiment import Experiment, NoiseFloor, Scale
from vmtoll.model.facts import Kin
from vmtoll.model.run import OneBoot, Skipped, UsedFile
from vmtoll.model.service import Service
from vmtoll.model.site import Site
from vmtoll.model.workload import (
    SharedHostWorkload,
    Workload,
)
from vmtoll.sites import load_site, paths
from vmtoll.spec import runtimes, sources
from vmtoll.spec import service as services
from vmtoll.spec.catalog import Registry, unknown
from vmtoll.spec.checks import (
    check_claims,
    check_density,
    check_environments,
    check_facts,
    check_kinds,
    check_loads,
    check_tile,
    check_users,
    unsupported_transports,
)
from vmtoll.spec.documents import Keys, check_names, read, validation_error
from vmtoll.spec.profiles import check_profiles, environment_names, kin_of, with_factors
from vmtoll.spec.server import ServerDefinition, read_server
from vmtoll.spec.vary import expand, expand_density, expand_during
from vmtoll.spec.workload import file_of, load_workloads
from vmtoll.spec.workload import names as workload_names


@dataclass(frozen=True)
class Resolved:
    """An experiment with everything it names, each read once."""

    file: Path  # its path, for errors about it
    experiment: Experiment
    workloads: Mapping[str, Workload]
    site: Site | None
    definitions: Mapping[str, ServerDefinition]
    # the servers, the single scenarios of a server and the environments that are not measured, and why
    skipped: Sequence[Skipped] = ()
    # server → version and digest of the archive that it is built from
    sources: Mapping[str, str] = field(default_factory=dict)
    # environment of a tuning step → what its profile needs of a host
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    documents: Sequence[UsedFile] = ()  # the files that say all of it, for the record
    # what is asked of a service; such an experiment has neither site nor definitions
    requests: services.ServiceRequests | None = None
    kin: Sequence[Kin] = ()  # environments that may differ from each other in less than the experiment declares of all
    one_boot: OneBoot | None = None  # why it keeps one boot where the default is several
    # that default applies, so that `boots` of the experiment is no permission to restart machines
    has_default_boots: bool = False

    def measures(self, server: str, workload: str) -> bool:
        """Return whether this workload is sent to this server."""
        return not any(skip.server == server and skip.workload in (None, workload) for skip in self.skipped)

    @property
    def servers(self) -> list[str]:
        """Servers that at least one workload measures."""
        return [
            server
            for server in self.experiment.servers
            if any(self.measures(server, workload) for workload in self.workloads)
        ]

    @property
    def all_servers(self) -> list[str]:
        """These, and the servers of single guests of a density."""
        return list(dict.fromkeys([*self.servers, *self.experiment.other_servers]))

    @property
    def environments(self) -> list[str]:
        """Environments that are measured."""
        absent = {skip.environment for skip in self.skipped}
        return [environment for environment in self.experiment.environments if environment not in absent]

    def without(self, skipped: Iterable[Skipped]) -> "Resolved":
        """The experiment that skips these, too. Raises ExperimentError when no server is left."""
        remaining = replace(self, skipped=(*self.skipped, *skipped))
        if not remaining.servers:
            reasons = "; ".join(f"{skip.name}: {skip.why}" for skip in remaining.skipped if skip.server)
            raise ExperimentError(f"servers: none is left to measure: {reasons}", self.file)
        return remaining

    @property
    def machines(self) -> list[str]:
        """The environments by which inventories name the machines, each once: a change uses another's."""
        return list(dict.fromkeys(map(self.experiment.machine_of, self.environments)))

    @property
    def guests(self) -> int:
        """Number of guests of one environment that must share one KVM host."""
        shared = [w for w in self.workloads.values() if isinstance(w, SharedHostWorkload)]
        started = self.experiment.first_answer.most_at_once if self.experiment.first_answer else 1
        return max(1, started, *(workload.guests_needed for workload in shared))


def _with_control(resolved: Resolved) -> Resolved:
    """Add an A/A control of the baseline, on the first server that is measured, to an experiment that compares
    environments and does not set `noise_floor`. Smoke tests get none.
    """
    experiment = resolved.experiment
    has_its_own = "noise_floor" in experiment.model_fields_set or experiment.purpose == "smoke"
    if has_its_own or len(experiment.environments) == 1:
        return resolved
    control = NoiseFloor(environment=experiment.baseline_arm.environment, servers=resolved.servers[:1])
    return replace(resolved, experiment=experiment.model_copy(update={"noise_floor": control}))


def _no_experiment(path: Path, registry: Registry) -> ExperimentError:
    if path.stem.endswith(".yml"):
        file = path.with_suffix("")
        return ExperimentError(
            f"an experiment is given by its name, {file.stem}, and its file lies in workloads/experiments", file
        )
    return ExperimentError(unknown("experiment", path.stem, registry.experiments()), path)


def load(path: Path, registry: Registry | None = None, scale: Scale | None = None) -> Resolved:
    """Read an experiment and everything it names; check all of it before anything starts.

    `scale` (default: small) chooses among the experiment's `scales`; without `scales` it has no effect. Raises
    ExperimentError naming the file, the key and the allowed values.
    """
    registry = registry or Registry()
    if not path.is_file():
        raise _no_experiment(path, registry)
    document = read(path)
    experiment = _parse(path, _at_scale(path, document, scale), registry)
    own_names = [name for name in experiment.environments if name not in experiment.variants]
    check_profiles(path, experiment, registry)
    known = [*environment_names(registry), *experiment.profiles]
    of_changes = [change.of for change in experiment.changes.values()]  # a service may be measured with changes alone
    check_environments(path, experiment, own_names or of_changes if experiment.service else known)
    if experiment.baseline:
        check_names(path, "baseline", "environment of this experiment", [experiment.baseline], experiment.environments)
    servers = experiment.servers if experiment.service else registry.servers()
    check_names(path, "servers[]", "server", experiment.servers, servers)
    check_facts(path, experiment)
    if experiment.noise_floor:
        floor = experiment.noise_floor
        check_names(path, "noise_floor.environment", "environment", [floor.environment], experiment.environments)
        check_names(path, "noise_floor.servers[]", "server", floor.servers, experiment.servers)
    if experiment.tuning_steps:
        guests = [environment for environment in experiment.environments if environment not in registry.no_guests()]
        for key, steps in experiment.tuning_steps.names_by_key():
            check_names(path, f"tuning_steps.{key}", "environment", steps, guests)
    check_density(path, experiment)
    experiment = with_factors(experiment, registry)
    if experiment.service:
        return _with_control(_resolve_service(path, experiment, experiment.service))
    workloads = _workloads(path, experiment, registry)
    if not experiment.density:
        experiment = experiment.model_copy(update={"workloads": list(workloads)})
    names = {kind: _names_at_all_scales(document, f"{kind}s") for kind in ("server", "environment", "workload")}
    names["environment"] += [name for name in experiment.variants if name not in names["environment"]]
    workloads_at_all_scales = {k: w for name in names["workload"] for k, w in load_workloads(name, registry).items()}
    check_loads(path, experiment, workloads)
    check_claims(path, experiment, names["server"], names["environment"], workloads_at_all_scales)
    sites = sorted({w.site for w in workloads.values()})
    if len(sites) > 1:
        raise ExperimentError(f"workloads: they use the sites {', '.join(sites)}; a run uses one", path)
    try:
        site = load_site(registry.site_file(sites[0]))
    except SiteError as error:
        raise ExperimentError(" ".join(str(error).split())) from error
    for name, workload in workloads.items():
        if workload.page:
            pages = paths(site)
            if workload.page not in pages:
                raise ExperimentError(f"page: {unknown('page', workload.page, pages)}", file_of(name, registry))
    return _with_control(resolve(path, experiment, workloads, site, registry))


def _parse(path: Path, document: Keys, registry: Registry) -> Experiment:
    """The experiment of a document at one scale, with what `vary` stands for. Raises ExperimentError."""
    try:
        complete = expand_density(expand_during(expand(services.complete(path, document))))
        kinds = runtimes.kinds(complete.get("environments"), complete.get("changes"), registry)
        return Experiment(name=path.stem, **{**complete, **({"kinds": kinds} if kinds else {})})
    except ValidationError as error:
        raise validation_error(path, Experiment, error) from None
    except ValueError as error:
        raise ExperimentError(str(error), path) from None


def _resolve_service(path: Path, experiment: Experiment, service: Service) -> Resolved:
    """An experiment with a service. Raises ExperimentError, also for claims and tuning steps, which need servers."""
    for key in ("claims", "tuning_steps", "users", "during", "explain", "first_answer"):
        if getattr(experiment, key):
            raise ExperimentError(f"{key}: an experiment with `service` has none; remove it", path)
    requests = services.load_requests(path, experiment, service)
    return Resolved(path, experiment, services.workloads_of(path, service), None, {}, requests=requests)


def resolve(
    path: Path, experiment: Experiment, workloads: Mapping[str, Workload], site: Site, registry: Registry
) -> Resolved:
    """Complete an experiment, whose names are checked, with the registry's servers and profiles.

    Raises ExperimentError when a server cannot serve a workload, or no server is left to measure.
    """
    used = _used(path, experiment, workloads, site, registry)
    registry.say_hidden(used)
    definitions = {name: read_server(name, registry.servers_folder()) for name in experiment.servers}
    check_kinds(path, definitions, {name: workloads[name] for name in experiment.workloads}, registry)
    for tile in experiment.density.tiles if experiment.density else ():
        if tile.workload and tile.workload not in workloads:
            raise ExperimentError(f"density: the load tool of {tile.workload} is missing here; add it", path)
        if tile.workload:
            names = [tile.server] if tile.server else experiment.servers
            servers = {name: read_server(name, registry.servers_folder()) for name in names}
            check_kinds(path, servers, {tile.workload: workloads[tile.workload]}, registry)
    for name, definition in definitions.items() if experiment.first_answer else ():
        if definition.serves != "pages":
            raise ExperimentError(
                f"first_answer: {name} serves {definition.serves}, and the client asks for a page; choose a "
                "server of pages",
                path,
            )
    server_sources = sources.find_sources(registry, definitions)
    steps = experiment.tuning_steps.environments if experiment.tuning_steps else ()
    resolved = Resolved(
        path, experiment, workloads, site, definitions,
        sources=server_sources.versions, needs={name: _needs(registry, name) for name in steps},
        documents=sources.documents(registry, used), kin=kin_of(experiment, registry),
    )  # fmt: skip
    without_source = [Skipped(server=server, why=why) for server, why in server_sources.skipped.items()]
    available = [definition for server, definition in definitions.items() if server not in server_sources.skipped]
    return resolved.without([*without_source, *unsupported_transports(available, workloads)])


def _used(
    path: Path, experiment: Experiment, workloads: Iterable[str], site: Site, registry: Registry
) -> dict[str, Iterable[str]]:
    """The documents that an experiment names, by kind; of the experiment itself where it is one of the registry."""
    files = {name: file_of(name, registry) for name in workloads}
    bases = [variant.of for variant in experiment.profiles.values()]
    return {
        "experiment": [experiment.name] if path == registry.experiment_file(experiment.name) else [],
        "workload": list(dict.fromkeys(file.stem for file in files.values() if file)),
        "site": [site.name],
        "server": list(dict.fromkeys([*experiment.servers, *experiment.other_servers])),
        "environment": dict.fromkeys(
            name for name in [*experiment.environments, *bases] if name not in registry.no_guests()
        ),
        "runtime": list(experiment.kinds),
    }


def _needs(registry: Registry, profile: str) -> list[str]:
    """Requirements on the host of a profile and of the profiles that it builds on."""
    document = read(registry.guest_file(profile))
    inherited = [need for part in document.get("of", []) for need in _needs(registry, part)]
    return list(dict.fromkeys([*inherited, *document.get("needs", [])]))


def _workloads(path: Path, experiment: Experiment, registry: Registry) -> dict[str, Workload]:
    """The experiment's workloads, each variant by its own name, with the numbers of users that it chooses; those of its
    tiles.
    """
    if experiment.density:
        return _workloads_of_tiles(path, experiment.density, registry)
    workloads: dict[str, Workload] = {}
    for i, name in enumerate(experiment.workloads):
        variants = load_workloads(name, registry)
        if not variants:
            raise ExperimentError(f"workloads[{i}]: {unknown('workload', name, workload_names(registry))}", path)
        if duplicate := next((variant for variant in variants if variant in workloads), None):
            raise ExperimentError(f"workloads[{i}]: {duplicate!r} is named twice", path)
        workloads |= variants
    check_names(path, "users", "workload", list(experiment.users), list(workloads))
    for name, users in experiment.users.items():
        check_users(path, f"users.{name}", users, [workloads[name]])
        workloads[name] = workloads[name].model_copy(update={"users": users})
    return workloads


def _workloads_of_tiles(path: Path, density: Density, registry: Registry) -> dict[str, Workload]:
    """The workloads of the tiles, of which the first tile's has a load for each number of guests."""
    workloads = {}
    for index, tile in enumerate(density.tiles):
        where = f"density.tiles[{index}]"
        if tile.workload:
            workload = load_workloads(tile.workload, registry).get(tile.workload)
            if workload is None:
                text = unknown("workload", tile.workload, workload_names(registry))
                raise ExperimentError(f"{where}.workload: {text}", path)
            workloads[tile.workload] = workload
        if tile.server:
            check_names(path, f"{where}.server", "server", [tile.server], registry.servers())
    for index, tile in enumerate(density.tiles):
        if tile.workload:
            check_tile(path, f"density.tiles[{index}]", workloads[tile.workload], is_mail=tile.is_mail)
    loads = {"guests": list(range(1, density.at_most + 1)), "crosscheck": None}
    return workloads | {density.workload: workloads[density.workload].model_copy(update=loads)}


def _at_scale(path: Path, data: Keys, scale: Scale | None) -> Keys:
    """The document's keys, overridden by those of the chosen scale."""
    if "scales" not in data:
        return data
    if "scale" in data:
        raise ExperimentError("`scale` is a command-line option (--scale); define `scales:` in the file", path)
    scales = data["scales"]
    scale_names = list(get_args(Scale))
    if not isinstance(scales, dict) or not all(isinstance(keys, dict) for keys in scales.values()):
        raise ExperimentError(f"scales: must be a mapping of {' and '.join(scale_names)} to keys and values", path)
    check_names(path, "scales", "scale", list(scales), scale_names)
    chosen_scale = scale or "small"
    if chosen_scale not in scales:
        raise ExperimentError(f"scales.{chosen_scale}: is missing; there is: {', '.join(scales) or 'none'}", path)
    others = {key: value for key, value in data.items() if key != "scales"}
    return {**others, **scales[chosen_scale], "scale": chosen_scale}


def _names_at_all_scales(document: Keys, key: str) -> list[str]:
    """Names under this key at all scales: a claim on what only the other scale measures is inconclusive at this one."""
    lists = [document.get(key, []), *(keys.get(key, []) for keys in document.get("scales", {}).values())]
    return list(dict.fromkeys(name for names in lists for name in names))
