"""One to three emulated guests on one host, each with its own load: what each got, and how many the host carries."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.faults import measured
from tests.lab.records import Records, measure, number, primary
from tests.lab.the_lab import LAB, VMTOLL
from vmtoll.analysis.run import load_run
from vmtoll.capacity.density import carried_guests
from vmtoll.model.density import DensityFigures
from vmtoll.model.trial import TrialRecord
from vmtoll.paths import PROJECT
from vmtoll.spec.catalog import Registry

pytestmark = [pytest.mark.lab, pytest.mark.long]

PAGES: dict[str, Any] = {
    "description": "pages", "kind": "rate", "site": "pages", "page": "page-4k.html", "tool": "vegeta",
    "keep_alive": True, "deadline_ms": 1000,
}  # fmt: skip
MAIL = {"workload": "mail-submission", "server": "postfix-dovecot", "rate_rps": 1.0, "deadline_ms": 8000.0}
# Of what one guest bears alone: two need more than the core that they share.
SHARE_OF_ONE = 0.6


@pytest.fixture(scope="module", autouse=True)
def lab() -> Iterator[None]:
    guests = ",".join(["kvm-default"] * 3)
    subprocess.run([VMTOLL, "lab", "up", "--guests", guests], check=True, stdin=subprocess.DEVNULL)
    yield
    subprocess.run([VMTOLL, "lab", "down"], check=True, stdin=subprocess.DEVNULL)


def of_tiles(folder: Path, workload: dict[str, Any], density: dict[str, Any], **keys: Any) -> tuple[Path, Records]:
    """The run of an experiment with `density`, whose tiles may name the workload `tile`."""
    root = folder / "project"
    (root / "workloads" / "experiments").mkdir(parents=True)
    (root / "vmtoll").mkdir()
    for name in ("server-builds", "vm-images", "workloads/sites", "workloads/mail-submission.yml", "vmtoll/loadgen"):
        (root / name).symlink_to(PROJECT / name)
    (root / "workloads" / "tile.yml").write_text(yaml.safe_dump(workload))
    document = {
        "question": "?", "environments": ["kvm-default"], "servers": ["nginx"], "warmup_s": 0.5, "purpose": "smoke",
        "density": density,
    }  # fmt: skip
    registry = Registry(root)
    registry.experiment_file("density").write_text(yaml.safe_dump(document | keys))
    path = registry.experiment_file("density")
    return measure(path, LAB / "inventory.yml", folder / "results", registry=registry)


def figures(record: TrialRecord) -> DensityFigures:
    assert record.density, record.findings
    return record.density


def test_guests_of_three_kinds_each_get_their_own_load(tmp_path: Path) -> None:
    tiles = [{"workload": "tile"}, {"idle": True}, MAIL]
    _, records = of_tiles(
        tmp_path, PAGES | {"rate_rps": 20.0}, {"tiles": tiles, "at_most": 3}, blocks=1, duration_s=6.0,
        vary={"ksm": ["off", "on"]},
    )  # fmt: skip
    assert len(records) == 6
    for record in records:
        assert figures(record).host.ksm == (record.arm.environment == "ksm-on")
    by_number = {figures(record).guests: record for record in records}
    assert set(by_number) == {1, 2, 3}
    for record in records:
        found = figures(record)
        guests = found.guests
        assert [tile.kind for tile in found.tiles] == ["tile", "mail-submission"][: 1 if guests < 3 else 2]
        assert [tile.requests for tile in found.tiles] == [120, 6][: len(found.tiles)]
        for tile in found.tiles:
            assert tile.successful == tile.requests
            assert 0 < number(tile.p99_ms) < tile.deadline_ms
        assert primary(record).requests == 120
        assert found.host.vcpus == guests
        assert number(found.host.cpus) > 0
        assert 0 < number(found.host.cpu_pct) <= 100
        assert 0 <= number(found.host.ready_pct) <= 100
        assert 0 < number(found.host.available_mb) < number(found.host.total_mb)
        assert record.conditions.guests_paused == (3 - guests or None)
    memory = [number(figures(by_number[guests]).host.guests_mb) for guests in (1, 2, 3)]
    assert memory == sorted(memory)
    assert len({tile.guest for tile in figures(by_number[3]).tiles}) == 2


def test_guests_of_known_cost_fill_their_core(tmp_path: Path) -> None:
    alone = measured(
        tmp_path / "alone", workload=PAGES | {"kind": None, "deadline_ms": None, "tool": "h2load", "users": 10},
        environments=["kvm-default"], servers=["nginx"], duration_s=4.0,
    )  # fmt: skip
    rate_rps = SHARE_OF_ONE * number(primary(alone[0]).throughput_rps)
    folder, records = of_tiles(
        tmp_path / "tiles", PAGES | {"rate_rps": rate_rps, "deadline_ms": 250},
        {"tiles": [{"workload": "tile"}], "at_most": 2, "availability_pct": 99.0}, blocks=6, duration_s=4.0,
    )  # fmt: skip
    assert len(records) == 12
    busy = {
        guests: [number(figures(r).host.cpu_pct) for r in records if figures(r).guests == guests] for guests in (1, 2)
    }
    assert sum(busy[2]) > sum(busy[1])
    (answer,) = carried_guests(load_run(folder))
    assert answer.guests.mid == 1
    assert answer.guests.high == 1
