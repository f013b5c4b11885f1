"""Open loops through whole runs on this machine: the real vegeta and oha against a real lighttz."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest
import yaml
from hdrh.histogram import HdrHistogram

from tests.support.measured import run
from tests.support.records import assert_sound, crosscheck, primary, records_of
from vmtoll.model.finding import Code, Role
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import Arm, TrialRecord, from_json
from vmtoll.spec.catalog import Registry

Rewrite = Callable[..., Path]


@pytest.fixture
def measured(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> Callable[..., tuple[Path, list[TrialRecord]]]:
    """Run the workload `tiny` with these keys, by default on one machine; the run's folder and its records."""

    def go(
        environments: Sequence[str] = ("metal",),
        blocks: int = 1,
        shares_of: str | None = None,
        duration_s: float = 0.5,
        **workload: Any,
    ) -> tuple[Path, list[TrialRecord]]:
        path = project.workload_file("tiny")
        data = {
            **yaml.safe_load(path.read_text()),
            "tool": "vegeta",
            "crosscheck": "oha",
            "deadline_ms": 20.0,
            **workload,
        }
        path.write_text(yaml.safe_dump({key: value for key, value in data.items() if key != "users"}))
        experiment = rewrite(blocks=blocks, environments=list(environments), duration_s=duration_s, shares_of=shares_of)
        folder = run(experiment, inventory, tmp_path / "results", registry=project)
        return folder, records_of(folder)

    return go


def capacities_of(folder: Path) -> list[TrialRecord]:
    return [from_json(line) for line in (folder / "capacities.jsonl").read_bytes().splitlines()]


def test_a_rate_is_offered_and_answered_from_the_intended_send(measured: Callable[..., Any]) -> None:
    folder, records = measured(kind="rate", rate_rps=400)
    assert sorted(map(str, (record.arm for record in records))) == ["metal", str(Arm("metal", 2))]
    assert_sound(records)
    for record in records:
        assert record.scenario.load == Load(LoadKind.RATE, 400)
        own, other = primary(record), crosscheck(record)
        assert (own.requests, own.successful, own.failed) == (200, 200, 0)
        assert (record.offered.offered_rps, record.offered.users, record.offered.capacity_rps) == (400, None, None)
        for measurement in (own, other):
            p50, p99 = measurement.response_time.p50_us, measurement.response_time.p99_us
            longest = measurement.response_time.max_us
            assert p50 and p99 and longest
            assert 0 < p50 <= p99 <= longest
            assert measurement.service_time.p99_us is None
        assert own.lateness.p99_us is not None and own.response_time.max_us is not None
        assert own.lateness.max_us is not None
        assert own.lateness.p99_us <= own.lateness.max_us <= own.response_time.max_us
        assert (own.histogram, other.histogram) == (f"histograms/{record.name}.hdr", None)
        stored = HdrHistogram.decode((folder / str(own.histogram)).read_bytes().strip())
        assert stored.get_total_count() == 200
        assert stored.get_value_at_percentile(99) == pytest.approx(own.response_time.p99_us, rel=0.002)
        # The goodput follows from the histogram alone, but for what falls into the bin of the deadline.
        within = stored.get_count_at_value(20_000) + sum(
            item.count_added_in_this_iter_step
            for item in stored.get_recorded_iterator()
            if item.value_iterated_to < 20_000
        )
        assert own.goodput_rps is not None and record.offered.offered_rps is not None
        assert own.goodput_rps / record.offered.offered_rps == pytest.approx(within / 200, abs=0.011)


def test_a_rate_that_a_tool_cannot_send_is_found_for_each_tool(measured: Callable[..., Any]) -> None:
    """oha queues requests on time and sends them late: by its response times it kept any rate."""
    _, records = measured(kind="rate", rate_rps=400_000, duration_s=0.05)
    for record in records:
        fell = [(f.role, f.tool, f.machine) for f in record.findings if f.code is Code.RATE_NOT_REACHED]
        assert fell == [(Role.PRIMARY, "vegeta", "client"), (Role.CROSSCHECK, "oha", "client")]


def test_bodies_are_counted_by_the_manifest_where_the_tool_does_not(measured: Callable[..., Any]) -> None:
    """vegeta keeps no body; oha counts what it got of the same page."""
    _, by_manifest = measured(kind="rate", rate_rps=400, page="index.html")
    _, by_tool = measured(kind="rate", rate_rps=400, page="index.html", tool="oha", crosscheck=None)
    assert {primary(record).tool for record in by_manifest + by_tool} == {"vegeta", "oha"}
    assert len({round(primary(record).transferred_mb or 0, 9) for record in by_manifest + by_tool}) == 1


SHARES = {"kind": "sweep", "shares": [0.05, 0.1], "capacity": {"tool": "h2load", "users": 2}}


def test_shares_are_the_same_rates_on_both_sides(measured: Callable[..., Any], unlimited_client: None) -> None:
    """Each side once had its own, of one ungated load of its own; the A/A control had metal's."""
    folder, records = measured(environments=["metal", "metal-two"], **SHARES)
    loads = sorted((record.scenario.load for record in records), key=lambda load: load.value)
    assert loads == [Load(LoadKind.SHARE, share) for share in (0.05, 0.05, 0.05, 0.1, 0.1, 0.1)]
    capacities = capacities_of(folder)
    assert [(record.arm, record.scenario.load) for record in capacities] == [
        (Arm("metal"), Load(LoadKind.CLOSED, 2))
    ] * 3
    assert_sound([*capacities, *records])
    rates = [primary(record).throughput_rps for record in capacities]
    assert {record.offered.capacity_trials for record in records} == {3}
    for record in records:
        own, offered = primary(record), record.offered
        assert offered.capacity_rps and offered.offered_rps and own.requests and own.throughput_rps
        assert offered.capacity_rps == pytest.approx(geometric_mean([rate or 0 for rate in rates]))
        assert offered.capacity_low_rps and offered.capacity_high_rps
        assert offered.capacity_low_rps < offered.capacity_rps < offered.capacity_high_rps
        assert offered.offered_rps == pytest.approx(record.scenario.load.value * offered.capacity_rps)
        # From the first intended send to the last response: the schedule, and what the last one may have taken.
        between_s = (own.requests - 1) / offered.offered_rps
        took_s = own.requests / own.throughput_rps
        assert own.response_time.max_us is not None
        assert 0.999 * between_s <= took_s <= between_s + own.response_time.max_us / 1e6 + 0.001


def test_own_shares_are_measured_in_each_block_for_each_arm(
    measured: Callable[..., Any], unlimited_client: None
) -> None:
    folder, records = measured(kind="rate", share=0.05, capacity=SHARES["capacity"], shares_of="own", blocks=2)
    of_capacity = Counter((record.block, record.arm) for record in capacities_of(folder))
    metal, control = Arm("metal"), Arm("metal", 2)
    assert of_capacity == {(block, arm): 3 for block in (1, 2) for arm in (metal, control)}
    assert len({record.offered.capacity_rps for record in records}) == len(records) == 4


def test_a_capacity_that_the_client_limited_is_refused(
    measured: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmtoll.trial.gates.BUSY", 0.01)
    folder, records = measured(**SHARES)
    assert len(capacities_of(folder)) == 3, "five trials could not have given three good ones any more"
    for record in records:
        assert record.codes == {Code.CAPACITY_UNKNOWN}
        assert "client-saturated in 3 of 3" in record.findings[0].detail
        assert (record.attempt, record.measurements) == (1, ())


def test_a_missing_tool_is_reported(measured: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    with pytest.raises(Exception, match=r"client: .*tool oha .*`make provision`"):
        measured(kind="rate", rate_rps=100)
