"""The runs that the repository carries. A user's own runs lie in the same folder, and no test reads them."""

import subprocess
from functools import cache
from pathlib import Path

from vmtoll.paths import PROJECT

DEMO = PROJECT / "results" / "demo" / "20261126T022209Z-9a1e"


@cache
def committed(*patterns: str) -> list[Path]:
    """The files of the project that git tracks and that match a pattern, sorted; never empty."""
    # The checkout may belong to another user than root, who runs the tests; git would refuse it.
    argv = ["git", "-c", "safe.directory=*", "-C", str(PROJECT), "ls-files", "-z", "--", *patterns]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RuntimeError("tests of committed files ask git which these are: install git") from None
    if done.returncode:
        raise RuntimeError(
            f"tests of committed files need a git checkout, to tell them from a user's: {done.stderr.strip()}"
        )
    found = sorted(PROJECT / name for name in done.stdout.split("\0") if name)
    if not found:
        raise RuntimeError(f"git tracks no file {' or '.join(patterns)}")
    return found


def committed_runs() -> list[Path]:
    """The folders of all committed runs."""
    return [file.parent for file in committed("results/*/*/run.json")]


def committed_count() -> Path:
    """The folder of the committed count of instructions."""
    (file,) = committed("results/count/*/count.json")
    return file.parent


def linked(results: Path) -> Path:
    """Make a folder of results that has the committed runs, by links, and return it."""
    for run in committed_runs():
        (results / run.parent.name).mkdir(parents=True, exist_ok=True)
        (results / run.parent.name / run.name).symlink_to(run)
    return results
