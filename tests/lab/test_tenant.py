"""In the embedded lab: a guest whose host the inventory does not name, as a tenant sees it."""

from pathlib import Path

import pytest
import yaml

from tests.lab.records import measure, primary
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.trial import Accelerator
from vmtoll.report.html import render

pytestmark = pytest.mark.lab


def test_a_guest_without_its_host_is_measured_with_what_it_sees_itself(lab: Path, tmp_path: Path) -> None:
    data = yaml.safe_load((lab / "inventory.yml").read_text())
    guests = data["all"]["children"]["suts"]["children"]["kvm_guests"]["hosts"]
    for variables in guests.values():
        for name in ("vmtoll_kvm_host", "vmtoll_domain", "vmtoll_revive", "vmtoll_profile"):
            variables.pop(name, None)
    inventory = tmp_path / "tenant.yml"
    inventory.write_text(yaml.safe_dump(data))
    experiment = {
        "question": "what does a tenant see?", "purpose": "smoke", "environments": ["metal", "kvm-default"],
        "servers": ["lighttz"], "workloads": ["site-siege"], "blocks": 1, "warmup_s": 0.3, "duration_s": 1.0,
        "crosscheck_duration_s": 0.5, "noise_floor": None,
    }  # fmt: skip
    path = tmp_path / "tenant-view.yml"
    path.write_text(yaml.safe_dump(experiment))
    run_dir, records = measure(path, inventory, tmp_path / "results")
    guest = next(record for record in records if record.arm.environment == "kvm-default")
    assert primary(guest).throughput_rps
    assert primary(guest).host_cpu_us_per_request is None
    assert primary(guest).steal_pct is not None
    run = load_run(run_dir)
    assert run.manifest.unseen_hosts == ["kvm-default"]
    assert run.manifest.accelerators["kvm-default"] in {Accelerator.KVM, Accelerator.TCG}
    analysis = analyse(run)
    assert not analysis.comparisons[0].verdicts["host_cpu"].applies
    assert "A tenant's view:" in render(run, analysis).replace("&#39;", "'")
