"""When a run without a fixed number of blocks looks at what it has, and how much of the 5% each look may spend."""

import math
from itertools import accumulate, repeat

import pytest
from pydantic import ValidationError

from vmtoll.model.experiment import Experiment
from vmtoll.model.until import Look, Until, look_share, next_look, spendable_fraction

UNTIL = Until(half_width_pct=2, at_most_min=60)


def looks_of(first: int, boot: int, count: int) -> list[int]:
    return list(accumulate(repeat(first, count + 1), lambda blocks, _: next_look(blocks, first, boot), initial=0))[1:-1]


@pytest.mark.parametrize(
    ("first", "boot", "expected"),
    [(6, 1, [6, 10, 16, 24, 36, 54]), (7, 1, [7, 12, 18, 28, 42, 64]), (6, 3, [6, 12, 18, 30, 48, 72])],
)
def test_half_as_many_blocks_again_lie_between_two_looks(first: int, boot: int, expected: list[int]) -> None:
    """In whole pairs of blocks, whose orders of the arms are reversed, and in whole boots."""
    assert looks_of(first, boot, 6) == expected


def test_a_look_between_two_others_does_not_move_the_next_one() -> None:
    assert [next_look(blocks, 6) for blocks in (0, 5, 6, 9, 10, 15, 16)] == [6, 6, 10, 10, 16, 16, 24]


def test_the_shares_of_all_looks_are_the_whole_and_early_ones_are_small() -> None:
    looks: list[Look] = []
    for blocks, time in ((6, 0.1), (10, 10 / 60), (16, 16 / 60), (28, 28 / 60), (60, 1.0)):
        looks.append(Look(blocks=blocks, measured_s=0, share=look_share(looks, time, last=blocks == 60)))
    assert math.fsum(look.share for look in looks) == pytest.approx(1)
    assert [round(0.05 * look.share, 4) for look in looks] == [0.0079, 0.0047, 0.0063, 0.0106, 0.0206]


def test_the_last_look_has_all_that_is_left() -> None:
    first = Look(blocks=6, measured_s=0, share=look_share([], 0.3, last=False))
    assert first.share == pytest.approx(spendable_fraction(0.3))
    assert look_share([first], 0.5, last=True) == pytest.approx(1 - spendable_fraction(0.3))
    assert look_share([], 0.9, last=True) == 1, "a single look is a fixed design"
    assert look_share([first], 0.2, last=False) == 0, "a clock that went back spends nothing"


def experiment(**keys: object) -> Experiment:
    common = {"name": "e", "question": "?", "environments": ["metal"], "servers": ["nginx"], "workloads": ["w"]}
    return Experiment.model_validate({**common, "warmup_s": 1, "duration_s": 1, **keys})


def test_boots_go_on_with_as_many_blocks_each() -> None:
    made = experiment(blocks=6, boots=3, until=UNTIL)
    assert [made.boot_of(block) for block in range(1, 11)] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert made.boot_blocks == 2
    single = experiment(blocks=6, until=UNTIL)
    assert ({single.boot_of(block) for block in range(1, 40)}, single.boot_blocks) == ({1}, 1)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"blocks": 4, "purpose": "smoke"}, "blocks: 4 is below 6, the fewest at which `until` may look"),
        ({"blocks": 7, "boots": 2}, "7 is not a multiple of 2; change blocks or boots"),
    ],
)
def test_too_few_blocks_and_boots_of_unequal_length_are_refused(keys: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        experiment(until=UNTIL, **keys)
