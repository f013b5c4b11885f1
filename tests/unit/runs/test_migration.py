"""Runs of an older schema are brought into the present one, with the same figures, whenever it is killed."""

import fcntl
import json
import shutil
from pathlib import Path

import pytest

from tests.support.older_schema import as_schema_2
from tests.support.synthetic_run import Truth, closed_load, make_run, rate_load
from vmtoll.analysis.run import load_run
from vmtoll.model.errors import LoadError, ResultsError
from vmtoll.model.run import SCHEMA
from vmtoll.runs.folder import CAPACITIES, MANIFEST, TRIALS
from vmtoll.runs.migration import migrate

FILES = (TRIALS, CAPACITIES.name)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path, Truth({"nginx": 0.8}, blocks=3, loads=(closed_load(), rate_load(400))))


@pytest.fixture
def older(run: Path) -> Path:
    folder = run.parent / "older"
    shutil.copytree(run, folder)
    as_schema_2(folder)
    return folder


def test_the_figures_stay_the_same(run: Path, older: Path) -> None:
    assert migrate(older, MANIFEST, FILES) == 2
    assert load_run(older).records == load_run(run).records
    assert load_run(older).manifest == load_run(run).manifest
    assert migrate(older, MANIFEST, FILES) == SCHEMA, "nothing is left to do"


def test_an_older_run_names_the_way_out(older: Path) -> None:
    with pytest.raises(LoadError, match=rf"run\.json: schema 2, .*reads {SCHEMA}; run `vmtoll convert"):
        load_run(older)


@pytest.mark.parametrize("done", [0, 1, 99])
def test_a_killed_migration_goes_on(run: Path, older: Path, done: int) -> None:
    """Before run.json is written, some records are in the new schema already."""
    new, old = (folder.joinpath(TRIALS).read_text().splitlines(keepends=True) for folder in (run, older))
    (older / TRIALS).write_text("".join([*new[:done], *old[done:]]))
    migrate(older, MANIFEST, FILES)
    assert load_run(older).records == load_run(run).records


def test_an_unfinished_line_is_left_out(run: Path, older: Path) -> None:
    with (older / TRIALS).open("a") as file:
        file.write('{"run_id": "cut')
    migrate(older, MANIFEST, FILES)
    assert load_run(older).records == load_run(run).records


def test_a_run_that_is_written_is_left_alone(older: Path) -> None:
    before = (older / TRIALS).read_bytes()
    with (older / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ResultsError, match=r"another process .*this run"):
            migrate(older, MANIFEST, FILES)
    assert (older / TRIALS).read_bytes() == before


def test_an_unknown_schema_is_refused(run: Path) -> None:
    (run / MANIFEST).write_text(json.dumps(json.loads((run / MANIFEST).read_text()) | {"schema": 1}))
    with pytest.raises(ResultsError, match=r"run\.json: schema 1; vmtoll migrates 2"):
        migrate(run, MANIFEST, FILES)
