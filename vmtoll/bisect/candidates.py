"""The candidates of a bisection, from good to bad: lines of a file, or the commits of a git repository."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from vmtoll.files import cause_of
from vmtoll.model.errors import UserError


def of_file(file: Path, good: str | None, bad: str | None) -> list[str]:
    """A candidate a line, from good to bad; `#` begins a comment. `good`, `bad`: entries that the list is cut to.

    Raises UserError for an empty list, an entry that is listed twice, and an anchor that is not listed.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {cause_of(error)}") from error
    listed: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        candidate = line.strip()
        if not candidate or candidate.startswith("#"):
            continue
        if candidate in listed:
            raise UserError(f"{file}: line {number}: {candidate} is listed twice, first in line {listed[candidate]}")
        listed[candidate] = number
    names = list(listed)
    if len(names) < 2:
        few = f"only {names[0]}" if names else "nothing"
        raise UserError(f"{file}: lists {few}; give two candidates at least, the good one first, the bad one last")
    first, last = (_index(file, names, name, end) for name, end in ((good, 0), (bad, len(names) - 1)))
    if first >= last:
        raise UserError(f"{file}: {names[first]} does not come before {names[last]}; list them from good to bad")
    return names[first : last + 1]


def _index(file: Path, names: list[str], name: str | None, default: int) -> int:
    if name is None:
        return default
    if name not in names:
        raise UserError(f"{file}: does not list {name}; add it, or leave the option out")
    return names.index(name)


def of_git(repository: Path, good: str | None, bad: str | None) -> list[str]:
    """The good commit and all commits after it up to the bad one, along first parents, by their hashes.

    Raises UserError for a missing anchor, an unknown revision, and anchors that are not in this order.
    """
    if good is None or bad is None:
        raise UserError("--git needs --good and --bad: two commits, tags or branches")
    first, last = commit_of(repository, good), commit_of(repository, bad)
    if first == last:
        raise UserError(f"{repository}: --good and --bad are one commit, {first[:12]}; give two")
    listed = _git(repository, "rev-list", "--reverse", "--first-parent", f"{first}..{last}").split()
    oldest = _git(repository, "rev-parse", f"{listed[0]}^@").split() if listed else []
    if oldest[:1] != [first]:
        raise UserError(_not_in_order(repository, good, bad))
    return [first, *listed]


def _not_in_order(repository: Path, good: str, bad: str) -> str:
    """Why no line of first parents leads from `good` to `bad`, and two commits that one connects."""
    problem = f"{repository}: {bad} does not come after {good} along first parents"
    merge_base = _git(repository, "merge-base", good, bad, allowed=(1,)).strip()
    if merge_base == commit_of(repository, bad):
        return f"{problem}, but before it; exchange --good and --bad"
    if not merge_base:
        rest = "; the clone is shallow: `git fetch --unshallow`" if _is_shallow(repository) else ""
        return f"{problem}: the two have no common commit{rest}"
    base = _git(repository, "log", "-1", "--format=%h %s", merge_base).strip()
    if merge_base == commit_of(repository, good):
        merges = _git(repository, "rev-list", "--merges", "--ancestry-path", f"{good}..{bad}").split()
        merge = f" ({merges[-1][:12]} merged its branch)" if merges else ""
        return f"{problem}: it came in by a merge{merge}; give a --good on the branch that {bad} is on"
    return f"{problem}: both come after {base}, their merge base; give --good {merge_base[:12]}, or two of one branch"


def commit_of(repository: Path, revision: str) -> str:
    """The hash of a revision. Raises UserError with git's reason."""
    _git(repository, "rev-parse", "--git-dir")
    commit = _git(repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", allowed=(1, 128)).strip()
    if not commit:
        cut_off = (
            "; the clone is shallow, `git fetch --unshallow --tags` gets the rest" if _is_shallow(repository) else ""
        )
        raise UserError(f"{repository}: no commit {revision!r} there{cut_off}")
    return commit


def inside_of(repository: Path, commit: str) -> tuple[str, str] | None:
    """For a merge, the good and the bad commit between which its branch can be bisected; None for another commit."""
    parents = _git(repository, "rev-parse", f"{commit}^@").split()
    if len(parents) != 2:  # with more, several branches came in at once
        return None
    return _git(repository, "merge-base", *parents).strip(), parents[1]


def _is_shallow(repository: Path) -> bool:
    return _git(repository, "rev-parse", "--is-shallow-repository").strip() == "true"


def _git(repository: Path, *arguments: str, allowed: Sequence[int] = ()) -> str:
    """What git prints; `allowed`: exit codes beside 0. Raises UserError with git's own reason and its way out."""
    if not shutil.which("git"):
        raise UserError("git: program not found; install it")
    done = subprocess.run(
        ["git", "-C", repository, *arguments], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode and done.returncode not in allowed:
        reason, *rest = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["failed"]
        advice = next((line for line in rest if line.startswith("git ")), "")
        raise UserError(
            f"{repository}: git: {reason.removeprefix('fatal: ')}" + (f"; to allow it: {advice}" * bool(advice))
        )
    return done.stdout
