"""Equal sides of which one alone is disturbed, lost, or badly measured: pages that call them different, by simulation.

Trials are records with the figures that a simple model of the disturbance gives, tails those of a simulated queue; they
are paired and judged by the program. Without sets almost all of these pages are wrong.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.records import BASELINE, make_record
from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.judge import Family
from vmtoll.analysis.judged import evidence_of
from vmtoll.analysis.pairs import pair
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.sides import measure_of
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.metric import CPU, TAIL, THROUGHPUT
from vmtoll.model.trial import Arm, Conditions, Measurement, Offered, Resources, TrialRecord
from vmtoll.model.verdict import DIFFERENT
from vmtoll.statistics.proportions import clopper_pearson
from vmtoll.statistics.thresholds import ALPHA

pytestmark = pytest.mark.slow

GUEST = Arm("kvm-default")
PAGES, BLOCKS, SERVERS, NOISE = 80, 8, 2, 0.02
T, RATE, SERVICE_S = 2.0, 650.0, 0.001  # a server that is 65% busy
OPEN, CLOSED = Load(LoadKind.RATE, RATE), Load(LoadKind.CLOSED, 10)
Floats = npt.NDArray[np.float64]
Disturb = Callable[[np.random.Generator, TrialRecord], TrialRecord]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(make_run(tmp_path_factory.mktemp("disturbed"), Truth(blocks=1)))


def latencies_us(rng: np.random.Generator, taken_s: float, burst_s: float) -> Floats:
    """Response times of a FIFO server; others take the CPU in bursts, `taken_s` in all."""
    count = int(RATE * T)
    arrivals, work = np.sort(rng.uniform(0, T, count)), rng.exponential(SERVICE_S, count)
    bursts = max(1, round(taken_s / burst_s)) if taken_s else 0
    at = np.concatenate([arrivals, rng.uniform(0, T, bursts)])
    need = np.concatenate([work, np.full(bursts, taken_s / max(bursts, 1))])
    order = np.argsort(at)
    done = np.cumsum(need[order])
    departures = done + np.maximum.accumulate(at[order] - (done - need[order]))
    return np.asarray(1e6 * (departures - at[order])[order < count])


def trial(rng: np.random.Generator, block: int, arm: Arm, load: Load, taken_s: float = 0.0) -> TrialRecord:
    """A trial with noise of 2%, in which others took `taken_s` of the CPU in bursts of 20 ms."""
    share = taken_s / T
    cost_us = 1000.0 * math.exp(rng.normal(0, NOISE))
    figures = {"duration_s": T, "server_cpu_user_s": 0.65 * T, "server_cpu_us_per_request": cost_us}
    if load.is_open:
        times = latencies_us(rng, taken_s, 0.02)
        names = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9, "max": 100}
        figures |= {f"response_time_{name}_us": float(np.percentile(times, q)) for name, q in names.items()}
        figures |= {"requests": len(times), "transactions": len(times)}
    else:
        rate = 1000.0 * math.exp(rng.normal(0, NOISE)) * (1 - share)
        figures |= {"throughput_rps": rate, "requests": int(rate * T), "transactions": int(rate * T)}
    record = make_record(block, 1 + (arm == GUEST), arm=arm, load=load, measured=figures)
    return replace(
        record, conditions=Conditions(background_cpu_pct=0.0),
        resources=Resources(server_cores=1, steal_pct=100 * share),
        offered=Offered(users=10, offered_rps=RATE if load.is_open else None),
    )  # fmt: skip


def wrong_pages(run: Run, disturb: Disturb, share: float, taken_s: float = 0.0) -> tuple[int, int]:
    """Pages that call equal sides different, with sets and with the figures as measured. `share`: of the guest's trials
    that are disturbed.
    """
    wrong, ignored = 0, 0
    for page in range(PAGES):
        rng, evidence = np.random.default_rng([page, int(1000 * share)]), []
        for _ in range(SERVERS):
            for load in (CLOSED, OPEN):
                records = [trial(rng, block, BASELINE, load) for block in range(1, BLOCKS + 1)]
                for block in range(1, BLOCKS + 1):
                    hit = rng.random() < share
                    record = trial(rng, block, GUEST, load, taken_s if hit else 0.0)
                    records.append(disturb(rng, record) if hit else record)
                made_of = replace(run, records=tuple(records))
                sides = [[t for t in records if t.arm == arm] for arm in (BASELINE, GUEST)]
                for metric in (TAIL,) if load.is_open else (THROUGHPUT, CPU):
                    pairs = pair(made_of, sides[0], sides[1], measure_of(metric, Role.PRIMARY, is_open=load.is_open))
                    evidence.append(evidence_of(made_of, pairs, metric, None))
        wrong += any(kind in DIFFERENT for kind in Family(evidence, None).decide())
        plain = [replace(e, bounds=replace(e.bounds, low=e.bounds.mid, high=e.bounds.mid)) for e in evidence]
        ignored += any(kind in DIFFERENT for kind in Family(plain, None).decide())
    return wrong, ignored


def _figures(record: TrialRecord, change: Callable[[Measurement], Measurement], *findings: Finding) -> TrialRecord:
    return replace(record, measurements=tuple(map(change, record.measurements)), findings=findings)


def nothing_else(rng: np.random.Generator, record: TrialRecord) -> TrialRecord:
    """The CPU time that others took is all."""
    return record


def saturated(rng: np.random.Generator, record: TrialRecord) -> TrialRecord:
    """The client is at its limit: six tenths of the rate, one and a half times the p99."""

    def change(measured: Measurement) -> Measurement:
        if measured.throughput_rps is not None:
            fewer = int(0.6 * (measured.transactions or 0))
            rate = 0.6 * measured.throughput_rps
            return replace(measured, throughput_rps=rate, transactions=fewer, requests=fewer)
        return measured.with_columns({"response_time_p99_us": 1.5 * (measured.response_time.p99_us or 0)})

    return _figures(record, change, Finding(Code.CLIENT_SATURATED, 0.9, 0.85, Role.PRIMARY))


def late(rng: np.random.Generator, record: TrialRecord) -> TrialRecord:
    """The client was late by up to 30 ms, all of it in the slowest response times."""
    if not record.scenario.load.is_open:
        return record
    most_us = float(rng.uniform(5e3, 3e4))

    def change(measured: Measurement) -> Measurement:
        names = ("response_time_p99_us", "response_time_p999_us", "response_time_max_us")
        slower = {name: (measured.column(name) or 0) + most_us for name in names}
        return measured.with_columns({**slower, "lateness_p99_us": 0.9 * most_us, "lateness_max_us": most_us})

    return _figures(record, change, Finding(Code.CLIENT_LATE, 0.9 * most_us, 800.0, Role.PRIMARY))


@pytest.mark.parametrize(
    ("disturb", "share", "taken_s"),
    [
        (nothing_else, 1.0, 0.02), (nothing_else, 0.3, 0.1), (nothing_else, 1.0, 0.1), (saturated, 1.0, 0.0),
        (saturated, 0.3, 0.0), (late, 1.0, 0.0),
    ],
    ids=["1% of the CPU", "5% in some trials", "5%", "saturated client", "saturated in some", "late client"],
)  # fmt: skip
def test_one_disturbed_side_is_not_called_different(run: Run, disturb: Disturb, share: float, taken_s: float) -> None:
    wrong, ignored = wrong_pages(run, disturb, share, taken_s)
    assert clopper_pearson(wrong, PAGES).low <= ALPHA, f"{wrong} of {PAGES} pages"
    assert ignored > 0.1 * PAGES or share < 1, "what a page without sets would have called"


def test_slow_trials_that_were_lost_make_no_page_wrong(run: Run) -> None:
    """The slowest fifth of the guest's trials of equal sides is lost, so what is left looks faster."""

    def lose(records: list[TrialRecord]) -> list[TrialRecord]:
        ordered = sorted(records, key=lambda t: (t.primary and t.primary.throughput_rps) or 0)
        lost = {record.block for record in ordered[: math.ceil(len(records) / 5)]}
        failed = (Finding(Code.TOOL_FAILED),)
        return [replace(r, measurements=(), findings=failed) if r.block in lost else r for r in records]

    wrong = 0
    for page in range(PAGES):
        rng, evidence = np.random.default_rng(page), []
        for _ in range(2 * SERVERS):
            base = [trial(rng, block, BASELINE, CLOSED) for block in range(1, 11)]
            guest = lose([trial(rng, block, GUEST, CLOSED) for block in range(1, 11)])
            made_of = replace(run, records=(*base, *guest))
            pairs = pair(made_of, base, guest, measure_of(THROUGHPUT, Role.PRIMARY, is_open=False))
            evidence.append(evidence_of(made_of, pairs, THROUGHPUT, None))
        wrong += any(kind in DIFFERENT for kind in Family(evidence, None).decide())
    assert clopper_pearson(wrong, PAGES).low <= ALPHA
