"""The search of a bisection: what comes next, what it may spend, where it ends, what contradicts one change."""

import math

import pytest

from vmtoll.bisect import search
from vmtoll.model.bisection import (
    AFTER,
    BAD,
    BEFORE,
    CANDIDATE,
    GOOD,
    Bisection,
    Contrast,
    Sitting,
    SittingAnswer,
    SittingResult,
    Task,
)
from vmtoll.model.verdict import Kind


def history(between: int) -> Bisection:
    return Bisection(candidates=[str(number) for number in range(between + 2)])


def with_finding(bisection: Bisection, sitting: Sitting, answer: SittingAnswer, *contrasts: Contrast) -> Bisection:
    finding = SittingResult(sitting=sitting, answer=answer, contrasts=list(contrasts))
    return bisection.model_copy(update={"findings": [*bisection.findings, finding]})


def searched(bisection: Bisection, culprit: int, unusable: dict[int, SittingAnswer] | None = None) -> Bisection:
    """Bisect to the end, by the truth."""
    while sitting := search.next_sitting(bisection):
        number = int(sitting.candidate)
        answer = SittingAnswer.BAD if number >= culprit or sitting.task is not Task.STEP else SittingAnswer.GOOD
        bisection = with_finding(bisection, sitting, (unusable or {}).get(number, answer))
    return bisection


@pytest.mark.parametrize("between", [0, 1, 2, 5, 63, 64])
def test_every_culprit_is_found_within_the_error(between: int) -> None:
    for culprit in range(1, between + 2):
        ended = searched(history(between), culprit)
        assert search.suspects(ended) == [str(culprit)]
        steps = math.ceil(math.log2(between + 1)) if between else 0
        assert len(ended.findings) <= steps + 2
        assert search.spent(ended) <= 1 + 1e-9
        assert search.contradictions(ended) == []


def test_the_error_is_split_evenly() -> None:
    """The anchors, six steps, and a confirmation."""
    ended = searched(history(63), 37)
    assert [finding.sitting.share for finding in ended.findings] == pytest.approx([1 / 8] * 8)
    assert ended.findings[-1].sitting.arms == {GOOD: "0", BAD: "64", BEFORE: "36", AFTER: "37"}


def test_what_is_skipped_spends_nothing_and_its_neighbour_comes_next() -> None:
    ended = searched(history(63), 37, {32: SittingAnswer.SKIPPED})
    assert [finding.sitting.candidate for finding in ended.findings[1:3]] == ["32", "31"]
    assert search.suspects(ended) == ["37"]
    assert search.spent(ended) <= 1 + 1e-9


def test_several_suspects_are_left_where_the_last_ones_are_skipped() -> None:
    """They are named, and there is nothing to confirm."""
    ended = searched(history(63), 37, {36: SittingAnswer.SKIPPED, 37: SittingAnswer.SKIPPED})
    assert search.suspects(ended) == ["36", "37", "38"]
    assert search.confirmation(ended) is None
    assert search.spent(ended) <= 1 + 1e-9


def test_more_steps_than_planned_never_spend_more_than_all() -> None:
    """As with `git bisect run`, which chooses its own candidates."""
    bisection = history(7)
    bisection = with_finding(bisection, search.next_sitting(bisection) or pytest.fail(), SittingAnswer.BAD)
    for number in range(40):
        bisection = with_finding(bisection, search.step(bisection, f"other-{number}"), SittingAnswer.GOOD)
    assert 0.9 < search.spent(bisection) < 1


def test_anchors_that_do_not_differ_are_measured_again_with_what_is_left() -> None:
    bisection = history(3)
    first = search.next_sitting(bisection)
    assert first
    bisection = with_finding(bisection, first, SittingAnswer.UNDECIDED)
    again = search.next_sitting(bisection)
    assert again
    assert (first.task, again.task) == (Task.ANCHORS, Task.ANCHORS)
    assert again.share < first.share


def test_a_killed_sitting_comes_first() -> None:
    pending = search.step(history(3), "2")
    assert search.next_sitting(history(3).model_copy(update={"pending": pending})) == pending


def contrast(arm: str, baseline: str, kind: Kind, ratio: float | None = None) -> Contrast:
    return Contrast(arm=arm, baseline=baseline, kind=kind, ratio=ratio, low=ratio, high=ratio)


@pytest.mark.parametrize(
    ("answer", "contrasts"),
    [
        (SittingAnswer.BETWEEN, []),
        (SittingAnswer.GOOD, [contrast(CANDIDATE, GOOD, Kind.FASTER)]),
        (SittingAnswer.BAD, [contrast(CANDIDATE, BAD, Kind.SLOWER)]),
    ],
)
def test_a_candidate_between_or_beyond_the_anchors_contradicts_one_change(
    answer: SittingAnswer, contrasts: list[Contrast]
) -> None:
    ended = with_finding(history(3), search.step(history(3), "2"), answer, *contrasts)
    assert [finding.sitting.candidate for finding in search.contradictions(ended)] == ["2"]


def test_a_good_candidate_after_a_bad_one_contradicts_one_change() -> None:
    bisection = with_finding(history(5), search.step(history(5), "2"), SittingAnswer.BAD)
    bisection = with_finding(bisection, search.step(bisection, "4"), SittingAnswer.GOOD)
    assert [finding.sitting.candidate for finding in search.contradictions(bisection)] == ["4"]


@pytest.mark.parametrize(
    ("answer", "contrasts"),
    [
        (SittingAnswer.UNDECIDED, []),
        (SittingAnswer.BAD, [contrast(BEFORE, GOOD, Kind.SLOWER)]),
        (SittingAnswer.BAD, [contrast(AFTER, BAD, Kind.FASTER)]),
    ],
)
def test_a_confirmation_notices_a_second_change(answer: SittingAnswer, contrasts: list[Contrast]) -> None:
    ended = searched(history(7), 4)
    *kept, last = ended.findings
    again = with_finding(ended.model_copy(update={"findings": kept}), last.sitting, answer, *contrasts)
    assert [finding.sitting.task for finding in search.contradictions(again)] == [Task.CONFIRMATION]


def test_the_cost_is_against_the_candidate_before_it() -> None:
    """By the confirmation; where an anchor is one of the two, by the step or by the anchors."""

    def cost(between: int, culprit: int) -> float | None:
        bisection = history(between)
        while sitting := search.next_sitting(bisection):
            is_bad = int(sitting.candidate) >= culprit or sitting.task is not Task.STEP
            pairs = {
                Task.ANCHORS: [contrast(BAD, GOOD, Kind.SLOWER, 2.0)],
                Task.STEP: [
                    contrast(CANDIDATE, GOOD, Kind.SLOWER, 3.0), contrast(CANDIDATE, BAD, Kind.FASTER, 0.25),
                ],
                Task.CONFIRMATION: [contrast(AFTER, BEFORE, Kind.SLOWER, 5.0)],
            }  # fmt: skip
            bisection = with_finding(
                bisection, sitting, SittingAnswer.BAD if is_bad else SittingAnswer.GOOD, *pairs[sitting.task]
            )
        found = search.cost_of(bisection)
        return found.ratio if found else None

    assert [cost(0, 1), cost(3, 1), cost(3, 4), cost(3, 2)] == [2.0, 3.0, 4.0, 5.0]
    assert search.cost_of(history(3)) is None


def test_the_search_ends_after_two_undecided_candidates() -> None:
    """Every suspect is named; what was announced as the most sittings is not exceeded."""
    bisection = history(63)
    assert search.most_sittings(bisection) == 8 + search.MOST_UNDECIDED
    ended = searched(bisection, 37, dict.fromkeys(range(20, 60), SittingAnswer.UNDECIDED))
    assert search.undecided(ended) == search.MOST_UNDECIDED
    assert search.suspects(ended) == [str(number) for number in range(1, 65)]


@pytest.mark.parametrize(
    "unusable", [{}, {32: SittingAnswer.UNDECIDED}, {32: SittingAnswer.UNDECIDED, 31: SittingAnswer.UNDECIDED}]
)
def test_no_more_sittings_than_announced(unusable: dict[int, SittingAnswer]) -> None:
    for culprit in range(1, 65):
        ended = searched(history(63), culprit, unusable)
        assert len(ended.findings) <= search.most_sittings(history(63))
        assert search.spent(ended) <= 1 + 1e-9
