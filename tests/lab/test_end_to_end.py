"""The experiment `smoke` as a user runs it: from the command line to the report."""

import base64
import json
import subprocess
from pathlib import Path

import pytest

from tests.lab.records import BY_CLIENT, BY_OPEN_CLIENT, Records, load_of, number, primary, records_of, undisturbed
from tests.lab.the_lab import VMTOLL
from vmtoll.model.analysis import from_json
from vmtoll.model.columns import to_csv
from vmtoll.model.load import LoadKind
from vmtoll.model.trial import Accelerator

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


@pytest.fixture(scope="module")
def records(folder: Path) -> Records:
    return records_of(folder)


def test_every_trial_has_a_record_with_figures(folder: Path, records: Records) -> None:
    document = json.loads((folder / "run.json").read_text())
    assert len(records) == document["trials_planned"] == 10
    assert {str(record.arm) for record in records} == {"metal", "metal#2", "kvm-default"}
    for record in records:
        closed = record.scenario.workload == "site-siege"
        assert undisturbed(record) <= (BY_CLIENT if closed else BY_OPEN_CLIENT), record.findings
        load = primary(record)
        assert number(load.throughput_rps) > 0
        timed, times = (record.crosscheck, "service_time") if closed else (load, "response_time")
        assert timed
        p50_us, p99_us = (number(timed.times(times).of(name)) for name in ("p50", "p99"))
        assert p99_us >= p50_us > 0, "siege logs no requests"
        assert (load.host_cpu_us_per_request is not None) == record.arm.environment.startswith("kvm-")


def test_the_table_is_exported_from_the_records(folder: Path, records: Records) -> None:
    assert (folder / "trials.csv").read_bytes() == to_csv(records)


def test_an_open_loop_offers_a_share_of_the_slowest_environments_capacity(folder: Path, records: Records) -> None:
    shares = [record for record in records if load_of(record).kind is LoadKind.SHARE]
    assert len(shares) == 5
    capacities = {r.scenario.server: r.offered.capacity_rps for r in shares}
    for record in shares:
        offered, load = record.offered, primary(record)
        assert offered.capacity_rps == capacities[record.scenario.server]
        assert number(offered.capacity_low_rps) <= number(offered.capacity_rps) <= number(offered.capacity_high_rps)
        assert offered.offered_rps == pytest.approx(0.2 * number(offered.capacity_rps), rel=1e-6)
        # Goodput is per second of the intended sending: no more than the offered rate, whenever the last answer came.
        assert 0 < number(load.goodput_rps) <= number(offered.offered_rps) * (1 + 1e-9)
        assert record.crosscheck and number(record.crosscheck.response_time.p99_us) > 0
    versions = json.loads((folder / "run.json").read_text())["versions"]
    assert versions["vegeta"].startswith("v12.") and versions["oha"].startswith("1.")


def test_emulation_is_recorded_and_shown_everywhere(folder: Path, records: Records) -> None:
    guest = Accelerator(json.loads((folder / "run.json").read_text())["accelerators"]["kvm-default"])
    for record in records:
        assert record.accelerator is (guest if record.arm.environment.startswith("kvm-") else Accelerator.NONE)
    assert from_json((folder / "analysis.json").read_bytes()).emulated is (guest is Accelerator.TCG)
    if guest is Accelerator.TCG:
        assert 'class="banner emulated"' in (folder / "report.html").read_text()


def test_metal_and_guest_are_proven_equal(folder: Path) -> None:
    document = json.loads((folder / "run.json").read_text())
    assert document["differences"]["undeclared"] == []


def test_the_files_of_the_contract_are_there(folder: Path) -> None:
    for name in ("run.json", "hosts.json", "trials.jsonl", "analysis.json", "trials.csv", "trials.ods", "report.html"):
        assert (folder / name).stat().st_size > 0, name
    for kind in ("histograms", "samples", "raw"):
        names = {path.name.partition(".")[0] for path in (folder / kind).iterdir()}
        assert len({name for name in names if not name.startswith("capacity-")}) == 10, kind


def test_no_key_of_the_lab_is_in_the_results(lab: Path, folder: Path) -> None:
    """Nor on a command line: the host key reaches the guest by a file, and the results keep its path."""
    key = (lab / "host_key").read_bytes()
    secrets = {base64.b64encode(key).decode()[:200], key.decode().splitlines()[2]}
    command_lines = [path.read_bytes().decode(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert any("guest=kvm" in line for line in command_lines)
    read = [(folder / name).read_text() for name in ("hosts.json", "run.json", "report.html")]
    read += [(lab / "guests" / "kvm.xml").read_text(), *command_lines]
    assert not [secret for secret in secrets for text in read if secret in text]
    assert "kvm.host_key" in (folder / "hosts.json").read_text()
