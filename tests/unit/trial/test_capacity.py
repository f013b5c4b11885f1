"""The capacity that shares are taken of, by the records of its trials."""

import math
from dataclasses import replace

import pytest

from tests.support.records import BASELINE, TWO_USERS, make_record
from vmtoll.model.errors import CapacityError
from vmtoll.model.finding import Code, Finding
from vmtoll.model.trial import Arm, TrialRecord
from vmtoll.trial.capacity import Target, estimate, is_settled, smallest_capacity, trials_of

METAL, GUEST, CONTROL = (Target(arm, "lighttz", "tiny", None) for arm in (BASELINE, Arm("kvm"), Arm("metal", 2)))


def trials(target: Target, *rates_rps: float, code: Code | None = None, block: int = 1) -> list[TrialRecord]:
    findings = (Finding(code),) if code else ()
    return [
        make_record(block, arm=target.arm, load=TWO_USERS, findings=findings, measured={"throughput_rps": rate})
        for rate in rates_rps
    ]


def test_the_mean_and_its_interval_are_those_of_the_logarithms() -> None:
    found = estimate([90.0, 100.0, 110.0])
    assert found.mean_rps == pytest.approx((90 * 100 * 110) ** (1 / 3))
    logs = [math.log(rate) for rate in (90, 100, 110)]
    half = 4.302653 * math.sqrt(sum((log - sum(logs) / 3) ** 2 for log in logs) / 2 / 3)
    assert (found.low_rps, found.high_rps) == pytest.approx(
        (found.mean_rps * math.exp(-half), found.mean_rps * math.exp(half)), rel=1e-6
    )
    assert (estimate([5.0]).low_rps, estimate([5.0]).trials) == (None, 1)


def test_three_good_trials_of_at_most_five() -> None:
    good, limited = trials(METAL, 100.0), trials(METAL, 80.0, code=Code.CLIENT_SATURATED)
    assert [is_settled(good * count, 1) for count in range(5)] == [False, False, False, True, True]
    assert not is_settled(limited * 2 + good * 2, 1)
    assert is_settled(limited * 2 + good * 3, 1)
    assert is_settled(limited * 3, 1), "two more could not make three good ones"
    assert smallest_capacity([METAL], limited * 2 + good * 3).mean_rps == pytest.approx(100.0), (
        "what was limited does not count"
    )


def test_what_spoiled_one_block_is_tried_again_in_two_more() -> None:
    def spoiled(block: int) -> list[TrialRecord]:
        return trials(METAL, 80.0, 80.0, 80.0, code=Code.CLIENT_STARVED, block=block)

    assert is_settled(spoiled(1), 1) and not is_settled(spoiled(1), 2)
    assert not is_settled(spoiled(1) + spoiled(2), 3)
    again = spoiled(1) + trials(METAL, 100.0, 100.0, 100.0, block=2)
    assert is_settled(again, 2) and is_settled(again, 7)
    assert smallest_capacity([METAL], again).mean_rps == pytest.approx(100.0)
    assert is_settled(spoiled(1) + spoiled(2) + spoiled(3), 4), "a client that is too slow stays so"


@pytest.mark.injects(Code.CAPACITY_UNKNOWN)
@pytest.mark.parametrize("code", [Code.CLIENT_SATURATED, Code.LINK_BOUND, Code.CLIENT_STARVED, Code.FAILED_REQUESTS])
def test_a_capacity_that_is_not_the_servers_is_refused(code: Code) -> None:
    """It was taken as it came: a client at its limit made a share of 0.9 out of 0.5."""
    with pytest.raises(CapacityError, match=rf"^metal: {code} in 3 of 3 trials$"):
        smallest_capacity([METAL], trials(METAL, 100.0, 101.0, 102.0, code=code))
    with pytest.raises(CapacityError, match=r"^metal: "):
        smallest_capacity([METAL], [])


def test_a_limited_capacity_is_a_scale_for_a_ramp() -> None:
    """Its steps are shares of what some users get, so that the knee lies among them on any machine."""
    limited = trials(METAL, 100.0, 100.0, 100.0, code=Code.CLIENT_SATURATED)
    assert smallest_capacity([replace(METAL, is_scale=True)], limited).mean_rps == pytest.approx(100.0)
    with pytest.raises(CapacityError):
        smallest_capacity([replace(METAL, is_scale=True)], trials(METAL, 100.0, code=Code.FAILED_REQUESTS))


def test_the_slowest_side_decides_and_a_faster_one_may_be_limited() -> None:
    fast = trials(METAL, 900.0, 910.0, 920.0, code=Code.CLIENT_SATURATED)
    slow = trials(GUEST, 100.0, 100.0, 100.0)
    assert smallest_capacity([METAL, GUEST], fast + slow).mean_rps == pytest.approx(100.0)
    limited = trials(GUEST, 100.0, 100.0, 100.0, code=Code.CLIENT_SATURATED)
    with pytest.raises(CapacityError, match=r"^kvm: client-saturated"):
        smallest_capacity([METAL, GUEST], trials(METAL, 900.0, 900.0, 900.0) + limited)


def test_the_control_has_its_own_trials_and_each_block_its_own() -> None:
    records = trials(METAL, 1.0) + trials(METAL, 2.0, block=2) + trials(CONTROL, 3.0)
    assert trials_of(METAL, records) == records[:2]
    assert trials_of(replace(METAL, block=2), records) == [records[1]]
    assert trials_of(CONTROL, records) == [records[2]]
