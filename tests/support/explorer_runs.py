"""Results folders with synthetic runs, for the tests of the explorer."""

import shutil
from pathlib import Path

from tests.support.synthetic_run import Truth, make_run


def add_run(results: Path, truth: Truth, experiment: str, run_id: str) -> Path:
    """Make a synthetic run at `results/<experiment>/<run_id>`; return its folder."""
    run_dir = make_run(results / "made", truth)
    target = results / experiment / run_id
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(run_dir, target)
    shutil.rmtree(results / "made")
    return target
