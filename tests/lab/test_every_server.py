"""Every server of the catalogue, through the runner, on metal and in the guest: it starts, serves the site, stops."""

import csv
from pathlib import Path

import pytest
import yaml

from workloads.runner.registry import Registry
from workloads.runner.run import run

pytestmark = pytest.mark.lab


def test_every_server_serves_the_site_on_metal_and_in_the_guest(lab: Path, tmp_path: Path) -> None:
    servers = Registry().servers()
    experiment = {
        "question": "does every server serve?",
        "purpose": "smoke",
        "environments": ["metal", "kvm-default"],
        "servers": servers,
        "workloads": ["site-siege"],
        "blocks": 1,
        "warmup_s": 0.2,
        "duration_s": 0.5,
        "twin_duration_s": 0.5,
    }
    path = tmp_path / "every-server.yml"
    path.write_text(yaml.safe_dump(experiment))
    folder = run(path, lab / "inventory.yml", tmp_path / "results")
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 2 * len(servers)
    for row in rows:
        assert row["verdict"] in {"valid", "suspect"}, f"{row['server']} on {row['environment']}: {row['reasons']}"
        assert int(row["bodies_wrong"]) == 0
        assert float(row["throughput_rps"]) > 0
        assert float(row["server_cpu_us_per_request"]) > 0
