"""The blocks of a run that goes on until its comparisons are known: looks, what is left out, and the stop."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests.support.machines import WORKLOAD
from tests.support.measured import plan
from tests.support.records import BASELINE
from vmtoll.machines.session import Session
from vmtoll.model.errors import ExperimentError
from vmtoll.model.event import Event, LookEnded
from vmtoll.model.inventory import Inventory
from vmtoll.model.run import Differences, Manifest
from vmtoll.model.trial import Arm, Scenario
from vmtoll.model.until import ComparisonState, Look, LookComparison, Stop, Until
from vmtoll.runner.blocks import BlocksUntil, FixedBlocks
from vmtoll.runner.run import Plan
from vmtoll.runs.store import Store
from vmtoll.spec.catalog import Registry

Rewrite = Callable[..., Path]
HOUR = Until(half_width_pct=2, at_most_min=60)
NO_TIME = Until(half_width_pct=2, at_most_min=1e-9)
OPENED: list[Store] = []
Script = dict[int, list[tuple[str, ComparisonState]]]  # blocks → workload and standing of each comparison


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture
def planned(project: Registry, rewrite: Rewrite) -> Plan:
    """Two scenarios on two environments, with an A/A control: six trials a block."""
    project.workload_file("other").write_text(yaml.safe_dump(WORKLOAD))
    return plan(rewrite(workloads=["tiny", "other"]), project, order_seed=7, until=HOUR)


def session_of(planned: Plan, run_dir: Path, until: Until) -> Session:
    resolved = planned.resolved
    store = Store.create(run_dir) if not run_dir.exists() else Store(run_dir)
    OPENED.append(store)
    if store.manifest() is None:
        experiment = resolved.experiment.model_copy(update={"until": until})
        store.write_manifest(
            Manifest(
                run_id="r", experiment=experiment, workloads=dict(resolved.workloads), site=resolved.site,
                order_seed=7, versions={}, commit=None, started_at="", status="running", accelerators={},
                lab="", link="", differences=Differences(), trials_planned=len(planned.trials),
            )
        )  # fmt: skip
    inventory = Inventory.__new__(Inventory)
    return Session(
        run_id="r", resolved=resolved, inventory=inventory, store=store,
        content={"site": "tiny", "digest": "", "files": []}, order_seed=7, lines={},
    )  # fmt: skip


def blocks_of(
    planned: Plan, run_dir: Path, script: Script, until: Until = HOUR
) -> tuple[BlocksUntil, list[Event], list[list[Look]]]:
    """`script`: what the looks find, by their number of blocks."""
    scenarios = {trial.scenario.workload: trial.scenario for trial in planned.trials}
    asked: list[list[Look]] = []

    def judge(folder: Path, looks: Sequence[Look]) -> list[LookComparison]:
        assert folder == run_dir
        asked.append(list(looks))
        return [compared(scenarios[workload], standing) for workload, standing in script[looks[-1].blocks]]

    events: list[Event] = []
    return BlocksUntil(session_of(planned, run_dir, until), until, judge, events.append), events, asked


def compared(scenario: Scenario, standing: ComparisonState) -> LookComparison:
    arms = [BASELINE, Arm("metal-two")]
    return LookComparison(standing=standing, metric="throughput", scenarios=[scenario], arms=arms, half_width_pct=3.0)


def manifest_of(run_dir: Path) -> Manifest:
    return Manifest.model_validate_json((run_dir / "run.json").read_bytes())


def test_a_scenario_that_is_known_is_measured_no_more(planned: Plan, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    script = {
        6: [("tiny", ComparisonState.OPEN), ("other", ComparisonState.DECIDED)],
        10: [("tiny", ComparisonState.NARROW), ("other", ComparisonState.DECIDED)],
    }
    blocks, events, asked = blocks_of(planned, run_dir, script)
    assert blocks.scheduled == 6 * 6
    measured = [list(trials) for trials in blocks]
    assert [len(trials) for trials in measured] == [6] * 6 + [3] * 4
    assert {t.scenario.workload for trials in measured[6:] for t in trials} == {"tiny"}
    assert [t for trials in measured[:6] for t in trials] == list(planned.trials)
    assert [[look.blocks for look in looks] for looks in asked] == [[6], [6, 10]]
    recorded = manifest_of(run_dir)
    assert recorded.stopped is Stop.NARROW
    assert recorded.trials_planned == blocks.scheduled == 6 * 6 + 4 * 3
    assert [(k.blocks, k.decided, k.narrow, len(k.open)) for k in recorded.looks] == [(6, 1, 0, 1), (10, 1, 1, 0)]
    assert recorded.looks[0].open[0].scenarios[0].workload == "tiny"
    assert 0 < sum(look.share for look in recorded.looks) < 0.01, "next to no time is over"
    assert [(e.next_blocks, e.stopped) for e in events if isinstance(e, LookEnded)] == [(10, None), (None, Stop.NARROW)]


def test_the_time_left_is_not_that_of_what_is_done_once(planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first trial waits for four minutes, the others take six seconds each."""
    blocks = FixedBlocks(planned.trials, expected_s=7.0 * len(planned.trials))
    clock_s = iter([0.0, 246.0, 252.0, 258.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock_s))
    left_s = [blocks.left_s(done + 1, done) for done in range(4)]
    trials = len(planned.trials)
    assert left_s == [7.0 * trials, 246.0 * (trials - 1), 126.0 * (trials - 2), 6.0 * (trials - 3)]


def test_a_run_stops_when_every_comparison_is_decided(planned: Plan, tmp_path: Path) -> None:
    script = {6: [("tiny", ComparisonState.DECIDED), ("other", ComparisonState.REFUSED)]}
    blocks, _, _ = blocks_of(planned, tmp_path / "run", script)
    assert len(list(blocks)) == 6
    assert manifest_of(tmp_path / "run").stopped is Stop.DECIDED


def test_the_time_ends_a_run_after_its_first_blocks(planned: Plan, tmp_path: Path) -> None:
    """Six blocks are measured in any case; their look may spend all of the 5%, as in a fixed design."""
    blocks, _, _ = blocks_of(planned, tmp_path / "run", {6: [("tiny", ComparisonState.OPEN)]}, NO_TIME)
    assert len(list(blocks)) == 6
    recorded = manifest_of(tmp_path / "run")
    assert (recorded.stopped, [look.share for look in recorded.looks]) == (Stop.TIME, [1])


def test_the_time_is_that_of_all_processes(planned: Plan, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    session_of(planned, run_dir, HOUR).store.close()
    recorded = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps(recorded | {"measured_s": 3599.999999}))
    blocks, _, _ = blocks_of(planned, run_dir, {6: [("tiny", ComparisonState.OPEN)]})
    assert blocks.left_s(1, 0) < 1e-3
    assert len(list(blocks)) == 6
    assert manifest_of(run_dir).stopped is Stop.TIME


def test_a_run_that_is_resumed_finds_its_looks(planned: Plan, tmp_path: Path) -> None:
    """Killed in block 8: the look after six is not repeated, and blocks 7 and 8 are those of the first process."""
    run_dir = tmp_path / "run"
    first = {6: [("tiny", ComparisonState.OPEN), ("other", ComparisonState.DECIDED)]}
    blocks, _, _ = blocks_of(planned, run_dir, first)
    iterator = iter(blocks)
    before = [list(next(iterator)) for _ in range(8)]
    blocks._session.store.close()
    second, events, asked = blocks_of(planned, run_dir, {10: [("tiny", ComparisonState.DECIDED)]})
    again = [list(trials) for trials in second]
    assert again[:8] == before
    assert len(again) == 10
    assert [[look.blocks for look in looks] for looks in asked] == [[6, 10]]
    assert manifest_of(run_dir).trials_planned == second.scheduled == 6 * 6 + 4 * 3
    assert [e.stopped for e in events if isinstance(e, LookEnded)] == [Stop.DECIDED]


def test_a_run_that_is_resumed_after_several_looks_has_planned_as_many_trials(planned: Plan, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    script = {blocks: [("tiny", ComparisonState.OPEN), ("other", ComparisonState.OPEN)] for blocks in (6, 10)}
    blocks, _, _ = blocks_of(planned, run_dir, script)
    iterator = iter(blocks)
    for _ in range(12):
        next(iterator)
    planned_then = blocks.scheduled
    blocks._session.store.close()
    again, _, _ = blocks_of(planned, run_dir, {16: [("tiny", ComparisonState.DECIDED)]})
    assert len(list(again)) == 16
    assert again.scheduled == planned_then == 16 * 6


def test_a_run_that_was_killed_at_its_end_measures_no_more(planned: Plan, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    blocks, _, _ = blocks_of(planned, run_dir, {6: [("tiny", ComparisonState.DECIDED)]})
    assert len(list(blocks)) == 6
    blocks._session.store.close()
    again, events, _ = blocks_of(planned, run_dir, {})
    assert (list(again), events, again.scheduled) == ([], [], 36)


def test_until_of_the_command_line_brings_the_blocks_of_a_first_look(project: Registry, rewrite: Rewrite) -> None:
    made = plan(rewrite(blocks=2), project, until=HOUR)
    assert (made.resolved.experiment.blocks, made.resolved.experiment.until) == (6, HOUR)
    assert made.total_s == 3600
    booted = plan(rewrite(blocks=8, boots=4), project, until=HOUR)
    assert booted.resolved.experiment.blocks == 8


def test_an_experiment_can_set_until(project: Registry, rewrite: Rewrite) -> None:
    made = plan(rewrite(blocks=6, until={"half_width_pct": 2, "at_most_min": 60}), project)
    assert made.resolved.experiment.until == HOUR
    with pytest.raises(ExperimentError, match=r"until.at_most_min: is missing; keys: half_width_pct, at_most_min"):
        plan(rewrite(blocks=6, until={"half_width_pct": 2}), project)
