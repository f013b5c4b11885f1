"""Three clients send one load: three real agents on this machine, the real tools, a real lighttz."""

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

from workloads import tools
from workloads.runner.errors import ExperimentError, InventoryError
from workloads.runner.inventory import Host, Inventory
from workloads.runner.registry import Registry
from workloads.runner.results import Store
from workloads.runner.run import run
from workloads.tools import OpenLoad, Output

Rows = list[dict[str, str]]
Rewrite = Callable[..., Path]
Measured = Callable[..., tuple[Path, Rows]]
THREE = ("client", "client2", "client3")
RATE = {"kind": "rate", "tool": "vegeta", "twin": "oha", "users": None, "rate_rps": 300, "deadline_ms": 1000.0}


@pytest.fixture
def measured(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> Callable[..., tuple[Path, Rows]]:
    """Run the workload `tiny` with these keys on metal, by so many clients; the run's folder and its rows.

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
        told: Callable[[str], None] = lambda _: None,
        resume: Path | None = None,
        **workload: Any,
    ) -> tuple[Path, Rows]:
        taken = {name: clients[name] | (hosts or {}).get(name, {}) for name in THREE[:count]}
        children = tree["all"]["children"] | {"clients": {"hosts": taken}}
        inventory.write_text(yaml.safe_dump({"all": {"children": children}}))
        path = project.workload_file("tiny")
        data = yaml.safe_load(path.read_text()) | workload
        path.write_text(yaml.safe_dump({key: value for key, value in data.items() if value is not None}))
        experiment = rewrite(blocks=1, environments=["metal"], noise_floor=None, warmup_s=0.1, duration_s=1.0)
        folder = run(
            experiment, inventory, tmp_path / "results", resume, registry=project, progress=lambda *w: told(w[3])
        )
        store = Store(folder)
        try:
            return folder, store.rows()
        finally:
            store.close()

    return go


def logged(folder: Path, trial: str, client: str, load: OpenLoad) -> list[tuple[int, int]]:
    """What one client's own log has of each request: when it was to be sent, and its response time, in µs."""
    log = gzip.decompress((folder / "raw" / trial / client / "vegeta.requests.log.gz").read_bytes())
    found = tools.get("vegeta").parse(load, Output("", "", 0, files={"requests.log": log}))
    assert found.sent_us is not None and found.latencies_us is not None
    return [
        (int(sent_us), int(latency_us)) for sent_us, latency_us in zip(found.sent_us, found.latencies_us, strict=True)
    ]


def test_three_clients_are_one_load(measured: Measured) -> None:
    folder, [three] = measured(3, **RATE)
    _, [one] = measured(1, **RATE)
    assert (three["clients"], one["clients"]) == ("3", "1")
    assert one["start_spread_ms"] == ""
    for row in (three, one):
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        assert row["requests"] == row["transactions"] == row["successful"] == "300"
    for same in ("offered_rps", "transferred_mb", "twin_requests", "availability_pct"):
        assert three[same] == one[same], same

    parts = [logged(folder, "b001-o001-a1", c, OpenLoad([], 100.0, 100, keep_alive=True)) for c in THREE]
    assert [len(part) for part in parts] == [100, 100, 100]
    together = list(itertools.chain.from_iterable(parts))
    merged_us = sorted(latency_us for _, latency_us in together)
    elapsed_s = (max(map(sum, together)) - min(sent_us for sent_us, _ in together)) / 1e6
    in_time = sum(latency_us <= float(three["deadline_ms"]) * 1000 for latency_us in merged_us)
    assert float(three["goodput_rps"]) == pytest.approx(in_time / elapsed_s, rel=0.02)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert float(three[f"response_time_{name}_us"]) == merged_us[math.ceil(share * 300) - 1]
    assert float(three["response_time_mean_us"]) == pytest.approx(sum(merged_us) / 300, rel=1e-6)
    lines = (folder / "histograms/b001-o001-a1.hdr").read_bytes().split()
    assert [HdrHistogram.decode(line).get_total_count() for line in lines] == [100, 100, 100]
    with (folder / "samples/b001-o001-a1.csv").open() as samples:
        assert {line.split(",")[1] for line in samples} == {"host", "metal", *THREE}


def test_users_are_split_and_the_capacity_is_that_of_all_clients(measured: Measured) -> None:
    folder, [row] = measured(users=5, twin="h2load")
    assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
    assert (row["users"], row["clients"]) == ("5", "3")
    said = [(folder / "raw/b001-o001-a1" / client / "h2load.stdout").read_text() for client in THREE]
    assert [f"{users} total client" in text for users, text in zip((1, 2, 2), said, strict=True)] == [True] * 3
    assert row["transactions"] == row["requests"]
    assert float(row["throughput_rps"]) == pytest.approx(float(row["transactions"]) / float(row["duration_s"]))
    share = {**RATE, "rate_rps": None, "share": 0.1, "capacity": {"tool": "h2load", "users": 6}}
    folder, [row] = measured(**share)
    assert float(row["offered_rps"]) == pytest.approx(0.1 * float(row["capacity_rps"]))
    assert all((folder / "raw/b001-o001-a1" / client / "capacity-h2load.stdout").exists() for client in THREE)


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
    _, [row] = measured(hosts=late, **RATE)
    assert "start-spread: vegeta: the clients began " in row["reasons"]
    assert float(row["start_spread_ms"]) > 900


def test_a_client_that_dies_voids_the_trial_and_is_brought_back(measured: Measured, tmp_path: Path) -> None:
    killed = threading.Event()

    def pull_the_plug(message: str) -> None:
        if message.endswith("vegeta measures") and not killed.is_set():
            killed.set()
            threading.Timer(0.6, kill_agent_of, [tmp_path / "client2"]).start()

    _, rows = measured(told=pull_the_plug, **RATE)
    assert [row["attempt"] for row in rows] == ["1", "2"]
    assert rows[0]["reasons"].startswith("host-lost: client2: "), rows[0]["reasons"]
    assert (rows[0]["verdict"], rows[0]["throughput_rps"], rows[0]["clients"]) == ("invalid", "", "3")
    assert rows[1]["verdict"] in {"valid", "suspect"}, rows[1]["reasons"]
    assert rows[1]["successful"] == "300"


def kill_agent_of(root: Path) -> None:
    """SIGKILL whoever holds the machine's lock."""
    inode = (root / "run" / "vmtoll.lock").stat().st_ino
    for fields in map(str.split, Path("/proc/locks").read_text().splitlines()):
        if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            os.kill(int(fields[4]), signal.SIGKILL)


def test_a_ramp_is_sent_by_the_first_client(measured: Measured) -> None:
    folder, rows = measured(kind="ramp", tool="httperf", twin=None, users=None, rates_rps=[50, 100], deadline_ms=100.0)
    assert [row["clients"] for row in rows] == ["1", "1"]
    assert (folder / "raw/b001-o001-a1/httperf.stdout").exists()


def test_what_does_not_fit_several_clients_is_refused_in_one_sentence(measured: Measured) -> None:
    with pytest.raises(ExperimentError, match="workload tiny: users: 2 users are too few for 3 clients, each of which"):
        measured()
    with pytest.raises(InventoryError, match="client2: vmtoll_link is '1gbit', that of client is None: one load needs"):
        measured(hosts={"client2": {"vmtoll_link": "1gbit"}}, **RATE)


def test_a_run_is_resumed_by_the_clients_that_began_it(measured: Measured, tmp_path: Path) -> None:
    class PulledError(Exception):
        """As if the program had been killed."""

    def pull(message: str) -> None:
        if message.endswith("starting"):
            raise PulledError

    with pytest.raises(PulledError):
        measured(told=pull, **RATE)
    [begun] = (tmp_path / "results/tiny").iterdir()
    with pytest.raises(InventoryError, match="was measured on client, client2, client3, metal; this inventory, with "):
        measured(2, resume=begun, **RATE)
    _, [row] = measured(3, resume=begun, **RATE)
    assert row["clients"] == "3"


def test_a_container_has_the_kernel_of_its_machine_by_whatever_name() -> None:
    here = [Host(name, "kvm_host", {"ansible_connection": "local"}) for name in ("kvm-host1", "kvm-host2")]
    far = Host("far", "kvm_host", {"ansible_host": "far.example"})
    client = Host("client2", "client", {"vmtoll_container_host": "kvm-host2"})
    machines = Inventory([client], {}, {host.name: host for host in (*here, far)})
    assert [machines.shares_kernel(client, host) for host in (*here, far)] == [True, True, False]
    assert not machines.shares_kernel(Host("client9", "client"), here[0])
