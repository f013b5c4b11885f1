"""Three clients send one load: three real agents on this machine, the real loadgen, a real lighttz."""

import gzip
import itertools
import math
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hdrh.histogram import HdrHistogram

from tests.support.measured import run
from tests.support.records import BUSY, assert_sound, crosscheck, primary, records_of
from vmtoll import loadgen
from vmtoll.loadgen import OpenLoad, Output
from vmtoll.model.errors import ExperimentError, InventoryError
from vmtoll.model.event import Event, Phase, TrialStep
from vmtoll.model.finding import Code, Role
from vmtoll.model.inventory import Host, Inventory
from vmtoll.model.trial import TrialRecord
from vmtoll.spec.catalog import Registry

Records = list[TrialRecord]
Rewrite = Callable[..., Path]
Measured = Callable[..., tuple[Path, Records]]
THREE = ("client", "client2", "client3")
RATE = {"kind": "rate", "tool": "vegeta", "crosscheck": "oha", "users": None, "rate_rps": 300, "deadline_ms": 1000.0}


@pytest.fixture
def measured(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> Callable[..., tuple[Path, Records]]:
    """Run the workload `tiny` with these keys on metal, by this number of clients; the run's folder and its records.

    `hosts`: more of the machines' variables, by name.
    """
    tree = yaml.safe_load(inventory.read_text())
    clients = tree["all"]["children"]["clients"]["hosts"]
    for name in THREE[1:]:
        (tmp_path / name / "etc/vmtoll/servers").mkdir(parents=True)
        clients[name] = {**clients["client"], "vmtoll_root": str(tmp_path / name)}

    def go(
        count: int = 3,
        hosts: dict[str, dict[str, Any]] | None = None,
        listener: Callable[[Event], None] = lambda _: None,
        resume: Path | None = None,
        **workload: Any,
    ) -> tuple[Path, Records]:
        taken = {name: clients[name] | (hosts or {}).get(name, {}) for name in THREE[:count]}
        children = tree["all"]["children"] | {"clients": {"hosts": taken}}
        inventory.write_text(yaml.safe_dump({"all": {"children": children}}))
        path = project.workload_file("tiny")
        data = yaml.safe_load(path.read_text()) | workload
        path.write_text(yaml.safe_dump({key: value for key, value in data.items() if value is not None}))
        experiment = rewrite(blocks=1, environments=["metal"], noise_floor=None, warmup_s=0.1, duration_s=1.0)
        folder = run(experiment, inventory, tmp_path / "results", resume, registry=project, listener=listener)
        return folder, records_of(folder)

    return go


def logged(folder: Path, trial: str, client: str, load: OpenLoad) -> list[tuple[int, int]]:
    """What one client's own log has of each request: when it was to be sent, and its response time, in µs."""
    log = gzip.decompress((folder / "raw" / trial / client / "vegeta.requests.log.gz").read_bytes())
    found = loadgen.get("vegeta").parse(load, Output("", "", 0, files={"requests.log": log}))
    assert found.sent_us is not None and found.latencies_us is not None
    return [
        (int(sent_us), int(latency_us)) for sent_us, latency_us in zip(found.sent_us, found.latencies_us, strict=True)
    ]


def test_three_clients_are_one_load(measured: Measured) -> None:
    folder, [three] = measured(3, **RATE)
    _, [one] = measured(1, **RATE)
    assert (three.clients, one.clients) == (3, 1)
    assert_sound([three, one])
    by_three, by_one = primary(three), primary(one)
    assert by_one.start_spread_ms is None
    for own in (by_three, by_one):
        assert own.requests == own.transactions == own.successful == 300
    assert three.offered == one.offered
    assert crosscheck(three).requests == crosscheck(one).requests
    assert by_three.transferred_mb == pytest.approx(by_one.transferred_mb)
    assert by_three.availability_pct == pytest.approx(by_one.availability_pct)

    parts = [logged(folder, "b001-o001-a1", c, OpenLoad([], 100.0, 100, keep_alive=True)) for c in THREE]
    assert [len(part) for part in parts] == [100, 100, 100]
    together = list(itertools.chain.from_iterable(parts))
    merged_us = sorted(latency_us for _, latency_us in together)
    in_time = sum(latency_us <= (three.offered.deadline_ms or 0) * 1000 for latency_us in merged_us)
    assert by_three.goodput_rps == pytest.approx(in_time / 300 * (three.offered.offered_rps or 0))
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert by_three.response_time.of(name) == merged_us[math.ceil(share * 300) - 1]
    assert by_three.response_time.mean_us == pytest.approx(sum(merged_us) / 300)
    lines = (folder / "histograms/b001-o001-a1.hdr").read_bytes().split()
    assert [HdrHistogram.decode(line).get_total_count() for line in lines] == [100, 100, 100]
    with (folder / "samples/b001-o001-a1.csv").open() as samples:
        assert {line.split(",")[1] for line in samples} == {"host", "metal", *THREE}


def test_users_are_split_and_the_capacity_is_that_of_all_clients(measured: Measured, unlimited_client: None) -> None:
    folder, [record] = measured(users=5, crosscheck="h2load")
    assert_sound([record])
    assert (record.offered.users, record.clients) == (5, 3)
    said = [(folder / "raw/b001-o001-a1" / client / "h2load.stdout").read_text() for client in THREE]
    assert [f"{users} total client" in text for users, text in zip((1, 2, 2), said, strict=True)] == [True] * 3
    own = primary(record)
    assert own.transactions == own.requests
    assert own.transactions and own.duration_s
    assert own.throughput_rps and own.throughput_rps >= own.transactions / own.duration_s, "without the tools' starts"
    share = {**RATE, "rate_rps": None, "share": 0.1, "capacity": {"tool": "h2load", "users": 6}}
    folder, [record] = measured(**share)
    assert record.offered.offered_rps == pytest.approx(0.1 * (record.offered.capacity_rps or 0))
    raw = folder / "raw" / "capacity-metal-lighttz-tiny-b001-o001-a1"
    assert all((raw / client / "h2load.stdout").exists() for client in THREE)


def late_python(tmp_path: Path) -> Path:
    """A Python whose agent finds a vegeta that begins two seconds late."""
    real, slow, python = shutil.which("vegeta"), tmp_path / "slow" / "vegeta", tmp_path / "late-python"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\n[ "$1" = attack ] && sleep 2\nexec {real} "$@"\n')
    python.write_text(f'#!/bin/sh\nPATH={slow.parent}:$PATH exec python3 "$@"\n')
    for script in (slow, python):
        script.chmod(0o755)
    return python


def test_a_client_that_begins_late_is_found(measured: Measured, tmp_path: Path) -> None:
    late = {"client3": {"ansible_python_interpreter": str(late_python(tmp_path))}}
    _, [record] = measured(hosts=late, **RATE)
    [spread] = [finding for finding in record.findings if finding.code is Code.START_SPREAD]
    assert (spread.role, spread.tool) == (Role.PRIMARY, "vegeta")
    assert record.codes <= BUSY
    assert spread.value == primary(record).start_spread_ms
    assert (spread.value or 0) > 900


def test_a_client_that_dies_voids_the_trial_and_is_brought_back(measured: Measured, tmp_path: Path) -> None:
    killed = threading.Event()

    def pull_the_plug(event: Event) -> None:
        if not isinstance(event, TrialStep) or killed.is_set():
            return
        if (event.phase, event.tool) == (Phase.MEASURING, "vegeta"):
            killed.set()
            threading.Timer(0.6, kill_agent_of, [tmp_path / "client2"]).start()

    _, [failed, good] = measured(listener=pull_the_plug, **RATE)
    assert (failed.attempt, failed.clients) == (1, 3)
    assert failed.codes == {Code.HOST_LOST}
    assert failed.findings[0].detail.startswith("client2: ")
    assert failed.findings[0].machine == "client2"
    assert failed.measurements == ()
    assert good.attempt == 2
    assert_sound([good])
    assert primary(good).successful == 300


def kill_agent_of(root: Path) -> None:
    """SIGKILL the process that holds the machine's lock."""
    inode = (root / "run" / "vmtoll.lock").stat().st_ino
    for fields in map(str.split, Path("/proc/locks").read_text().splitlines()):
        if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            os.kill(int(fields[4]), signal.SIGKILL)


def test_a_ramp_is_sent_by_the_first_client(measured: Measured) -> None:
    ramp = {"kind": "ramp", "tool": "httperf", "rates_rps": [50.0, 100.0], "deadline_ms": 100.0}
    folder, records = measured(**ramp, crosscheck=None, users=None)
    assert [record.clients for record in records] == [1, 1]
    assert (folder / "raw/b001-o001-a1/httperf.stdout").exists()


def test_options_unsuited_to_several_clients_are_refused_in_one_sentence(measured: Measured) -> None:
    with pytest.raises(ExperimentError, match=r"tiny: users: 2 .*for 3 clients"):
        measured()
    with pytest.raises(InventoryError, match=r"client2: vmtoll_link .*'1gbit', .*client .*'unshaped'"):
        measured(hosts={"client2": {"vmtoll_link": "1gbit", "vmtoll_link_mbit": 1000}}, **RATE)


def test_a_run_is_resumed_by_the_clients_that_began_it(measured: Measured, tmp_path: Path) -> None:
    class PulledError(Exception):
        """As if the program had been killed."""

    def pull(event: Event) -> None:
        if isinstance(event, TrialStep) and event.phase is Phase.STARTING:
            raise PulledError

    with pytest.raises(PulledError):
        measured(listener=pull, **RATE)
    [begun] = (tmp_path / "results/tiny").iterdir()
    with pytest.raises(InventoryError, match=r" client, client2, client3, metal; this "):
        measured(2, resume=begun, **RATE)
    _, records = measured(3, resume=begun, **RATE)
    assert {record.clients for record in records} == {3}  # a trial that lost a client is tried again


def test_a_container_has_the_kernel_of_its_machine_by_whatever_name() -> None:
    here = [Host(name, "kvm_host", {"ansible_connection": "local"}) for name in ("kvm-host1", "kvm-host2")]
    far = Host("far", "kvm_host", {"ansible_host": "far.example"})
    client = Host("client2", "client", {"vmtoll_container_host": "kvm-host2"})
    machines = Inventory([client], {}, {host.name: host for host in (*here, far)})
    assert [machines.shares_kernel(client, host) for host in (*here, far)] == [True, True, False]
    assert not machines.shares_kernel(Host("client9", "client"), here[0])
