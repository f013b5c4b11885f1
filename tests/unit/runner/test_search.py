"""Which step a search tries next, by the records so far."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.support.records import make_record
from vmtoll.model.finding import Code, Finding
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import TrialRecord
from vmtoll.model.workload import SearchWorkload
from vmtoll.runner.search import ALPHA_PER_LOOK, FIRST_LOOK, LAST_LOOK, T_AT, StepTrial, is_met, next_load, steps_of

KEYS: dict[str, Any] = {
    "name": "search", "description": "a search", "site": "tiny", "tool": "vegeta", "keep_alive": True,
    "kind": "search", "deadline_ms": 5.0, "between_rps": [100.0, 1600.0], "resolution_pct": 100.0,
}  # fmt: skip
WORKLOAD = SearchWorkload(**KEYS)
LOADS = [Load(LoadKind.RATE, rate) for rate in (100, 200, 400, 800, 1600)]
R100, R200, R400, R800, R1600 = LOADS


def record(
    block: int, load: Load, p99_ms: float | None = 1.0, attempt: int = 1, successful: int = 1000, *findings: Finding
) -> TrialRecord:
    """One attempt; without a p99 it is one that failed."""
    if p99_ms is None:
        return make_record(
            block=block, load=load, attempt=attempt, findings=(Finding(Code.TOOL_FAILED),), measured=None
        )
    measured = {"requests": 1000, "successful": successful, "response_time_p99_us": 1000 * p99_ms}
    return make_record(block=block, load=load, attempt=attempt, findings=findings, measured=measured)


def path(blocks: int, p99_ms: dict[Load, float], workload: SearchWorkload = WORKLOAD) -> list[Load]:
    """The loads of a number of blocks, where each load always has the same p99."""
    records: list[TrialRecord] = []
    for block in range(1, blocks + 1):
        load = next_load(workload, records)
        records.append(record(block, load, p99_ms[load]))
    return [one.scenario.load for one in records]


def test_the_steps_are_even_and_no_further_apart_than_asked() -> None:
    assert steps_of(WORKLOAD) == LOADS
    fine = SearchWorkload(**KEYS | {"between_rps": [123.456, 5000.0], "resolution_pct": 10.0})
    rates = [step.value for step in steps_of(fine)]
    assert (rates[0], rates[-1]) == (123.5, 5000.0)
    assert all(1.08 < high / low < 1.101 for low, high in itertools.pairwise(rates))
    shares = {"between_rps": None, "between_shares": [0.2, 0.3], "capacity": {"tool": "h2load", "users": 2}}
    assert steps_of(SearchWorkload(**KEYS | shares)) == [Load(LoadKind.SHARE, share) for share in (0.2, 0.3)]


def test_it_halves_and_then_confirms_from_both_sides() -> None:
    """400/s is met and 800/s is not: three trials each of the middle, of a quarter, of what is left, then in turn."""
    p99_ms = dict(zip(LOADS, (1.0, 1.0, 2.0, 20.0, 80.0), strict=True))
    assert path(10, p99_ms) == [R400] * 3 + [R800] * 3 + [R400, R800] * 2


@pytest.mark.parametrize(("p99_ms", "end"), [(1.0, R1600), (9.0, R100)])
def test_it_stays_at_the_end_that_it_runs_into(p99_ms: float, end: Load) -> None:
    assert set(path(14, dict.fromkeys(LOADS, p99_ms))[9:]) == {end}


def test_the_same_records_in_any_order_give_the_same_step() -> None:
    records = [record(block, R400, 1.0 + block / 50) for block in (1, 2, 3)] + [record(4, R800, 20.0)]
    assert next_load(WORKLOAD, records) == next_load(WORKLOAD, records[::-1]) == R800


def test_a_straddling_step_is_tried_six_times_and_then_counts_as_missed() -> None:
    records: list[TrialRecord] = []
    for block in range(1, 8):
        records.append(record(block, next_load(WORKLOAD, records), 4.0 if block % 2 else 6.2))
    assert [one.scenario.load for one in records] == [R400] * 6 + [R100]


def test_a_trial_that_came_to_nothing_is_made_up_for_but_not_for_ever() -> None:
    records = [record(1, R400), record(2, R400, None), record(3, R400)]
    assert next_load(WORKLOAD, records) == R400
    assert next_load(WORKLOAD, [*records, record(4, R400)]) == R800
    assert next_load(WORKLOAD, [record(block, R400, None) for block in range(1, 7)]) == R100


def test_only_the_last_attempt_of_a_trial_counts() -> None:
    records = [record(1, R400, None), record(1, R400, attempt=2), record(2, R400), record(3, R400)]
    assert next_load(WORKLOAD, records) == R800


def test_only_failures_that_are_shown_to_be_too_many_end_it() -> None:
    """A few in one trial leave the availability open; in each trial, or very many, they do not."""
    flawless = [StepTrial(1.1, 1000, 1000), StepTrial(1.05, 1000, 1000)]
    assert is_met([StepTrial(1.0, 1000, 999), *flawless], 99.9) is True
    assert is_met([StepTrial(1.0, 1000, 990), *flawless], 99.9) is True, "0.3% of all, in one trial of three"
    assert is_met([StepTrial(1.0, 1000, 990)] * 3, 99.9) is False, "1% in each"
    assert is_met([StepTrial(1.0, 1000, 400), *flawless], 99.9) is False, "as rare as it may be, too many"
    assert is_met([StepTrial(1.0, 1000, 1000)] * 3 + [StepTrial(1.1, 1000, 400)], 99.9) is True, (
        "the next look is at six"
    )
    refused = [record(block, R400, 1.0, 1, 500, Finding(Code.FAILED_REQUESTS)) for block in (1, 2, 3)]
    assert next_load(WORKLOAD, refused) == R100


def test_a_failed_request_is_slower_than_any_other() -> None:
    """The p99 of those that were answered is good; of those that were planned there is none."""
    failures = Finding(Code.FAILED_REQUESTS)
    slow = [record(block, R400, 40.0 + block / 9, 1, 999, failures) for block in (1, 2, 3)]
    assert next_load(WORKLOAD, slow) == R100, "p99 over the deadline, and one request of a thousand failed"
    wrong = [record(block, R400, 40.0, 1, 999, failures, Finding(Code.WRONG_BODY)) for block in (1, 2, 3)]
    assert next_load(WORKLOAD, wrong) == R400, "what is invalid for another reason says nothing"


@pytest.mark.parametrize("lost_in", [0.02, 0.05])
def test_a_rare_trial_with_failures_does_not_end_the_search(lost_in: float) -> None:
    """A trial of `lost_in` loses 1% of its requests, as a rule of chance: 99.9% are available, or nearly."""
    rng, ends = np.random.default_rng(5), []
    fine = SearchWorkload(**KEYS | {"between_rps": [400.0, 2000.0], "resolution_pct": 10.0})
    for _ in range(100):
        records: list[TrialRecord] = []
        for block in range(1, 25):
            load = next_load(fine, records)
            p99_ms = 0.9 / (1 - min(0.82 * load.value / 1200, 0.999)) * math.exp(rng.normal(0, 0.15))
            successful = 990 if rng.random() < lost_in else 1000
            records.append(record(block, load, p99_ms, 1, successful))
        ends.append(max(one.scenario.load.value for one in records[-6:]))
    assert np.mean(np.array(ends) < 0.8 * 1200) <= 0.03


def test_a_step_that_was_missed_is_opened_again() -> None:
    """Six trials of 400/s straddle the deadline and it counts as missed; the trials that follow meet it clearly."""
    straddling = [record(block, R400, 4.0 if block % 2 else 6.2) for block in range(1, 7)]
    met_below = [record(block, R200, 1.0 + block / 99) for block in range(7, 10)]
    assert next_load(WORKLOAD, [*straddling, *met_below]) == R200
    clear = [record(block, R400, 2.0 + block / 99) for block in range(10, 22)]
    assert next_load(WORKLOAD, [*straddling, *met_below, *clear]) == R800


def test_too_few_trials_give_no_result() -> None:
    assert is_met([], 99.9) is None
    assert is_met([StepTrial(3.0, 10, 10)] * 2, 99.9) is None
    assert is_met([StepTrial(-3.0, 10, 10)] * 3, 99.9) is False
    assert is_met([StepTrial(0.0, 10, 10)] * 3, 99.9) is None, "exactly at the deadline"


@pytest.mark.parametrize("trials", [FIRST_LOOK, LAST_LOOK])
def test_the_intervals_are_students_at_half_of_alpha_each(trials: int) -> None:
    assert ALPHA_PER_LOOK == 0.0125
    assert T_AT[trials] == pytest.approx(stats.t.ppf(1 - 0.05 / 2 / 2, trials - 1), abs=1e-5)
