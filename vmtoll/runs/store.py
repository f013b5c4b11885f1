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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from vmtoll.files import locked, sync_folder, write_durably
from vmtoll.model.columns import to_csv
from vmtoll.model.errors import ResultsError
from vmtoll.model.exits import ExitPrice
from vmtoll.model.facts import HostFacts
from vmtoll.model.run import SCHEMA, Manifest
from vmtoll.model.trial import TrialRecord
from vmtoll.runs.folder import (
    CAPACITIES,
    EXIT_PRICES,
    EXPLAINED,
    HOSTS,
    MANIFEST,
    STARTS,
    TABLE,
    TRIALS,
    JsonLines,
    TrialLines,
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
        self.manifest_file = run_dir / MANIFEST
        self._lock = contextlib.ExitStack()
        self._lock.enter_context(locked(run_dir / LOCK, busy(run_dir)))
        try:
            if self.table_file.exists() and not self.manifest_file.exists() and not self.trials_file.exists():
                raise ResultsError(f"{self.table_file}: a run of another schema; this program reads schema {SCHEMA}")
            self.manifest()
            for folder in ("histograms", "samples", "raw"):
                (run_dir / folder).mkdir(exist_ok=True)
            _touch(self.trials_file)
            self._trials = Records(run_dir, TrialLines(TRIALS, TrialRecord))
            self.capacities = Records(run_dir, CAPACITIES)
            self.explained = Records(run_dir, EXPLAINED)
            self.starts = Records(run_dir, STARTS)
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
        if not self.manifest_file.exists() and not self.records():
            shutil.rmtree(self.run_dir)
            with contextlib.suppress(OSError):  # the experiment has other runs
                self.run_dir.parent.rmdir()

    def _export(self) -> None:
        write_durably(self.table_file, to_csv(self.records()))

    def records(self) -> Sequence[TrialRecord]:
        """All records so far, in the order in which they were appended."""
        return self._trials.records

    def append(self, record: TrialRecord) -> None:
        """Append one record and export the table. Call it last, after all other files of the trial are written."""
        self._trials.append(record)
        self._export()

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


class Records(Generic[T]):
    """The records of one file of a run, in the order in which they were appended."""

    def __init__(self, run_dir: Path, lines: JsonLines[T]) -> None:
        """Read the file, if it exists, and cut off a last line that a kill left unfinished. Raises LoadError."""
        self.file, self._lines = run_dir / lines.name, lines
        data = self.file.read_bytes() if self.file.exists() else b""
        whole = whole_lines(data)
        if whole != data:
            with self.file.open("r+b") as handle:
                handle.truncate(len(whole))
                os.fsync(handle.fileno())
        self.records = list(lines.parse(self.file, whole))

    def append(self, record: T) -> None:
        """Append one record durably."""
        _touch(self.file)
        _append(self.file, self._lines.line(record))
        self.records.append(record)


def _touch(file: Path) -> None:
    if not file.exists():
        file.touch()
        sync_folder(file.parent)


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
