"""Open loops through whole runs on this machine: the real vegeta and oha against a real lighttz."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hdrh.histogram import HdrHistogram

from workloads.runner.registry import Registry
from workloads.runner.results import Store
from workloads.runner.run import run

Rewrite = Callable[..., Path]


@pytest.fixture
def measured(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> Callable[..., tuple[Path, list[dict[str, str]]]]:
    """Run the workload `tiny` with these keys on one machine; the run's folder and its rows."""

    def go(**workload: Any) -> tuple[Path, list[dict[str, str]]]:
        path = project.workload_file("tiny")
        data = {**yaml.safe_load(path.read_text()), "tool": "vegeta", "twin": "oha", "deadline_ms": 20.0, **workload}
        path.write_text(yaml.safe_dump({key: value for key, value in data.items() if key != "users"}))
        experiment = rewrite(blocks=1, environments=["metal"], duration_s=0.5)
        folder = run(experiment, inventory, tmp_path / "results", registry=project)
        store = Store(folder)
        try:
            return folder, store.rows()
        finally:
            store.close()

    return go


def test_a_rate_is_offered_and_answered_from_the_intended_send(measured: Callable[..., Any]) -> None:
    folder, rows = measured(kind="rate", rate_rps=400)
    assert [row["offered_load"] for row in rows] == ["rate:400"] * 2, "the A/A arm too"
    for row in rows:
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        assert (row["requests"], row["successful"], row["failed"]) == ("200", "200", "0")
        assert float(row["offered_rps"]) == 400
        p50, p99, longest = (float(row[f"response_time_{name}_us"]) for name in ("p50", "p99", "max"))
        assert 0 < p50 <= p99 <= longest
        assert float(row["lateness_p99_us"]) <= longest
        assert float(row["twin_response_time_p99_us"]) > 0
        assert row["service_time_p99_us"] == row["users"] == row["capacity_rps"] == ""
        name = f"b{int(row['block']):03d}-o{int(row['order']):03d}-a1"
        stored = HdrHistogram.decode((folder / "histograms" / f"{name}.hdr").read_bytes().strip())
        assert stored.get_total_count() == 200
        assert stored.get_value_at_percentile(99) == pytest.approx(p99, rel=0.002)
        # The goodput follows from the histogram alone, but for what falls into the bin of the deadline.
        within = stored.get_count_at_value(20_000) + sum(
            item.count_added_in_this_iter_step
            for item in stored.get_recorded_iterator()
            if item.value_iterated_to < 20_000
        )
        share = float(row["goodput_rps"]) / float(row["throughput_rps"])
        assert share == pytest.approx(within / 200, abs=0.011)


def test_bodies_are_counted_by_the_manifest_where_the_tool_does_not(measured: Callable[..., Any]) -> None:
    """vegeta keeps no body; oha counts what it got of the same page."""
    _, by_manifest = measured(kind="rate", rate_rps=400, page="index.html")
    _, by_tool = measured(kind="rate", rate_rps=400, page="index.html", tool="oha", twin=None)
    assert {row["tool"] for row in by_manifest + by_tool} == {"vegeta", "oha"}
    assert len({float(row["transferred_mb"]) for row in by_manifest + by_tool}) == 1


def test_shares_are_of_a_capacity_measured_once(measured: Callable[..., Any]) -> None:
    _, rows = measured(kind="sweep", shares=[0.05, 0.1], capacity={"tool": "h2load", "users": 2})
    assert sorted(row["offered_load"] for row in rows) == ["share:0.05"] * 2 + ["share:0.1"] * 2
    assert len({row["capacity_rps"] for row in rows}) == 1
    for row in rows:
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        share = float(row["offered_load"].removeprefix("share:"))
        assert float(row["offered_rps"]) == pytest.approx(share * float(row["capacity_rps"]), rel=1e-6)
        # From the first intended send to the last response: the schedule, and what the last one may have taken.
        between_s = (int(row["requests"]) - 1) / float(row["offered_rps"])
        took_s = int(row["requests"]) / float(row["throughput_rps"])
        assert 0.999 * between_s <= took_s <= between_s + float(row["response_time_max_us"]) / 1e6 + 0.001


def test_a_tool_that_is_not_there_is_said(measured: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    with pytest.raises(Exception, match=r"client: the load tool oha is not there; run `make provision`"):
        measured(kind="rate", rate_rps=100)
