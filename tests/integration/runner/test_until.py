"""A run on this machine that goes on until its comparisons are known: real agents, tools and a real lighttz."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.measured import run
from tests.support.records import BASELINE, records_of
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.commands.conclude import conclude, judge
from vmtoll.model.errors import ExperimentError
from vmtoll.model.event import Event, LookEnded, TrialEnded
from vmtoll.model.trial import Arm
from vmtoll.model.until import ComparisonState, Look, LookComparison, Stop, Until
from vmtoll.spec.catalog import Registry

Rewrite = Callable[..., Path]
WIDE = Until(half_width_pct=50, at_most_min=60)
NO_TIME = Until(half_width_pct=0.0001, at_most_min=0.0001)


def test_a_run_stops_by_its_own_looks(project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite) -> None:
    """The time ends after the first look; run.json and the report list the comparisons still open."""
    events: list[Event] = []
    run_dir = run(
        rewrite(blocks=2), inventory, tmp_path / "r", registry=project, until=NO_TIME, judge=judge,
        listener=events.append,
    )  # fmt: skip
    records, finished = records_of(run_dir), load_run(run_dir)
    assert [record.key for record in records] == [(block, order) for block in range(1, 7) for order in (1, 2, 3)]
    manifest = finished.manifest
    (last,) = manifest.looks
    # On a busy machine the client may limit every comparison, and then none is open.
    assert manifest.stopped is (Stop.TIME if last.open else Stop.DECIDED)
    assert (manifest.status, manifest.trials_planned) == ("complete", 18)
    assert (last.blocks, last.share) == (6, 1)
    assert last.comparisons == sum(
        verdict.applies for each in analyse(finished).comparisons for verdict in each.verdicts.values()
    )
    assert [event.look for event in events if isinstance(event, LookEnded)] == [last]
    conclude(run_dir)
    assert "Stopped after 6 blocks " in (run_dir / "report.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_a_killed_run_continues_to_its_next_look(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    """The process ends in block 8; the run that is resumed needs no --until, and looks after ten blocks."""
    results, experiment = tmp_path / "r", rewrite(blocks=2)

    def look(folder: Path, looks: Sequence[Look]) -> list[LookComparison]:
        scenario = load_run(folder).scenarios[0]
        standing = ComparisonState.OPEN if looks[-1].blocks < 10 else ComparisonState.DECIDED
        arms = [BASELINE, Arm("metal-two")]
        return [LookComparison(standing=standing, metric="throughput", scenarios=[scenario], arms=arms)]

    def kill(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.record.block == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, inventory, results, registry=project, until=WIDE, judge=look, listener=kill)
    run_dir = (results / "latest").resolve()
    assert load_run(run_dir).manifest.trials_planned == 30
    assert run(experiment, inventory, results, resume=run_dir, registry=project, judge=look) == run_dir
    manifest = load_run(run_dir).manifest
    assert ([each.blocks for each in manifest.looks], manifest.stopped) == ([6, 10], Stop.DECIDED)
    assert len({record.key for record in records_of(run_dir)}) == len(records_of(run_dir)) == 30


def test_until_requires_looks(project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite) -> None:
    with pytest.raises(ExperimentError, match="cannot stop early"):
        run(rewrite(blocks=6), inventory, tmp_path / "r", registry=project, until=WIDE)
