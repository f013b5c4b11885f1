"""Random arrivals through whole runs on this machine: vegeta sends what was drawn, and a stall counts from it."""

import gzip
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from scipy import stats

from tests.support.local_server import server_pids
from tests.support.measured import run
from tests.support.records import assert_sound, primary, records_of
from tests.unit.trial.test_arrivals import ljung_box
from vmtoll.model.errors import ExperimentError
from vmtoll.model.event import Event, Phase, TrialStep
from vmtoll.model.trial import TrialRecord
from vmtoll.spec.catalog import Registry
from vmtoll.trial.arrivals import poisson_ns, seed_of

Rewrite = Callable[..., Path]
Measure = Callable[..., tuple[Path, list[TrialRecord]]]
RATE_RPS, DURATION_S, REQUESTS = 50, 8.0, 400  # gaps long enough for the 0.1 ms of vegeta's own delay not to matter
STALL_S, STALLED_RPS, STALLED_FOR_S = 0.4, 200, 4.0


@pytest.fixture
def measured(project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None) -> Measure:
    """Run the workload `tiny` at a rate by vegeta alone, without `arrivals` unless the keys have it."""

    def go(
        environments: tuple[str, ...] = ("metal",),
        listener: Callable[[Event], None] | None = None,
        duration_s: float = DURATION_S,
        **keys: Any,
    ) -> tuple[Path, list[TrialRecord]]:
        path = project.workload_file("tiny")
        data = {
            **yaml.safe_load(path.read_text()), "kind": "rate", "rate_rps": RATE_RPS, "tool": "vegeta",
            "crosscheck": None, "deadline_ms": 20.0, **keys,
        }  # fmt: skip
        path.write_text(yaml.safe_dump({key: value for key, value in data.items() if key != "users"}))
        experiment = rewrite(blocks=1, environments=list(environments), duration_s=duration_s, noise_floor=None)
        folder = run(experiment, inventory, tmp_path / "results", registry=project, listener=listener)
        return folder, records_of(folder)

    return go


def raw_of(folder: Path, record: TrialRecord, name: str) -> NDArray[np.int64]:
    """A file that vegeta left of a trial, as rows of numbers."""
    text = gzip.decompress((folder / "raw" / record.name / f"vegeta.{name}.gz").read_bytes())
    return np.array([line.split() for line in text.splitlines()], dtype=np.int64)


def assert_random(gaps_s: NDArray[np.float64], rate_rps: float) -> None:
    """Exponential by Kolmogorov and Smirnov, independent by Ljung and Box."""
    assert stats.kstest(gaps_s, "expon", (0, 1 / rate_rps)).pvalue > 0.01
    assert ljung_box(gaps_s, 10) > 0.01


def test_both_sides_get_the_same_random_arrivals(measured: Measure) -> None:
    """The schedule that is kept, and the moments at which vegeta sent, both pass; the sides have one schedule."""
    folder, records = measured(("metal", "metal-two"))
    assert_sound(records)
    kept = [raw_of(folder, record, "schedule.txt")[:, 0] for record in records]
    assert np.array_equal(kept[0], kept[1])
    for record, due_ns in zip(records, kept, strict=True):
        scenario = record.scenario
        assert (record.offered.arrivals, record.offered.offered_rps) == ("poisson", RATE_RPS)
        seed = seed_of(7, record.block, scenario.sort_key)
        assert record.offered.arrivals_seed == seed
        assert tuple(due_ns.tolist()) == poisson_ns(REQUESTS, RATE_RPS, seed)
        assert_random(np.diff(due_ns, prepend=0) / 1e9, RATE_RPS)
        log = raw_of(folder, record, "requests.log")
        sent_ns = log[np.argsort(log[:, 3]), 0]
        assert primary(record).requests == primary(record).successful == len(sent_ns) == REQUESTS
        assert_random(np.diff(sent_ns) / 1e9, RATE_RPS)
        late_us = (sent_ns - due_ns - (sent_ns - due_ns).min()) / 1e3
        lateness_p99_us = primary(record).lateness.p99_us
        assert lateness_p99_us is not None
        assert np.sort(late_us)[-5] == pytest.approx(lateness_p99_us, abs=1)


def test_even_intervals_fail_the_same_test(measured: Measure) -> None:
    folder, records = measured(arrivals="constant")
    (record,) = records
    assert (record.offered.arrivals, record.offered.arrivals_seed) == ("constant", None)
    assert not list((folder / "raw" / record.name).glob("*schedule*"))
    log = raw_of(folder, record, "requests.log")
    gaps_s = np.diff(np.sort(log[:, 0])) / 1e9
    assert stats.kstest(gaps_s, "expon", (0, 1 / RATE_RPS)).pvalue < 1e-9


def test_a_stall_counts_from_when_each_request_was_due(measured: Measure, tmp_path: Path) -> None:
    """The server stands still for 400 ms: p99 within 10% of what the schedule and the stall come to."""
    stalled: list[tuple[int, int]] = []

    def stall() -> None:
        pids = server_pids(tmp_path / "metal")
        time.sleep(1.0)  # the fault itself: when it begins, and how long it takes
        begin_ns = time.time_ns()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(STALL_S)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        stalled.append((begin_ns, time.time_ns()))

    threads: list[Thread] = []

    def inject(event: Event) -> None:
        if isinstance(event, TrialStep) and event.phase is Phase.MEASURING and not threads:
            threads.append(Thread(target=stall))
            threads[0].start()

    folder, records = measured(listener=inject, duration_s=STALLED_FOR_S, rate_rps=STALLED_RPS)
    threads[0].join()
    ((begin_ns, end_ns),) = stalled
    due_ns, log = raw_of(folder, records[0], "schedule.txt")[:, 0], raw_of(folder, records[0], "requests.log")
    sent_ns = log[np.argsort(log[:, 3]), 0]
    due_at_ns = due_ns + (sent_ns - due_ns).min()
    waited_us = np.where((due_at_ns > begin_ns) & (due_at_ns < end_ns), end_ns - due_at_ns, 0) / 1e3
    truth_us = np.sort(waited_us)[-9]  # of 800 requests
    assert truth_us > 200_000
    assert primary(records[0]).response_time.p99_us == pytest.approx(truth_us, rel=0.1)


def test_a_tool_that_sends_evenly_alone_cannot_send_at_random(measured: Measure) -> None:
    with pytest.raises(ExperimentError, match=r"crosscheck: oha .*intervals alone.*: vegeta"):
        measured(crosscheck="oha", arrivals="poisson")


def test_such_a_tool_sends_evenly_by_default(measured: Measure) -> None:
    _, records = measured(crosscheck="oha", rate_rps=100)
    assert {record.offered.arrivals for record in records} == {"constant"}
