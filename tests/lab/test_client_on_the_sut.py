"""The client on the machine under test itself, and a server held to one core, on metal and on the guest."""

import os
from pathlib import Path

import pytest

from tests.lab.faults import changed, measured
from tests.lab.records import BY_CLIENT, findings, number, primary, undisturbed
from tests.lab.the_lab import Ssh
from vmtoll.model.event import Event, Phase, TrialStep
from vmtoll.model.finding import Code
from vmtoll.model.trial import ClientPlace

pytestmark = pytest.mark.lab

TOOL = "/usr/bin/h2load"
# The CPUs that this shell may use, which are the machine's, and those that each process of the server may use.
CPUS = "grep -h Cpus_allowed_list /proc/self/status $(pgrep -x lighttz | sed 's,.*,/proc/&/status,')"


def test_the_load_comes_from_the_machine_itself(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """The client is left without the tool: only the machines under test have one to send with."""
    seen: dict[str, list[str]] = {}

    machines = {"metal": "metal", "kvm-default": "kvm"}

    def look(event: Event) -> None:
        if isinstance(event, TrialStep) and event.phase is Phase.PREPARING:
            machine = machines[event.spec.arm.environment]
            seen[machine] = ssh(machine, CPUS).split()[1::2]

    with changed(ssh, "client", f"mv {TOOL} /root/h2load.away", f"mv /root/h2load.away {TOOL}"):
        records = measured(
            tmp_path, look, {"client": "localhost", "cores": 1}, environments=["metal", "kvm-default"], duration_s=0.5
        )
    assert len(records) == 2
    for record in records:
        # Server and client share one core, so that a user waits for either.
        assert undisturbed(record) <= BY_CLIENT, record.findings
        assert (record.client, record.resources.server_cores) == (ClientPlace.LOCALHOST, 1)
        load = primary(record)
        assert number(load.successful) == number(load.requests) > 0
        assert not {Code.CLIENT_STARVED, Code.LINK_BOUND} & record.codes
        background = findings(record, Code.BACKGROUND_CPU)
        assert not any("h2load" in (one.process or "") for one in background), background
        assert record.conditions.client_background_cpu_pct is None
        assert load.host_cpu_us_per_request is None
        assert number(load.client_cpu_s) > 0
    for machine, (own, *server) in seen.items():
        assert server and set(server) == {own}, (machine, own, server)
    assert set(seen) == {"metal", "kvm"}


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="this machine has one core")
def test_a_unit_has_the_cores_it_is_given_and_all_of_them_the_next_time(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """The lab's machines have one core each: metal's init, and the servers that it starts, are lent another one."""
    lend = "taskset -pc {} 1"
    had = ssh("metal", lend.format("")).split()[-1]
    with changed(ssh, "metal", lend.format("0-1"), lend.format(had)):
        for cores, expected in ((None, 2), (1, 1), (None, 2)):
            [record] = measured(
                tmp_path / str(cores), workload={"cores": cores}, servers=["apache-prefork"], duration_s=0.2
            )
            assert record.resources.server_cores == expected, record.findings
