"""Which rung a search tries next, by the rows so far."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from scipy import stats

from workloads.runner.search import FIRST_LOOK, LAST_LOOK, T_AT, Seen, met, next_offer, rungs_of
from workloads.runner.workload import SearchWorkload

KEYS: dict[str, Any] = {
    "name": "search", "description": "a search", "site": "tiny", "tool": "vegeta", "keep_alive": True,
    "kind": "search", "deadline_ms": 5.0, "between_rps": [100.0, 1600.0], "resolution_pct": 100.0,
}  # fmt: skip
WORKLOAD = SearchWorkload(**KEYS)
LOADS = ["rate:100", "rate:200", "rate:400", "rate:800", "rate:1600"]
Row = dict[str, str]


def row(block: int, load: str, p99_ms: float | None = 1.0, **changes: Any) -> Row:
    """One attempt, as trials.csv has it; without a p99 it is one that failed."""
    whole = {"requests": 1000, "successful": 1000, "verdict": "valid", "order": 1, "attempt": 1}
    lost = {"requests": "", "successful": "", "verdict": "invalid", "order": 1, "attempt": 1}
    figures = whole if p99_ms else lost
    row = {"block": block, "offered_load": load, "response_time_p99_us": p99_ms and 1000 * p99_ms, **figures, **changes}
    return {name: "" if value is None else str(value) for name, value in row.items()}


def path(blocks: int, p99_ms: dict[str, float | None], workload: SearchWorkload = WORKLOAD) -> list[str]:
    """The loads of so many blocks, where each load always has the same p99."""
    rows: list[Row] = []
    for block in range(1, blocks + 1):
        load = str(next_offer(workload, rows))
        rows.append(row(block, load, p99_ms[load]))
    return [one["offered_load"] for one in rows]


def test_the_rungs_are_even_and_no_further_apart_than_asked() -> None:
    assert [str(rung) for rung in rungs_of(WORKLOAD)] == LOADS
    fine = SearchWorkload(**KEYS | {"between_rps": [123.456, 5000.0], "resolution_pct": 10.0})
    rates = [rung.value for rung in rungs_of(fine)]
    assert (rates[0], rates[-1]) == (123.5, 5000.0)
    assert all(1.08 < high / low < 1.101 for low, high in itertools.pairwise(rates))
    shares = {"between_rps": None, "between_shares": [0.2, 0.3], "capacity": {"tool": "h2load", "users": 2}}
    assert [str(rung) for rung in rungs_of(SearchWorkload(**KEYS | shares))] == ["share:0.2", "share:0.3"]


def test_it_halves_and_then_confirms_from_both_sides() -> None:
    """400/s is met and 800/s is not: three trials each of the middle, of a quarter, of what is left, then in turn."""
    p99_ms = dict(zip(LOADS, (1.0, 1.0, 2.0, 20.0, 80.0), strict=True))
    assert path(10, p99_ms) == ["rate:400"] * 3 + ["rate:800"] * 3 + ["rate:400", "rate:800"] * 2


@pytest.mark.parametrize(("p99_ms", "end"), [(1.0, "rate:1600"), (9.0, "rate:100")])
def test_it_stays_at_the_end_that_it_runs_into(p99_ms: float, end: str) -> None:
    assert set(path(14, dict.fromkeys(LOADS, p99_ms))[9:]) == {end}


def test_the_same_rows_in_any_order_give_the_same_rung() -> None:
    rows = [row(block, "rate:400", 1.0 + block / 50) for block in (1, 2, 3)] + [row(4, "rate:800", 20.0)]
    assert str(next_offer(WORKLOAD, rows)) == str(next_offer(WORKLOAD, rows[::-1])) == "rate:800"


def test_a_straddling_rung_is_tried_six_times_and_then_counts_as_missed() -> None:
    rows: list[Row] = []
    for block in range(1, 8):
        rows.append(row(block, str(next_offer(WORKLOAD, rows)), 4.0 if block % 2 else 6.2))
    assert [one["offered_load"] for one in rows] == ["rate:400"] * 6 + ["rate:100"]


def test_a_trial_that_came_to_nothing_is_made_up_for_but_not_for_ever() -> None:
    rows = [row(1, "rate:400"), row(2, "rate:400", None), row(3, "rate:400")]
    assert str(next_offer(WORKLOAD, rows)) == "rate:400"
    assert str(next_offer(WORKLOAD, [*rows, row(4, "rate:400")])) == "rate:800"
    assert str(next_offer(WORKLOAD, [row(block, "rate:400", None) for block in range(1, 7)])) == "rate:100"


def test_only_the_last_attempt_of_a_trial_counts() -> None:
    rows = [row(1, "rate:400", None), row(1, "rate:400", attempt=2), row(2, "rate:400"), row(3, "rate:400")]
    assert str(next_offer(WORKLOAD, rows)) == "rate:800"


def test_failures_of_all_trials_together_decide_the_availability() -> None:
    """One request of 3,000 is within 99.9%; four are not, whatever the p99."""
    few = [Seen(1.0, 1000, 999), Seen(1.1, 1000, 1000), Seen(1.05, 1000, 1000)]
    assert met(few, 99.9) is True
    assert met([*few[:2], Seen(1.05, 1000, 997)], 99.9) is False
    refused = [row(block, "rate:400", 1.0, successful=500, verdict="invalid") for block in (1, 2, 3)]
    assert str(next_offer(WORKLOAD, refused)) == "rate:100"


def test_too_few_trials_say_nothing() -> None:
    assert met([], 99.9) is None
    assert met([Seen(3.0, 10, 10)] * 2, 99.9) is None
    assert met([Seen(-3.0, 10, 10)] * 3, 99.9) is False
    assert met([Seen(0.0, 10, 10)] * 3, 99.9) is None, "exactly at the deadline"


@pytest.mark.parametrize("trials", [FIRST_LOOK, LAST_LOOK])
def test_the_intervals_are_students_at_half_of_alpha_each(trials: int) -> None:
    assert T_AT[trials] == pytest.approx(stats.t.ppf(1 - 0.05 / 2 / 2, trials - 1), abs=1e-5)
