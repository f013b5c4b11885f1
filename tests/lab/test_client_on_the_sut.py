"""The client on the machine under test itself, and a server held to one core, on metal and on the guest."""

import os
from pathlib import Path

import pytest
from planted import changed, measured, reasons
from the_lab import Ssh

pytestmark = pytest.mark.lab

TOOL = "/usr/bin/h2load"
# The CPUs that this shell may use, which are the machine's, and those that each process of the server may use.
CPUS = "grep -h Cpus_allowed_list /proc/self/status $(pgrep -x lighttz | sed 's,.*,/proc/&/status,')"


def test_the_load_comes_from_the_machine_itself(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """The client is left without the tool: only the machines under test have one to send with."""
    seen: dict[str, list[str]] = {}

    def look(message: str) -> None:
        for environment, machine in (("metal", "metal"), ("kvm-default", "kvm")):
            if message == f"lighttz on {environment}: h2load":
                seen[machine] = ssh(machine, CPUS).split()[1::2]

    with changed(ssh, "client", f"mv {TOOL} /root/h2load.away", f"mv /root/h2load.away {TOOL}"):
        rows = measured(
            tmp_path, look, {"client": "localhost", "cores": 1}, environments=["metal", "kvm-default"], duration_s=0.5
        )
    assert len(rows) == 2
    for row in rows:
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        assert (row["client"], row["server_cores"]) == ("localhost", "1")
        assert int(row["successful"]) == int(row["requests"]) > 0
        assert not {"client-starved", "link-bound"} & set(reasons(row))
        assert "most of it h2load" not in reasons(row).get("foreign-cpu", ""), row["reasons"]
        assert row["client_foreign_cpu_pct"] == row["host_cpu_us_per_request"] == ""
        assert float(row["client_cpu_s"]) > 0
    for machine, (own, *server) in seen.items():
        assert server and set(server) == {own}, (machine, own, server)
    assert set(seen) == {"metal", "kvm"}


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="this machine has one core")
def test_a_unit_has_the_cores_it_is_given_and_all_of_them_the_next_time(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """The lab's machines have one core each: metal's init, and the servers that it starts, are lent another one."""
    lend = "taskset -pc {} 1"
    had = ssh("metal", lend.format("")).split()[-1]
    with changed(ssh, "metal", lend.format("0-1"), lend.format(had)):
        for cores, expected in ((None, "2"), (1, "1"), (None, "2")):
            [row] = measured(
                tmp_path / str(cores), workload={"cores": cores}, servers=["apache-prefork"], duration_s=0.2
            )
            assert row["server_cores"] == expected, row["reasons"]
