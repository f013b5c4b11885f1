"""The values that a figure may have had: every row of the table, by its formula, and where a row must not jump."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.records import make_record
from vmtoll.analysis.sets import (
    LOST,
    NOT_COMPARABLE,
    TIMEOUTS,
    UNDISTURBED,
    BoundedFigure,
    Disturbance,
    Nature,
    Quantity,
    bounds_of_figure,
    common_disturbance,
    disturbance,
    load_of,
)
from vmtoll.model.finding import ACCIDENTS, FINDINGS, Code, Finding, Influence, Role, Validity
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import Conditions, Offered, Resources, TrialRecord
from vmtoll.statistics.thresholds import BACKGROUND_PCT, STEAL_PCT

# Ten seconds of load at 4,000 requests on two cores, half of which the server used: k = 1 ÷ (1 − load) = 2.
T, N, CORES, LOAD = 10.0, 4000, 2, 0.5
K = 1 / (1 - LOAD)
MEASURED = {
    "duration_s": T, "transactions": N, "requests": N, "server_cpu_user_s": 4.0, "server_cpu_system_s": 6.0,
    "throughput_rps": 400.0, "server_cpu_us_per_request": 2500.0,
} | {
    f"{kind}_{name}_us": value for kind in ("response_time", "service_time")
    for name, value in (("p50", 1000.0), ("p90", 3000.0), ("p99", 8000.0), ("p999", 20000.0))
}  # fmt: skip
BLIND: dict[str, Any] = dict.fromkeys(("server_cpu_user_s", "server_cpu_system_s", "server_cpu_us_per_request"))
RATE = Quantity(Nature.RATE, unit_s=1e6)
OPEN = Quantity(Nature.PERCENTILE, 0.99, "response_time", 1e6, is_open=True)
CLOSED = Quantity(Nature.PERCENTILE, 0.99, "service_time", 1e6)
MEAN = Quantity(Nature.MEAN, unit_s=1e6)
CPU = Quantity(Nature.CPU, unit_s=1e6)
COUNT = Quantity(Nature.COUNT)
VALUES = {RATE: 400.0, OPEN: 8000.0, CLOSED: 8000.0, MEAN: 1500.0, CPU: 2500.0, COUNT: 7.0}


def trial(*findings: Finding | Code, users: int | None = 10, **figures: Any) -> TrialRecord:
    """A trial of MEASURED; `figures` of its measurement, `users` None in an open loop of 400/s."""
    load = Load(LoadKind.RATE, 400) if users is None else Load(LoadKind.CLOSED, users)
    record = make_record(load=load, measured=MEASURED | figures, findings=tuple(
        finding if isinstance(finding, Finding) else Finding(finding) for finding in findings
    ))  # fmt: skip
    offered = Offered(offered_rps=400.0) if users is None else Offered(users=users)
    return replace(record, resources=Resources(server_cores=CORES, steal_pct=0.0), offered=offered)


def nothing_logged(record: TrialRecord, role: Role) -> None:
    """No histogram."""


def uniform(record: TrialRecord, role: Role) -> tuple[np.ndarray, np.ndarray]:
    """The n-th of 4,000 requests took 2 n µs: Q(q) = 8,000 q."""
    return 2 * np.arange(1.0, N + 1), np.arange(1.0, N + 1)


def of(
    record: TrialRecord, quantity: Quantity, latencies: Callable[..., Any] = uniform, /, **amounts: Any
) -> tuple[float, float]:
    """The ends of a figure; `amounts`: its excess by the name of a code."""
    excess = Disturbance({getattr(Code, name, TIMEOUTS): amount for name, amount in amounts.items()})
    plain = replace(quantity, prescribed=frozenset())
    value = 7920.0 if quantity.nature is Nature.PERCENTILE and latencies is uniform else VALUES[plain]
    found = bounds_of_figure(record, Role.PRIMARY, value, quantity, excess, latencies)
    assert found.low <= found.value <= found.high
    return found.low, found.high


def q(share: float) -> float:
    """The quantile of `uniform`."""
    return 2 * math.ceil(max(share, 0) * N - 1e-9)


V99 = q(0.99)


def test_an_undisturbed_figure_is_itself() -> None:
    for quantity, value in VALUES.items():
        found = bounds_of_figure(trial(), Role.PRIMARY, value, quantity, UNDISTURBED, nothing_logged)
        assert found == BoundedFigure(value, value, value)


# ---- CPU time that others took


@pytest.mark.parametrize("code", ["STEAL", "BACKGROUND_CPU", "HOST_BACKGROUND_CPU"])
def test_cpu_taken_of_throughput_tail_and_mean(code: str) -> None:
    """0.04 s of 20 s: s = 0.2%. The p99 of an open loop moves by 2ks requests, that of a closed one by 2s."""
    taken = 0.04
    s = taken / (T * CORES)
    assert of(trial(), RATE, **dict[str, Any]({code: taken})) == pytest.approx((400 * (1 - s), 400 / (1 - 2 * s)))
    low = max(q(0.99 - 2 * K * s) * (1 - 2 * K * s), V99 - taken * 1e6)
    assert of(trial(users=None), OPEN, **dict[str, Any]({code: taken})) == pytest.approx((low, V99 / (1 - s)))
    low = max(q(0.99 - 2 * s) * (1 - 2 * s), V99 - taken * 1e6)
    assert of(trial(), CLOSED, **dict[str, Any]({code: taken})) == pytest.approx((low, V99 / (1 - s)))
    assert of(trial(), MEAN, **dict[str, Any]({code: 0.0004})) == pytest.approx((1500 - 400, 1500 / (1 - 0.0004 / 20)))


def test_more_cores_lose_more_of_a_closed_loop() -> None:
    """Of eight cores one may stop all users: the upper end of a rate is v ÷ (1 − s c)."""
    record = replace(trial(), resources=Resources(server_cores=8))
    s = 0.4 / (T * 8)
    assert of(record, RATE, BACKGROUND_CPU=0.4) == pytest.approx((400 * (1 - s), 400 / (1 - 8 * s)))


def test_a_short_disturbance_moves_no_latency_by_more_than_itself() -> None:
    """2 ms taken: without a histogram the next percentile is the p90, so v − B binds."""
    for record, quantity in ((trial(users=None), OPEN), (trial(), CLOSED)):
        assert of(record, quantity, nothing_logged, BACKGROUND_CPU=0.002)[0] == pytest.approx(8000 - 2000)


def test_cpu_taken_of_cpu() -> None:
    """Requests that were touched may owe all their CPU to it; what is steal may be charged to the server besides."""
    s = 0.04 / 20
    assert of(trial(), CPU, BACKGROUND_CPU=0.04) == pytest.approx((2500 * (1 - 2 * K * s), 2500 / (1 - s)))
    stolen = (1 - 2 * K * s) * (1 - s / LOAD)
    assert of(trial(), CPU, STEAL=0.04) == pytest.approx((2500 * stolen, 2500 / (1 - s)))
    half = (1 - 2 * K * s) * (1 - 0.5 * s / LOAD)
    assert of(trial(), CPU, STEAL=0.02, BACKGROUND_CPU=0.02) == pytest.approx((2500 * half, 2500 / (1 - s)))
    idle = trial(server_cpu_user_s=0.0, server_cpu_system_s=0.0, server_cpu_us_per_request=0.0)
    assert of(idle, CPU, STEAL=0.02, BACKGROUND_CPU=0.02)[0] == 0


def test_the_load_of_a_server_is_bounded_and_that_of_two_guests_shared() -> None:
    busy = trial(server_cpu_user_s=19.5)
    assert load_of(busy, busy.measurements[0]) == 0.9
    two = replace(trial(), guests=2)
    assert load_of(two, two.measurements[0]) == pytest.approx(LOAD / 2)


def test_a_measurement_without_its_cpu_has_the_load_of_its_requests() -> None:
    """An older cross-check says its CPU per request alone."""
    record = trial(server_cpu_user_s=None, server_cpu_system_s=None)
    assert load_of(record, record.measurements[0]) == pytest.approx(2500e-6 * N / (T * CORES))


def test_taken_is_the_excess_over_the_smaller_mean_of_both_sides() -> None:
    def taken(**amounts: float) -> Disturbance:
        return Disturbance({getattr(Code, name, TIMEOUTS): amount for name, amount in amounts.items()})

    one, other = taken(STEAL=0.1, BACKGROUND_CPU=0.2), [taken(BACKGROUND_CPU=0.1), taken(BACKGROUND_CPU=0.3)]
    common = common_disturbance([[one], other])
    assert common.taken_s == pytest.approx(0.2)
    assert one.excess_over(common).taken_s == pytest.approx(0.1), "what exceeds the common part"
    assert one.excess_over(common).amounts[Code.STEAL] == pytest.approx(0.1 / 3)
    assert [each.excess_over(common).taken_s for each in other] == pytest.approx([0.0, 0.1])
    assert common_disturbance([[one], []]).taken_s == 0, "the other side has no trial"
    segments = common_disturbance([[taken(RETRANSMITS=4.0)], [taken(RETRANSMITS=1.0), taken()]])
    assert segments.amounts[Code.RETRANSMITS] == 0.5


@pytest.mark.parametrize(
    ("conditions", "steal", "expected"),
    [
        ({"background_cpu_pct": 3.0}, 0.5, {"BACKGROUND_CPU": 0.6, "STEAL": 0.1}),
        ({}, None, {"BACKGROUND_CPU": BACKGROUND_PCT / 5, "STEAL": STEAL_PCT / 5}),
        # With a view of the host its guests' steal is the host's other work, and not counted twice.
        ({"background_cpu_pct": 1.0, "host_background_cpu_pct": 2.0}, 40.0,
         {"BACKGROUND_CPU": 0.2, "HOST_BACKGROUND_CPU": 0.4, "STEAL": STEAL_PCT / 5}),
    ],
)  # fmt: skip
def test_what_a_measurement_went_through(
    conditions: Mapping[str, Any], steal: float | None, expected: Mapping[str, float]
) -> None:
    """Shares of two CPUs over ten seconds; a column that was not recorded counts as much as its gate lets pass."""
    record = replace(
        trial(), conditions=Conditions(**conditions), resources=Resources(server_cores=CORES, steal_pct=steal)
    )
    seen = disturbance(record, record.measurements[0])
    assert {name: seen.amounts[Code[name]] for name in expected} == pytest.approx(expected)
    assert seen.taken_s == pytest.approx(sum(expected.values()))


# ---- the other rows


@pytest.mark.parametrize("code", [Code.CLIENT_SATURATED, Code.PORTS_EXHAUSTED, Code.CLIENT_STARVED, Code.LINK_BOUND])
def test_a_client_or_a_link_at_its_limit_leaves_an_end_open(code: Code) -> None:
    assert of(trial(code, **BLIND), RATE) == (400, math.inf)
    assert of(trial(code), CLOSED) == (0, V99)
    assert of(trial(code), MEAN) == (0, 1500)
    assert of(trial(code), CPU) == (2500, 2500)
    found = bounds_of_figure(trial(code, **BLIND), Role.PRIMARY, 400.0, RATE, UNDISTURBED, nothing_logged)
    assert found.widths == {code: (0.0, math.inf)} and found.is_limited
    prescribed = replace(RATE, prescribed=frozenset({code}))
    assert bounds_of_figure(trial(code), Role.PRIMARY, 400.0, prescribed, UNDISTURBED, nothing_logged).high == 400


@pytest.mark.parametrize(("used_pct", "again", "most"), [(80.0, 0, 500.0), (100.0, 0, 400.0), (100.0, 1000, 500.0)])
def test_a_prescribed_link_lets_no_rate_pass_what_it_had_free(used_pct: float, again: int, most: float) -> None:
    """Of 5,000 segments 1,000 were sent again: without them a quarter more would have had room."""
    record = trial(retransmitted_segments=again, transferred_mb=0.0)
    record = replace(record, resources=replace(record.resources, link_used_pct=used_pct))
    prescribed = replace(RATE, prescribed=frozenset({Code.LINK_BOUND}))
    for excess in ({"TIMEOUTS": 1e6}, {"BACKGROUND_CPU": T * CORES}):
        assert of(record, prescribed, **excess)[1] == pytest.approx(most)
        assert of(record, RATE, **excess)[1] == math.inf, "where nobody asked for this link"


@pytest.mark.parametrize(
    "code", sorted({Code.CLIENT_SATURATED, Code.PORTS_EXHAUSTED, Code.CLIENT_STARVED, Code.LINK_BOUND})
)
def test_a_rate_that_others_set_is_bounded_by_the_servers_cores(code: Code) -> None:
    """Half busy the server could have answered 2.8 times as much, 4% busy 125 times, all busy no more."""
    for busy_s, factor in ((10.0, 2**1.5), (0.8, 125.0), (20.0, 1.0), (30.0, 1.0)):
        record = trial(code, server_cpu_user_s=busy_s, server_cpu_system_s=0.0)
        found = bounds_of_figure(record, Role.PRIMARY, 400.0, RATE, UNDISTURBED, nothing_logged)
        assert (found.low, found.high) == pytest.approx((400, 400 * factor))
        assert found.is_limited == (factor > 1)


def test_what_one_user_gets_includes_its_client() -> None:
    """A single user is never client-limited: nothing but the client itself waits for the client."""
    for findings in ((), (Code.CLIENT_SATURATED,)):
        for known in ({"client_cpu_s": 2.0}, BLIND):
            record = trial(*findings, users=1, **known)
            for quantity in (RATE, CLOSED, MEAN, CPU):
                value = VALUES[quantity]
                found = bounds_of_figure(record, Role.PRIMARY, value, quantity, UNDISTURBED, nothing_logged)
                assert (found.low, found.high, found.is_limited) == (value, value, False)
                assert found.value_without_client is None


def test_a_claims_source_had_another_client() -> None:
    """Ten seconds, 4,000 requests, 2 s of the client's CPU: 500 µs each; in every trial, whether the gate fired or not.

    The client does the same work for both sides, so that it opens no end: the figure without it stands beside.
    """

    def claimed(record: TrialRecord, quantity: Quantity) -> BoundedFigure:
        excluding = replace(quantity, excludes_client=True)
        return bounds_of_figure(record, Role.PRIMARY, VALUES[quantity], excluding, UNDISTURBED, nothing_logged)

    for findings in ((), (Code.CLIENT_SATURATED,)):
        record = trial(*findings, users=1, client_cpu_s=2.0)
        for quantity, bare in ((RATE, 1 / (1 / 400 - 500e-6)), (CLOSED, 7500), (MEAN, 1000), (CPU, 2500)):
            found = claimed(record, quantity)
            assert found.low == found.high == VALUES[quantity], "the client does the same work for both sides"
            assert found.without_client.value == pytest.approx(bare)
            assert found.without_client.low == found.without_client.high == found.without_client.value
    blind = claimed(trial(Code.CLIENT_SATURATED, users=1, **BLIND), RATE)
    assert (blind.low, blind.high) == (400, math.inf), "whose CPU is not known"
    assert claimed(trial(users=2, client_cpu_s=2.0), RATE).value_without_client is None


def test_users_that_were_not_in_flight() -> None:
    record = trial(Finding(Code.LITTLES_LAW, 8.0, 10.0, Role.PRIMARY))
    assert of(record, RATE) == pytest.approx((400, 500))
    assert of(record, CLOSED) == pytest.approx((V99, V99 * 1.25))
    assert of(trial(Finding(Code.LITTLES_LAW, 11.0, 10.0, Role.PRIMARY)), RATE) == (400, 400)


def test_a_rate_that_was_not_reached() -> None:
    """Reached 98%: the latest arrival was 4,000 ÷ 400/s · (1/0.98 − 1) late."""
    late_us = (1 / 0.98 - 1) * 10 * 1e6
    record = trial(Finding(Code.RATE_NOT_REACHED, 0.98, 0.98, Role.PRIMARY), users=None)
    assert of(record, OPEN) == pytest.approx((max(0, V99 - late_us), V99))
    slight = trial(Finding(Code.RATE_NOT_REACHED, 0.9999, 0.98, Role.PRIMARY), users=None)
    assert of(slight, OPEN) == pytest.approx((V99 - (1 / 0.9999 - 1) * 1e7, V99))
    assert of(slight, CPU) == (2500, 2500)


def test_a_late_client() -> None:
    """[v − its largest delay, v]; by the p99 of its delay alone Q(0.99 − 0.02k) less that."""
    finding = Finding(Code.CLIENT_LATE, 900.0, 800.0, Role.PRIMARY)
    assert of(trial(finding, users=None), OPEN) == pytest.approx((q(0.99 - 0.02 * K) - 900, V99))
    bare = trial(Finding(Code.CLIENT_LATE, role=Role.PRIMARY), users=None, lateness_p99_us=900.0)
    assert of(bare, OPEN) == of(trial(finding, users=None), OPEN)


def test_the_worst_of_several_clients_counts() -> None:
    """Three clients were late, fell behind, or had too few users in flight; in whatever order their findings stand."""
    for code, values, quantity in (
        (Code.CLIENT_LATE, (900.0, 2000.0, 850.0), OPEN),
        (Code.RATE_NOT_REACHED, (0.9999, 0.9998, 0.99995), OPEN),
        (Code.LITTLES_LAW, (9.0, 8.0, 9.5), RATE),
    ):
        users = None if quantity is OPEN else 10
        worst, *rest = sorted(
            (of(trial(Finding(code, value, 10.0, Role.PRIMARY), users=users), quantity) for value in values),
            key=lambda ends: ends[0] - ends[1],
        )  # fmt: skip
        assert len({worst, *rest}) == 3
        together = trial(*(Finding(code, value, 10.0, Role.PRIMARY) for value in values), users=users)
        assert of(together, quantity) == pytest.approx(worst)


def test_segments_sent_again() -> None:
    """Each counts as two requests in a p99. One after a timeout holds a user up for 200 ms, any other for a request."""
    for timeouts, waited in ((5.0, 0.2 * 5 / (10 * T)), (3.0, 0.2 * 3 / (10 * T) + 2 / N), (0.0, 5 / N)):
        assert of(trial(), RATE, RETRANSMITS=5.0, TIMEOUTS=timeouts) == pytest.approx((400, 400 / (1 - waited)))
    old, new = (
        disturbance(one, one.measurements[0]).amounts[TIMEOUTS]
        for one in (trial(retransmitted_segments=7), trial(retransmitted_segments=7, retransmission_timeouts=2))
    )
    assert (old, new) == (7, 2), "of records that do not tell, each was one"
    assert of(trial(), CLOSED, RETRANSMITS=5.0) == pytest.approx((q(0.99 - 10 / N), V99))
    assert of(trial(), RATE, TIMEOUTS=600.0) == (400, math.inf)
    assert of(trial(), CPU, RETRANSMITS=5.0) == (2500, 2500)


def test_a_server_that_was_not_warm() -> None:
    record = trial(Finding(Code.WARMUP_DRIFT, 15.0, 10.0))
    assert of(record, RATE) == pytest.approx((400, 400 / (1 - 0.05)))
    assert of(record, CLOSED) == pytest.approx((q(0.99 - 1 / 3), V99))
    assert of(record, CPU) == pytest.approx((2500 * 0.95, 2500))


def test_a_clock_rate_that_moved() -> None:
    assert of(trial(), RATE, FREQUENCY_SPREAD=0.06) == pytest.approx((400 * 0.94, 400 * 1.06))
    assert of(trial(), CPU, FREQUENCY_SPREAD=0.06) == pytest.approx((2500 * 0.94, 2500 * 1.06))
    assert of(trial(users=None), OPEN, FREQUENCY_SPREAD=0.06) == pytest.approx((V99 * 0.88, V99 * 1.12))


def test_clients_that_did_not_begin_together() -> None:
    assert of(trial(), RATE, START_SPREAD=0.5) == pytest.approx((400 * 0.95, 400 * 1.05))
    assert of(trial(), CLOSED, START_SPREAD=0.5) == pytest.approx((V99, q(0.99 + 0.01 * 0.05)))


def test_a_disk_that_read_less_than_was_served() -> None:
    """The gate's limit is 95% of what was served; half of that was read."""
    record = trial(Finding(Code.NOT_COLD, 47.5, 95.0))
    assert of(record, RATE) == pytest.approx((400 * 0.475, 400))
    assert of(record, CLOSED) == pytest.approx((V99, q(1 - 0.01 * 0.475)))


def test_a_clock_that_stepped() -> None:
    assert of(trial(), RATE, CLOCK_STEPPED=2.0) == pytest.approx((400 * 10 / 12, 400 * 10 / 8))
    assert of(trial(), CLOSED, CLOCK_STEPPED=5.0) == pytest.approx((q(0.98), q(0.999)))
    assert of(trial(), CLOSED, nothing_logged, CLOCK_STEPPED=1e-5) == pytest.approx((7990, 8010)), "no latency by more"
    assert of(trial(), CPU, CLOCK_STEPPED=2.0) == (2500, 2500)


def test_a_few_failed_requests() -> None:
    assert of(trial(), RATE, FAILED_REQUESTS=0.0005) == pytest.approx((400 * 0.9995, 400))
    assert of(trial(), CLOSED, FAILED_REQUESTS=0.0005) == pytest.approx((V99, q(0.9905)))


@pytest.mark.parametrize("code", [Code.STALLED, Code.LISTEN_DROPS, Code.MEAN_OVER_P99])
def test_symptoms_are_part_of_the_result(code: Code) -> None:
    for quantity in (RATE, CLOSED, CPU):
        low, high = of(trial(Finding(code, 3.0, 1.0)), quantity)
        assert low == high


def test_counts_have_no_sets() -> None:
    record = trial(Code.CLIENT_SATURATED, Finding(Code.WARMUP_DRIFT, 15.0, 10.0))
    assert of(record, COUNT, STEAL=5.0, FREQUENCY_SPREAD=0.1) == (7, 7)


def test_a_figure_of_zero_is_almost_nothing() -> None:
    """Under one answer in ten seconds; under one step of 10 ms of the kernel's clock in 4,000 requests."""
    rate = bounds_of_figure(trial(), Role.PRIMARY, 0.0, RATE, UNDISTURBED, nothing_logged)
    assert (rate.low, rate.value, rate.high) == (0, 0.1, 0.1)
    cpu = bounds_of_figure(trial(), Role.PRIMARY, 0.0, CPU, UNDISTURBED, nothing_logged)
    assert (cpu.low, cpu.value, cpu.high) == pytest.approx((0, 2.5, 2.5))


def test_findings_multiply_and_their_shares_and_offsets_add_up() -> None:
    record = trial(Finding(Code.LITTLES_LAW, 8.0, 10.0, Role.PRIMARY))
    s = 0.04 / 20
    assert of(record, RATE, BACKGROUND_CPU=0.04, FREQUENCY_SPREAD=0.06) == pytest.approx(
        (400 * (1 - s) * 0.94, 400 * 1.25 / (1 - 2 * s) * 1.06)
    )  # fmt: skip
    late = trial(
        Finding(Code.CLIENT_LATE, 900.0, 800.0, Role.PRIMARY),
        Finding(Code.RATE_NOT_REACHED, 0.9999, 0.98, Role.PRIMARY), users=None,
    )  # fmt: skip
    shift = 0.02 * K + 2 * K * s
    expected = q(0.99 - shift) * (1 - 2 * K * s) - 900 - (1 / 0.9999 - 1) * 1e7
    assert of(late, OPEN, BACKGROUND_CPU=0.04) == pytest.approx((expected, V99 / (1 - s)))


def test_a_finding_of_another_measurement_does_not_concern_this_one() -> None:
    for role, high in (
        (Role.CROSSCHECK, 400),
        (Role.PRIMARY, pytest.approx(400 * 2**1.5)),
        (None, pytest.approx(400 * 2**1.5)),
    ):
        assert of(trial(Finding(Code.CLIENT_SATURATED, role=role)), RATE) == (400, high)


def test_without_a_histogram_the_next_percentile_of_the_record_bounds() -> None:
    """Below p99 it is the p90, below that the p50, then zero; above it p99.9, then nothing."""

    def low(shift: float) -> float:
        return of(trial(), CLOSED, nothing_logged, RETRANSMITS=shift * N / 2)[0]

    assert [low(shift) for shift in (0.05, 0.3, 0.6)] == [3000, 1000, 0]

    def high(shift: float) -> float:
        return of(trial(), CLOSED, nothing_logged, FAILED_REQUESTS=shift)[1]

    assert [high(shift) for shift in (0.005, 0.0095)] == [20000, math.inf]
    assert of(trial(response_time_max_us=5e4), OPEN, nothing_logged, FAILED_REQUESTS=0.0095)[1] == 5e4


# ---- continuity


AMOUNTS = {
    "STEAL": 0.4, "BACKGROUND_CPU": 0.4, "HOST_BACKGROUND_CPU": 0.4, "RETRANSMITS": 40.0, "TIMEOUTS": 40.0,
    "FREQUENCY_SPREAD": 0.1, "START_SPREAD": 0.5, "CLOCK_STEPPED": 0.02, "FAILED_REQUESTS": 0.001,
}  # fmt: skip
ONE_MS = 1e-3  # of the log: a request's rank is one step of the histogram


@pytest.mark.parametrize("name", AMOUNTS)
@pytest.mark.parametrize("quantity", [RATE, OPEN, CLOSED, MEAN, CPU])
def test_no_end_jumps_with_what_every_trial_measures(name: str, quantity: Quantity) -> None:
    """From nothing in two thousand steps: each moves an end by less than 0.5%; a share of 1e-6 by less than 0.1%."""
    record = trial(users=None if quantity is OPEN else 10)
    most = AMOUNTS[name] / (1000 if quantity is MEAN else 1)  # each request's mean may be off by all of B
    amounts = np.concatenate([[0.0, 1e-6 * most], np.linspace(0, most, 2001)[1:]])
    ends = np.array([of(record, quantity, **dict[str, Any]({name: float(amount)})) for amount in amounts])
    value = of(record, quantity)[0]
    assert ends[0].tolist() == [value, value]
    assert np.abs(np.diff(np.log(ends[:2]), axis=0)).max() < ONE_MS
    steps = np.abs(np.diff(ends, axis=0)) / value
    assert np.isfinite(steps).all() and steps.max() < 5e-3
    assert (np.diff(ends[:, 0]) <= 1e-9 * value).all() and (np.diff(ends[:, 1]) >= -1e-9 * value).all(), "monotone"


def test_no_end_jumps_with_what_the_columns_say() -> None:
    """The same through the record: a share that is not there, and one of a millionth more than its gate lets pass."""

    def ends(background: float, other: float) -> Sequence[float]:
        records = [replace(trial(), conditions=Conditions(background_cpu_pct=pct)) for pct in (background, other)]
        seen = [disturbance(record, record.measurements[0]) for record in records]
        excess = seen[0].excess_over(common_disturbance([[seen[0]], [seen[1]]]))
        found = bounds_of_figure(records[0], Role.PRIMARY, 400.0, RATE, excess, nothing_logged)
        return found.low, found.high

    for pct in (0.0, 0.5, 1.0, 1.5):
        assert np.log(ends(pct + 1e-4, 0.2)) == pytest.approx(np.log(ends(pct, 0.2)), abs=1e-3)
    assert ends(0.2, 1.5) == (400, 400)


# ---- which findings a figure survives


def test_every_finding_has_one_meaning() -> None:
    """A code is lost, not comparable, a failure of requests, a symptom, or has a row: none is forgotten."""
    rows = {
        Code.CLIENT_SATURATED, Code.CLIENT_STARVED, Code.PORTS_EXHAUSTED, Code.LINK_BOUND, Code.LITTLES_LAW,
        Code.RATE_NOT_REACHED, Code.CLIENT_LATE, Code.WARMUP_DRIFT, Code.NOT_COLD, Code.STEAL, Code.BACKGROUND_CPU,
        Code.HOST_BACKGROUND_CPU, Code.RETRANSMITS, Code.FREQUENCY_SPREAD, Code.START_SPREAD, Code.CLOCK_STEPPED,
        Code.FAILED_REQUESTS,
    }  # fmt: skip
    symptoms = {code for code, kind in FINDINGS.items() if kind.influence is Influence.SYMPTOM}
    groups = (rows, symptoms, set(LOST), set(NOT_COMPARABLE))
    assert set().union(*groups) == set(Code)
    assert sum(map(len, groups)) == len(Code)
    invalid = {code for code, kind in FINDINGS.items() if kind.severity is Validity.INVALID}
    assert invalid <= LOST | NOT_COMPARABLE | {Code.FAILED_REQUESTS} and ACCIDENTS <= LOST
