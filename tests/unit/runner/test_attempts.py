"""Which attempt is due, by what a block has measured."""

import pytest

from tests.support.records import BASELINE, TWO_USERS, make_record
from vmtoll.loadgen.base import Output, raise_if_killed
from vmtoll.model.errors import ToolTimeoutError
from vmtoll.model.finding import ACCIDENTS, FINDINGS, Code, Finding, Validity
from vmtoll.model.trial import Arm, Scenario, TrialRecord, TrialSpec
from vmtoll.runner.attempts import next_attempt

SCENARIO = Scenario("lighttz", "tiny", TWO_USERS)
FIRST, SECOND, THIRD = BLOCK = [
    TrialSpec(1, order, arm, SCENARIO) for order, arm in enumerate((BASELINE, Arm("kvm"), Arm("metal", 2)), start=1)
]


def ended(spec: TrialSpec, attempt: int = 1, *codes: Code) -> TrialRecord:
    return make_record(spec.block, spec.order, attempt, arm=spec.arm, findings=tuple(Finding(code) for code in codes))


def test_trials_are_due_in_their_order_and_once() -> None:
    records: list[TrialRecord] = []
    for spec in BLOCK:
        assert next_attempt(BLOCK, records) == (spec, 1)
        records.append(ended(spec, 1, Code.STEAL, Code.FAILED_REQUESTS))
    assert next_attempt(BLOCK, records) is None, "a finding is not tried again"


@pytest.mark.parametrize("accident", sorted(ACCIDENTS - {Code.HOST_LOST}))
def test_a_failed_trial_is_repeated_once_automatically(accident: Code) -> None:
    first = [ended(FIRST), ended(SECOND, 1, accident)]
    assert next_attempt(BLOCK, first) == (SECOND, 2)
    assert next_attempt(BLOCK, [*first, ended(SECOND, 2, accident)]) == (THIRD, 1)


@pytest.mark.injects(Code.TIMED_OUT)
def test_a_load_that_was_not_answered_in_time_is_a_failure_and_no_accident() -> None:
    """Its second attempt was a free draw: a guest too slow for every first one was found equivalent."""
    with pytest.raises(ToolTimeoutError, match=r"siege .*not end "):
        raise_if_killed(Output("", "", -9, timed_out=True), "siege")
    assert FINDINGS[Code.TIMED_OUT].severity is Validity.INVALID
    assert next_attempt(BLOCK, [ended(FIRST, 1, Code.TIMED_OUT)]) == (SECOND, 1)


def test_after_a_lost_machine_the_whole_block_is_measured_again() -> None:
    """The lost trial alone was repeated, on a guest that had just booted; its siblings ran on the old one."""
    records = [ended(FIRST), ended(SECOND, 1, Code.HOST_LOST)]
    for spec, attempt in ((FIRST, 2), (SECOND, 2), (THIRD, 1)):
        assert next_attempt(BLOCK, records) == (spec, attempt)
        records.append(ended(spec, attempt))
    assert next_attempt(BLOCK, records) is None


def test_an_accident_before_a_machine_was_lost_does_not_use_up_the_next_round() -> None:
    records = [ended(FIRST, 1, Code.TOOL_FAILED), ended(FIRST, 2), ended(SECOND, 1, Code.HOST_LOST)]
    records += [ended(FIRST, 3, Code.TOOL_FAILED)]
    assert next_attempt(BLOCK, records) == (FIRST, 4)


def test_a_machine_lost_in_both_rounds_is_a_failure() -> None:
    records = [ended(FIRST, 1, Code.HOST_LOST), ended(FIRST, 2), ended(SECOND, 1, Code.HOST_LOST)]
    assert next_attempt(BLOCK, records) == (THIRD, 1)
