"""The candidates of a bisection, from good to bad: lines of a file, or the commits of a git repository."""

from pathlib import Path

from vmtoll.files import cause_of
from vmtoll.model.errors import UserError
from vmtoll.shell import run


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
        found = f"only {names[0]}" if names else "nothing"
        raise UserError(f"{file}: lists {found}; give two candidates at least, the good one first, the bad one last")
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
    listed = run(["git", "-C", repository, "rev-list", "--reverse", "--first-parent", f"{first}..{last}"]).split()
    oldest = run(["git", "-C", repository, "rev-parse", f"{listed[0]}^"]).strip() if listed else ""
    if oldest != first:
        raise UserError(f"{repository}: {bad} does not come after {good} along first parents; give two such commits")
    return [first, *listed]


def commit_of(repository: Path, revision: str) -> str:
    """The hash of a revision. Raises UserError."""
    try:
        return run(["git", "-C", repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]).strip()
    except UserError:
        raise UserError(f"{repository}: no commit {revision!r} there, or no git repository") from None
