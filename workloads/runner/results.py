"""One run's folder: rows are appended whole and durably, and a killed run is found as it stopped."""

import csv
import errno
import fcntl
import io
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from workloads.runner.errors import ResultsError
from workloads.runner.registry import PROJECT

SCHEMA = 1
# The columns of trials.csv, in order: results/schema/trials.json is the one place that names them.
COLUMNS = [str(f["name"]) for f in json.loads((PROJECT / "results" / "schema" / "trials.json").read_text())["fields"]]

Row = dict[str, Any]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file in one step: a reader, or a machine that lost power, sees the old or the new one."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    beside.replace(path)
    _sync_folder(path.parent)


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.9g}"
    return " ".join(value.split()) if isinstance(value, str) else value


def _line(values: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([_cell(v) for v in values])
    return text.getvalue().encode()


class Store:
    """The folder `results/<experiment>/<run-id>/`, held by one process at a time."""

    def __init__(self, run_dir: Path) -> None:
        """Open and lock it. Raises ResultsError when another process holds it."""
        if not run_dir.is_dir():
            raise ResultsError(f"{run_dir}: no such run")
        self.run_dir = run_dir
        self._lock = (run_dir / ".lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise ResultsError(f"{run_dir}: another process is running this run") from None
        for folder in ("histograms", "samples", "raw"):
            (run_dir / folder).mkdir(exist_ok=True)
        self._repair()

    @classmethod
    def create(cls, run_dir: Path) -> Self:
        """Make a new folder. Raises ResultsError when it exists."""
        try:
            run_dir.mkdir(parents=True)
        except FileExistsError:
            raise ResultsError(f"{run_dir}: exists already") from None
        return cls(run_dir)

    def close(self) -> None:
        self._lock.close()

    @property
    def trials_file(self) -> Path:
        return self.run_dir / "trials.csv"

    def _repair(self) -> None:
        """Cut off a last line that a kill left unfinished; write the heading when there is none."""
        if self.trials_file.exists():
            data = self.trials_file.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            if whole != data:
                with self.trials_file.open("r+b") as handle:
                    handle.truncate(len(whole))
                    os.fsync(handle.fileno())
            if whole:
                if whole.split(b"\n", 1)[0] + b"\n" != _line(list(COLUMNS)):
                    self.close()
                    raise ResultsError(f"{self.trials_file}: its columns are not those of schema {SCHEMA}")
                return
        write_durably(self.trials_file, _line(list(COLUMNS)))

    def rows(self) -> list[dict[str, str]]:
        """All rows so far, as text; empty cells are empty strings."""
        with self.trials_file.open(encoding="utf-8", newline="") as handle:
            return list(csv.DictReader(handle))

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row, last of all that belongs to its trial, in one write. Raises ValueError on a wrong key."""
        if wrong := sorted(set(row) - set(COLUMNS)):
            raise ValueError(f"no such columns: {wrong}")
        data = _line([row.get(name) for name in COLUMNS])
        handle = os.open(self.trials_file, os.O_WRONLY | os.O_APPEND)
        try:
            if os.write(handle, data) != len(data):
                raise OSError(errno.ENOSPC, "the row does not fit", str(self.trials_file))  # resuming cuts it off
            os.fsync(handle)
        finally:
            os.close(handle)

    def clear_trial(self, name: str) -> None:
        """Remove what a killed attempt of this name may have left."""
        shutil.rmtree(self.run_dir / "raw" / name, ignore_errors=True)
        for path in (
            f"histograms/{name}.hdr",
            f"histograms/{name}.csv",
            f"samples/{name}.csv",
            f"telemetry/{name}.json",
        ):
            (self.run_dir / path).unlink(missing_ok=True)

    def keep(self, relative: str, data: bytes) -> None:
        """Write one file of a trial durably."""
        path = self.run_dir / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, data)

    def read_json(self, name: str) -> dict[str, Any]:
        """run.json or hosts.json. Raises ResultsError."""
        path = self.run_dir / name
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ResultsError(f"{path}: {error}") from error
        if not isinstance(data, dict):
            raise ResultsError(f"{path}: not a mapping")
        return data

    def write_json(self, name: str, data: Mapping[str, Any]) -> None:
        text = json.dumps(data, indent=1, sort_keys=False, ensure_ascii=False)
        write_durably(self.run_dir / name, text.encode() + b"\n")
