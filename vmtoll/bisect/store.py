"""The folder of a bisection: bisect.json, its builds, its sittings' experiments and runs; one process at a time."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from vmtoll.files import locked, write_durably
from vmtoll.model.bisection import Bisection, Sitting, SittingResult
from vmtoll.model.document import first_mistake
from vmtoll.model.errors import ResultsError, UserError

FILE = "bisect.json"


def name_of(candidates: Sequence[str], request: Mapping[str, str]) -> str:
    """The name of a bisection's folder: the anchors, and a digest of the candidates and of what was asked for."""
    whole = json.dumps([list(candidates), dict(sorted(request.items()))]).encode()
    return f"{slug(candidates[0])}-{slug(candidates[-1])}-{hashlib.sha256(whole).hexdigest()[:6]}"


def slug(candidate: str) -> str:
    """A candidate as part of a file's name: 12 characters of a hash; another name with a digest where it is changed."""
    if re.fullmatch(r"[0-9a-f]{40,64}", candidate):
        return candidate[:12]
    short = re.sub(r"[^A-Za-z0-9]+", "-", candidate[-30:]).strip("-").lower()
    digest = "" if short == candidate else hashlib.sha256(candidate.encode()).hexdigest()[:6]
    return "-".join(filter(None, [short, digest]))


@dataclass
class BisectionStore:
    """A bisection and its folder. Every change is written durably before it counts."""

    folder: Path
    bisection: Bisection

    @property
    def builds(self) -> Path:
        return self.folder / "builds"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def begin(self, sitting: Sitting) -> None:
        """Record the sitting that is about to be measured, so that a killed one goes on with the same share."""
        self._write(pending=sitting)

    def end(self, finding: SittingResult) -> None:
        """Record what the pending sitting found."""
        pending = self.bisection.pending
        is_other = pending is not None and pending.candidate != finding.sitting.candidate
        self._write(findings=[*self.bisection.findings, finding], pending=pending if is_other else None)

    def remove_builds(self, keep: Sequence[str] = ()) -> None:
        """Remove the sources and builds of candidates, but for those to `keep`; all logs stay."""
        names = {slug(candidate) for candidate in keep}
        for folder in self.builds.glob("*"):
            if folder.is_dir() and folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)

    def _write(self, **update: object) -> None:
        self.bisection = self.bisection.model_copy(update=update)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_durably(self.folder / FILE, self.bisection.model_dump_json(by_alias=True, indent=1).encode() + b"\n")


def read(folder: Path) -> Bisection:
    """Read bisect.json. Raises ResultsError."""
    file = folder / FILE
    try:
        return Bisection.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise ResultsError(f"{file}: {first_mistake(error)}; move the folder away to start over") from None


@contextmanager
def opened(folder: Path, candidates: Sequence[str], request: Mapping[str, str]) -> Iterator[BisectionStore]:
    """Hold the folder of a bisection; yield what it has, or a new bisection.

    Raises UserError when another process holds it, ResultsError. A folder in which nothing was recorded is removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    busy = UserError(f"{folder}: another vmtoll is working on this bisection; wait for it")
    with locked(folder / "lock", busy):
        if (folder / FILE).exists():
            bisection = read(folder)
        else:
            bisection = Bisection(candidates=list(candidates), request=dict(request))
        try:
            yield BisectionStore(folder, bisection)
        finally:
            if not (folder / FILE).exists():
                shutil.rmtree(folder, ignore_errors=True)
