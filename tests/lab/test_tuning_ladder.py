"""The tuning ladder on three guests of different profiles, as a user runs it: from the lab to the waterfall."""

import csv
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from the_lab import VMTOLL

pytestmark = [pytest.mark.lab, pytest.mark.long]

GUESTS = "kvm-2009,kvm-virtio-nvhost,kvm-default"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    results = tmp_path_factory.mktemp("results")
    subprocess.run([VMTOLL, "lab", "up", "--guests", GUESTS], check=True, stdin=subprocess.DEVNULL)
    done = subprocess.run(
        [VMTOLL, "run", "tuning-ladder", "--results", results], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    yield (results / "latest").resolve()
    subprocess.run([VMTOLL, "lab", "down"], check=True, stdin=subprocess.DEVNULL)


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def test_every_rung_that_is_there_is_measured_and_the_other_is_said(folder: Path) -> None:
    document = json.loads((folder / "run.json").read_text())
    rows = rows_of(folder)
    assert {row["environment"] for row in rows} == {"metal", "metal-b", *GUESTS.split(",")}
    assert len(rows) == document["trials_planned"]
    assert [one["environment"] for one in document["skipped"]] == ["kvm-multiqueue"]
    assert all(float(row["throughput_rps"]) > 0 for row in rows if row["verdict"] != "invalid")


def test_what_the_host_saw_of_each_guest_is_kept(folder: Path) -> None:
    measured = [row for row in rows_of(folder) if row["transactions"]]
    for row in measured:
        guest = row["environment"].startswith("kvm-")
        name = f"b{int(row['block']):03d}-o{int(row['order']):03d}-a{row['attempt']}"
        assert (folder / "telemetry" / f"{name}.json").exists() == guest
        assert (row["host_vcpu_cpu_us_per_request"] != "") == guest
        if not guest:
            continue
        told = json.loads((folder / "telemetry" / f"{name}.json").read_text())["tool"]
        kinds = [float(row[f"host_{kind}_cpu_us_per_request"]) for kind in ("vcpu", "qemu", "vhost")]
        assert sum(kinds) == pytest.approx(float(row["host_cpu_us_per_request"]), rel=0.01)
        assert kinds[0] > 0 and float(row["guest_irqs_per_request"]) > 0
        assert (told["kvm"] is None) == (row["host_exits_per_request"] == "") == (row["accelerator"] == "tcg")


def test_the_emulated_hardware_of_2009_shows(folder: Path) -> None:
    """Its network card interrupts under its own name, and is no virtio device.

    A virtio card's interrupts are named by queue (virtio0-input.0), those of the source of entropy that every guest
    has (virtio0-input) are not.
    """
    names: dict[str, set[str]] = {}
    for row in rows_of(folder):
        file = folder / "telemetry" / f"b{int(row['block']):03d}-o{int(row['order']):03d}-a{row['attempt']}.json"
        if file.exists():
            told = json.loads(file.read_text())["tool"]["guest_interrupts"]
            names.setdefault(row["environment"], set()).update(told)
    virtio = {name: any(re.match(r"virtio\d+-input\.\d", one) for one in found) for name, found in names.items()}
    assert virtio == {"kvm-2009": False, "kvm-virtio-nvhost": True, "kvm-default": True}
    assert any(one.startswith(("eth", "en")) for one in names["kvm-2009"])


def test_the_report_has_the_waterfall_and_says_emulated(folder: Path) -> None:
    document = json.loads((folder / "run.json").read_text())
    steps = document["verdict"]["ladder"]["scenarios"][0]["metrics"]["throughput"]["steps"]
    assert [(step["before"], step["after"]) for step in steps] == [
        ("kvm-2009", "kvm-virtio-nvhost"), ("kvm-virtio-nvhost", "kvm-default"),
    ]  # fmt: skip
    page = (folder / "report.html").read_text()
    section = page[page.index('<h2 id="ladder">') : page.index('<h2 id="rests">')]
    assert section.count('<figure id="waterfall-') == 3
    assert "skipped: the inventory has no such guest" in section
    assert "What the host saw" in section
    if document["emulated"]:
        assert "Under emulation a step says nothing of KVM" in section
