"""The tuning steps on three guests of different profiles, as a user runs it: from the lab to the waterfall."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.records import Records, number, primary, records_of
from tests.lab.the_lab import VMTOLL
from vmtoll.model.analysis import from_json
from vmtoll.model.finding import Validity
from vmtoll.model.trial import Accelerator

pytestmark = [pytest.mark.lab, pytest.mark.long]

GUESTS = "kvm-2009,kvm-virtio-nvhost,kvm-default"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    results = tmp_path_factory.mktemp("results")
    subprocess.run([VMTOLL, "lab", "up", "--guests", GUESTS], check=True, stdin=subprocess.DEVNULL)
    done = subprocess.run(
        [VMTOLL, "run", "tuning-steps", "--results", results], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    yield (results / "latest").resolve()
    subprocess.run([VMTOLL, "lab", "down"], check=True, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def records(folder: Path) -> Records:
    return records_of(folder)


def test_available_steps_are_measured_and_the_missing_one_is_recorded(folder: Path, records: Records) -> None:
    document = json.loads((folder / "run.json").read_text())
    assert {str(record.arm) for record in records} == {"metal", "metal#2", *GUESTS.split(",")}
    assert len(records) == document["trials_planned"]
    assert [one["environment"] for one in document["skipped"]] == ["kvm-multiqueue"]
    used = [record for record in records if record.validity is not Validity.INVALID]
    assert all(number(primary(record).throughput_rps) > 0 for record in used)


def test_host_figures_of_each_guest_are_recorded(folder: Path, records: Records) -> None:
    for record in (record for record in records if record.primary and record.primary.transactions):
        guest = record.arm.environment.startswith("kvm-")
        file = folder / "telemetry" / f"{record.name}.json"
        assert file.exists() == guest
        host = record.resources
        assert (host.host_vcpu_cpu_us_per_request is not None) == guest
        if not guest:
            continue
        kvm = json.loads(file.read_text())["tool"]["kvm"]
        kinds = [number(getattr(host, f"host_{kind}_cpu_us_per_request")) for kind in ("vcpu", "qemu", "vhost")]
        assert sum(kinds) == pytest.approx(number(primary(record).host_cpu_us_per_request), rel=0.01)
        assert kinds[0] > 0 and number(host.guest_irqs_per_request) > 0
        emulated = record.accelerator is Accelerator.TCG
        assert (kvm is None) == (host.host_exits_per_request is None) == emulated


def test_the_emulated_hardware_of_2009_shows(folder: Path, records: Records) -> None:
    """Its network card interrupts under its own name, and is no virtio device.

    A virtio card's interrupts are named by queue (virtio0-input.0), those of the source of entropy that every guest
    has (virtio0-input) are not.
    """
    names: dict[str, set[str]] = {}
    for record in records:
        file = folder / "telemetry" / f"{record.name}.json"
        if file.exists():
            interrupts = json.loads(file.read_text())["tool"]["guest_interrupts"]
            names.setdefault(record.arm.environment, set()).update(interrupts)
    virtio = {name: any(re.match(r"virtio\d+-input\.\d", one) for one in found) for name, found in names.items()}
    assert virtio == {"kvm-2009": False, "kvm-virtio-nvhost": True, "kvm-default": True}
    assert any(one.startswith(("eth", "en")) for one in names["kvm-2009"])


def test_the_report_has_the_waterfall_and_is_marked_emulated(folder: Path) -> None:
    analysis = from_json((folder / "analysis.json").read_bytes())
    assert analysis.tuning_steps
    steps = analysis.tuning_steps.scenarios[0].metrics["throughput"].steps
    assert [(str(step.before), str(step.after)) for step in steps] == [
        ("kvm-2009", "kvm-virtio-nvhost"), ("kvm-virtio-nvhost", "kvm-default"),
    ]  # fmt: skip
    assert list(analysis.tuning_steps.skipped) == ["kvm-multiqueue"]
    assert len(analysis.tuning_steps.scenarios[0].host) == len(GUESTS.split(","))
    page = (folder / "report.html").read_text()
    section = page.partition('<h2 id="tuning">')[2].partition("<h2 ")[0]
    assert section.count('<figure id="tuning_steps-') == 3
    assert "kvm-multiqueue" in section, "what was not measured is named"
    if analysis.emulated:
        assert "emulat" in section.lower()
