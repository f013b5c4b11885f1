"""From nothing, from a saved and from a paused state to the first answer of the emulated guest."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.records import measure
from tests.lab.test_operations_in_the_lab import Domain, wait_for
from tests.lab.the_lab import Ssh
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.first_answer import StartRecord
from vmtoll.paths import PROJECT
from vmtoll.runs.folder import STARTS

pytestmark = [pytest.mark.lab, pytest.mark.guest_minutes]

SLOW_S = 5.0
RUN = "import sys; from pathlib import Path; from tests.support.measured import run; run(*map(Path, sys.argv[1:]))"
DOCUMENT = {
    "question": "?", "purpose": "smoke", "environments": ["kvm-default"], "servers": ["nginx"],
    "workloads": ["site-rate-100"], "blocks": 1, "warmup_s": 0.5, "duration_s": 2.0, "noise_floor": None,
}  # fmt: skip
UNITS = "/etc/systemd/system"
# Two units of an administrator's, one after the other, which the server waits for: one does nothing, one sleeps. What a
# process takes to start, which is long in an emulated boot, is in both.
WAITING = f"""set -e; cd {UNITS}
printf '%s\\n' '[Service]' Type=oneshot RemainAfterExit=yes 'ExecStart=/bin/sleep 0' >no-sleep.service
printf '%s\\n' '[Unit]' After=no-sleep.service Wants=no-sleep.service >sleep.service
printf '%s\\n' '[Service]' Type=oneshot RemainAfterExit=yes 'ExecStart=/bin/sleep {SLOW_S:g}' >>sleep.service
mkdir -p vmtoll-nginx.service.d
printf '%s\\n' '[Unit]' Wants=sleep.service After=sleep.service >vmtoll-nginx.service.d/sleep.conf
"""
AS_BEFORE = (
    f"cd {UNITS}; rm -rf sleep.service no-sleep.service vmtoll-nginx.service.d; "
    "systemctl stop sleep.service no-sleep.service; systemctl daemon-reload"
)
LEFT = f"ls {UNITS}/*first-answer* {UNITS}/*/*first-answer* /etc/tmpfiles.d/*first-answer* /var/lib/vmtoll/change*.json"


@pytest.fixture
def domain(lab: Path, ssh: Ssh) -> Iterator[Domain]:
    """The guest, which is as it was after each test."""
    domain = Domain(lab / "inventory.yml")
    before = domain.state()
    yield domain
    assert domain.state() == before
    assert "Managed save: no" in " ".join(domain.virsh("dominfo").split())
    assert not ssh("kvm", f"{LEFT} 2>/dev/null || true")
    assert ssh("kvm", "systemctl is-active vmtoll-nginx || true") == "inactive"
    assert ssh("kvm", "systemctl is-enabled vmtoll-nginx || true") == "static"


def start(records: list[StartRecord], way: str) -> StartRecord:
    (record,) = (record for record in records if record.way == way)
    return record


def test_a_unit_that_sleeps_5_s_is_found_as_5_s(lab: Path, ssh: Ssh, domain: Domain, tmp_path: Path) -> None:
    experiment = tmp_path / "starts.yml"
    document = DOCUMENT | {"first_answer": {"of": ["boot", "restore", "resume"], "every_ms": 20}}
    experiment.write_text(yaml.safe_dump(document, sort_keys=False))
    ssh("kvm", WAITING)
    try:
        folder, _ = measure(experiment, lab / "inventory.yml", tmp_path / "results")
    finally:
        ssh("kvm", AS_BEFORE)
    records = STARTS.read(folder)
    assert [record.failure for record in records] == ["", "", ""]
    (boot,), (restore,), (resume,) = (start(records, way).guests for way in ("boot", "restore", "resume"))
    assert boot.answer_s
    assert restore.answer_s
    assert resume.answer_s
    assert resume.answer_s < restore.answer_s < boot.answer_s
    sleep, no_sleep = boot.waits[:2]
    assert (sleep.unit, no_sleep.unit) == ("sleep.service", "no-sleep.service")
    assert sleep.length_s - no_sleep.length_s == pytest.approx(SLOW_S, abs=0.5)
    assert set(boot.parts) >= {"host", "kernel", "systemd", "server"}
    for each in (boot, restore, resume):
        assert sum(each.parts.values()) == pytest.approx(each.answer_s)
        assert all(length_s >= -each.error_s for length_s in each.parts.values())
        assert each.network_s is not None
        assert each.answer_s is not None
        assert each.network_s <= each.answer_s
        assert each.error_s < 0.1
    assert boot.parts["systemd"] > SLOW_S
    figures = {figure.way: figure for figure in analyse(load_run(folder)).first_answers or ()}
    assert figures["boot"].waits[0].unit == "sleep.service"
    assert figures["boot"].all_s is not None
    assert figures["boot"].all_s.value == pytest.approx(boot.answer_s)


def test_a_killed_run_leaves_the_guest_as_it_was(lab: Path, domain: Domain, ssh: Ssh, tmp_path: Path) -> None:
    """While the guest is off; the agent of the KVM host starts it."""
    experiment = tmp_path / "starts.yml"
    experiment.write_text(yaml.safe_dump(DOCUMENT | {"first_answer": {"of": ["boot"]}}, sort_keys=False))
    words = [str(path) for path in (experiment, lab / "inventory.yml", tmp_path / "results")]
    process = subprocess.Popen([sys.executable, "-c", RUN, *words], cwd=PROJECT)
    try:
        wait_for(domain, "shut off", 180, process)
    finally:
        process.kill()
        process.wait()
    wait_for(domain, "running", 60)
    deadline = time.monotonic() + 180
    while True:
        try:
            # The boot used up what made the server start with it; the next run, or vmtoll itself, ends the server.
            assert not ssh("kvm", f"{LEFT.rpartition(' ')[0]} 2>/dev/null || true")
            break
        except subprocess.CalledProcessError:
            assert time.monotonic() < deadline
            time.sleep(2)
    experiment.write_text(yaml.safe_dump(DOCUMENT, sort_keys=False))
    measure(experiment, lab / "inventory.yml", tmp_path / "results")
