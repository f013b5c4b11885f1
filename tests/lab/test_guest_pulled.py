"""In the embedded lab: the guest is pulled down in mid-trial, brought back, and the run goes on."""

import csv
import subprocess
import threading
from pathlib import Path

import pytest
import yaml

from workloads.runner.inventory import load_inventory
from workloads.runner.run import run

pytestmark = [pytest.mark.lab, pytest.mark.guest_minutes]


def test_a_guest_pulled_down_in_mid_trial(lab: Path, tmp_path: Path) -> None:
    inventory = lab / "inventory.yml"
    guest = load_inventory(inventory, ["kvm-default"]).suts["kvm-default"]
    argv = [*guest.get("vmtoll_revive")[0][:-2], "destroy", str(guest.get("vmtoll_domain"))]
    experiment = {
        "question": "does a run survive the loss of its guest?",
        "purpose": "smoke",
        "environments": ["kvm-default"],
        "servers": ["lighttz"],
        "workloads": ["site-siege"],
        "blocks": 1,
        "warmup_s": 0.5,
        "duration_s": 6.0,
        "twin_duration_s": 1.0,
    }
    path = tmp_path / "pulled.yml"
    path.write_text(yaml.safe_dump(experiment))
    pulled = threading.Event()
    told: list[str] = []

    def pull(stage: str, n: int, of: int, message: str, left_s: float | None) -> None:
        told.append(message)
        if message.endswith(": siege") and not pulled.is_set():
            pulled.set()
            threading.Timer(3.0, lambda: subprocess.run(argv, check=True, capture_output=True)).start()

    run_dir = run(path, inventory, tmp_path / "results", progress=pull)
    with (run_dir / "trials.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["attempt"] for row in rows] == ["1", "2"], told
    assert rows[0]["verdict"] == "invalid"
    assert rows[0]["reasons"].startswith("host-lost: ")
    assert rows[0]["throughput_rps"] == ""
    assert rows[1]["verdict"] in {"valid", "suspect"}, rows[1]["reasons"]
    assert rows[1]["accelerator"] in {"kvm", "tcg"}
    assert float(rows[1]["host_cpu_us_per_request"]) > 0
