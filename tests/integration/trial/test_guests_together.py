"""Several guests of one host, a neighbour under load, and cold caches: whole runs on this machine, with real agents,
the real tools and a real lighttz on each 'guest'. Their QEMU is a process that only has its name.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.machines import EXPERIMENT, WORKLOAD
from tests.support.measured import run
from tests.support.ports import free_port
from tests.support.records import assert_sound, primary, records_of
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import InventoryError
from vmtoll.model.finding import Code
from vmtoll.model.load import Load, LoadKind, NeighbourLoad
from vmtoll.model.trial import TrialRecord
from vmtoll.spec.catalog import Registry
from vmtoll.trial import usage

Records = list[TrialRecord]
Rewrite = Callable[..., Path]
Measured = Callable[..., tuple[Path, Records]]
GUESTS = ("guest-1", "guest-2", "guest-3")
RATE = {"kind": "rate", "tool": "vegeta", "crosscheck": None, "users": None, "rate_rps": 200, "deadline_ms": 1000.0}


def machine(tmp_path: Path, pattern: dict[str, Any], name: str) -> dict[str, Any]:
    """A machine like that of `pattern`, with a folder and a port of its own; its server keeps an access log."""
    root, old, port = tmp_path / name, Path(pattern["vmtoll_root"]), free_port()
    shutil.copytree(old, root, dirs_exist_ok=True)
    for file in ("lighttz.conf", "etc/vmtoll/servers/lighttz.json"):
        text = (old / file).read_text().replace(str(old), str(root))
        (root / file).write_text(text.replace(str(pattern["vmtoll_http_port"]), str(port)))
    with (root / "lighttz.conf").open("a") as config:
        config.write(f"access_log = {root}/access.log\n")
    return {**pattern, "vmtoll_root": str(root), "vmtoll_http_port": port}


@pytest.fixture
def guests(inventory: Path, tmp_path: Path) -> Iterator[Path]:
    """The inventory with three guests of the environment `metal-two` on one KVM host."""
    tree = yaml.safe_load(inventory.read_text())
    children = tree["all"]["children"]
    pattern = children["metal_hosts"]["hosts"].pop("metal-two")
    told = {name: machine(tmp_path, pattern, name) for name in GUESTS}
    for name, variables in told.items():
        variables |= {"vmtoll_kvm_host": "host", "vmtoll_domain": name}
    metal = children["metal_hosts"]["hosts"]
    metal["metal"] = machine(tmp_path, metal["metal"], "metal-one")
    children["kvm_guests"] = {"hosts": told}
    host = {"ansible_connection": "local", "vmtoll_libvirt_uri": "test:///default"}
    children["kvm_hosts"] = {"hosts": {"host": host}}
    inventory.write_text(yaml.safe_dump(tree))
    with contextlib.ExitStack() as stack:
        for name in GUESTS:
            words = ["qemu-system-x86_64", "-c", "import time; time.sleep(600)", "-name", f"guest={name},x=1"]
            process = subprocess.Popen(words, executable="/usr/bin/python3")
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield inventory


@pytest.fixture
def measured(project: Registry, guests: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None) -> Measured:
    """Run the workload `tiny` with these keys, once on metal and on the guests; the run's folder and its records."""

    def go(environments: list[str] | None = None, blocks: int = 1, **workload: Any) -> tuple[Path, Records]:
        data = {key: value for key, value in {**WORKLOAD, **workload}.items() if value is not None}
        project.workload_file("tiny").write_text(yaml.safe_dump(data))
        path = rewrite(
            environments=environments or EXPERIMENT["environments"], blocks=blocks, noise_floor=None, duration_s=1.0
        )
        folder = run(path, guests, tmp_path / "results", registry=project)
        records = records_of(folder)
        return folder, sorted(records, key=lambda record: (str(record.arm), record.scenario.load.sort_key))

    return go


def asked(tmp_path: Path, name: str) -> Counter[str]:
    """Path → how often a machine's server was asked for it."""
    log = tmp_path / name / "access.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return Counter(line.split('"')[1].split()[1] for line in lines)


def test_a_load_is_spread_over_guests_and_metal_has_it_alone(measured: Measured, tmp_path: Path) -> None:
    folder, records = measured(**RATE, guests=[1, 2])
    where = [(str(r.arm), r.scenario.load, r.guests) for r in records]
    one_guest, two_guests = (Load(LoadKind.RATE, 200, guests) for guests in (1, 2))
    assert where == [
        ("metal", one_guest, 1), ("metal", two_guests, 1),
        ("metal-two", one_guest, 1), ("metal-two", two_guests, 2),
    ]  # fmt: skip
    assert_sound(records)
    for record in records:
        assert (primary(record).requests, primary(record).successful, record.counts.bodies_wrong) == (200, 200, 0)
        assert record.resources.read_mb is not None
    one, two = records[2].resources, records[3].resources
    assert one.processes and one.memory_pss_kib and two.memory_pss_kib
    assert two.processes == 2 * one.processes
    assert two.memory_pss_kib > one.memory_pss_kib
    assert primary(records[3]).host_cpu_s is not None
    assert two.host_read_mb is not None
    first, second, third = (sum(asked(tmp_path, name).values()) for name in GUESTS)
    assert third == 0, "no scenario takes a third one"
    # The first has the load of one guest alone, half of the other, and both warm-ups in the same way.
    assert second > 100
    assert first > second
    machines = json.loads((folder / "hosts.json").read_text())
    assert {name: facts["role"] for name, facts in machines.items()} == {
        "client": "client", "metal": "sut", "guest-1": "sut", "guest-2": "sibling", "host": "kvm_host",
    }  # fmt: skip
    assert json.loads((folder / "run.json").read_text())["differences"]["undeclared"] == []


def test_guests_take_turns_within_a_load(measured: Measured, tmp_path: Path) -> None:
    """Of 200 requests, and of those of the warm-up, each of two guests gets the half."""
    measured(["metal-two"], **RATE, guests=2)
    sums = [sum(asked(tmp_path, name).values()) for name in GUESTS[:2]]
    assert abs(sums[0] - sums[1]) <= 20, "what is left of the warm-up, and the bodies that were compared"
    assert min(sums) >= 100


def test_a_closed_loop_loads_all_guests_and_reaches_its_rate_again(measured: Measured, tmp_path: Path) -> None:
    _, records = measured(["metal-two"], blocks=2, tool="oha", crosscheck=None, users=4, guests=[1, 3])
    assert_sound(records)
    for record in records:
        assert primary(record).transactions == primary(record).successful
    assert all(asked(tmp_path, name) for name in GUESTS)


def test_a_neighbour_bears_its_load_while_the_trial_measures(measured: Measured, tmp_path: Path) -> None:
    folder, records = measured(**RATE, neighbour={"rate_rps": [0, 100]})
    assert [r.resources.neighbour_rps for r in records[:2]] == [None, None], "metal has no neighbour"
    quiet, noisy = records[2:]
    assert [r.scenario.load.neighbour for r in (quiet, noisy)] == [
        NeighbourLoad(LoadKind.RATE, rate) for rate in (0, 100)
    ]
    assert_sound(records)
    for record in (quiet, noisy):
        assert record.guests == 1
        own = primary(record)
        assert own.requests == own.successful == 200, "the neighbour's requests are none of the trial's"
    assert quiet.resources.neighbour_rps == 0
    assert noisy.resources.neighbour_rps == pytest.approx(100, rel=0.25)
    assert sum(asked(tmp_path, "guest-2").values()) > 90
    assert not asked(tmp_path, "guest-3")
    [kept] = folder.glob("raw/*/neighbour.requests.log.gz")
    assert kept.stat().st_size > 0


def test_a_share_is_of_the_capacity_of_one_guest_alone(measured: Measured, unlimited_client: None) -> None:
    shares = {"neighbour": {"share": [0.0, 0.1]}, "capacity": {"tool": "h2load", "users": 2}}
    _, records = measured(["metal-two"], tool="h2load", crosscheck=None, users=2, **shares)
    assert_sound(records)
    quiet, noisy = (record.resources.neighbour_rps for record in records)
    assert quiet == 0 < (noisy or 0)


def test_a_neighbour_whose_server_dies_voids_the_trial(measured: Measured, tmp_path: Path) -> None:
    """The server listens, passes its check, and ends."""
    path = tmp_path / "guest-2/etc/vmtoll/servers/lighttz.json"
    spec = json.loads(path.read_text())
    dies = f"import socket\ns = socket.create_server(('127.0.0.1', {spec['port']}))\nfor _ in range(3): s.accept()"
    path.write_text(json.dumps({**spec, "command": ["python3", "-c", dies]}))
    _, records = measured(["metal-two"], **RATE, neighbour={"rate_rps": 50})
    assert [[(f.code, f.machine, f.detail) for f in record.findings] for record in records] == [
        [(Code.SERVER_FAILED, "guest-2", "guest-2: server_check: lighttz has ended")]
    ] * 2


def test_too_few_guests_are_reported_before_anything_starts(measured: Measured) -> None:
    with pytest.raises(InventoryError, match=r"3 guests .*vmtoll_environment 'metal-two', 4 "):
        measured(["metal-two"], **RATE, guests=3, neighbour={"rate_rps": 10})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may drop the caches")
def test_cold_caches_are_asked_for_each_file_once(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[list[str]] = []
    drop = usage.drop_page_caches

    def told(kernels: list[AgentLine]) -> None:
        dropped.append([line.host.name for line in kernels])
        drop(kernels)

    monkeypatch.setattr(usage, "drop_page_caches", told)
    _, records = measured(tool="siege", crosscheck=None, users=2, cold=True)
    assert_sound(records)
    for record, name in zip(records, ("metal-one", "guest-1"), strict=True):
        assert Code.WARMUP_DRIFT not in record.codes
        assert (primary(record).requests, primary(record).successful) == (12, 12)
        times = asked(tmp_path, name)
        assert sorted(set(times.values())) == [2], "once by the tool, once when the bodies were compared"
        assert len(times) == 12
        assert record.resources.read_mb is not None
    assert sorted(dropped) == [["guest-1", "host"], ["metal"]]
    metal, guest = (record.resources.host_read_mb for record in records)
    assert metal is None and guest is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may drop the caches")
def test_a_rate_finds_cold_caches_too(measured: Measured) -> None:
    _, [record] = measured(["metal"], **RATE, cold=True)
    assert_sound([record])
    assert (primary(record).requests, primary(record).successful) == (12, 12)
    assert record.scenario.load == Load(LoadKind.RATE, 200)


def test_guests_with_loads_of_their_own(
    project: Registry, guests: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> None:
    """Of three guests one idles; the others have loads of their own, and get each all of it."""
    light, heavy = ({**WORKLOAD, **RATE, "rate_rps": rate} for rate in (50, 200))
    for name, data in (("tiny", light), ("heavy", heavy)):
        kept = {key: value for key, value in data.items() if value is not None}
        project.workload_file("tiny").with_name(f"{name}.yml").write_text(yaml.safe_dump(kept))
    tiles = [{"workload": "tiny"}, {"idle": True}, {"workload": "heavy"}]
    path = rewrite(
        environments=["metal-two"], blocks=1, duration_s=1.0, density={"tiles": tiles, "at_most": 3}, noise_floor=None
    )
    folder = run(path, guests, tmp_path / "results", registry=project)
    records = sorted(records_of(folder), key=lambda record: record.scenario.load.sort_key)
    assert_sound(records)
    found = [record.density for record in records if record.density]
    assert [each.guests for each in found] == [1, 2, 3]
    assert [[(tile.guest, tile.kind, tile.requests) for tile in each.tiles] for each in found] == [
        [("guest-1", "tiny", 50)], [("guest-1", "tiny", 50)], [("guest-1", "tiny", 50), ("guest-3", "heavy", 200)],
    ]  # fmt: skip
    assert all(tile.successful == tile.requests and tile.p99_ms for each in found for tile in each.tiles)
    assert [primary(record).requests for record in records] == [50, 50, 250]
    assert records[2].offered.offered_rps == 250
    for each in found:
        assert each.host.cpus
        assert each.host.vcpus == each.guests * each.host.cpus, "here each guest has all CPUs of this machine"
        assert each.host.guests_mb and each.host.available_mb and each.host.total_mb
        assert each.host.cpu_pct is not None
    assert not asked(tmp_path, "guest-2"), "it idles"
    assert 200 <= sum(asked(tmp_path, "guest-3").values()) <= 300
    assert {file.parent.name for file in folder.glob("raw/*/tile-*/vegeta.requests.log.gz")} == {"tile-1", "tile-3"}
