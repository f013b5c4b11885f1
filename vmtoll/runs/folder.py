"""Find and read a run's folder, `results/<experiment>/<run-id>/`.

A file that breaks the format gives a LoadError naming the file, the line and the key.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from vmtoll.files import cause_of
from vmtoll.model.document import first_mistake
from vmtoll.model.errors import LoadError
from vmtoll.model.exits import ExitPrice, ExplainedTrial
from vmtoll.model.facts import HostFacts
from vmtoll.model.first_answer import StartRecord
from vmtoll.model.run import SCHEMA, Manifest
from vmtoll.model.service import ServicePage
from vmtoll.model.trial import TrialRecord, from_json, to_json
from vmtoll.runs import migration

T = TypeVar("T")
MANIFEST, HOSTS, TRIALS, TABLE = "run.json", "hosts.json", "trials.jsonl", "trials.csv"
SERVICE = "service.json"  # of a run on a service: what it answered at the start
EXIT_PRICES = "exit-prices.json"  # of an experiment with `explain: exits`
SUMS = "SHA256SUMS"  # of a bundle, which is sealed


class JsonLines(Generic[T]):
    """A file of a run's folder with a record in each line, as JSON without missing values."""

    def __init__(self, name: str, kind: type[T]) -> None:
        """`kind`: the class of the records."""
        self.name, self._adapter = name, TypeAdapter(kind)

    def line(self, record: T) -> bytes:
        """The line of a record, without the line break."""
        content = self._adapter.dump_python(record, mode="json", exclude_none=True)
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()

    def parse(self, file: Path, data: bytes) -> Iterator[T]:
        """Parse the records in the data of a file. Raises LoadError."""
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):  # only \n ends a record
            try:
                yield self._adapter.validate_json(line)
            except ValidationError as error:
                raise LoadError(f"{file}: line {number}, {first_mistake(error)}") from None

    def read(self, folder: Path) -> list[T]:
        """Read the records of a run, ended or not; empty for a run without the file. Raises LoadError."""
        file = folder / self.name
        return list(self.parse(file, whole_lines(_read(file)))) if file.exists() else []


class TrialLines(JsonLines[TrialRecord]):
    """A file of trials."""

    def line(self, record: TrialRecord) -> bytes:
        return to_json(record)

    def parse(self, file: Path, data: bytes) -> Iterator[TrialRecord]:
        return parse_records(file, data)


CAPACITIES = TrialLines("capacities.jsonl", TrialRecord)
STARTS = JsonLines("first-answers.jsonl", StartRecord)  # of an experiment with `first_answer`
_PRICES = TypeAdapter(dict[str, list[ExitPrice]])
EXPLAINED = JsonLines("exits.jsonl", ExplainedTrial)  # of an experiment with `explain: exits`


@dataclass(frozen=True)
class StoredRun:
    """`hosts`: machine → its facts; `records`: every attempt at a trial, in the order of the schedule."""

    path: Path
    manifest: Manifest
    hosts: dict[str, HostFacts]
    records: tuple[TrialRecord, ...]

    def require_complete(self) -> None:
        """Raise LoadError for a run that was interrupted."""
        if self.manifest.status != "complete":
            raise LoadError(
                f"{self.path / MANIFEST}: status is {self.manifest.status}; finish the run first with --resume"
            )


def read(folder: Path) -> StoredRun:
    """Read a run, ended or not, or a bundle of any schema; changes nothing in its folder. Raises LoadError."""
    manifest = read_manifest(folder)
    schema = read_object(folder / MANIFEST)["schema"]
    ended = manifest.status == "complete"
    records = without_duplicates(folder / TRIALS, read_records(folder / TRIALS, ended=ended, schema=schema))
    ordered = sorted(records, key=lambda record: (record.key, record.attempt))
    return StoredRun(folder, manifest, read_hosts(folder), tuple(ordered))


def read_stopped(folder: Path) -> tuple[Manifest | None, list[TrialRecord]]:
    """Read a run that may have been killed: its manifest, None if it was killed before it wrote run.json; its records
    in the order in which they were appended.

    Raises LoadError when the folder holds no run.
    """
    if not folder.is_dir():
        raise LoadError(f"{folder}: no such folder; give results/<experiment>/<run-id>")
    manifest, trials = folder / MANIFEST, folder / TRIALS
    if not manifest.exists() and not trials.exists():
        raise LoadError(f"{folder}: no run in this folder; give results/<experiment>/<run-id>")
    return (
        read_manifest(folder) if manifest.exists() else None,
        list(read_records(trials, ended=False)) if trials.exists() else [],
    )


def runs_of(experiment: Path) -> list[Path]:
    """The folders of an experiment's runs, the newest last."""
    return sorted(file.parent for file in experiment.glob(f"*/{MANIFEST}"))


def runs_in(results: Path) -> list[Path]:
    """The folders of all runs below a folder of results, by experiment."""
    return sorted(file.parent for file in results.glob(f"*/*/{MANIFEST}"))


def read_manifest(folder: Path) -> Manifest:
    """Read run.json; that of a sealed bundle may be of an older schema. Raises LoadError."""
    file = folder / MANIFEST
    content = read_object(file)
    schema = content.get("schema")
    if schema != SCHEMA and not (migration.is_older(schema) and (folder / SUMS).exists()):
        way_out = f"run `vmtoll convert {folder}`" if migration.is_older(schema) else "use the vmtoll that wrote it"
        raise LoadError(f"{file}: schema {schema!r}, but this vmtoll reads {SCHEMA}; {way_out}")
    try:
        return Manifest.model_validate_json(json.dumps(content | {"schema": SCHEMA}))
    except ValidationError as error:
        raise LoadError(f"{file}: {first_mistake(error)}") from None


def read_hosts(folder: Path) -> dict[str, HostFacts]:
    """Read hosts.json: machine → facts. Raises LoadError."""
    file = folder / HOSTS
    hosts = {}
    for name, facts in read_object(file).items():
        try:
            hosts[name] = HostFacts.model_validate(facts)
        except ValidationError as error:
            raise LoadError(f"{file}: {name}: {first_mistake(error)}") from None
    return hosts


def read_pages(folder: Path) -> list[ServicePage]:
    """Read what a service answered to each URL when a run began; empty for other runs, and for bundles, which omit it.

    Raises LoadError.
    """
    file = folder / SERVICE
    try:
        return [ServicePage.model_validate(page) for page in read_object(file)["urls"]] if file.exists() else []
    except (KeyError, ValidationError) as error:
        raise LoadError(f"{file}: {error}") from None


def read_exit_prices(folder: Path) -> dict[str, list[ExitPrice]]:
    """Read the price list of exits of each KVM host; empty for a run without. Raises LoadError."""
    file = folder / EXIT_PRICES
    try:
        return _PRICES.validate_json(_read(file)) if file.exists() else {}
    except ValidationError as error:
        raise LoadError(f"{file}: {first_mistake(error)}") from None


def read_object(file: Path) -> dict[str, Any]:
    """Read a JSON object. Raises LoadError."""
    data = _read(file)
    try:
        content = json.loads(data)
    except ValueError as error:
        raise LoadError(f"{file}: {error}") from None
    if not isinstance(content, dict):
        raise LoadError(f"{file}: expected an object, got {type(content).__name__}")
    return content


def read_records(file: Path, *, ended: bool, schema: int = SCHEMA) -> Iterator[TrialRecord]:
    """Read and check the records of trials.jsonl or capacities.jsonl, of any schema. Raises LoadError.

    A run that has not `ended` may have a half-written last line: without its line break it does not count.
    """
    data = _read(file)
    yield from parse_records(file, data if ended else whole_lines(data), schema)


def whole_lines(data: bytes) -> bytes:
    """The data without a last line that a kill left unfinished."""
    return data[: data.rfind(b"\n") + 1]


def parse_records(file: Path, data: bytes, schema: int = SCHEMA) -> Iterator[TrialRecord]:
    """Parse and check the records in the data of a file, of any schema. Raises LoadError."""
    *lines, rest = data.split(b"\n")  # only \n ends a record
    for number, line in enumerate([*lines, rest] if rest else lines, start=1):
        try:
            record = from_json(line if schema == SCHEMA else json.dumps(migration.migrated(json.loads(line), schema)))
        except ValidationError as error:
            raise LoadError(f"{file}: line {number}, {first_mistake(error)}") from None
        except ValueError as error:
            raise LoadError(f"{file}: line {number}, {error}") from None
        if impossible := _impossible_count(record):
            raise LoadError(f"{file}: line {number}, {impossible}; leave the trial out or correct it")
        yield record


def without_duplicates(file: Path, records: Iterable[TrialRecord]) -> Iterator[TrialRecord]:
    """Yield the records of a file, one per line. Raises LoadError when an attempt at a trial appears twice."""
    seen: set[tuple[int, int, int]] = set()
    for number, record in enumerate(records, start=1):
        if (*record.key, record.attempt) in seen:
            raise LoadError(f"{file}: line {number}, key attempt: this attempt appears twice; remove one line")
        seen.add((*record.key, record.attempt))
        yield record


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise LoadError(f"{file}: no such file; is this a run directory?") from None
    except OSError as error:
        raise LoadError(f"{file}: {cause_of(error)}") from None


def _impossible_count(record: TrialRecord) -> str:
    """Describe a count of the record that exceeds its number of requests; empty when none does."""
    for measurement in record.measurements:
        for name in ("successful", "failed"):
            count = getattr(measurement, name)
            if None not in (count, measurement.requests) and count > measurement.requests:
                return f"key {measurement.role.value}.{name}: {count}, more than the {measurement.requests} of requests"
    return ""
