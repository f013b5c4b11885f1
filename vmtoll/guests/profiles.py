"""Guest profiles: vm-images/guests/<name>.yml, over the profiles that it is made of, over vm-images/defaults.yml."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vmtoll.paths import VM_IMAGES
from vmtoll.shell import UserError
from workloads.runner.documents import read
from workloads.runner.registry import unknown

Accelerator = Literal["kvm", "tcg"]
ACCELERATORS: tuple[Accelerator, ...] = ("kvm", "tcg")
# Lists that a profile adds to; every other value replaces the one below it.
_LISTS = ("cmdline", "needs")


@dataclass(frozen=True)
class Profile:
    """A profile with its defaults filled in; `values` in the order of defaults.yml, where each may name those above."""

    name: str
    description: str
    values: Mapping[str, Any]

    def under(self, accelerator: Accelerator) -> dict[str, Any]:
        """The values as they are with KVM, or under emulation."""
        return {key: v[accelerator] if isinstance(v, dict) else v for key, v in self.values.items()}

    @property
    def needs(self) -> list[str]:
        """What the host must have, by the names of vmtoll/guests/needs.py."""
        return list(self.values["needs"])


def names(images: Path = VM_IMAGES) -> list[str]:
    """Every profile there is."""
    return sorted(file.stem for file in (images / "guests").glob("*.yml"))


def load(name: str, images: Path = VM_IMAGES) -> Profile:
    """Read a profile. Raises UserError, or ExperimentError where it is no YAML: file, key and what is allowed."""
    if name not in names(images):
        raise UserError(f"{images / 'guests'}: {unknown('guest profile', name, names(images))}")
    defaults = read(images / "defaults.yml")
    said = _said(name, images, defaults, ())
    description = said.pop("description", "")
    lists = {key: _together(defaults[key], said.get(key, [])) for key in _LISTS}
    return Profile(name, str(description), defaults | said | lists)


def _said(name: str, images: Path, defaults: Mapping[str, Any], above: tuple[str, ...]) -> dict[str, Any]:
    """What a profile and those that it is made of say, without the defaults."""
    file = images / "guests" / f"{name}.yml"
    own = read(file)
    for key, value in own.items():
        _check(file, key, value, defaults)
    merged: dict[str, Any] = {}
    for base in own.pop("of", []):
        if base not in names(images) or base in (*above, name):
            why = unknown("guest profile", base, [n for n in names(images) if n not in (*above, name)])
            raise UserError(f"{file}: of: {why}")
        for key, value in _said(base, images, defaults, (*above, name)).items():
            if key in _LISTS:
                merged[key] = _together(merged.get(key, []), value)
            elif key in merged and merged[key] != value and key not in (*own, "description"):
                raise UserError(f"{file}: {key}: the profiles that it is made of disagree; say it here")
            else:
                merged[key] = value
    return merged | own | {key: _together(merged.get(key, []), own[key]) for key in _LISTS if key in own}


def _together(first: list[str], second: list[str]) -> list[str]:
    return [*first, *(word for word in second if word not in first)]


def _check(file: Path, key: str, value: Any, defaults: Mapping[str, Any]) -> None:
    """A key exists and its value is of the default's kind; a number may be a text that names one."""
    allowed = ["description", "of", *defaults]
    if key not in allowed:
        raise UserError(f"{file}: {unknown('key', key, allowed)}")
    if isinstance(value, dict):
        if key in ("description", "of", *_LISTS) or set(value) != set(ACCELERATORS):
            raise UserError(f"{file}: {key}: a value, or for some keys a mapping with the keys kvm and tcg")
        return
    kind, words = _kind(key, defaults.get(key))
    if not isinstance(value, kind) or (isinstance(value, list) and not all(isinstance(word, str) for word in value)):
        raise UserError(f"{file}: {key}: {value!r} is not {words}")


def _kind(key: str, default: Any) -> tuple[type | tuple[type, ...], str]:
    if key == "of" or isinstance(default, list):
        return list, "a list of texts"
    return ((int, str), "a number, or a text that names one") if isinstance(default, int) else (str, "a text")
