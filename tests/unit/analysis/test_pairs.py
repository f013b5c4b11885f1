"""Two sides paired block by block: lost trials, second attempts, natural limits, percentiles of unequal requests."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.records import BASELINE, make_record
from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis import sides
from vmtoll.analysis.pairs import Bounds, Pairs, is_measured, less_limited, pair
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.sides import Measure, is_ordered, measure_of
from vmtoll.analysis.thinning import expected_percentile
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.metric import CPU, TAIL, THROUGHPUT
from vmtoll.model.trial import Arm, Conditions, Offered, Resources, TrialRecord
from vmtoll.model.verdict import Cause
from vmtoll.statistics.series import Series

GUEST = Arm("kvm-default")
LOG_2 = math.log(2)
CODES = (None, Code.CLIENT_SATURATED, Code.TIMED_OUT, Code.LINK_BOUND, Code.FINGERPRINT)
RATE = measure_of(THROUGHPUT, Role.PRIMARY, is_open=False)
P99 = measure_of(TAIL, Role.PRIMARY, is_open=True)
COST = measure_of(CPU, Role.PRIMARY, is_open=False)
OPEN = Load(LoadKind.RATE, 1000)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(make_run(tmp_path_factory.mktemp("pairs"), Truth(blocks=1)))


def trial(
    block: int, arm: Arm = BASELINE, *findings: Finding | Code, attempt: int = 1, order: int = 0,
    load: Load | None = None, background_pct: float = 0.0, **figures: Any,
) -> TrialRecord:  # fmt: skip
    """A trial of ten users, or of an open loop, with nothing but these figures."""
    named = {"rps": "throughput_rps", "p99": "response_time_p99_us", "cpu": "server_cpu_us_per_request"}
    measured = {"duration_s": 10.0, "transactions": 4000, "requests": 4000} | {
        named.get(name, name): value for name, value in figures.items()
    }  # fmt: skip
    record = make_record(
        block, order or 1 + (arm != BASELINE) + 10 * (arm.replicate - 1), attempt, arm=arm,
        load=load or (OPEN if "p99" in figures else Load(LoadKind.CLOSED, 10)), measured=measured if figures else None,
        findings=tuple(f if isinstance(f, Finding) else Finding(f) for f in findings),
    )  # fmt: skip
    return replace(
        record, resources=Resources(server_cores=1, steal_pct=0.0), offered=Offered(users=10, offered_rps=1000.0),
        conditions=Conditions(background_cpu_pct=background_pct),
    )  # fmt: skip


def paired(run: Run, records: Sequence[TrialRecord], measure: Measure = RATE) -> Pairs:
    """The last attempts on metal against those in the guest."""
    made_of = replace(run, records=tuple(records))
    return pair(
        made_of, [t for t in made_of.trials if t.arm.environment == "metal"],
        [t for t in made_of.trials if t.arm.environment != "metal"], measure,
    )  # fmt: skip


def logs(series: Series) -> dict[int, float]:
    return dict(zip(series.blocks, series.values, strict=True))


def ratios(series: Series) -> dict[int, float]:
    return {block: math.exp(value) for block, value in logs(series).items()}


def figures(run: Run, metal: Mapping[int, float], guest: Mapping[int, float], *more: TrialRecord) -> Pairs:
    """Throughputs by block, and further trials."""
    return paired(run, [
        *(trial(block, rps=value) for block, value in metal.items()),
        *(trial(block, GUEST, rps=value) for block, value in guest.items()), *more,
    ])  # fmt: skip


def test_advantage_is_above_zero_where_the_compared_side_is_better(run: Run) -> None:
    faster = figures(run, {1: 100, 2: 100}, {1: 200, 2: 50}).bounds
    assert ratios(faster.mid) == pytest.approx({1: 2.0, 2: 0.5})
    assert faster.low == faster.mid == faster.high, "nothing was found"
    longer = paired(run, [trial(1, p99=1000), trial(1, GUEST, p99=4000)], P99).bounds
    assert ratios(longer.mid) == pytest.approx({1: 0.25})


def test_a_pair_is_the_worst_of_one_against_the_best_of_the_other(run: Run) -> None:
    """2% of one core taken from metal, 1% from the guest: the excess of metal alone widens, its rate upwards most."""
    bounds = paired(run, [
        trial(1, rps=100, background_pct=2.0), trial(1, GUEST, rps=50, background_pct=1.0),
    ]).bounds  # fmt: skip
    assert ratios(bounds.mid) == pytest.approx({1: 0.5})
    assert ratios(bounds.low) == pytest.approx({1: 0.5 * 0.98}), "metal may have been 1 ÷ (1 − 2 · 1%) faster"
    assert ratios(bounds.high) == pytest.approx({1: 0.5 / 0.99})


def test_replicates_are_averaged_before_anything_else(run: Run) -> None:
    control = Arm("metal", 2)
    pairs = paired(run, [trial(1, rps=100), trial(1, control, rps=400), trial(1, GUEST, rps=100)])
    assert ratios(pairs.bounds.mid) == pytest.approx({1: 0.5}), "the geometric mean"
    assert pairs.baseline.counts.trials == 2


# ---- lost trials, second attempts


@pytest.mark.parametrize("code", [Code.TIMED_OUT, Code.SERVER_FAILED, Code.HOST_LOST, Code.TOOL_FAILED, Code.LOST_MAIL])
def test_a_lost_trial_is_twice_as_bad_as_the_worst_of_its_side_and_counts_against_it_alone(
    run: Run, code: Code
) -> None:
    guest = figures(run, {1: 100, 2: 100, 3: 100}, {1: 80, 2: 40}, trial(3, GUEST, code))
    assert ratios(guest.bounds.low) == pytest.approx({1: 0.8, 2: 0.4, 3: 0.2})
    assert ratios(guest.bounds.mid) == ratios(guest.bounds.high) == pytest.approx({1: 0.8, 2: 0.4})
    assert guest.capped == (True, False)
    assert (guest.compared.counts.lost, guest.compared.counts.used, guest.n) == (1, 2, 2)
    metal = figures(run, {1: 100, 2: 80}, {1: 100, 2: 100, 3: 100}, trial(3, BASELINE, code))
    assert ratios(metal.bounds.high) == pytest.approx({1: 1.0, 2: 1.25, 3: 2.5})
    assert ratios(metal.bounds.low) == pytest.approx({1: 1.0, 2: 1.25})
    assert metal.capped == (False, True)


def test_a_lost_time_is_twice_as_long(run: Run) -> None:
    pairs = paired(run, [
        trial(1, p99=1000), trial(2, p99=1000), trial(1, GUEST, p99=3000), trial(2, GUEST, Code.HOST_LOST, load=OPEN),
    ], P99)  # fmt: skip
    assert ratios(pairs.bounds.low) == pytest.approx({1: 1 / 3, 2: 1 / 6})


def test_a_block_that_both_sides_lost_is_none(run: Run) -> None:
    pairs = figures(
        run, {1: 100}, {1: 100}, trial(2, BASELINE, Code.HOST_LOST), trial(2, GUEST, Code.HOST_LOST),
    )  # fmt: skip
    assert [list(logs(s)) for s in (pairs.bounds.low, pairs.bounds.mid, pairs.bounds.high)] == [[1]] * 3


def test_requests_that_failed_lose_a_trial_whose_figure_was_never_better(run: Run) -> None:
    """More than one in a thousand: the guest's rate is at most what was measured. Its CPU says nothing at all."""
    finding = Finding(Code.FAILED_REQUESTS, 100, 4, Role.PRIMARY)
    records = [
        trial(1, rps=100, cpu=10), trial(2, rps=100, cpu=10), trial(1, GUEST, rps=100, cpu=20),
        trial(2, GUEST, finding, rps=150, cpu=4),
    ]  # fmt: skip
    rate, cost = paired(run, records), paired(run, records, COST)
    assert ratios(rate.bounds.low) == pytest.approx({1: 1.0, 2: 0.5})
    assert ratios(rate.bounds.mid) == pytest.approx({1: 1.0})
    assert ratios(rate.bounds.high) == pytest.approx({1: 1.0, 2: 1.5})
    assert ratios(cost.bounds.low) == pytest.approx({1: 0.5, 2: 0.25})
    assert list(logs(cost.bounds.high)) == [1]
    few = Finding(Code.FAILED_REQUESTS, 2, 4, Role.PRIMARY)
    used = figures(run, {1: 100}, {}, trial(1, GUEST, few, rps=100, failed=2))
    assert ratios(used.bounds.low) == pytest.approx({1: 1 - 2 / 4000})


def test_a_second_attempt_is_its_figure_and_one_lost_trial(run: Run) -> None:
    """The guest's worst is 50, so a lost trial of it counts as 25, and the block as the mean of 25 and 100."""
    pairs = figures(
        run, {1: 100, 2: 100}, {2: 50},
        trial(1, GUEST, Code.TOOL_FAILED, order=2), trial(1, GUEST, attempt=2, order=2, rps=100),
    )  # fmt: skip
    assert ratios(pairs.bounds.mid) == pytest.approx({1: 1.0, 2: 0.5})
    assert ratios(pairs.bounds.low) == pytest.approx({1: math.sqrt(0.25), 2: 0.5})
    assert pairs.bounds.high == pairs.bounds.mid
    assert (pairs.compared.counts.second_attempts, pairs.compared.counts.lost) == (1, 0)
    downs, ups = pairs.widths()
    assert downs == pytest.approx({Cause.SECOND_ATTEMPTS: LOG_2 / 2}) and not ups


@pytest.mark.parametrize(
    ("machine", "lab", "charged"),
    [
        ("kvm-default", "embedded", True), (None, "embedded", True), ("unheard-of", "embedded", True),
        ("client", "embedded", False), ("metal", "embedded", False), ("host", "embedded", False), ("host", "own", True),
    ],
)  # fmt: skip
def test_an_accident_of_another_machine_is_not_charged(run: Run, machine: str | None, lab: str, charged: bool) -> None:
    """A client serves both sides, as does the lab's host; an accident without a machine may be the side's own."""
    where = replace(run, manifest=run.manifest.model_copy(update={"lab": lab}))
    first = trial(1, GUEST, Finding(Code.HOST_LOST, machine=machine), order=2)
    again = figures(where, {1: 100, 2: 100}, {2: 100}, first, trial(1, GUEST, attempt=2, order=2, rps=100))
    assert ratios(again.bounds.low)[1] == pytest.approx(math.sqrt(0.5) if charged else 1.0)
    gone = figures(where, {1: 100, 2: 100}, {2: 100}, first)
    assert list(logs(gone.bounds.low)) == ([1, 2] if charged else [2])
    assert gone.compared.counts.lost == charged


def test_a_repeat_of_a_whole_block_charges_the_lost_machine_alone(run: Run) -> None:
    """Metal was measured twice because the guest was lost."""
    pairs = figures(
        run, {2: 100}, {2: 100}, trial(1, rps=100), trial(1, attempt=2, rps=100),
        trial(1, GUEST, Code.HOST_LOST, order=2), trial(1, GUEST, attempt=2, order=2, rps=100),
    )  # fmt: skip
    assert (pairs.baseline.counts.second_attempts, pairs.compared.counts.second_attempts) == (0, 1)
    assert pairs.bounds.high == pairs.bounds.mid


@pytest.mark.parametrize(
    "code", [Code.SYSCTL, Code.FINGERPRINT, Code.WRONG_BODY, Code.CLOCK_SOURCE, Code.CAPACITY_UNKNOWN]
)
def test_sides_that_are_not_the_same_thing_are_left_out(run: Run, code: Code) -> None:
    pairs = figures(run, {1: 100, 2: 100}, {1: 100}, trial(2, GUEST, code, rps=10))
    assert [list(logs(s)) for s in (pairs.bounds.low, pairs.bounds.high)] == [[1], [1]]
    assert (pairs.compared.counts.incomparable, pairs.compared.counts.lost) == (1, 0)
    assert pairs.compared.counts.excluded_by == {code: 1}


def test_a_figure_of_zero_is_the_worst_block_of_a_side_and_the_cheapest(run: Run) -> None:
    """Nothing answered in ten seconds: under 0.1/s. No CPU counted: under a tick in 4,000 requests, 2.5 µs."""
    pairs = figures(run, {1: 100, 2: 100}, {1: 100}, trial(2, GUEST, rps=0.0, transactions=0))
    assert ratios(pairs.bounds.mid) == ratios(pairs.bounds.high) == pytest.approx({1: 1.0, 2: 0.001})
    assert ratios(pairs.bounds.low) == pytest.approx({1: 1.0, 2: 0.0005})
    cost = paired(run, [trial(1, cpu=25), trial(2, cpu=0), trial(1, GUEST, cpu=25), trial(2, GUEST, cpu=25)], COST)
    assert ratios(cost.bounds.mid) == pytest.approx({1: 1.0, 2: 0.1})
    assert ratios(cost.bounds.low) == pytest.approx({1: 1.0, 2: 0.05}), "no wider than twice what was seen"


# ---- natural limits


def test_no_end_lies_further_than_twice_beyond_what_the_scenario_showed(run: Run) -> None:
    """Metal 100 to 120, guest 10 to 12, the client at its limit on metal: it may be 240, not infinite."""
    pairs = figures(run, {2: 120}, {1: 10, 2: 12}, trial(1, BASELINE, Code.CLIENT_SATURATED, rps=100))
    assert ratios(pairs.bounds.low) == pytest.approx({1: 10 / 240, 2: 0.1})
    assert ratios(pairs.bounds.high) == ratios(pairs.bounds.mid) == pytest.approx({1: 0.1, 2: 0.1})
    assert pairs.capped == (True, False)
    slower = paired(run, [
        trial(1, p99=1000), trial(1, GUEST, Code.CLIENT_STARVED, p99=4000),
        trial(2, p99=800), trial(2, GUEST, p99=4000),
    ], P99)  # fmt: skip
    assert ratios(slower.bounds.high) == pytest.approx({1: 1000 / 400, 2: 0.2})
    assert slower.capped == (False, True)


def test_a_limit_can_never_make_a_claim(run: Run) -> None:
    """A capped low lies at −log 2 or below, a capped high at log 2 or above: any figures, any side, any findings."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        blocks = range(1, int(rng.integers(2, 6)))
        records = []
        for block in blocks:
            for arm in (BASELINE, GUEST):
                code = CODES[int(rng.choice(4, p=[0.4, 0.2, 0.2, 0.2]))]
                records.append(trial(block, arm, *([code] if code else ()), rps=float(np.exp(rng.normal(0, 2)))))
        pairs = paired(run, records)
        for low, mid, high in _by_block(pairs.bounds):
            assert low is None or low <= (mid if mid is not None else low)
            assert high is None or high >= (mid if mid is not None else high)
            if mid is None:
                continue
            assert low == mid or low is None or low <= -LOG_2 + 1e-9
            assert high == mid or high is None or high >= LOG_2 - 1e-9


def _by_block(bounds: Bounds) -> list[tuple[float | None, float | None, float | None]]:
    ends = [logs(series) for series in (bounds.low, bounds.mid, bounds.high)]
    return [tuple(each.get(block) for each in ends) for block in sorted(set().union(*ends))]  # type: ignore[misc]


def test_a_limit_applies_to_the_mean_of_a_side(run: Run) -> None:
    """Two trials of metal, one of them limited: their mean is capped, not the one."""
    control = Arm("metal", 2)
    pairs = paired(run, [
        trial(1, BASELINE, Finding(Code.LITTLES_LAW, 5.0, 10.0), rps=100), trial(1, control, rps=100),
        trial(1, GUEST, rps=100),
    ])  # fmt: skip
    assert ratios(pairs.bounds.low) == pytest.approx({1: 1 / math.sqrt(2)})
    assert pairs.capped == (False, False)


# ---- percentiles


def test_a_p99_needs_a_hundred_requests_in_the_order_of_the_others(run: Run) -> None:
    def pairs(**figures: Any) -> int:
        return paired(run, [trial(1, p99=1000), trial(1, GUEST, **({"p99": 1000.0} | figures))], P99).n

    assert [pairs(transactions=n) for n in (99, 100)] == [0, 1]
    assert [pairs(response_time_p50_us=a, response_time_p90_us=b) for a, b in (
        (500, 900), (950, 900), (500, 1100), (1000, 1000),
    )] == [1, 0, 0, 1]  # fmt: skip
    assert pairs(response_time_p50_us=1100) == 0
    garbage = trial(1, service_time_p50_us=12000, service_time_p99_us=257).measurements[0]
    assert not is_ordered(garbage, "service_time") and is_ordered(garbage, "response_time")


def unequal(run: Run, metal: float, guest: float, **figures: Any) -> Pairs:
    return paired(run, [
        trial(1, p99=8000, transactions=metal, **figures), trial(1, GUEST, p99=8000, transactions=guest, **figures),
    ], P99)  # fmt: skip


def test_a_p99_of_fewer_requests_without_histograms_may_lie_lower(run: Run) -> None:
    """Of 1,000 requests the 990th lies with 97.5% above the quantile B⁻¹(0.025; 990, 11) = 0.983 of 10,000: the p90."""
    percentiles: dict[str, Any] = {"response_time_p50_us": 1000.0, "response_time_p90_us": 3000.0}
    fair = unequal(run, 1200, 1000, **percentiles)
    assert fair.bounds.low == fair.bounds.mid == fair.bounds.high
    more = unequal(run, 10_000, 1000, **percentiles)
    assert ratios(more.bounds.low) == pytest.approx({1: max(3000, 4000) / 8000}), "the natural limit is nearer"
    assert ratios(more.bounds.mid) == ratios(more.bounds.high) == pytest.approx({1: 1.0})
    downs, ups = more.widths()
    assert list(downs) == [Cause.UNEQUAL_REQUESTS] and not ups
    near = unequal(run, 10_000, 1000, response_time_p90_us=6000.0)
    assert ratios(near.bounds.low) == pytest.approx({1: 6000 / 8000})
    few = unequal(run, 1000, 100, response_time_p90_us=7000.0, response_time_p50_us=6000.0)
    assert ratios(few.bounds.low) == pytest.approx({1: 7000 / 8000}), "B⁻¹(0.025; 99, 2) = 0.945"


def test_a_p99_of_fewer_requests_is_thinned_by_its_histogram(run: Run) -> None:
    """10,000 requests of metal as 1,000 would have them on average; the guest's 1,000 stay."""
    values, upto = np.arange(1.0, 10_001), np.arange(1.0, 10_001)
    logged: dict[tuple[str, Role], Any] = {}
    records = [trial(1, p99=9900, transactions=10_000), trial(1, GUEST, p99=9900, transactions=1000)]
    made_of = replace(run, records=tuple(records))
    for record in records:
        logged[record.name, Role.PRIMARY] = (values, upto)
    made_of.__dict__["_latencies"] = logged
    bounds = pair(made_of, [records[0]], [records[1]], P99).bounds
    thinner = expected_percentile(values, upto, 1000, 0.99)
    assert 9880 < thinner < 9900
    assert ratios(bounds.mid) == ratios(bounds.low) == ratios(bounds.high) == pytest.approx({1: thinner / 9900})


# ---- what is measured, by whom


def test_a_figure_that_answered_requests_and_never_has_it_is_not_measured(run: Run) -> None:
    none = paired(run, [trial(1, rps=100), trial(1, GUEST, rps=100)], P99)
    lost = paired(run, [trial(1, BASELINE, Code.HOST_LOST), trial(1, GUEST, Code.HOST_LOST)], P99)
    one = paired(run, [trial(1, p99=1000), trial(1, GUEST, rps=100)], P99)
    assert [is_measured(pairs.sides) for pairs in (none, lost, one)] == [False, True, True]


@pytest.mark.parametrize(
    ("primary", "crosscheck", "expected"),
    [
        ((6, 0), (6, 0), Role.PRIMARY), ((6, 6), (6, 0), Role.CROSSCHECK), ((6, 3), (6, 4), Role.PRIMARY),
        ((0, 0), (6, 6), Role.CROSSCHECK), ((6, 6), (0, 0), Role.PRIMARY), ((6, 3), (6, 3), Role.CROSSCHECK),
    ],
)  # fmt: skip
def test_the_tool_that_was_limited_less_counts(
    primary: tuple[int, int], crosscheck: tuple[int, int], expected: Role
) -> None:
    assert less_limited(primary, crosscheck) is expected


# ---- properties


def _random_records(rng: np.random.Generator) -> list[TrialRecord]:
    records = []
    for block in range(1, 5):
        for arm in (BASELINE, GUEST):
            code = CODES[int(rng.choice(5, p=[0.6, 0.2, 0.1, 0.0, 0.1]))]
            records.append(trial(
                block, arm, *([code] if code else ()), rps=float(np.exp(rng.normal(5, 1))),
                background_pct=float(rng.exponential(2)),
            ))  # fmt: skip
    return records


def test_swapped_sides_turn_every_series_around(run: Run) -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        records = _random_records(rng)
        there = paired(run, records).bounds
        made_of = replace(run, records=tuple(records))
        sides = [[t for t in made_of.trials if (t.arm == GUEST) is guest] for guest in (True, False)]
        back = pair(made_of, sides[0], sides[1], RATE).bounds
        for ours, theirs in ((there.low, back.high), (there.mid, back.mid), (there.high, back.low)):
            assert logs(ours) == pytest.approx({block: -value for block, value in logs(theirs).items()})


def test_the_unit_of_a_rate_decides_nothing(run: Run) -> None:
    """All throughputs times a thousand: the same advantages, findings and natural limits and lost trials included."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        records = _random_records(rng)
        scaled = [
            replace(r, measurements=tuple(
                replace(m, throughput_rps=1000 * (m.throughput_rps or 0)) for m in r.measurements
            )) for r in records
        ]  # fmt: skip
        before, after = paired(run, records).bounds, paired(run, scaled).bounds
        for ours, theirs in ((before.low, after.low), (before.mid, after.mid), (before.high, after.high)):
            assert logs(ours) == pytest.approx(logs(theirs))


def test_times_and_rates_scaled_together_decide_nothing(run: Run) -> None:
    """A machine ten times as slow, late by ten times as much, over ten times the time."""

    def bounds(scale: float) -> Bounds:
        late = [Finding(Code.CLIENT_LATE, us * scale, 100.0, Role.PRIMARY) for us in (150.0, 700.0)]
        measured: dict[str, Any] = {
            "duration_s": 10 * scale,
            "response_time_p90_us": 900 * scale,
            "server_cpu_user_s": 4 * scale,
        }
        records = [
            trial(1, BASELINE, late[0], p99=1000 * scale, background_pct=0.001, **measured),
            trial(1, GUEST, late[1], p99=3000 * scale, background_pct=0.004, **measured),
        ]  # fmt: skip
        records = [replace(r, offered=Offered(offered_rps=1000 / scale)) for r in records]
        return paired(run, records, P99).bounds

    one, ten = bounds(1.0), bounds(10.0)
    assert logs(one.low) == pytest.approx(logs(ten.low)) and logs(one.high) == pytest.approx(logs(ten.high))
    assert logs(one.low) != logs(one.mid) != logs(one.high)


@pytest.mark.slow
def test_pairing_takes_time_in_proportion_to_the_blocks(run: Run) -> None:
    """Ten times the blocks take about ten times as long, not a hundred times."""

    def seconds(blocks: int) -> float:
        records = [trial(block, arm, rps=100 + block) for block in range(1, blocks + 1) for arm in (BASELINE, GUEST)]
        made_of = replace(run, records=tuple(records))
        sides = [[t for t in made_of.trials if (t.arm == GUEST) is guest] for guest in (False, True)]
        begin = time.process_time()
        pair(made_of, sides[0], sides[1], RATE)
        return time.process_time() - begin

    # The least of several, one after the other: a busy machine is slower for both.
    assert min(seconds(1000) / seconds(100) for _ in range(5)) < 30


def test_the_findings_of_a_side_have_one_order() -> None:
    """A set has another order in each process: analysis.json must not."""
    codes = [Code.STEAL, Code.RETRANSMITS, Code.CLIENT_LATE, Code.STEAL]
    assert list(sides._by_frequency(codes)) == [Code.STEAL, Code.CLIENT_LATE, Code.RETRANSMITS]
