"""One run's folder, for writing: appends records whole and durably, so a killed run can resume where it stopped.

`trials.jsonl` is the truth, one record per line; `trials.csv` is exported from it after each trial. `capacities.jsonl`
has the capacity trials, which give the rates of loads that are shares; `exits.jsonl` those whose exits were traced;
`first-answers.jsonl` the starts of guests.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from vmtoll.files import locked, sync_folder, write_durably
from vmtoll.model.columns import to_csv
from vmtoll.model.errors import ResultsError
from vmtoll.model.exits import ExitPrice, ExplainedTrial, to_line
from vmtoll.model.facts import HostFacts
from vmtoll.model.first_answer import StartRecord
from vmtoll.model.first_answer import to_line as start_line
from vmtoll.model.run import SCHEMA, Manifest
from vmtoll.model.trial import TrialRecord, to_json
from vmtoll.runs.folder import (
    CAPACITIES,
    EXIT_PRICES,
    EXITS,
    HOSTS,
    MANIFEST,
    STARTS,
    TABLE,
    TRIALS,
    parse_explained,
    parse_records,
    parse_starts,
    read_exit_prices,
    read_hosts,
    read_manifest,
    whole_lines,
)
from vmtoll.runs.migration import LOCK, busy

T = TypeVar("T")
_RUN_FILES = {LOCK, MANIFEST, TRIALS, TABLE}  # each run's folder has at least one of these


class Store:
    """The folder `results/<experiment>/<run-id>/`, held by one process at a time."""

    def __init__(self, run_dir: Path) -> None:
        """Open and lock the folder. Raises ResultsError when it is missing, holds no run or a run of another schema, or
        is locked by another process; LoadError when the run cannot be read.
        """
        if not run_dir.is_dir():
            raise ResultsError(f"{run_dir}: no such folder; give results/<experiment>/<run-id>")
        names = {entry.name for entry in run_dir.iterdir()}
        if names and not names & _RUN_FILES:
            raise ResultsError(f"{run_dir}: no run in this folder; give results/<experiment>/<run-id>")
        self.run_dir = run_dir
        self.trials_file, self.table_file = run_dir / TRIALS, run_dir / TABLE
        self.manifest_file, self.capacities_file = run_dir / MANIFEST, run_dir / CAPACITIES
        self.exits_file, self.starts_file = run_dir / EXITS, run_dir / STARTS
        self._lock = contextlib.ExitStack()
        self._lock.enter_context(locked(run_dir / LOCK, busy(run_dir)))
        try:
            if self.table_file.exists() and not self.manifest_file.exists() and not self.trials_file.exists():
                raise ResultsError(f"{self.table_file}: a run of another schema; this program reads schema {SCHEMA}")
            self.manifest()
            for folder in ("histograms", "samples", "raw"):
                (run_dir / folder).mkdir(exist_ok=True)
            self._touch(self.trials_file)
            self._records = _whole(self.trials_file, parse_records)
            self._capacities = _whole(self.capacities_file, parse_records)
            self._explained = _whole(self.exits_file, parse_explained)
            self._starts = _whole(self.starts_file, parse_starts)
            self._export()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, run_dir: Path) -> Self:
        """Create the folder of a new run. Raises ResultsError when it exists."""
        try:
            run_dir.mkdir(parents=True)
        except FileExistsError:
            raise ResultsError(f"{run_dir}: exists already; choose another --results") from None
        return cls(run_dir)

    def close(self) -> None:
        self._lock.close()

    def discard_unmeasured(self) -> None:
        """Remove the folder of a run that never began: vmtoll did not reach the machines, or they do not fit."""
        if not self.manifest_file.exists() and not self._records:
            shutil.rmtree(self.run_dir)
            with contextlib.suppress(OSError):  # the experiment has other runs
                self.run_dir.parent.rmdir()

    def _touch(self, file: Path) -> None:
        if not file.exists():
            file.touch()
            sync_folder(self.run_dir)

    def _export(self) -> None:
        write_durably(self.table_file, to_csv(self._records))

    def records(self) -> Sequence[TrialRecord]:
        """All records so far, in the order in which they were appended."""
        return self._records

    def capacities(self) -> Sequence[TrialRecord]:
        """The records of all capacity trials so far, in the order in which they were appended."""
        return self._capacities

    def append(self, record: TrialRecord) -> None:
        """Append one record and export the table. Call it last, after all other files of the trial are written."""
        _append(self.trials_file, to_json(record))
        self._records.append(record)
        self._export()

    def append_capacity(self, record: TrialRecord) -> None:
        """Append the record of one capacity trial."""
        self._touch(self.capacities_file)
        _append(self.capacities_file, to_json(record))
        self._capacities.append(record)

    def explained(self) -> Sequence[ExplainedTrial]:
        """All explained trials so far, in the order in which they were appended."""
        return self._explained

    def append_explained(self, explained: ExplainedTrial) -> None:
        """Append one explained trial."""
        self._touch(self.exits_file)
        _append(self.exits_file, to_line(explained))
        self._explained.append(explained)

    def starts(self) -> Sequence[StartRecord]:
        """All starts of guests so far, in the order in which they were appended."""
        return self._starts

    def append_start(self, record: StartRecord) -> None:
        """Append one start of guests."""
        self._touch(self.starts_file)
        _append(self.starts_file, start_line(record))
        self._starts.append(record)

    def exit_prices(self) -> dict[str, list[ExitPrice]]:
        """KVM host → its price list of exits; empty before they are measured. Raises LoadError."""
        return read_exit_prices(self.run_dir)

    def write_exit_prices(self, prices: Mapping[str, Sequence[ExitPrice]]) -> None:
        self.write_json(
            EXIT_PRICES, {host: [price.model_dump() for price in listed] for host, listed in prices.items()}
        )

    def clear_trial(self, name: str) -> None:
        """Remove the files that a killed attempt of this name may have left."""
        shutil.rmtree(self.run_dir / "raw" / name, ignore_errors=True)
        for folder, kind in (
            ("histograms", "hdr"),
            ("histograms", "csv"),
            ("samples", "csv"),
            ("telemetry", "json"),
            ("operations", "json"),
        ):
            (self.run_dir / folder / f"{name}.{kind}").unlink(missing_ok=True)

    def write_file(self, relative: str, data: bytes) -> None:
        """Write one file of a trial durably."""
        path = self.run_dir / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, data)

    def manifest(self) -> Manifest | None:
        """run.json; None when the run was killed before it wrote one. Raises LoadError."""
        return read_manifest(self.run_dir) if self.manifest_file.exists() else None

    def write_manifest(self, manifest: Manifest) -> None:
        self.write_json(MANIFEST, manifest.model_dump(mode="json", by_alias=True))

    def write_hosts(self, hosts: Mapping[str, HostFacts]) -> None:
        self.write_json(HOSTS, {name: facts.recorded for name, facts in hosts.items()})

    def hosts(self) -> dict[str, HostFacts]:
        """hosts.json. Raises LoadError."""
        return read_hosts(self.run_dir)

    def write_json(self, name: str, data: Mapping[str, Any]) -> None:
        text = json.dumps(data, indent=1, sort_keys=False, ensure_ascii=False)
        write_durably(self.run_dir / name, text.encode() + b"\n")


def _whole(file: Path, parse: Callable[[Path, bytes], Iterable[T]]) -> list[T]:
    """Cut off a last line that a kill left unfinished; return the records, none of a file that does not exist.

    Raises LoadError.
    """
    if not file.exists():
        return []
    data = file.read_bytes()
    whole = whole_lines(data)
    if whole != data:
        with file.open("r+b") as handle:
            handle.truncate(len(whole))
            os.fsync(handle.fileno())
    return list(parse(file, whole))


def _append(file: Path, line: bytes) -> None:
    """Append one line durably, in one write."""
    data = line + b"\n"
    handle = os.open(file, os.O_WRONLY | os.O_APPEND)
    try:
        if os.write(handle, data) != len(data):
            # Resuming the run cuts off the partial record.
            raise OSError(errno.ENOSPC, "the record does not fit", str(file))
        os.fsync(handle)
    finally:
        os.close(handle)
