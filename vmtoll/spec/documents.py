"""YAML documents: read, validated by a model, or refused in one clear sentence; written by commands."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from vmtoll.files import parse_yaml, write_durably
from vmtoll.model.document import plain_message
from vmtoll.model.errors import ExperimentError
from vmtoll.spec.catalog import unknown

# Renamed keys: old → new.
RENAMED = {"twin": "crosscheck", "twin_duration_s": "crosscheck_duration_s", "ladder": "tuning_steps"}
# The keys and values of a document.
Keys = dict[str, Any]


def read(path: Path) -> Keys:
    """A file's keys and values. Raises ExperimentError when it is unreadable, not a mapping, or has the key `name`."""
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExperimentError(error.strerror or str(error), path) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ExperimentError(f"not YAML: {' '.join(str(error).split())}", path) from error
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ExperimentError("must be a mapping of keys to values", path)
    if "name" in data:
        raise ExperimentError("name: remove it; the file's name is the name", path)
    return data


def write(path: Path, keys: Mapping[str, Any]) -> Path:
    """Write a document, in a folder that is made if it is not there; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, yaml.safe_dump(dict(keys), sort_keys=False).encode())
    return path


@contextmanager
def drafted(keys: Mapping[str, Any], name: str) -> Iterator[Path]:
    """Write a document to a temporary file of this name. An error about it does not name the file, which no user
    wrote.
    """
    with TemporaryDirectory(prefix="vmtoll-draft-") as folder:
        draft = write(Path(folder) / name, keys)
        try:
            yield draft
        except ExperimentError as error:
            raise error.without(draft) from None


def merge(base: Keys, keys: Keys) -> Keys:
    """Return `base`, overridden by these keys; mappings are merged key by key."""
    result = dict(base)
    for key, value in keys.items():
        base_value = result.get(key)
        result[key] = merge(base_value, value) if isinstance(base_value, dict) and isinstance(value, dict) else value
    return result


def _key(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _allowed_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    current: Any = model
    for part in location[:-1]:
        field = current.model_fields.get(part) if isinstance(part, str) else None
        if field is not None:
            candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
            current = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), current)
    return [name for name in current.model_fields if name != "name"]


def validation_error(path: Path, model: type[BaseModel], error: ValidationError) -> ExperimentError:
    """Return an error that names the first mistake in a document, with its file and key."""
    # A misspelt key is also a missing one: name the misspelling.
    first_error = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    location = first_error["loc"]
    if first_error["type"] == "extra_forbidden" and location[-1] in RENAMED:
        text = f"{_key(location)}: is now called {RENAMED[str(location[-1])]}; rename the key"
    elif first_error["type"] == "extra_forbidden":
        text = f"{_key(location)}: {unknown('key', location[-1], _allowed_keys(model, location))}"
    elif first_error["type"] == "missing":
        text = f"{_key(location)}: is missing; keys: {', '.join(_allowed_keys(model, location))}"
    elif not location or isinstance(first_error["input"], dict | list):
        text = ": ".join(filter(None, [_key(location) if location else "", plain_message(first_error)]))
    else:
        text = f"{_key(location)}: {first_error['input']!r}: {plain_message(first_error)}"
    more = error.error_count() - 1
    return ExperimentError(text + (f" (and {more} more)" if more else ""), path)


def check_names(path: Path, key: str, kind: str, values: list[str], allowed: list[str]) -> None:
    """Raise ExperimentError unless each value is allowed and named once."""
    for i, value in enumerate(values):
        location = key.replace("[]", f"[{i}]")
        if value not in allowed:
            raise ExperimentError(f"{location}: {unknown(kind, value, allowed)}", path)
        if value in values[:i]:
            raise ExperimentError(f"{location}: {value!r} is named twice", path)
