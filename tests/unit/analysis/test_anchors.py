"""A sitting of a bisection, judged: a candidate between a good and a bad anchor."""

from pathlib import Path

import pytest

from tests.support.synthetic_run import Row, Truth, make_run
from vmtoll.analysis.anchors import answer_of, is_narrow, judge_sitting
from vmtoll.analysis.run import load_run
from vmtoll.model.bisection import AFTER, BAD, BEFORE, CANDIDATE, GOOD, Contrast, Sitting, SittingAnswer, Task
from vmtoll.model.metric import CPU
from vmtoll.model.verdict import Kind

W, B, U = Kind.SLOWER, Kind.FASTER, Kind.UNDECIDED


@pytest.mark.parametrize(
    ("task", "kinds", "answer"),
    [
        (Task.ANCHORS, [W], SittingAnswer.BAD),
        (Task.ANCHORS, [B], SittingAnswer.UNDECIDED),
        (Task.STEP, [W, W, U], SittingAnswer.BAD),
        (Task.STEP, [W, U, B], SittingAnswer.GOOD),
        (Task.STEP, [W, W, B], SittingAnswer.BETWEEN),
        (Task.STEP, [W, U, U], SittingAnswer.UNDECIDED),
        (Task.STEP, [U, W, U], SittingAnswer.UNDECIDED),
        (Task.STEP, [W, B, B], SittingAnswer.GOOD),
        (Task.STEP, [W, W, W], SittingAnswer.BAD),
        (Task.STEP, [Kind.NOT_JUDGED] * 3, SittingAnswer.UNDECIDED),
        (Task.CONFIRMATION, [W, U, U, U], SittingAnswer.BAD),
        (Task.CONFIRMATION, [U, W, U, U], SittingAnswer.UNDECIDED),
    ],
)
def test_what_the_comparisons_say(task: Task, kinds: list[Kind], answer: SittingAnswer) -> None:
    assert answer_of(task, kinds) is answer


def judged(tmp_path: Path, costs: dict[str, float], task: Task, share: float = 1.0) -> dict[tuple[str, str], Contrast]:
    """Judge a synthetic run whose arms use CPU in these proportions."""

    def change(row: Row) -> list[Row]:
        factor = costs[row["arm"].environment]
        return [row | {name: row[name] * factor for name in row if name.endswith("server_cpu_us_per_request")}]

    truth = Truth(
        cpu_ratio=1.0, blocks=8, aa=False, metal=False, guests=tuple(costs), baseline=GOOD, change=change, noise=0.01
    )
    run = load_run(make_run(tmp_path, truth))
    sitting = Sitting(number=1, task=task, arms={arm: arm for arm in costs}, share=share)
    return {(c.arm, c.baseline): c for c in judge_sitting(run, sitting, CPU)}


@pytest.mark.parametrize(
    ("cost", "answer"),
    [(1.0, SittingAnswer.GOOD), (1.5, SittingAnswer.BAD), (1.2, SittingAnswer.BETWEEN), (0.7, SittingAnswer.GOOD)],
)
def test_a_candidate_is_like_one_of_the_anchors(tmp_path: Path, cost: float, answer: SittingAnswer) -> None:
    contrasts = judged(tmp_path, {GOOD: 1.0, BAD: 1.5, CANDIDATE: cost}, Task.STEP)
    assert answer_of(Task.STEP, [contrast.kind for contrast in contrasts.values()]) is answer
    contrast = contrasts[CANDIDATE, GOOD]
    assert contrast.ratio == pytest.approx(cost, rel=0.03)
    assert contrast.low is not None
    assert contrast.high is not None
    assert contrast.low < cost < contrast.high


def test_nothing_is_decided_where_the_anchors_do_not_differ(tmp_path: Path) -> None:
    """The candidate is worse than both, but no anchor is."""
    contrasts = judged(tmp_path, {GOOD: 1.0, BAD: 1.0, CANDIDATE: 1.5}, Task.STEP)
    assert contrasts[CANDIDATE, GOOD].kind is Kind.SLOWER
    assert answer_of(Task.STEP, [contrast.kind for contrast in contrasts.values()]) is SittingAnswer.UNDECIDED


def test_a_confirmation_compares_the_suspect_with_the_one_before(tmp_path: Path) -> None:
    contrasts = judged(tmp_path, {GOOD: 1.0, BEFORE: 1.2, AFTER: 1.5, BAD: 1.5}, Task.CONFIRMATION)
    assert contrasts[AFTER, BEFORE].ratio == pytest.approx(1.25, rel=0.03)
    assert (contrasts[AFTER, BEFORE].kind, contrasts[BEFORE, GOOD].kind) == (Kind.SLOWER, Kind.SLOWER)


def test_the_level_is_the_share_of_the_sitting(tmp_path: Path) -> None:
    """Each comparison has all of it, whatever the others say."""
    contrasts = judged(tmp_path, {GOOD: 1.0, BAD: 1.5, CANDIDATE: 1.0}, Task.STEP, share=1 / 8)
    assert [contrast.level for contrast in contrasts.values()] == pytest.approx([0.05 / 8] * 3)


def test_known_well_enough() -> None:
    known = Contrast(arm=BAD, baseline=GOOD, kind=U, half_width_pct=0.9)
    assert is_narrow([known], 1.0)
    assert not is_narrow([known, known.model_copy(update={"half_width_pct": None})], 1.0)
    assert not is_narrow([known], 0.5)
