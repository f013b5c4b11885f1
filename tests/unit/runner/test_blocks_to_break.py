"""The blocks of a run of density: numbers of guests far beyond the break are measured no more."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from vmtoll.machines.session import Session
from vmtoll.model.density import DensityFigures, TileFigures
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.run import Differences, Manifest
from vmtoll.model.trial import Accelerator, Arm, ClientPlace, Scenario, TrialRecord, TrialSpec
from vmtoll.runner.blocks import BlocksToBreak, breaks_before, guests_of
from vmtoll.runner.plan import schedule
from vmtoll.runs.store import Store
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load

ARM = Arm("kvm-default")


def record(block: int, guests: int, *, missed: bool, arm: Arm = ARM) -> TrialRecord:
    tile = TileFigures(
        guest="g", kind="w", deadline_ms=50, requests=100, successful=100, p99_ms=90.0 if missed else 10.0
    )
    return TrialRecord(
        run_id="r", block=block, order=guests, attempt=1, arm=arm, accelerator=Accelerator.KVM, clients=1,
        guests=guests,
        scenario=Scenario("nginx", "w", Load(LoadKind.RATE, 100, guests)), client=ClientPlace.REMOTE, started_at="",
        density=DensityFigures(guests=guests, tiles=(tile,)),
    )  # fmt: skip


def records(missed: Iterable[tuple[int, int]], blocks: int = 3, most: int = 5) -> list[TrialRecord]:
    """Trials of each number of guests; `missed`: (block, guests)."""
    gone = set(missed)
    return [
        record(block, guests, missed=(block, guests) in gone)
        for block in range(1, blocks + 1)
        for guests in range(1, most + 1)
    ]


def test_three_blocks_must_agree_on_the_break() -> None:
    always = {(block, guests) for block in (1, 2, 3) for guests in (3, 4, 5)}
    assert breaks_before(4, records(always)) == {ARM: 3}
    assert breaks_before(3, records(always)) == {}, "only two blocks are before it"
    assert breaks_before(4, records(always - {(2, 3)})) == {ARM: 4}, "once 3 guests kept it"
    other = [record(block, 1, missed=True, arm=Arm("ksm-on")) for block in (1, 2, 3)]
    assert breaks_before(4, [*records(always), *other]) == {ARM: 3, Arm("ksm-on"): 1}


@pytest.fixture
def planned() -> tuple[Session, list[TrialSpec]]:
    """The shipped experiment: six blocks of one to three guests."""
    resolved = load(Registry().experiment_file("density"), Registry(), "small")
    return cast("Session", SimpleNamespace(resolved=resolved)), schedule(resolved, 5)


def test_a_run_leaves_out_what_lies_far_beyond_and_goes_on_alike(
    planned: tuple[Session, list[TrialSpec]], tmp_path: Path
) -> None:
    """Not even one guest keeps the objective, so after three blocks three guests at once are left out."""
    session, trials = planned
    store = Store.create(tmp_path / "run")
    resolved = session.resolved
    store.write_manifest(
        Manifest(
            run_id="r", experiment=resolved.experiment, workloads=dict(resolved.workloads), site=resolved.site,
            order_seed=5, versions={}, commit=None, started_at="", status="running", accelerators={}, lab="", link="",
            differences=Differences(), trials_planned=len(trials),
        )
    )  # fmt: skip
    session.store = store
    blocks = BlocksToBreak(session, trials, 100.0)
    measured = []
    for block in blocks:
        measured.append([guests_of(trial) for trial in block])
        for trial in block:
            store.append(
                TrialRecord(
                    **{**vars(record(trial.block, guests_of(trial), missed=True)), "order": trial.order}
                )
            )  # fmt: skip
    assert [sorted(numbers) for numbers in measured] == [[1, 2, 3]] * 3 + [[1, 2]] * 3
    assert blocks.scheduled == 15
    manifest = store.manifest()
    assert manifest is not None
    assert manifest.trials_planned == 15
    left = [trial for trial in trials if trial.block > 3 and guests_of(trial) == 3]
    assert list(BlocksToBreak(session, left, 100.0)) == [], "resumed, it measures none of them"
    store.close()
