"""Operations on the emulated guest, under load: what clients notice of them, and that the guest is as before."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.records import measure, primary
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.errors import ExperimentError
from vmtoll.model.finding import Validity
from vmtoll.paths import PROJECT
from vmtoll.spec.inventory import hosts_by_role, read_inventory

pytestmark = [pytest.mark.lab, pytest.mark.guest_minutes]

PAUSE_S = 0.4
RUN = "import sys; from pathlib import Path; from tests.support.measured import run; run(*map(Path, sys.argv[1:]))"
DOCUMENT = {
    "question": "?", "purpose": "smoke", "environments": ["kvm-default"], "servers": ["nginx"],
    "workloads": ["site-rate-100"], "blocks": 2, "warmup_s": 0.5, "duration_s": 6.0, "noise_floor": None,
    "during": {
        "pause": {"of": "kvm-default", "do": "pause", "for_s": PAUSE_S, "at_s": 2},
        "snapshot": {"of": "kvm-default", "do": "snapshot-external", "at_s": 2},
        "backup": {"of": "kvm-default", "do": "backup", "at_s": 2},
    },
}  # fmt: skip


class Domain:
    """The lab's guest as its libvirt has it."""

    def __init__(self, inventory: Path) -> None:
        by_role = hosts_by_role(read_inventory(inventory))
        (host,), (guest,) = by_role["kvm_host"], by_role["kvm_guest"]
        self.words, self.name = ["virsh", "-q", "-c", host.libvirt_uri], str(guest.vars.domain)

    def virsh(self, *words: str) -> str:
        done = subprocess.run([*self.words, *words, self.name], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def state(self) -> dict[str, object]:
        disks = self.virsh("domblklist")
        folders = {Path(line.split()[1]).parent for line in disks.splitlines()}
        files = sorted(str(file) for folder in folders for file in folder.iterdir())
        return {
            "state": self.virsh("domstate"),
            "disks": disks,
            "snapshots": self.virsh("snapshot-list"),
            "files": files,
        }


@pytest.fixture
def domain(lab: Path) -> Iterator[Domain]:
    domain = Domain(lab / "inventory.yml")
    before = domain.state()
    yield domain
    assert domain.state() == before


def test_what_clients_notice(lab: Path, domain: Domain, tmp_path: Path) -> None:
    experiment = tmp_path / "during.yml"
    experiment.write_text(yaml.safe_dump(DOCUMENT, sort_keys=False))
    folder, records = measure(experiment, lab / "inventory.yml", tmp_path / "results")
    assert len(records) == 8
    for record in records:
        assert record.validity is not Validity.INVALID, record.findings
        assert (record.operation is None) == (record.arm.environment == "kvm-default")
        assert primary(record).blackout_ms
        if record.arm.environment == "pause":
            assert primary(record).blackout_ms == pytest.approx(PAUSE_S * 1000, rel=0.1)
            assert record.operation is not None
            assert record.operation.begin_s == pytest.approx(2, abs=0.5)
    effects = {effect.arm.environment: effect for effect in analyse(load_run(folder)).operations or ()}
    assert set(effects) == {"pause", "snapshot", "backup"}
    more = effects["pause"].figures["blackout_ms"].more
    assert more is not None
    assert more.value > PAUSE_S * 500


def test_what_clients_notice_of_saved_memory(lab: Path, domain: Domain, tmp_path: Path) -> None:
    """A snapshot with the memory, a restore from a file; and a balloon, which this guest lacks, is refused before."""
    of = {"of": "kvm-default", "at_s": 2}
    during = {
        "snapshot": of | {"do": "snapshot"},
        "save": of | {"do": "save"},
    }
    experiment = tmp_path / "during.yml"
    balloon = of | {"do": "balloon", "memory_mib": 768, "for_s": 3}
    experiment.write_text(yaml.safe_dump(DOCUMENT | {"during": {"balloon": balloon}}))
    with pytest.raises(ExperimentError, match=r"during\.balloon: .* has no balloon"):
        measure(experiment, lab / "inventory.yml", tmp_path / "results")
    experiment.write_text(yaml.safe_dump(DOCUMENT | {"during": during, "duration_s": 30.0, "blocks": 1}))
    _, records = measure(experiment, lab / "inventory.yml", tmp_path / "results")
    by_name = {record.arm.environment: record for record in records}
    assert set(by_name) == {"kvm-default", *during}
    for record in records:
        assert record.validity is not Validity.INVALID, record.findings
    for name in ("snapshot", "save"):
        operation, blackout_ms = by_name[name].operation, primary(by_name[name]).blackout_ms
        assert operation is not None and blackout_ms is not None
        assert 100 < blackout_ms < (operation.end_s - operation.begin_s + 2) * 1000, "nobody is served meanwhile"


@pytest.mark.parametrize(
    "operation", [{"do": "pause", "for_s": 40}, {"do": "snapshot"}, {"do": "save"}], ids=["pause", "snapshot", "save"]
)
def test_a_killed_run_leaves_the_guest_as_it_was(
    lab: Path, domain: Domain, tmp_path: Path, operation: dict[str, object]
) -> None:
    """In the middle of it, when the guest stands still; the agent of the KVM host undoes it."""
    experiment = tmp_path / "during.yml"
    during = {"operation": {"of": "kvm-default", "at_s": 1, **operation}}
    document = DOCUMENT | {"during": during, "duration_s": 45.0, "blocks": 1, "seed": 1}
    experiment.write_text(yaml.safe_dump(document, sort_keys=False))
    words = [str(path) for path in (experiment, lab / "inventory.yml", tmp_path / "results")]
    process = subprocess.Popen([sys.executable, "-c", RUN, *words], cwd=PROJECT)
    try:
        wait_for(domain, "paused", 180, process)
    finally:
        process.kill()
        process.wait()
    wait_for(domain, "running", 60)


def wait_for(domain: Domain, state: str, limit_s: float, process: "subprocess.Popen[bytes] | None" = None) -> None:
    deadline = time.monotonic() + limit_s
    while domain.virsh("domstate") != state:
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, "it ended by itself"
        time.sleep(0.2)
