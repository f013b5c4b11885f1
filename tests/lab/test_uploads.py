"""Uploads through whole runs in the lab: each server that reads bodies, on metal and in the guest."""

from pathlib import Path

import pytest
import yaml

from tests.lab.records import BY_CLIENT, measure, number, primary, undisturbed
from vmtoll.paths import PROJECT
from vmtoll.spec.server import read_servers

pytestmark = pytest.mark.lab

UPLOADS = [server.name for server in read_servers() if server.uploads]


@pytest.mark.parametrize(
    "environments", [["metal"], pytest.param(["kvm-default"], marks=pytest.mark.guest_minutes)], ids=["metal", "guest"]
)
def test_every_server_of_uploads_reads_them(lab: Path, tmp_path: Path, environments: list[str]) -> None:
    experiment = yaml.safe_load((PROJECT / "workloads/experiments/upload.yml").read_text())
    del experiment["scales"], experiment["noise_floor"]
    experiment |= {"environments": environments, "purpose": "smoke", "blocks": 1, "warmup_s": 0.2, "duration_s": 0.5}
    path = tmp_path / "upload.yml"
    path.write_text(yaml.safe_dump(experiment))
    _, records = measure(path, lab / "inventory.yml", tmp_path / "results")
    assert {record.scenario.server for record in records} == set(UPLOADS)
    for record in records:
        assert undisturbed(record) <= BY_CLIENT, f"{record.scenario.server} on {record.arm}: {record.findings}"
        assert record.counts.bodies_wrong == 0
        assert primary(record).failed == 0
        assert number(primary(record).throughput_rps) > 0
