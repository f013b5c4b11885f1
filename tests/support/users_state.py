"""Keeps tests away from what a user made: results, cache, notes of provisioning, variables, a folder of the user's own.

A test that reads them passes on one machine and fails on the next. `guard` makes each such read an error at once, also
where the user has no run and no cache yet.
"""

import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.support.committed_run import committed, committed_count, committed_runs
from vmtoll.paths import CACHE, PROJECT, STATE

RESULTS = PROJECT / "results"
KEPT = (CACHE, STATE)


class UsersStateError(AssertionError):
    """A test read what a user made."""


@cache
def _repositorys() -> tuple[str, ...]:
    """What is the repository's in results/: the folders of runs, schemas and published figures, and files beside them.

    Neither results/ nor results/demo is: to list them is to find a user's runs.
    """
    runs = {str(run) for run in (*committed_runs(), committed_count())}
    files = {str(file) for file in committed("results/*") if len(file.relative_to(RESULTS).parts) == 1}
    return (*runs, *files, str(RESULTS / "schema"), str(RESULTS / "published"))


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def fault(path: str, kept: Iterable[Path]) -> str | None:
    """Why a test must not read this path: it is a user's run, or below one of the `kept` folders. None if it may."""
    if _below(path, str(RESULTS)) and not any(_below(path, known) for known in _repositorys()):
        return f"{path}: a test read what may be a user's run; take the runs of tests/support/committed_run.py"
    if any(_below(path, str(folder)) for folder in kept):
        return f"{path}: a test read what vmtoll keeps for its user; give it a folder in tmp_path"
    return None


_kept: list[Iterable[Path]] = []  # of the guards that are on; an audit hook cannot be removed


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not _kept or event not in ("open", "os.listdir", "os.scandir"):
        return
    path = arguments[0]
    if not isinstance(path, str | os.PathLike):
        return
    if event == "open" and arguments[1] is None and not Path(path).is_absolute():
        return  # os.open, and the path may begin at another folder that is open
    if sys._getframe(1).f_globals.get("__name__") == "pkgutil":
        return  # a library that looks for its plugins in all folders of sys.path
    if message := fault(os.path.abspath(path), _kept[-1]):  # noqa: PTH100 (resolve would follow links)
        raise UsersStateError(message)


@contextmanager
def guarded(kept: Iterable[Path] = ()) -> Generator[None]:
    """Make it an error to open or list a user's runs or what is in the `kept` folders."""
    _installed()
    _kept.append(kept)
    try:
        yield
    finally:
        _kept.pop()


@cache
def _installed() -> None:
    _repositorys()
    sys.addaudithook(_audit)
