"""Container runtimes by name: the files of vm-images/runtimes, the user's own first."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from vmtoll.model.errors import ExperimentError
from vmtoll.model.runtime import Runtime
from vmtoll.spec.catalog import Registry, unknown
from vmtoll.spec.documents import read, validation_error


def load(name: str, registry: Registry | None = None) -> Runtime:
    """The runtime of this name. Raises ExperimentError naming file and key."""
    path = (registry or Registry()).paths["runtime"]
    if name not in path.names():
        raise ExperimentError(unknown("runtime", name, path.names()))
    try:
        return Runtime(**read(path.find(name)))
    except ValidationError as error:
        raise validation_error(path.find(name), Runtime, error) from None


def kinds(environments: object, changes: object, registry: Registry) -> dict[str, str]:
    """Environment → what it is, of those of an experiment that are runtimes, and of those that its changes start from.
    Raises ExperimentError.
    """
    named: list[Any] = list(environments) if isinstance(environments, list) else []
    made = changes.values() if isinstance(changes, Mapping) else ()
    named += [change.get("of") for change in made if isinstance(change, Mapping)]
    known = registry.paths["runtime"].names()
    return {name: load(name, registry).kind.value for name in named if name in known}
