"""Read profiles: environments/<name>.yml of the user's folder, or vm-images/guests/<name>.yml, overrides the profiles
in its `of`, and these vm-images/defaults.yml. An experiment's `vary` makes further ones.

Profiles of the lab's own machines are in vm-images/machines instead of guests.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vmtoll.model.errors import UserError
from vmtoll.model.inventory import GuestAccelerator
from vmtoll.model.release import RELEASES, Release, release_of_suite
from vmtoll.paths import VM_IMAGES
from vmtoll.search_path import SearchPath, environments
from vmtoll.spec.catalog import Registry, unknown
from vmtoll.spec.documents import Keys, read
from vmtoll.spec.profiles import check_machine, document_of, varied_profiles

ACCELERATORS: tuple[GuestAccelerator, ...] = ("kvm", "tcg")
# Lists that a profile adds to; every other value replaces the inherited one.
_LISTS = ("cmdline", "needs")

Kind = Literal["guests", "machines"]


# Where a kernel's build leaves what boots, below its folder.
_BUILT = ("arch/x86/boot/bzImage", "arch/arm64/boot/Image", "vmlinuz")


@dataclass(frozen=True)
class Kernel:
    """A guest's kernel: a package of the image's release, or a file of the controller with its initial RAM disk, if it
    has one; the image's own where both are empty.
    """

    package: str = ""
    file: str = ""
    initrd: str = ""

    @property
    def suffix(self) -> str:
        """What is added to the names of the image's files for the kernel of a package."""
        return f"-{self.package}" if self.package else ""

    @property
    def files(self) -> dict[str, str]:
        """The files of the controller that the host needs: ending of its name there, with a digest → path here."""
        parts = (("vmlinuz", self.file), ("initrd", self.initrd))
        return {f"{part}-{_digest(path)}": path for part, path in parts if path}


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]


@dataclass(frozen=True)
class Profile:
    """A profile with its defaults filled in; `values` in the order of defaults.yml: each may use those before it.
    `file`: the profile's, or that of the experiment that makes it.
    """

    file: Path
    name: str
    description: str
    values: Mapping[str, Any]

    def under(self, accelerator: GuestAccelerator) -> Keys:
        """The values for this accelerator: KVM, or emulation."""
        return {key: v[accelerator] if isinstance(v, dict) else v for key, v in self.values.items()}

    @property
    def kernel(self) -> Kernel:
        """The guest's kernel. Raises UserError for a file that is not there."""
        kernel, initrd = str(self.values["kernel"]), str(self.values["initrd"])
        if "/" not in kernel:
            if initrd:
                raise UserError(
                    f"{self.file}: {self.name}: initrd: it belongs to a kernel that is a file; give both, or leave it "
                    "out"
                )
            return Kernel(package=kernel)
        found = Path(kernel).expanduser()
        if found.is_dir():
            built = [found / name for name in _BUILT if (found / name).is_file()]
            if not built:
                raise UserError(
                    f"{self.file}: {self.name}: kernel: {found} has none of {', '.join(_BUILT)}; build it, or name a "
                    "file"
                )
            found = built[0]
        files = [found, *([Path(initrd).expanduser()] if initrd else [])]
        for file in files:
            if not file.is_file():
                key = "kernel" if file is found else "initrd"
                raise UserError(f"{self.file}: {self.name}: {key}: there is no file {file}; correct the path")
        return Kernel(file=str(found.resolve()), initrd=str(files[1].resolve()) if initrd else "")

    def release(self, default: Release) -> Release:
        """The release of the guest's image: the profile's, else this one. Raises UserError for an unknown suite."""
        suite = str(self.values["release"])
        try:
            return release_of_suite(suite) if suite else default
        except UserError as error:
            raise UserError(f"{self.file}: {self.name}: release: {error}") from None

    @property
    def needs(self) -> list[str]:
        """Requirements on the host, by the names of vmtoll/guests/needs.py."""
        return list(self.values["needs"])


def names(images: Path = VM_IMAGES, kind: Kind = "guests") -> list[str]:
    """Names of all profiles of a kind."""
    return [*_found(images, kind).names(), *(varied_profiles(_experiments(images)) if kind == "guests" else ())]


def _found(images: Path, kind: Kind) -> SearchPath:
    return environments(images) if kind == "guests" else SearchPath("profile", [images / kind])


def _experiments(images: Path) -> SearchPath:
    """The experiments beside these images, whose `vary` makes profiles too."""
    return Registry(images.parent).paths["experiment"]


def kernels_by_release(profiles: Iterable[Profile], default: Release) -> dict[Release, list[str]]:
    """The images of these guests: release → the packages of kernels that its image needs beside its own."""
    kernels: dict[Release, set[str]] = {}
    for profile in profiles:
        kernels.setdefault(profile.release(default), set()).add(profile.kernel.package)
    return {release: sorted(packages - {""}) for release, packages in kernels.items()}


def check(environments: Iterable[str], images: Path = VM_IMAGES) -> None:
    """Raise UserError for a guest among these environments whose release is unknown, or whose kernel is a file that
    this machine, which makes the guest, does not have.
    """
    known = names(images)
    for profile in (load(name, images) for name in environments if name in known):
        _ = profile.kernel, profile.release(RELEASES[0])


def load(name: str, images: Path = VM_IMAGES, kind: Kind = "guests") -> Profile:
    """Read a profile. Raises UserError naming file, key and what is allowed, or ExperimentError if it is not YAML."""
    if not (found := _found(images, kind)).find(name).exists() and name not in (known := names(images, kind)):
        raise UserError(f"{images / kind}: {unknown('guest profile', name, known)}")
    defaults = read(images / "defaults.yml")
    values = _values(name, found, _experiments(images), defaults, ())
    description = values.pop("description", "")
    lists = {key: _merged(defaults[key], values.get(key, [])) for key in _LISTS}
    return Profile(document_of(name, found, _experiments(images))[0], name, str(description), defaults | values | lists)


def _values(
    name: str, found: SearchPath, experiments: SearchPath, defaults: Mapping[str, Any], parents: tuple[str, ...]
) -> Keys:
    """Values of a profile and of the profiles that it builds on, without the defaults."""
    profile_names = found.names()
    file, values = document_of(name, found, experiments)
    for key, value in values.items():
        _check(file, key, value, defaults)
    merged: Keys = {}
    for base in values.pop("of", []):
        if base not in profile_names or base in (*parents, name):
            why = unknown("guest profile", base, [n for n in profile_names if n not in (*parents, name)])
            raise UserError(f"{file}: of: {why}")
        for key, value in _values(base, found, experiments, defaults, (*parents, name)).items():
            if key in _LISTS:
                merged[key] = _merged(merged.get(key, []), value)
            elif key in merged and merged[key] != value and key not in (*values, "description"):
                raise UserError(f"{file}: {key}: the profiles that it is made of disagree; say it here")
            else:
                merged[key] = value
    return merged | values | {key: _merged(merged.get(key, []), values[key]) for key in _LISTS if key in values}


def _merged(first: list[str], second: list[str]) -> list[str]:
    return [*first, *(word for word in second if word not in first)]


def _check(file: Path, key: str, value: Any, defaults: Mapping[str, Any]) -> None:
    """Raise UserError unless the key exists and its value has the default's type; a text may replace a number."""
    allowed = ["description", "of", *defaults]
    if key not in allowed:
        raise UserError(f"{file}: {unknown('key', key, allowed)}")
    if key == "machine":
        check_machine(file, key, value)
    if isinstance(value, dict):
        if key in ("description", "of", *_LISTS) or set(value) != set(ACCELERATORS):
            raise UserError(f"{file}: {key}: a value, or for some keys a mapping with the keys kvm and tcg")
        return
    kind, words = _kind(key, defaults.get(key))
    if not isinstance(value, kind) or (isinstance(value, list) and not all(isinstance(word, str) for word in value)):
        raise UserError(f"{file}: {key}: {value!r} is not {words}")
    if isinstance(defaults.get(key), int) and not _is_amount(value):
        raise UserError(f"{file}: {key}: {value!r} is not {words}, from 1 on")


def _is_amount(value: object) -> bool:
    """Return whether this is a number from 1 on, or a template of one."""
    text = str(value)
    return "{{" in text or (text.isdecimal() and int(text) > 0)


def _kind(key: str, default: Any) -> tuple[type | tuple[type, ...], str]:
    if key == "of" or isinstance(default, list):
        return list, "a list of texts"
    return ((int, str), "a number, or a text that names one") if isinstance(default, int) else (str, "a text")
