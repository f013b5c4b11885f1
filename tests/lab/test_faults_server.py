"""Faults of the server and its machine: it stands still, it answers wrongly, it is not alone, it is cold."""

import re
from pathlib import Path

import pytest
from planted import burning, changed, frozen, measured, once, reasons
from the_lab import Ssh

pytestmark = pytest.mark.lab

NGINX = "/etc/vmtoll/servers/nginx/nginx.conf"


def test_a_frozen_server(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """It stands still longer than it works: one request waits for longer than all others take."""

    row = measured(tmp_path, once("h2load measures", frozen(ssh, 8)), {"users": 1}, duration_s=1.5)[0]
    assert reasons(row)["stalled"].startswith("metal: no response for "), row["reasons"]
    assert 7500 < float(row["longest_gap_ms"]) < 10000
    assert "mean-over-p99" in reasons(row)
    assert row["verdict"] == "suspect"


def test_a_server_that_answers_500_at_times(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """In one millisecond of a hundred."""
    fault = 'if ($msec ~ "77$") { return 500; }'
    plant = f"cp -p {NGINX} /root/nginx.kept; sed -i 's/index index.html;/&\\n{fault}/' {NGINX}"
    with changed(ssh, "metal", plant, f"mv /root/nginx.kept {NGINX}"):
        row = measured(tmp_path, servers=["nginx"])[0]
    assert " requests succeeded, " in reasons(row)["failed-requests"]
    assert 0 < int(row["failed"]) < int(row["requests"]) / 10
    assert row["verdict"] == "invalid"


def test_one_wrong_body(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """One file in 150, changed after the machines were compared: the first trial of a server looks at every file."""
    victim = "/srv/vmtoll/sites/office/" + ssh("metal", "cd /srv/vmtoll/sites/office; find -type f | sort | tail -1")

    def spoil() -> None:
        ssh("metal", f"cp -p {victim} /root/kept; printf x >> {victim}")

    try:
        row = measured(tmp_path, once(": starting", spoil))[0]
    finally:
        ssh("metal", f"mv /root/kept {victim}")
    assert Path(victim).name in reasons(row)["wrong-body"]
    assert int(row["bodies_checked"]) > 150
    assert row["verdict"] == "invalid"


def test_a_neighbour_that_burns_the_core(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    with burning(ssh, "metal") as (pid,):
        row = measured(tmp_path)[0]
    found = reasons(row)["foreign-cpu"]
    assert found.startswith("metal: others than the server took ")
    assert f"yes (pid {pid})" in found
    assert float(row["foreign_cpu_pct"]) > 20
    assert row["verdict"] == "suspect"


def test_a_server_that_does_not_start(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """Its configuration breaks after the machines were compared."""

    def spoil() -> None:
        ssh("metal", f"cp -p {NGINX} /root/nginx.kept; echo nonsense >> {NGINX}")

    try:
        first, second = measured(tmp_path, once(": starting", spoil), servers=["nginx"])
    finally:
        ssh("metal", f"mv /root/nginx.kept {NGINX}")
    for row in (first, second):
        # systemctl says it, when nginx ends before its start is done, or the agent does, right after.
        said = r"metal: server_start: (nginx ended without listening|systemctl start vmtoll-nginx.service: .*failed)"
        assert re.match(said, reasons(row)["server-failed"])
        assert row["verdict"] == "invalid"
