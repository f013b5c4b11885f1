"""Faults of the server and its machine: it stands still, it answers wrongly, it is not alone, it is cold."""

import re
from pathlib import Path

import pytest

from tests.lab.faults import burning, changed, frozen, measured, once
from tests.lab.records import BY_CLIENT, BY_INJECTION, finding, number, primary, undisturbed
from tests.lab.the_lab import Ssh
from vmtoll.model.event import Phase
from vmtoll.model.finding import ACCIDENTS, Code, Validity

pytestmark = pytest.mark.lab

NGINX = "/etc/vmtoll/servers/nginx/nginx.conf"


@pytest.mark.injects(Code.STALLED, Code.MEAN_OVER_P99)
def test_a_frozen_server(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """It stands still longer than it works: one request waits for longer than all others take."""
    record = measured(tmp_path, once(Phase.MEASURING, frozen(ssh, 8), "h2load"), {"users": 1}, duration_s=1.5)[0]
    assert finding(record, Code.STALLED).machine == "metal"
    assert 7500 < number(record.conditions.longest_gap_ms) < 10000
    assert record.validity is Validity.SUSPECT
    # What a first third without and a last with the pause come to is the pause's doing.
    assert undisturbed(record) - {Code.STALLED, Code.MEAN_OVER_P99} <= BY_INJECTION


@pytest.mark.injects(Code.FAILED_REQUESTS)
def test_a_server_that_answers_500_at_times(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """In one millisecond of a hundred. A body check may meet such a millisecond, too."""
    fault = 'if ($msec ~ "77$") { return 500; }'
    inject = f"cp -p {NGINX} /root/nginx.kept; sed -i 's/index index.html;/&\\n{fault}/' {NGINX}"
    with changed(ssh, "metal", inject, f"mv /root/nginx.kept {NGINX}"):
        record = measured(tmp_path, servers=["nginx"])[0]
    assert finding(record, Code.FAILED_REQUESTS).tool == "h2load"
    load = primary(record)
    assert 0 < number(load.failed) < number(load.requests) / 10
    assert record.validity is Validity.INVALID
    assert undisturbed(record) - {Code.FAILED_REQUESTS} <= BY_CLIENT | {Code.WRONG_BODY}


@pytest.mark.injects(Code.WRONG_BODY)
def test_one_wrong_body(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """One file in 150, changed after the machines were compared: the first trial of a server looks at every file."""
    victim = "/srv/vmtoll/sites/office/" + ssh("metal", "cd /srv/vmtoll/sites/office; find -type f | sort | tail -1")

    def spoil() -> None:
        ssh("metal", f"cp -p {victim} /root/kept; printf x >> {victim}")

    try:
        record = measured(tmp_path, once(Phase.STARTING, spoil))[0]
    finally:
        ssh("metal", f"mv /root/kept {victim}")
    assert Path(victim).name in finding(record, Code.WRONG_BODY).detail
    assert number(record.counts.bodies_checked) > 150
    assert record.counts.bodies_wrong in {1, 2}, "once among all files, and once more if it is among the four drawn"
    assert record.validity is Validity.INVALID
    assert undisturbed(record) - {Code.WRONG_BODY} <= BY_CLIENT


@pytest.mark.injects(Code.BACKGROUND_CPU)
def test_a_neighbour_that_burns_the_core(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """The host sees the same process; it is none of the machine's own."""
    with burning(ssh, "metal") as (pid,):
        record = measured(tmp_path)[0]
    background = finding(record, Code.BACKGROUND_CPU)
    assert background.machine == "metal"
    assert f"yes (pid {pid})" in (background.process or "")
    assert number(record.conditions.background_cpu_pct) > 20
    assert record.validity is Validity.SUSPECT
    assert undisturbed(record) == {Code.BACKGROUND_CPU}


@pytest.mark.injects(Code.SERVER_FAILED)
def test_a_server_that_does_not_start(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """Its configuration breaks after the machines were compared."""

    def spoil() -> None:
        ssh("metal", f"cp -p {NGINX} /root/nginx.kept; echo nonsense >> {NGINX}")

    try:
        first, second = measured(tmp_path, once(Phase.STARTING, spoil), servers=["nginx"])
    finally:
        ssh("metal", f"mv /root/nginx.kept {NGINX}")
    for record in (first, second):
        failed = finding(record, Code.SERVER_FAILED)
        # systemctl says it, when nginx ends before its start is done, or the agent does, right after.
        said = r"metal: server_start: (nginx ended without listening|systemctl start vmtoll-nginx.service: .*failed)"
        assert re.match(said, failed.detail, re.DOTALL), failed
        assert record.validity is Validity.INVALID
        assert record.codes <= ACCIDENTS
