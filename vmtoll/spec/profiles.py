"""Guest profiles by name: those of files, and those that an experiment's `vary` makes out of them."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from vmtoll.model.errors import ExperimentError
from vmtoll.model.experiment import Experiment, ProfileVariant
from vmtoll.model.facts import ALWAYS_DIFFER, OF_A_CONTAINER, Kin
from vmtoll.paths import VM_IMAGES
from vmtoll.search_path import SearchPath
from vmtoll.spec import vary
from vmtoll.spec.catalog import Registry
from vmtoll.spec.documents import Keys, check_names, read
from vmtoll.spec.server import read_servers, template_file

# QEMU's machine type that libvirt does not know.
MICROVM = "microvm"


def environment_names(registry: Registry | None = None) -> list[str]:
    """`metal`, those of containers, and every guest profile: of files, then of experiments."""
    registry = registry or Registry()
    return [*registry.environments(), *varied_profiles(registry.paths["experiment"])]


@dataclass(frozen=True)
class VariedProfile:
    """A guest profile that `vary` of an experiment makes."""

    variant: ProfileVariant
    file: Path  # the experiment's

    @property
    def document(self) -> Keys:
        """Its keys, as in the file of a profile."""
        return {"of": [self.variant.of], **self.variant.keys}


def varied_profiles(experiments: SearchPath) -> dict[str, VariedProfile]:
    """Name → each guest profile that an experiment makes, by `vary` or `profiles`. Experiments that cannot be
    read are passed over: who runs them is told.

    Raises ExperimentError where two experiments make different profiles of one name.
    """
    made: dict[str, VariedProfile] = {}
    for file in map(experiments.find, experiments.names()):
        for name, variant in _of_experiment(file):
            other = made.setdefault(name, VariedProfile(variant, file))
            if other.variant != variant:
                raise ExperimentError(f"{name} defines a different guest than {other.file}; rename or align one", file)
    return made


def _of_experiment(file: Path) -> Iterator[tuple[str, ProfileVariant]]:
    try:
        text = file.read_text(encoding="utf-8")
        if "vary:" not in text and "profiles:" not in text:
            return  # most have neither, and reading YAML takes time
        document = read(file)
    except (OSError, UnicodeDecodeError, ExperimentError):
        return
    scales = document.get("scales")
    of_scales = [keys for keys in scales.values() if isinstance(keys, dict)] if isinstance(scales, dict) else []
    for keys in of_scales or [{}]:
        with contextlib.suppress(ValueError, AttributeError):
            profiles = vary.expand({**document, **keys}).get("profiles", {})
            yield from [(name, ProfileVariant.model_validate(profile)) for name, profile in profiles.items()]


def check_machine(file: Path, key: str, machine: object) -> None:
    """Raise ExperimentError for a machine type that libvirt, which makes the guests of profiles, does not know.
    `key`: its place in the file; `machine`: the type, or that under each accelerator.
    """
    types = machine.values() if isinstance(machine, Mapping) else [machine]
    if any(str(name).partition(",")[0] == MICROVM for name in types):
        raise ExperimentError(
            f"{key}: libvirt, by which vmtoll makes guests, knows no {MICROVM}; start this guest by QEMU itself, and "
            "name it in the inventory by vmtoll_qmp_socket and vmtoll_unit (docs/how-to/guests-of-others.md)",
            file,
        )


def check_profiles(path: Path, experiment: Experiment, registry: Registry) -> None:
    """Raise ExperimentError unless each of the experiment's own guest profiles is made out of another by its keys."""
    shipped = registry.environments()
    machines = {experiment.machine_of(environment) for environment in experiment.environments}
    for name, variant in experiment.profiles.items():
        if name in shipped and variant != _of_file(registry.guest_file(name)):  # else a run has recorded it
            raise ExperimentError(f"profiles.{name}: a guest profile has this name; choose another one", path)
        guests = [environment for environment in shipped if environment not in registry.no_guests()]
        check_names(path, f"profiles.{name}.of", "guest profile", [variant.of], guests)
        check_names(path, f"profiles.{name}.keys", "key", list(variant.keys), [*vary.profile_keys(), "needs"])
        check_machine(path, f"profiles.{name}.keys.machine", variant.keys.get("machine"))
        if name not in machines:
            raise ExperimentError(f"profiles.{name}: is not one of `environments`; add it there", path)
    for name in machines - experiment.profiles.keys():
        check_machine(registry.guest_file(name), "machine", _content(registry, name).get("machine"))
    if experiment.tuning_steps:  # a cumulative step and a single one may be one profile
        return
    contents = {name: _filled_in(registry, name, experiment) for name in sorted(machines)}
    for (name, content), (other, other_content) in itertools.combinations(contents.items(), 2):
        if content == other_content and content:
            raise ExperimentError(f"environments: the profiles {name} and {other} are identical; remove one", path)


def _filled_in(registry: Registry, name: str, experiment: Experiment) -> Keys:
    """The keys of a guest's profile with their defaults; none of one whose profile says nothing, or is not here."""
    content = _content(registry, name, experiment.profiles)
    return {**read(VM_IMAGES / "defaults.yml"), **content} if content else {}


def _content(registry: Registry, name: str, varied: Mapping[str, ProfileVariant] = MappingProxyType({})) -> Keys:
    """The keys of a profile of a file, or of those that an experiment makes (`varied`), and of the profiles that it
    builds on; none where that is not to be seen here.
    """
    file = registry.guest_file(name)
    document = read(file) if file.exists() else {}
    if name in varied:
        document = {"of": [varied[name].of], **varied[name].keys}
    inherited: Keys = {}
    for base in document.get("of", []):
        for key, value in _content(registry, base, varied).items():
            inherited[key] = [*inherited.get(key, []), *value] if isinstance(value, list) else value
    own = {key: value for key, value in document.items() if key not in ("description", "of")}
    lists = {key: [*inherited.get(key, []), *value] for key, value in own.items() if isinstance(value, list)}
    return inherited | own | lists


def with_factors(experiment: Experiment, registry: Registry) -> Experiment:
    """The experiment with the profiles by which its guests differ, and the facts in which its environments may for this
    reason, unless it declares them itself.
    """
    if experiment.service:
        return experiment
    profiles = {**variants_of_files(registry, _machines(experiment)), **experiment.profiles}
    experiment = experiment.model_copy(update={"profiles": profiles})
    if "declared_differences" in experiment.model_fields_set:
        return experiment
    declared = _declared_of_all(_kin(experiment, registry), experiment)
    return experiment.model_copy(update={"declared_differences": declared})


def kin_of(experiment: Experiment, registry: Registry) -> list[Kin]:
    """The guests, and the machines and containers, of an experiment that declares no differences: a guest
    boots another kernel than metal does, so that declares little of two guests.
    """
    kin = [] if experiment.service else _kin(experiment, registry)
    return kin if experiment.declared_differences == _declared_of_all(kin, experiment) else []


def _declared_of_all(kin: Sequence[Kin], experiment: Experiment) -> list[str]:
    """The facts in which the environments may differ: those of their kin, if all are of one."""
    of_kin = [fact for each in kin for fact in each.declared]
    is_one = len(kin) == 1 and len(kin[0].environments) == len(_machines(experiment))
    return list(dict.fromkeys(of_kin if is_one else [*ALWAYS_DIFFER, *of_kin]))


def _kin(experiment: Experiment, registry: Registry) -> list[Kin]:
    machines = _machines(experiment)
    guests = [name for name in machines if name not in registry.no_guests()]
    others = [name for name in machines if name not in guests]
    kin = [Kin(others, OF_A_CONTAINER)] if len(others) > 1 else []
    if len(guests) > 1 and (declared := declared_differences(experiment, guests, registry)) is not None:
        kin.append(Kin(guests, declared))
    return kin


def _machines(experiment: Experiment) -> list[str]:
    return list(dict.fromkeys(map(experiment.machine_of, experiment.environments)))


def variants_of_files(registry: Registry, environments: Collection[str]) -> dict[str, ProfileVariant]:
    """The environments whose profile builds on one other alone, which is one of them or what others build on, by a file
    or by an experiment's `vary`: what makes them another guest.
    """
    variants: dict[str, ProfileVariant] = {}
    of_experiments = varied_profiles(registry.paths["experiment"])
    for name in environments:
        if name in registry.no_guests():
            continue
        varied = of_experiments.get(name)
        if variant := varied.variant if varied else _of_file(registry.guest_file(name)):
            variants[name] = variant
    bases = Counter(variant.of for variant in variants.values())
    return {name: made for name, made in variants.items() if made.of in environments or bases[made.of] > 1}


def _of_file(file: Path) -> ProfileVariant | None:
    document = read(file) if file.exists() else {}
    of = document.pop("of", [])
    keys = {key: value for key, value in document.items() if key not in ("description", "needs")}
    with contextlib.suppress(ValidationError):  # the profile itself is checked where its guest is made
        return ProfileVariant(of=of[0], keys=keys) if len(of) == 1 else None
    return None


# Key of a guest profile → the facts that it explains: in which two guests may differ that differ in this key.
EXPLAINED: Mapping[str, tuple[str, ...]] = {
    "release": (
        "release",
        "kernel",
        "mitigations",
        "memory_kib",
        "packages",
        "servers: *: version",
        "servers: *: binary_sha256",
    ),
    "kernel": ("kernel", "mitigations", "memory_kib"),
    "initrd": (),
    "cmdline": ("mitigations", "clock_source", "memory_kib", "cpus_allowed", "smt"),
    "cpu": ("cpu_model", "mitigations", "microcode", "clock_source", "smt", "numa_nodes"),
    "memory_mib": ("memory_kib",),
    "machine": ("clock_source", "nic", "memory_kib"),
    "emulator": ("cpu_model",),
    **dict.fromkeys(("memory_backing", "cputune", "disk_bus", "disk_target", "controllers"), ()),
    **dict.fromkeys(("nic_backend", "nic_queues"), ()),
    **dict.fromkeys(("nic_type", "nic_extra", "nic_source", "nic_model", "nic_driver", "interface"), ("nic",)),
}
# In a template of a server's configuration: the release that it is for.
_OF_A_RELEASE = "server_suite"
# A guest's name and address, and what the other keys say, are in its kernel command line.
_OF_EVERY_GUEST = ("cmdline",)


def declared_differences(experiment: Experiment, guests: Collection[str], registry: Registry) -> list[str] | None:
    """The facts in which these guests may differ, by the keys of their profiles in which they do; None where a profile
    does not say what its guest is.
    """
    contents = [_filled_in(registry, name, experiment) for name in guests]
    if not all(contents):
        return None
    keys = [key for key in EXPLAINED if any(content.get(key) != contents[0].get(key) for content in contents)]
    declared = list(dict.fromkeys([*_OF_EVERY_GUEST, *(fact for key in keys for fact in EXPLAINED[key])]))
    return declared + (_configs_of_a_release(registry) if "release" in declared else [])


def _configs_of_a_release(registry: Registry) -> list[str]:
    """The configurations that say another thing in another release: `servers: lighttpd: config_sha256`."""
    folder = registry.servers_folder()
    return [
        f"servers: {server.name}: config_sha256"
        for server in read_servers(folder)
        if any(
            _OF_A_RELEASE in template_file(server.name, each, folder).read_text("utf-8") for each in server.templates
        )
    ]


def document_of(name: str, files: SearchPath, experiments: SearchPath) -> tuple[Path, Keys]:
    """The file of a profile, or of the experiment that makes it, and its keys. `name`: one of both."""
    if (file := files.find(name)).exists():
        return file, read(file)
    varied = varied_profiles(experiments)[name]
    return varied.file, varied.document
