"""Cold caches, several guests at once, and a tool that is ended while it sends."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.unit.trial.test_conditions import reading, samples, steady, survey
from vmtoll import loadgen
from vmtoll.agent import conditions
from vmtoll.agent.machine import read_kib
from vmtoll.agent.protocol import DomainUsage, Reading, ServerUsage
from vmtoll.loadgen import OpenLoad
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError
from vmtoll.model.finding import Code, Finding, Role, Validity
from vmtoll.model.inventory import Host
from vmtoll.model.trial import Measurement, Resources
from vmtoll.trial import gates
from vmtoll.trial.conditions import Names, ObservedLoad, Sender, observe_load
from vmtoll.trial.execution import Sending
from vmtoll.trial.usage import Usage, read_mb, server_wait_us_per_request, telemetry, with_cpu, with_telemetry


def test_less_read_than_served_is_not_cold() -> None:
    assert gates.not_cold(33.5, 33.0, "guest") == gates.not_cold(33.0, 33.2, "guest") == [], "headers are not read"
    [finding] = gates.not_cold(30.0, 33.0, "guest")
    assert finding == Finding(Code.NOT_COLD, 30.0, 0.95 * 33.0, machine="guest")
    assert finding.severity is Validity.SUSPECT


@pytest.fixture
def metal(inventory: Path) -> Iterator[AgentLine]:
    variables = yaml.safe_load(inventory.read_text())["all"]["children"]["metal_hosts"]["hosts"]["metal"]
    line = AgentLine(Host("metal", "metal", variables))
    line.open()
    yield line
    line.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may drop the caches")
def test_dropped_files_are_read_from_the_disk_again(metal: AgentLine, tmp_path: Path) -> None:
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


def test_vegeta_stopped_early_reports_the_requests_it_sent(load_tools: None, metal: AgentLine) -> None:
    metal.call("server_start", name="lighttz")
    adapter, port = loadgen.get("vegeta"), metal.host.port
    whole = OpenLoad([f"http://127.0.0.1:{port}/tiny/index.html"], 200.0, 200 * 600, keep_alive=True)
    sending = Sending(metal, adapter, whole, 600.0, label="neighbour")
    until(lambda: connected(port))
    metal.call("interrupt", label="neighbour")
    done = sending.wait([], 60.0)
    with pytest.raises(loadgen.ToolError, match="its log holds"):
        adapter.parse(whole, done.output)
    result = adapter.parse(whole, loadgen.base.Output(**{**vars(done.output), "interrupted": True}))
    assert 0 < result.successful == result.transactions < whole.requests
    assert result.failed == 0
    assert result.sent_us is not None and bool((np.diff(result.sent_us) == 5000).all()), "as many in the schedule"
    with pytest.raises(AgentError, match="neighbour has ended"):
        metal.call("interrupt", label="neighbour")
    metal.call("server_stop", name="lighttz")


HOST = {"0": 3.0, "1": 0.0, "2": 0.0}


def test_each_guest_is_judged_with_its_name() -> None:
    """Each has a CPU of its own. Somebody burns half of the first one's; the second turns connections away."""
    quiet, burnt = reading(0), survey(3, HOST, p7=["yes", 1.5, 0b010, "host", False])
    domains: dict[str, DomainUsage] = {"toll-1": {"cpus": 0b010}, "toll-2": {"cpus": 0b100}}
    host = [reading(0, survey=survey(0, dict.fromkeys("012", 0.0)), domains=domains)]
    host.append(reading(3, survey=burnt, domains=domains))
    drops = {**reading(3)["network"], "ListenDrops": 7}
    suts = [{"one": quiet, "two": quiet}, {"one": reading(3), "two": reading(3, network=drops)}]
    before, after = (
        Usage({"client": reading(at)}, under_test, of_host)
        for at, under_test, of_host in zip((0, 3), suts, host, strict=True)
    )
    load = ObservedLoad(Role.PRIMARY, "vegeta", before, after, {"client": Sender(0.0, 3.0, 1000.0)})
    names = Names({"one": "toll-1", "two": "toll-2"}, "host", frozenset())
    series = {name: samples(steady(60)) for name in ("client", "one", "two", "host")}
    seen = observe_load(load, names, series, dict.fromkeys(series, "tsc"))
    conditions, findings = seen.conditions, seen.findings
    burnt_pct = conditions.host_background_cpu_pct
    assert burnt_pct == pytest.approx(50.0)
    assert findings == [
        Finding(Code.HOST_BACKGROUND_CPU, burnt_pct, 1.0, None, "vegeta", "host", "yes (pid 7)", "one"),
        Finding(Code.LISTEN_DROPS, 7, 0, tool="vegeta", machine="two"),
    ]
    assert conditions.listen_drops == 7


def test_usage_of_several_guests_is_summed() -> None:
    def reading(times: int) -> Usage:
        threads_s = {"vcpu": 1.0 * times, "vhost": 0.0, "qemu": 0.5 * times}
        waits_ns = {"vcpu": {"7": 3_000_000 * times, "8": 1_000_000 * times}, "vhost": {"9": 0}, "qemu": {}}
        domain: DomainUsage = {"total_s": 1.5 * times, "threads_s": threads_s, "waits_ns": waits_ns, "kvm": {}}
        server: ServerUsage = {
            "total_s": 2.0 * times,
            "user_s": 1.0 * times,
            "system_s": 1.0 * times,
            "method": "cgroup",
            "pss_kib": 100,
            "processes": 3,
            "cpus": 0b01,
            "waits_ns": {"1": 5_000_000 * times, f"only-then-{times}": 1_000_000},
        }
        at_that_time = survey(10.0 * times, {"0": 9.0 * times, "1": 0.0})
        at_that_time["steal_s"]["0"] = 1.0 * times
        guest: Reading = {
            "server": server,
            "survey": at_that_time,
            "read_kib": 1000 * times,
            "interrupts": {"LOC": times},
        }
        host: Reading = {"domains": {"toll-1": domain, "toll-2": domain}, "read_kib": 5000 * times, "interrupts": {}}
        return Usage({"client": {}}, {"one": guest, "two": guest}, host)

    before, after = reading(1), reading(2)
    assert (after.pss_kib, after.processes) == (200, 6)
    assert after.steal_pct(before) == pytest.approx(10.0)
    measured = with_cpu(Measurement(role=Role.PRIMARY, tool="oha", transactions=100), before, after)
    assert measured.server_cpu_us_per_request == pytest.approx(4e4)
    assert measured.server_cpu_user_s == measured.server_cpu_system_s == pytest.approx(2.0)
    assert measured.host_cpu_s == pytest.approx(3.0)
    assert measured.host_cpu_us_per_request == pytest.approx(3e4)
    assert read_mb(before, after) == (2.048, 5.12)
    counted = telemetry(before, after, 100)
    assert counted is not None
    assert counted.threads_s == {"vcpu": 2.0, "vhost": 0.0, "qemu": 1.0}
    assert counted.guest_interrupts == {"LOC": 2}
    assert counted.waits_s == {"vcpu": pytest.approx(0.008), "vhost": 0.0, "qemu": 0.0}
    assert with_telemetry(Resources(), counted).host_vcpu_wait_us_per_request == pytest.approx(80)
    assert server_wait_us_per_request(before, after, 100) == pytest.approx(120)
    assert server_wait_us_per_request(before, after, 0) is None
    after.suts["two"]["server"]["waits_ns"] = None
    assert server_wait_us_per_request(before, after, 100) is None, "one kernel keeps no such figure"


@pytest.mark.skipif(
    not any(file.read_text() == "kthreadd\n" for file in Path("/proc").glob("2/comm")),
    reason="a container shows no threads of the kernel",
)
def test_the_threads_that_free_closed_sockets_are_not_background() -> None:
    processes = conditions.survey(())["processes"].values()
    ours = [counts_as_ours for name, _, _, _, counts_as_ours in processes if name.startswith("rcu_")]
    assert ours
    assert all(ours)
