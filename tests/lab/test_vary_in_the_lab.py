"""A host setting and a kernel parameter of the guest as arms: real ones, set by block and restored."""

from pathlib import Path

import pytest
import yaml

from tests.lab.records import measure, primary
from tests.lab.the_lab import Ssh
from vmtoll.analysis.equality import FactStatus, equality
from vmtoll.analysis.run import load_run
from vmtoll.model.event import Event, TrialEnded
from vmtoll.model.finding import Code

pytestmark = [pytest.mark.lab, pytest.mark.guest_minutes]

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SOMAXCONN = "sysctl -n net.core.somaxconn"


def test_the_host_and_the_guest_are_set_for_each_arm_and_restored(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    before, limit = THP.read_text(), ssh("kvm", SOMAXCONN)
    wanted = "never" if "[never]" not in before else "madvise"
    experiment = tmp_path / "vary.yml"
    document = {
        "question": "?", "purpose": "smoke", "environments": ["kvm-default"], "servers": ["nginx"],
        "workloads": ["document-siege"], "blocks": 2, "warmup_s": 0.2, "duration_s": 0.5,
        "vary": {"transparent_hugepage": [None, wanted], "net.core.somaxconn": [None, 256]},
    }  # fmt: skip
    experiment.write_text(yaml.safe_dump(document, sort_keys=False))
    seen: dict[str, set[tuple[bool, str]]] = {}

    def look(event: Event) -> None:
        if isinstance(event, TrialEnded):
            now = f"[{wanted}]" in THP.read_text(), ssh("kvm", SOMAXCONN)
            seen.setdefault(event.record.arm.environment, set()).add(now)

    run_dir, records = measure(experiment, lab / "inventory.yml", tmp_path / "results", look)
    name = f"transparent-hugepage-{wanted}"
    assert seen == {
        "kvm-default": {(False, limit)}, "somaxconn-256": {(False, "256")}, name: {(True, limit)},
        f"{name}-somaxconn-256": {(True, "256")},
    }  # fmt: skip
    assert (THP.read_text(), ssh("kvm", SOMAXCONN)) == (before, limit)
    for record in records:
        assert primary(record).throughput_rps
        assert not record.codes & {Code.SYSCTL, Code.FINGERPRINT}
    (fact,) = [fact for fact in equality(load_run(run_dir)) if fact.status is not FactStatus.EQUAL]
    assert (fact.name, fact.status) == ("sysctls: net.core.somaxconn", FactStatus.DECLARED)
    assert fact.values == {"kvm-default": limit, "somaxconn-256": "256", f"{name}-somaxconn-256": "256"}
