"""Capacity where requests failed: percentiles beyond any objective, clusters of failures, trials that are left."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.planned import failing, planned, side, truth
from tests.support.records import make_record
from tests.support.synthetic_run import Row, make_run, rate_load, with_findings
from vmtoll.analysis.run import load_run
from vmtoll.capacity.estimate import ByEnd
from vmtoll.capacity.limits import BindingLimit, Limit
from vmtoll.capacity.notes import NoteCode, note
from vmtoll.capacity.objective import Slo, SloPart
from vmtoll.capacity.rate_sweep import rate_sweeps, success_share, unseen_share
from vmtoll.model.finding import Code

pytestmark = pytest.mark.slow


def test_failures_in_one_block_are_a_cluster(tmp_path: Path) -> None:
    """Pooled, 0.05% fail: within 99.9%, and Wilson agrees. But one block of six had 0.3%, so another may too."""
    metal = side(planned(tmp_path, truth(change=failing(1900, 1, 0.003))), "metal")
    assert metal.carries_rps.low == 1500
    assert metal.carries_rps.mid == 3000
    assert metal.binds == BindingLimit(Limit.TOO_FEW_BLOCKS, SloPart.AVAILABILITY)


def test_failures_in_all_blocks_bind(tmp_path: Path) -> None:
    metal = side(planned(tmp_path, truth(change=failing(1900, None, 0.003))), "metal")
    assert metal.carries_rps == ByEnd(1500, 1500, 1500)
    assert metal.binds == BindingLimit(Limit.OBJECTIVE, SloPart.AVAILABILITY)
    assert metal.notes == ()


def troubled(rps: float, blocks: int, p99_ms: float, lost: float) -> Callable[[Row], list[Row]]:
    """From that rate on, in this number of blocks: this p99, and this share of failed requests."""

    def change(row: Row) -> list[Row]:
        if row["offered_rps"] < rps or row["block"] > blocks:
            return [row]
        failed = max(1, int(lost * row["requests"]))
        slow = {f"response_time_{name}_us": 1000 * p99_ms for name in ("p99", "p999", "max")}
        return [
            with_findings(row, Code.FAILED_REQUESTS) | slow | {"successful": row["requests"] - failed, "failed": failed}
        ]  # fmt: skip

    return change


def test_a_trial_with_a_failed_request_keeps_its_p99(tmp_path: Path) -> None:
    """One of 12,000 requests failed in four blocks of six, where p99 was 400 ms: 99.9% is met and 50 ms is not."""
    slow = side(planned(tmp_path, truth(change=troubled(2900, 4, 400.0, 1 / 12_000)), Slo(50.0)), "metal")
    assert (slow.carries_rps.low, slow.carries_rps.mid) == (2500, 2500)
    assert not slow.at_least
    assert slow.binds == BindingLimit(Limit.OBJECTIVE, SloPart.P99)


def test_a_p99_of_failed_requests_is_beyond_any_objective(tmp_path: Path) -> None:
    """2% fail in each block, and the objective permits 5%: more than one in a hundred was never answered."""
    lost = side(planned(tmp_path, truth(change=troubled(400, 6, 1.0, 0.02)), Slo(50.0, 95.0)), "metal")
    assert lost.carries_rps == ByEnd(None, None, None)
    assert lost.p99_ms is not None
    assert lost.p99_ms.mid == float("inf")


def test_the_low_rate_needs_six_trials_with_a_p99(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [with_findings(row, Code.WRONG_BODY)] if row["block"] > 2 and row["offered_rps"] > 1400 else [row]

    metal = side(planned(tmp_path, truth(change=change)), "metal")
    assert (metal.carries_rps.low, metal.carries_rps.mid) == (1000, 3000)
    assert metal.binds == BindingLimit(Limit.TOO_FEW_BLOCKS, SloPart.P99)
    assert note(NoteCode.FEW_BLOCKS, blocks=2, needed=6) in metal.notes


def test_one_trial_with_failures_may_be_one_of_many(tmp_path: Path) -> None:
    """One of six lost 0.3%: at 95% up to 64% of the trials may, which is 99.81% of the requests."""
    (step, *_) = rate_sweeps(load_run(make_run(tmp_path, truth(change=failing(400, 1, 0.003)))))[0].steps
    assert step.available is not None
    assert step.available.low == pytest.approx(1 - 0.6412 * 0.003, abs=3e-5)
    assert step.available.mid == pytest.approx(0.9995)
    assert unseen_share(6) == pytest.approx(0.393, abs=1e-3)
    assert unseen_share(300) == pytest.approx(3 / 300, rel=0.01)


def test_the_interval_of_a_clustered_availability_holds_the_truth_once_a_cluster_was_seen(tmp_path: Path) -> None:
    """5% of the trials lose 5% of their requests: 99.75%. Without a cluster no interval knows; the result says so."""
    rng, seen, held = np.random.default_rng(4), 0, 0
    load = rate_load(1000)
    for _ in range(150):
        struck = rng.random(6) < 0.05
        records = [
            make_record(block=block, load=load, measured={"requests": 4000, "successful": 3800 if bad else 4000})
            for block, bad in enumerate(struck, start=1)
        ]
        known = success_share(records)
        assert known is not None
        seen += bool(struck.any())
        held += bool(struck.any()) and known.low <= 0.9975 <= known.high
    assert seen > 20
    assert held >= 0.95 * seen
    metal = side(planned(tmp_path, truth()), "metal")
    assert metal.available is not None
    assert (metal.available.mid, metal.requests, metal.blocks) == (1, 72_000, 6)
    assert metal.unseen_share == pytest.approx(unseen_share(6))
