"""What a workload may say of guests, neighbours and cold caches; and a tool that is ended while it sends."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import EXPERIMENT, WORKLOAD
from test_conditions import reading, steady, survey

from workloads import tools
from workloads.runner import cold, gates, telemetry
from workloads.runner.agent.disk import read_kib
from workloads.runner.beside import Dose, Place
from workloads.runner.conditions import Load, Names, Sender, judge
from workloads.runner.errors import AgentError, ExperimentError
from workloads.runner.experiment import load
from workloads.runner.inventory import Host
from workloads.runner.load import Sending
from workloads.runner.registry import Registry
from workloads.runner.schedule import expected_s, scenarios
from workloads.runner.transport import AgentLine
from workloads.runner.usage import Usage, cpu_columns
from workloads.runner.workload import Offer
from workloads.tools import OpenLoad

CAPACITY = {"tool": "h2load", "users": 2}
RATE = {"kind": "rate", "tool": "vegeta", "twin": None, "users": None, "rate_rps": 100, "deadline_ms": 50.0}
SWEEP = {**RATE, "kind": "sweep", "rate_rps": None, "shares": [0.5, 1.0], "capacity": CAPACITY}
CLOSED = {"tool": "siege", "twin": None}
DOSED = {**CLOSED, "neighbour": {"share": [0.0, 0.5]}, "capacity": CAPACITY}


def with_workload(project: Registry, change: dict[str, Any]) -> Path:
    data = {key: value for key, value in {**WORKLOAD, **change}.items() if value is not None}
    project.workload_file("tiny").write_text(yaml.safe_dump(data))
    return project.experiment_file("tiny")


def test_an_offer_says_where_it_goes() -> None:
    assert str(Offer("rate", 300)) == "rate:300"
    assert str(Offer("rate", 300, Place(guests=1))) == "rate:300 guests:1"
    assert str(Offer("closed", 10, Place(2, Dose("share", 0.25)))) == "closed:10 guests:2 neighbour-share:0.25"


@pytest.mark.parametrize(
    ("change", "offers", "guests"),
    [
        (CLOSED, ["closed:2"], 1),
        ({**CLOSED, "guests": 2}, ["closed:2 guests:2"], 2),
        ({**RATE, "guests": [1, 3]}, ["rate:100 guests:1", "rate:100 guests:3"], 3),
        (
            {**SWEEP, "guests": [1, 2]},
            ["share:0.5 guests:1", "share:1 guests:1", "share:0.5 guests:2", "share:1 guests:2"],
            2,
        ),
        (DOSED, ["closed:2 neighbour-share:0", "closed:2 neighbour-share:0.5"], 2),
        ({**RATE, "guests": 2, "neighbour": {"rate_rps": 40}}, ["rate:100 guests:2 neighbour-rate:40"], 3),
    ],
)
def test_each_place_makes_a_scenario_of_each_load(
    project: Registry, change: dict[str, Any], offers: list[str], guests: int
) -> None:
    resolved = load(with_workload(project, change), project)
    assert [str(offer) for offer in resolved.workloads["tiny"].scenarios] == offers
    assert len(scenarios(resolved)) == 3 * len(offers), "metal, its A/A arm, the guest"
    assert resolved.guests == guests


def test_a_neighbours_tool_and_capacity_count(project: Registry) -> None:
    """The tool has to be on the client, and measuring the capacity takes its time."""
    dosed = load(with_workload(project, DOSED), project)
    assert set(dosed.workloads["tiny"].tools) == {"siege", "vegeta", "h2load"}
    plain = load(with_workload(project, {**DOSED, "neighbour": {"rate_rps": [0, 40]}, "capacity": None}), project)
    once_s = EXPERIMENT["warmup_s"] + EXPERIMENT["duration_s"]
    assert expected_s(dosed) - expected_s(plain) == pytest.approx(2 * once_s), "once on each of two environments"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"guests": 0}, r"guests: must be 1 or more and rise"),
        ({"guests": [2, 1]}, r"guests: must be 1 or more and rise"),
        ({"guests": 2}, r"twin: h2load sends all to the host of its first URL, .*; allowed: oha, siege"),
        ({**CLOSED, "guests": 2, "tool": "ab", "page": "index.html"}, r"tool: ab sends all to the host of its first"),
        ({**CLOSED, "guests": 2, "client": "localhost"}, r"client: with `guests` or `neighbour` it must be remote"),
        ({**DOSED, "capacity": None}, r"capacity: neighbour\.share needs it"),
        ({**CLOSED, "capacity": CAPACITY}, r"capacity: neighbour\.share needs it .*, nothing else does"),
        ({**RATE, "neighbour": {"share": 0.5}}, r"capacity: share needs it"),
        ({**RATE, "neighbour": {}}, r"neighbour.*give either rate_rps or share"),
        ({**RATE, "neighbour": {"rate_rps": [4, 4]}}, r"neighbour.*its doses must be 0 or more and rise"),
        ({**RATE, "neighbour": {"rate_rps": 4, "tool": "oha"}}, r"neighbour\.tool: oha cannot be ended .*: vegeta$"),
        ({**RATE, "neighbour": {"rate_rps": 4, "tool": "siege"}}, r"neighbour\.tool: siege is refused for tails"),
        ({"cold": True}, r"twin: must be null with `cold: true`"),
        ({**CLOSED, "cold": True, "page": "index.html"}, r"page: must not be given with `cold: true`"),
        ({**SWEEP, "cold": True}, r"cold: goes with rates only"),
        ({**CLOSED, "cold": True, "tool": "h2load"}, r"tool: h2load has all its users start at .*; allowed: siege"),
        ({**RATE, "cold": True, "tool": "oha"}, r"tool: oha draws its URLs at random, .*; allowed: vegeta"),
        ({**RATE, "kind": "ramp", "guests": 2}, r"guests: unknown key 'guests'"),
    ],
)
def test_what_does_not_go_together_is_refused(project: Registry, change: dict[str, Any], said: str) -> None:
    path = with_workload(project, change)
    with pytest.raises(ExperimentError, match=said):
        load(path, project)


def test_less_read_than_served_is_not_cold() -> None:
    assert gates.not_cold(33.5, 33.0, "guest") == gates.not_cold(33.0, 33.2, "guest") == [], "headers are not read"
    [reason] = gates.not_cold(30.0, 33.0, "guest")
    assert str(reason) == "not-cold: guest read 30.0 MB to serve 33.0 MB"
    assert gates.GATES["not-cold"] == "suspect"


@pytest.fixture
def metal(inventory: Path) -> Iterator[AgentLine]:
    variables = yaml.safe_load(inventory.read_text())["all"]["children"]["metal"]["hosts"]["metal"]
    line = AgentLine(Host("metal", "metal", variables))
    line.open()
    yield line
    line.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may drop the caches")
def test_what_was_dropped_is_read_from_the_disk_again(metal: AgentLine, tmp_path: Path) -> None:
    size, file = 8 << 20, tmp_path / "large"
    with file.open("wb") as handle:
        handle.write(os.urandom(size))
        os.fsync(handle.fileno())
    if tmp_path.stat().st_dev >> 8 == 0:
        pytest.skip("the file is in no file system with a disk")
    metal.call("drop_caches", 120)
    before = read_kib()
    assert len(file.read_bytes()) == size
    assert read_kib() - before >= size / 1024
    assert metal.call("usage")["read_kib"] >= read_kib() - 1024 * 1024, "the agent looks at the same counter"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def connected(port: int) -> bool:
    """Whether somebody is connected with this port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(words[2].endswith(f":{port:04X}") and words[3] == "01" for words in lines)


def test_vegeta_is_ended_while_it_sends_and_tells_what_it_sent(load_tools: None, metal: AgentLine) -> None:
    metal.call("server_start", name="lighttz")
    adapter, port = tools.get("vegeta"), metal.host.port
    whole = OpenLoad([f"http://127.0.0.1:{port}/tiny/index.html"], 200.0, 200 * 600, keep_alive=True)
    sending = Sending(metal, adapter, whole, 600.0, label="neighbour")
    until(lambda: connected(port))
    metal.call("interrupt", label="neighbour")
    done = sending.wait([], 60.0)
    with pytest.raises(tools.ToolError, match="its log holds"):
        adapter.parse(whole, done.output)
    result = adapter.parse(whole, tools.base.Output(**{**vars(done.output), "ended": True}))
    assert 0 < result.successful == result.transactions < whole.requests
    assert result.failed == 0
    assert result.sent_us is not None and bool((np.diff(result.sent_us) == 5000).all()), "as many in the schedule"
    with pytest.raises(AgentError, match="neighbour has ended already"):
        metal.call("interrupt", label="neighbour")
    metal.call("server_stop", name="lighttz")


HOST = {"0": 3.0, "1": 0.0, "2": 0.0}


def test_each_guest_is_judged_with_its_name() -> None:
    """Each has a CPU of its own. Somebody burns half of the first one's; the second turns connections away."""
    quiet, burnt = reading(0), survey(3, HOST, p7=["yes", 1.5, 0b010, "host", False])
    domains = {"toll-1": {"cpus": 0b010}, "toll-2": {"cpus": 0b100}}
    outer = [{**quiet, "survey": survey(0, {"0": 0.0, "1": 0.0, "2": 0.0}), "domains": domains}]
    outer.append({**reading(3), "survey": burnt, "domains": domains})
    drops = {**reading(3)["network"], "ListenDrops": 7}
    suts = [{"one": quiet, "two": quiet}, {"one": reading(3), "two": reading(3, network=drops)}]
    before, after = (
        Usage({"client": reading(at)}, under_test, host)
        for at, under_test, host in zip((0, 3), suts, outer, strict=True)
    )
    load = Load("vegeta", before, after, {"client": Sender(0.0, 3.0, 1000.0)})
    names = Names({"one": "toll-1", "two": "toll-2"}, "host", frozenset())
    series = {name: {"counters": [], "pulse": steady(60)} for name in ("client", "one", "two", "host")}
    columns, reasons = judge(load, names, series, dict.fromkeys(series, "tsc"))
    assert [str(reason).partition(" took")[0] for reason in reasons] == [
        "host-foreign-cpu: host: others than one", "listen-drops: two turned 7 connections away",
    ]  # fmt: skip
    assert columns["host_foreign_cpu_pct"] == pytest.approx(50.0)
    assert columns["listen_drops"] == 7


def test_what_several_guests_used_is_added_up() -> None:
    def usage(times: int) -> Usage:
        threads_s = {"vcpu": 1.0 * times, "vhost": 0.0, "qemu": 0.5 * times}
        domain = {"total_s": 1.5 * times, "threads_s": threads_s, "kvm": {}}
        server = {
            "total_s": 2.0 * times,
            "user_s": 1.0 * times,
            "system_s": 1.0 * times,
            "pss_kib": 100,
            "processes": 3,
        }
        machine = {"steal_s": 1.0 * times, "user_s": 1.0 * times, "system_s": 1.0 * times, "idle_s": 7.0 * times}
        guest = {"server": server, "machine": machine, "read_kib": 1000 * times, "interrupts": {"LOC": times}}
        outer = {"domains": {"toll-1": domain, "toll-2": domain}, "read_kib": 5000 * times, "interrupts": {}}
        return Usage({"client": {}}, {"one": guest, "two": guest}, outer)

    before, after = usage(1), usage(2)
    assert (after.pss_kib, after.processes) == (200, 6)
    assert after.steal_pct(before) == pytest.approx(10.0)
    assert cpu_columns(before, after, 100)["server_cpu_us_per_request"] == pytest.approx(4e4)
    assert cpu_columns(before, after, 100)["host_cpu_s"] == pytest.approx(3.0)
    assert cold.read_columns(before, after) == {"read_mb": 2.048, "host_read_mb": 5.12}
    told = telemetry.seen(before, after, 100)
    assert told is not None
    assert told["threads_s"] == {"vcpu": 2.0, "vhost": 0.0, "qemu": 1.0}
    assert told["guest_interrupts"] == {"LOC": 2}
