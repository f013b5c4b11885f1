"""Titles, captions and alternative texts of charts."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.snapshots import assert_snapshot
from tests.support.synthetic_run import Truth, closed_load, make_run
from tests.unit.analysis.test_neighbour_load import TRUTH as NEIGHBOUR
from tests.unit.analysis.test_neighbour_load import cold
from tests.unit.capacity.test_consolidation import made as consolidated
from tests.unit.capacity.test_models import USERS, lawful, over_cpus
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.trial import Accelerator
from vmtoll.report.charts import draw_all

pytestmark = pytest.mark.slow

OVER_USERS = Truth(loads=tuple(map(closed_load, USERS)), change=lawful, accelerator=Accelerator.TCG)


def test_the_words_of_charts(tmp_path: Path) -> None:
    made: dict[str, tuple[str, Run]] = {
        "Guests on one host": ("consolidation", consolidated(tmp_path / "guests")),
        "Scaling over users": ("scaling", load_run(make_run(tmp_path / "users", OVER_USERS))),
        "Scaling over the CPUs of guests": ("scaling", over_cpus(tmp_path / "cpus")),
        "A neighbour": ("neighbour_load", load_run(make_run(tmp_path / "neighbour", NEIGHBOUR))),
        "Cold caches": ("cold", cold(tmp_path / "cold")),
    }
    sections: dict[str, dict[str, Iterable[str]]] = {}
    for heading, (chart, run) in made.items():
        drawn = draw_all(run, analyse(run), [chart])
        sections[heading] = {one.title: [f"caption: {one.caption}", f"instead: {one.alt}"] for _, one in drawn}
    assert_snapshot(SNAPSHOTS / "charts.txt", sections)
