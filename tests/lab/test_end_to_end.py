"""The experiment `smoke` as a user runs it: from the command line to the report."""

import base64
import csv
import json
import subprocess
from pathlib import Path

import pytest
from the_lab import VMTOLL

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def folder(lab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    done = subprocess.run(
        [VMTOLL, "run", "smoke", "--results", results], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "report.html" in done.stdout
    return (results / "latest").resolve()


def test_every_trial_has_a_row_with_figures(folder: Path) -> None:
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    document = json.loads((folder / "run.json").read_text())
    assert len(rows) == document["trials_planned"] == 20
    assert {row["environment"] for row in rows} == {"metal", "metal-b", "kvm-default"}
    for row in rows:
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        assert float(row["throughput_rps"]) > 0
        times = "response_time" if row["offered_load"] == "share:0.2" else "service_time"
        assert float(row[f"{times}_p99_us"]) >= float(row[f"{times}_p50_us"]) > 0
        assert (row["host_cpu_us_per_request"] != "") == row["environment"].startswith("kvm-")


def test_an_open_loop_offers_a_share_of_each_environments_capacity(folder: Path) -> None:
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as handle:
        rows = [row for row in csv.DictReader(handle) if row["workload"] == "site-share"]
    assert len(rows) == 10
    capacities = {(row["environment"].removesuffix("-b"), row["server"]): row["capacity_rps"] for row in rows}
    for row in rows:
        capacity = capacities[row["environment"].removesuffix("-b"), row["server"]]
        assert row["capacity_rps"] == capacity
        assert float(row["offered_rps"]) == pytest.approx(0.2 * float(capacity), rel=1e-6)
        assert 0 <= float(row["goodput_rps"]) <= float(row["throughput_rps"])
        assert float(row["twin_response_time_p99_us"]) > 0
    versions = json.loads((folder / "run.json").read_text())["versions"]
    assert versions["vegeta"].startswith("v12.") and versions["oha"].startswith("1.")


def test_emulation_is_said_everywhere(folder: Path) -> None:
    document = json.loads((folder / "run.json").read_text())
    guest = document["accelerators"]["kvm-default"]
    assert document["emulated"] is (guest == "tcg")
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            assert row["accelerator"] == (guest if row["environment"].startswith("kvm-") else "none")
    page = (folder / "report.html").read_text()
    if guest == "tcg":
        assert "not a KVM measurement" in page
        assert document["verdict"]["sentence"].startswith("Emulation (TCG), not KVM")


def test_metal_and_guest_are_proven_equal(folder: Path) -> None:
    document = json.loads((folder / "run.json").read_text())
    assert document["differences"]["undeclared"] == []


def test_the_files_of_the_contract_are_there(folder: Path) -> None:
    for name in ("run.json", "hosts.json", "trials.csv", "trials.ods", "report.html"):
        assert (folder / name).stat().st_size > 0, name
    for kind in ("histograms", "samples", "raw"):
        assert len({path.name.partition(".")[0] for path in (folder / kind).iterdir()}) == 20, kind


def test_no_key_of_the_lab_is_in_the_results(lab: Path, folder: Path) -> None:
    """The host key reaches the guest through its domain, which the results keep."""
    secret = base64.b64encode((lab / "host_key").read_bytes()).decode()[:200]
    assert secret in (lab / "guests" / "kvm.xml").read_text()
    for name in ("hosts.json", "run.json", "report.html"):
        text = (folder / name).read_text()
        assert secret not in text, name
    assert "vmtoll.ssh_host_key=removed" in (folder / "hosts.json").read_text()
