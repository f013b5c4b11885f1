"""Judging what other benchmarks recorded: which answer, from which rows, and which rows decide."""

import math
import random
from collections.abc import Iterable

import pytest

from vmtoll.analysis.recorded import ALL_HOSTS, Answer, Blank, RecordedPage, judge_rows, loss_of
from vmtoll.model.errors import UserError
from vmtoll.recordings.rows import Better, Row, Value
from vmtoll.statistics.thresholds import MIN_TEST_BEDS


def rows(
    effect: float = 0.0, blocks: int = 12, *, noise: float = 0.01, better: Better | None = Better.LOWER,
    names: Iterable[str] = ("time",), host: str = "", sides: tuple[str, ...] = ("old", "new"), seed: int = 1,
) -> list[Row]:  # fmt: skip
    """Blocks that drift together, by 5%; `effect`: of the last side, in logs."""
    rng = random.Random(f"{seed} {host}")
    made = []
    for block in range(1, blocks + 1):
        drift = rng.gauss(0, 0.05)
        for side in sides:
            for name in names:
                log = drift + rng.gauss(0, noise) + (effect if side == sides[-1] else 0.0)
                made.append(Row(block, side, Value(name, math.exp(log), better, unit="s"), host=host))
    return made


def answers(page: RecordedPage) -> dict[str, Answer]:
    return {each.subject.name: each.answer for each in page.comparisons}


def changed(given: list[Row], side: str, **keys: object) -> list[Row]:
    return [
        Row(row.block, row.side, Value(**{**vars(row.value), **keys}), row.boot, row.host)
        if row.side == side else row
        for row in given
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("effect", "better", "answer"),
    [
        (0.1, Better.LOWER, Answer.WORSE), (0.1, Better.HIGHER, Answer.BETTER), (-0.1, Better.LOWER, Answer.BETTER),
        (-0.1, Better.HIGHER, Answer.WORSE), (0.1, None, Answer.HIGHER), (-0.1, None, Answer.LOWER),
    ],
)  # fmt: skip
def test_the_direction_follows_from_what_is_better(effect: float, better: Better | None, answer: Answer) -> None:
    page = judge_rows(rows(effect, better=better))
    (comparison,) = page.comparisons
    assert comparison.answer is answer
    assert comparison.judged.estimate and comparison.judged.estimate.value == pytest.approx(math.exp(effect), rel=0.02)
    levels = comparison.judged.compared.level, comparison.judged.baseline.level
    assert levels[0] and levels[1] and levels[0] / levels[1] == pytest.approx(comparison.judged.estimate.value)


def test_what_nobody_called_better_can_be_said_for_all() -> None:
    assert answers(judge_rows(rows(0.1, better=None), better=Better.LOWER)) == {"time": Answer.WORSE}


def test_many_calm_blocks_are_equal_and_few_are_nothing() -> None:
    assert answers(judge_rows(rows(blocks=40, noise=0.005))) == {"time": Answer.EQUAL}
    page = judge_rows(rows(0.5, blocks=2))
    assert answers(page) == {"time": Answer.UNDECIDED}


def test_replicates_are_no_blocks() -> None:
    """Two blocks of 20 repetitions stay two blocks."""
    repeated = [
        Row(block, side, Value("time", 1.0 + 0.5 * (side == "new") + 0.01 * n, Better.LOWER, replicate=n))
        for block in (1, 2) for side in ("old", "new") for n in range(1, 21)
    ]  # fmt: skip
    (comparison,) = judge_rows(repeated).comparisons
    assert (comparison.judged.blocks, comparison.answer) == (2, Answer.UNDECIDED)


def test_one_side_after_the_other_is_no_comparison() -> None:
    apart = [Row(row.block + 100 * (row.side == "new"), row.side, row.value) for row in rows(0.3, 10, noise=0.001)]
    (comparison,) = judge_rows(apart).comparisons
    assert (comparison.answer, comparison.blank) == (Answer.NOT_JUDGED, Blank.UNPAIRED)
    assert comparison.unpaired and comparison.unpaired.low and comparison.unpaired.high
    assert comparison.unpaired.low < math.exp(0.3) < comparison.unpaired.high


@pytest.mark.parametrize(
    ("value", "blank"), [(0.0, Blank.ZERO), (-1.0, Blank.NEGATIVE), (math.nan, Blank.NOT_A_NUMBER),
                         (math.inf, Blank.NOT_A_NUMBER)],
)  # fmt: skip
def test_a_value_without_a_ratio_is_named(value: float, blank: Blank) -> None:
    given = rows(0.1)
    given[5] = Row(given[5].block, given[5].side, Value("time", value, Better.LOWER, unit="s"))
    (comparison,) = judge_rows(given).comparisons
    assert (comparison.answer, comparison.blank, comparison.odd_block) == (Answer.NOT_JUDGED, blank, given[5].block)


def test_zeros_on_both_sides_are_identical_and_no_member_of_the_family() -> None:
    both = [Row(row.block, row.side, Value("errors", 0.0, Better.LOWER)) for row in rows()]
    page = judge_rows([*rows(0.1), *both])
    assert answers(page) == {"time": Answer.WORSE, "errors": Answer.IDENTICAL}
    assert page.comparisons[0].judged.tests.family == 1


def test_failures_count_against_their_side() -> None:
    """As many failed values as can turn the answer: what was 10% better is no longer shown to be."""
    better = rows(-0.1)
    failing = [
        Row(row.block, row.side, Value(**{**vars(row.value), "failed": 2, "requests": 100}))
        if row.side == "new" and row.block % 2 else row
        for row in better
    ]  # fmt: skip
    assert answers(judge_rows(better)) == {"time": Answer.BETTER}
    (comparison,) = judge_rows(failing).comparisons
    assert comparison.answer is Answer.UNDECIDED
    assert [doubt.compared for doubt in comparison.judged.doubts] == [6]


def test_a_side_that_only_fails_is_worse() -> None:
    page = judge_rows(changed(rows(), "new", failed=1))
    assert (answers(page), page.comparisons[0].blank) == ({"time": Answer.WORSE}, Blank.ALL_FAILED)
    assert answers(judge_rows(changed(rows(), "old", failed=1))) == {"time": Answer.NOT_JUDGED}


def test_one_failed_request_in_a_thousand_is_no_failure() -> None:
    assert answers(judge_rows(changed(rows(0.1), "old", failed=1, requests=1000))) == {"time": Answer.WORSE}


def test_a_control_that_differs_from_itself_widens() -> None:
    given = rows(0.04, 16, noise=0.003, sides=("old", "again", "new"))
    assert answers(judge_rows([row for row in given if row.side != "again"])) == {"time": Answer.WORSE}
    moved = [
        Row(row.block, row.side, Value("time", row.value.value * 1.2, Better.LOWER, unit="s"))
        if row.side == "again" else row
        for row in given
    ]  # fmt: skip
    page = judge_rows(moved, control="again")
    assert answers(page) == {"time": Answer.UNDECIDED}
    assert page.comparisons[0].judged.widened > 0.1
    assert answers(judge_rows(given, control="again")) == {"time": Answer.WORSE}


def test_hosts_are_families_and_five_are_one_verdict() -> None:
    few = [row for host in "abc" for row in rows(0.1, host=host)]
    assert [each.subject.host for each in judge_rows(few).gates] == ["a", "b", "c"]
    many = [row for host in "abcde"[:MIN_TEST_BEDS] for row in rows(0.1, host=host)]
    (over,) = judge_rows(many).gates
    assert (over.subject.host, over.answer, over.judged.blocks) == (ALL_HOSTS, Answer.WORSE, MIN_TEST_BEDS)


def test_gates_choose_what_decides() -> None:
    given = [*rows(0.1, names=["parse"]), *rows(0.1, names=["render", "other"])]
    assert [each.subject.name for each in judge_rows(given, gates=["re*", "other"]).gates] == ["render", "other"]
    with pytest.raises(UserError, match="--gate x: matches no row; they are parse, render, other"):
        judge_rows(given, gates=["x"])


def test_what_a_side_lacks_is_listed() -> None:
    given = rows(0.1, names=["both", "new one"])
    page = judge_rows([row for row in given if row.side == "new" or row.value.metric == "both"])
    assert (page.lacking, answers(page)) == ({"old": ("new one",)}, {"both": Answer.WORSE})


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"baseline": "x"}, "--baseline x: no row has this side; they have old, new"),
        ({"control": "x"}, "--control x: no row has this side"),
        ({"control": "new"}, "nothing is compared with old"),
    ],
)
def test_sides_that_are_not_there(keys: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        judge_rows(rows(), **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("side", "keys", "said"),
    [("new", {"unit": "ms"}, "time: has the units s and ms"), ("new", {"better": Better.HIGHER}, "rows contradict")],
)
def test_rows_that_contradict_each_other(side: str, keys: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        judge_rows(changed(rows(), side, **keys))


def test_a_loss_is_a_fraction_of_the_baseline() -> None:
    (slower,) = judge_rows(rows(math.log(1.1), noise=0.001)).comparisons
    assert all(loss == pytest.approx(0.1, abs=0.01) for loss in loss_of(slower))
    (fewer,) = judge_rows(rows(math.log(0.9), noise=0.001, better=Better.HIGHER)).comparisons
    assert all(loss == pytest.approx(0.1, abs=0.01) for loss in loss_of(fewer))


@pytest.mark.slow
def test_equal_pages_are_rarely_called_different() -> None:
    """200 pages of three rows, through the whole engine: at most 5% may be wrong; 18 have a chance of 1 in 100."""
    wrong = sum(
        not {Answer.WORSE, Answer.BETTER}.isdisjoint(
            answers(judge_rows(rows(blocks=10, names=["a", "b", "c"], seed=seed))).values()
        )
        for seed in range(200)
    )  # fmt: skip
    assert wrong <= 18
