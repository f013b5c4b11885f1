"""What the machines went through: figures from readings whose truth is known, gates on both sides of their bounds."""

import itertools
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Unpack

import pytest

from vmtoll.agent import conditions as agent
from vmtoll.agent.protocol import Ports, Reading, Samples, ServerUsage, Survey
from vmtoll.agent.sampler import Sampler
from vmtoll.model.finding import Code, Finding, Role, Validity
from vmtoll.model.trial import Conditions, Measurement
from vmtoll.trial import gates, stalls
from vmtoll.trial.background_cpu import BackgroundCpu, background_cpu
from vmtoll.trial.conditions import Names, ObservedLoad, Sender, observe_load
from vmtoll.trial.observation import PULSE_S, SHORT_MHZ_S, SHORT_PULSE_S
from vmtoll.trial.usage import Usage

pytestmark = pytest.mark.slow

BUSY = BackgroundCpu(share_pct=50, idle_pct=0, spent_s=1.0, process="yes (pid 7)")
ALONE = Names({"metal": ""}, None, frozenset())
QUIET = BackgroundCpu(share_pct=0.9, idle_pct=0, spent_s=0.018, process=None)


def survey(time_s: float, idle_s: dict[str, float], cpus: int = 0b11, **processes: Any) -> Survey:
    """`processes`: p<pid> = [name, CPU seconds, CPU mask, namespace, ours]."""
    table, steal_s = {pid[1:]: row for pid, row in processes.items()}, dict.fromkeys(idle_s, 0.0)
    return {
        "time_s": time_s, "idle_s": idle_s, "steal_s": steal_s, "cpus": cpus, "namespace": "pid:[1]",
        "processes": table,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("quiet", "loud", "expected"),
    [
        (
            gates.background_cpu(QUIET, "siege", "m"),
            gates.background_cpu(BUSY, "siege", "m"),
            Finding(Code.BACKGROUND_CPU, 50, 1.0, None, "siege", "m", "yes (pid 7)"),
        ),
        (
            gates.background_cpu(QUIET, "siege", "h", "m"),
            gates.background_cpu(BUSY, "siege", "h", "m"),
            Finding(Code.HOST_BACKGROUND_CPU, 50, 1.0, None, "siege", "h", "yes (pid 7)", "m"),
        ),
        (
            gates.client_starved(BackgroundCpu(50, 20, 1.0, "yes"), Role.PRIMARY, "siege", "c"),
            gates.client_starved(BUSY, Role.CROSSCHECK, "siege", "c"),
            Finding(Code.CLIENT_STARVED, 50, 2.0, Role.CROSSCHECK, "siege", "c", "yes (pid 7)"),
        ),
        (
            gates.retransmits(0.1, "siege", "m"),
            gates.retransmits(0.11, "siege", "m"),
            Finding(Code.RETRANSMITS, 0.11, 0.1, tool="siege", machine="m"),
        ),
        (
            gates.listen_drops(0, "siege", "m"),
            gates.listen_drops(1, "siege", "m"),
            Finding(Code.LISTEN_DROPS, 1, 0, tool="siege", machine="m"),
        ),
        (
            gates.ports_exhausted(50, 100, "siege", "c"),
            gates.ports_exhausted(51, 100, "siege", "c"),
            Finding(Code.PORTS_EXHAUSTED, 51, 50, tool="siege", machine="c", detail="51/100"),
        ),
        (
            gates.clock_stepped(0.009, "siege", "m"),
            gates.clock_stepped(-0.011, "siege", "m"),
            Finding(Code.CLOCK_STEPPED, -0.011, 0.01, tool="siege", machine="m"),
        ),
        (
            gates.clock_source("tsc", "tsc", "siege", "m"),
            gates.clock_source("tsc", "hpet", "siege", "m"),
            Finding(Code.CLOCK_SOURCE, tool="siege", machine="m", detail="tsc -> hpet"),
        ),
        (
            gates.frequency_spread(5.0, "siege", "m"),
            gates.frequency_spread(5.1, "siege", "m"),
            Finding(Code.FREQUENCY_SPREAD, 5.1, 5.0, tool="siege", machine="m"),
        ),
        (
            gates.warmup_drift(None, "siege", "m") + gates.warmup_drift(10.0, "siege", "m"),
            gates.warmup_drift(10.1, "siege", "m"),
            Finding(Code.WARMUP_DRIFT, 10.1, 10.0, tool="siege", machine="m"),
        ),
        (
            gates.stalled(0.3, 60, "siege", "m"),
            gates.stalled(0.3, 600, "siege", "m"),
            Finding(Code.STALLED, 0.3, 0.25, tool="siege", machine="m"),
        ),
        (
            gates.sysctls({"a": "1"}, {"a": "2"}, "m", ["sysctls"]),
            gates.sysctls({"a": "1"}, {"a": "2"}, "m", []),
            Finding(Code.SYSCTL, machine="m", detail="a: 1 -> 2"),
        ),
        (
            gates.rate_not_reached(1000, 1000, 20_000, Role.PRIMARY, "vegeta", "c"),
            gates.rate_not_reached(1000, 1000, 250_000, Role.PRIMARY, "vegeta", "c"),
            Finding(Code.RATE_NOT_REACHED, 0.8, 0.98, Role.PRIMARY, "vegeta", "c", detail="1000"),
        ),
        (
            gates.start_spread(0.039, 2.0, Role.PRIMARY, "oha")
            + gates.start_spread(0.9, 60.0, Role.PRIMARY, "oha")
            + gates.start_spread(None, 1, Role.PRIMARY, ""),
            gates.start_spread(0.051, 2.0, Role.PRIMARY, "oha"),
            Finding(Code.START_SPREAD, 51.0, 50.0, Role.PRIMARY, "oha"),
        ),
    ],
)
def test_gate(quiet: list[Finding], loud: list[Finding], expected: Finding) -> None:
    assert quiet == []
    assert loud == [expected]
    assert expected.severity is Validity.SUSPECT


def test_a_rate_is_reached_at_98_percent() -> None:
    [finding] = gates.rate_not_reached(1000, 1000, 21_000, Role.CROSSCHECK, "vegeta", "c")
    assert (finding.code, finding.role) == (Code.RATE_NOT_REACHED, Role.CROSSCHECK)
    assert (1 / (finding.value or 1) - 1) * 1000 / 1000 == pytest.approx(0.021), "the delay, of n requests at a rate"


def test_background_cpu_is_what_neither_we_nor_our_namespaces_used() -> None:
    before = survey(0, {"0": 0.0, "1": 0.0}, p1=["server", 1.0, 0b11, "a", True], p2=["yes", 5.0, 0b11, "a", False])
    after = survey(
        10, {"0": 2.0, "1": 8.0},
        p1=["server", 5.0, 0b11, "a", True], p2=["yes", 8.0, 0b11, "a", False], p3=["lab", 9.0, 0b11, "b", False],
    )  # fmt: skip
    seen = background_cpu(before, after, our_namespaces=frozenset({"b"}))
    assert (seen.spent_s, seen.idle_pct, seen.process) == (0.0, 50.0, "yes (pid 2)"), (
        "ours explain all ten busy seconds"
    )
    after["processes"]["3"] = ("lab", 2.0, 0b11, "b", False)
    seen = background_cpu(before, after, our_namespaces=frozenset({"b"}))
    assert (seen.spent_s, seen.share_pct) == (3.0, 15.0)


def test_processes_that_may_run_elsewhere_are_bounded_by_what_the_cpu_did() -> None:
    """A process of any CPU used 9 s, but CPU 1 was busy for 1 s only, 0.6 s of which was the guest's."""
    before = survey(0, {"0": 0.0, "1": 0.0})
    after = survey(10, {"0": 0.0, "1": 9.0}, p5=["make", 9.0, 0b11, "a", False], p6=["qemu", 0.6, 0b10, "a", True])
    seen = background_cpu(before, after, cpus=0b10)
    assert seen.spent_s == pytest.approx(0.4)
    assert seen.share_pct == pytest.approx(4.0)


def test_a_child_that_ended_is_counted_once_by_its_parent() -> None:
    before = survey(0, {"0": 0.0}, p1=["make", 1.0, 1, "a", False], p2=["cc", 4.0, 1, "a", False])
    after = survey(10, {"0": 0.0}, p1=["make", 7.0, 1, "a", False])
    after["cpus"] = 1
    assert background_cpu(before, after).spent_s == pytest.approx(2.0), "cc's last two seconds"


def pulses(sizes: Sequence[float]) -> list[tuple[float, float]]:
    """Twenty slices a second, of this size."""
    return [(i * 0.05, float(total)) for i, total in enumerate(itertools.accumulate(sizes, initial=0.0))]


def steady(slices: int) -> list[tuple[float, float]]:
    """A pulse whose slices alternate by 10 %."""
    return pulses([1050.0 if i % 2 else 950.0 for i in range(slices)])


def test_a_steady_pulse_has_no_gap_and_no_drift() -> None:
    found = stalls.slices(steady(40), 0.0, 2.0)
    assert len(found) == 40
    assert (stalls.longest_gap_s(found), stalls.slower_start_pct(found)) == (0.0, 0.0)
    assert stalls.slices([], 0.0, 2.0) == []
    assert stalls.longest_gap_s([]) is None
    assert stalls.slower_start_pct(found[:11]) is None


def test_a_gap_is_as_long_as_the_silence_the_agents_line_included() -> None:
    sizes = [1000.0] * 20 + [0.0, 0.0, 5.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0] + [1000.0] * 20
    assert stalls.longest_gap_s(stalls.slices(pulses(sizes), 0.0, 3.0)) == pytest.approx(0.5)


def test_handshakes_that_the_kernel_answers_are_no_responses() -> None:
    """A tool that opens a connection for each request that is due hears 26 KB of them in a slice of 1.3 MB."""
    sizes = [1_330_000.0] * 20 + [26_000.0, 40_000.0, 30_000.0] + [0.0] * 5 + [1_330_000.0] * 20
    assert stalls.longest_gap_s(stalls.slices(pulses(sizes), 0.0, 3.0)) == pytest.approx(0.4)


def test_a_slow_start_is_a_drift_and_uneven_files_are_none() -> None:
    slow = [rate * (1 + 0.05 * (i % 2)) for i, rate in enumerate([500.0] * 14 + [1000.0] * 28)]
    assert stalls.slower_start_pct(stalls.slices(pulses(slow), 0.0, 3.0)) == pytest.approx(50, abs=2)
    uneven = [100.0 if i % 5 else 4000.0 for i in range(42)]
    assert stalls.slower_start_pct(stalls.slices(pulses(uneven), 0.0, 3.0)) == 0.0


def samples(pulse: list[tuple[float, float]], mhz: Sequence[tuple[float, float]] = ()) -> Samples:
    return {"counters": [], "mhz": list(mhz), "pulse": pulse, "cpu_s": 0.0}


def allowed(cpus: int) -> ServerUsage:
    """A server that may use these CPUs, and uses nothing."""
    return {
        "total_s": 0.0, "user_s": 0.0, "system_s": 0.0, "method": "cgroup", "pss_kib": 0, "processes": 0, "cpus": cpus,
        "waits_ns": {},
    }  # fmt: skip


def reading(time_s: float, **changes: Unpack[Reading]) -> Reading:
    plain: Reading = {
        "machine": {"time_s": time_s},
        "clock": {"ahead_s": 100.0, "source": "tsc"},
        "network": dict.fromkeys(agent._COUNTERS, 0),
        "ports": {"used": 3, "available": 100},
        "survey": survey(time_s, {"0": time_s, "1": time_s}, 0b01),
        "server": allowed(0b01),
    }
    return {**plain, **changes}


def sent(tool: str, clients: Sequence[str], old: Reading, new: Reading, role: Role = Role.PRIMARY) -> ObservedLoad:
    """A load of these clients, begun at 0, with the same readings of every machine."""
    elapsed_s = new["machine"]["time_s"] - old["machine"]["time_s"]
    before, after = (Usage(dict.fromkeys(clients, seen), {"metal": seen}, None) for seen in (old, new))
    return ObservedLoad(role, tool, before, after, dict.fromkeys(clients, Sender(0.0, elapsed_s, 1000.0)))


def test_a_quiet_load_has_figures_and_no_finding() -> None:
    load = sent("siege", ["client"], reading(0), reading(2))
    series = {"client": samples(steady(40)), "metal": samples([])}
    seen = observe_load(load, ALONE, series, {"client": "tsc", "metal": "tsc"})
    assert seen.findings == []
    assert seen.conditions == Conditions(
        client_background_cpu_pct=0.0,
        background_cpu_pct=0.0,
        host_background_cpu_pct=None,
        retransmitted_pct=0.0,
        listen_drops=0,
        ports_used_pct=3.0,
        clock_step_ms=0.0,
        cpu_mhz_spread_pct=None,
        longest_gap_ms=0.0,
        warmup_slower_pct=0.0,
    )
    assert seen.figures == {
        "steal_pct": 0.0, "host_steal_pct": None, "cpus": 1, "host_cpus": None, "retransmitted_segments": 0,
        "retransmission_timeouts": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("reuse", "used"), [("0", 3), ("2", 3), ("", 3), ("1", 1)])
def test_a_port_that_the_kernel_takes_again_is_free(monkeypatch: pytest.MonkeyPatch, reuse: str, used: int) -> None:
    """One connection and two in TIME_WAIT (06) to 127.0.0.1:80, another port's, one of a port below the range."""
    lines = [
        f"{i}: 0100007F:{port:04X} 0100007F:{remote:04X} {state}" for i, (port, remote, state) in enumerate([
            (40000, 80, "01"), (40001, 80, "06"), (40002, 80, "06"), (40003, 81, "01"), (1000, 80, "01"),
        ])
    ]  # fmt: skip
    files = {
        "/proc/sys/net/ipv4/ip_local_port_range": "32768 60999", "/proc/sys/net/ipv4/tcp_tw_reuse": reuse,
        "/proc/net/tcp": "\n".join(["  sl  local_address rem_address   st", *lines]),
        "/proc/net/tcp6": "",
    }  # fmt: skip
    monkeypatch.setattr(agent, "read", lambda path, default="": files[path])
    assert agent.ports("127.0.0.1", 80) == {"used": used, "available": 28232}


def test_each_measurement_has_the_conditions_of_its_own_load() -> None:
    """Only the cross-check is disturbed: somebody burns a quarter of the server's two CPUs, and segments are lost."""
    burnt = survey(3, {"0": 0.0, "1": 0.0}, p7=["yes", 1.5, 0b11, "a", False])
    network = {**reading(3)["network"], "RetransSegs": 5, "OutSegs": 1000, "TCPTimeouts": 2, "TCPLossProbes": 1}
    disturbed = reading(3, survey=burnt, network=network, server=allowed(0b11))
    series = {name: samples(steady(60)) for name in ("client", "metal")}
    measured = {}
    for role, after in {Role.PRIMARY: reading(3), Role.CROSSCHECK: disturbed}.items():
        load = sent("oha", ["client"], reading(0), after, role)
        seen = observe_load(load, ALONE, series, dict.fromkeys(series, "tsc"))
        measured[role] = seen.add_to(Measurement(role=role, tool="oha", transactions=7))
    first, second = measured.values()
    assert (first.background_cpu_pct, first.cpus, first.retransmitted_segments) == (0.0, 1, 0)
    assert second.background_cpu_pct == pytest.approx(25.0)
    assert (second.cpus, second.retransmitted_segments) == (2, 10)
    assert (first.retransmission_timeouts, second.retransmission_timeouts) == (0, 6), "of client and server"
    assert (second.transactions, second.warmup_slower_pct, second.clock_step_ms) == (7, 0.0, 0.0)


def test_only_the_cpus_that_the_server_may_use_count() -> None:
    """Of four CPUs the server may use the first. A process held to the last burns it, and its hypervisor takes half."""
    idle, busy = {str(cpu): 0.0 for cpu in range(4)}, {"0": 2.0, "1": 3.0, "2": 3.0, "3": 1.5}
    before = survey(0, idle, 0b1111)
    after = survey(3, busy, 0b1111, p7=["yes", 1.5, 0b1000, "a", False])
    after["steal_s"] = {"0": 0.03, "1": 0.0, "2": 0.0, "3": 1.5}
    old, new = (reading(at, survey=at_that_time) for at, at_that_time in ((0, before), (3, after)))
    series = {name: samples(steady(60)) for name in ("client", "metal")}
    seen = observe_load(sent("oha", ["client"], old, new), ALONE, series, dict.fromkeys(series, "tsc"))
    assert seen.findings == []
    assert (seen.conditions.background_cpu_pct, seen.figures["cpus"]) == (0.0, 1)
    assert seen.figures["steal_pct"] == pytest.approx(1.0)


def test_the_host_of_a_guest_has_its_own_steal() -> None:
    """The guest runs on two of the host's three CPUs; the host's hypervisor took a tenth of these, and all else of the
    third.
    """
    host = [reading(at, survey=survey(at, dict.fromkeys("012", float(at)))) for at in (0, 3)]
    host[1]["survey"]["steal_s"] = {"0": 3.0, "1": 0.6, "2": 0.0}
    before, after = (
        Usage({"client": reading(at)}, {"guest": reading(at)}, {**seen, "domains": {"toll": {"cpus": 0b110}}})
        for at, seen in zip((0, 3), host, strict=True)
    )
    load = ObservedLoad(Role.PRIMARY, "oha", before, after, {"client": Sender(0.0, 3.0, 1000.0)})
    series = {name: samples(steady(60)) for name in ("client", "guest", "host")}
    seen = observe_load(load, Names({"guest": "toll"}, "host", frozenset()), series, dict.fromkeys(series, "tsc"))
    assert seen.figures["host_steal_pct"] == pytest.approx(10.0)
    assert seen.figures["host_cpus"] == 2
    assert (seen.figures["steal_pct"], seen.figures["cpus"]) == (0.0, 1)


BURNT = survey(3, {"0": 0.0, "1": 0.0}, 0b01, p7=["yes", 1.5, 0b01, "a", False])


def starved(*clients: str, role: Role) -> list[tuple[Code, Role | None]]:
    """What is found when somebody burns half of the one core of metal and of each client, whichever there are."""
    load = sent("h2load", clients, reading(0), reading(3, survey=BURNT), role)
    series = {name: samples(steady(60)) for name in (*clients, "metal")}
    return [(f.code, f.role) for f in observe_load(load, ALONE, series, dict.fromkeys(series, "tsc")).findings]


@pytest.mark.parametrize("role", list(Role))
def test_a_starved_client_limits_the_measurement_that_it_sent_for(role: Role) -> None:
    assert starved("client", role=role) == [(Code.BACKGROUND_CPU, None), (Code.CLIENT_STARVED, role)]


def test_background_cpu_of_a_local_client_is_reported_once() -> None:
    assert starved("metal", role=Role.PRIMARY) == [(Code.BACKGROUND_CPU, None)]


def test_each_of_several_clients_is_judged_with_its_name() -> None:
    """The second is starved and out of ports; the third hears nothing for half a second."""
    quiet, clients = reading(3), ("client1", "client2", "client3")
    ports: Ports = {"used": 95, "available": 100}
    new = dict.fromkeys(clients, quiet) | {"client2": reading(3, survey=BURNT, ports=ports)}
    old = dict.fromkeys(clients, reading(0))
    senders = dict.fromkeys(clients, Sender(0.0, 3.0, 1000.0))
    before, after = Usage(old, {"metal": reading(0)}, None), Usage(new, {"metal": quiet}, None)
    load = ObservedLoad(Role.PRIMARY, "oha", before, after, senders)
    silent = [1000.0] * 25 + [0.0] * 10 + [1000.0] * 25
    series = {name: samples(steady(60)) for name in (*clients, "metal")}
    series["client3"]["pulse"] = pulses(silent)
    seen = observe_load(load, ALONE, series, dict.fromkeys(series, "tsc"))
    conditions, findings = seen.conditions, seen.findings
    assert [(f.code, f.machine, f.detail) for f in findings] == [
        (Code.CLIENT_STARVED, "client2", ""),
        (Code.PORTS_EXHAUSTED, "client2", "95/100"),
        (Code.STALLED, "metal", ""),
    ]
    assert findings[2].value == pytest.approx(0.5)
    assert conditions.client_background_cpu_pct == pytest.approx(50.0)
    assert conditions.ports_used_pct == 95.0
    assert conditions.longest_gap_ms == pytest.approx(500.0)


@pytest.mark.parametrize("client", ["client", "metal"])
def test_a_clock_rate_that_sinks_is_named_with_its_machine(client: str) -> None:
    """The lab's machines do not govern theirs, so this fault is injected into the series."""
    rates = [(float(second), 3000.0 - 100 * second) for second in range(4)]
    load = sent("siege", [client], reading(0), reading(3))
    series = {"client": samples(steady(60)), "metal": samples(steady(60), rates)}
    seen = observe_load(load, ALONE, series, {"client": "tsc", "metal": "tsc"})
    [finding] = seen.findings
    assert (finding.code, finding.machine) == (Code.FREQUENCY_SPREAD, "metal")
    assert finding.value == seen.conditions.cpu_mhz_spread_pct == pytest.approx(10.0)


def test_three_percent_of_a_short_load_are_seen() -> None:
    """0.6 s, 18 ms: below the two ticks that were once ignored."""
    before = survey(0, {"0": 0.0}, p1=["make", 1.0, 1, "a", False])
    after = survey(0.6, {"0": 0.0}, p1=["make", 1.018, 1, "a", False])
    (seen,) = gates.background_cpu(background_cpu(before, after, cpus=1), "siege", "m")
    assert seen.value == pytest.approx(3.0)
    assert (seen.code, seen.process) == (Code.BACKGROUND_CPU, "make (pid 1)")
    assert gates.background_cpu(BackgroundCpu(1.6, 0, 0.0099, "make"), "siege", "m") == [], "a tick of idle time"


BURNER = """
import sys, time
for line in sys.stdin:
    end = time.process_time() + float(line)
    while time.process_time() < end:
        pass
    print(time.process_time(), flush=True)
"""


def test_the_agent_counts_a_process_to_the_millisecond() -> None:
    """In ticks of 10 ms it was off by up to one of them for each process."""
    with subprocess.Popen(
        [sys.executable, "-c", BURNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as p:
        assert p.stdin and p.stdout
        seen_s, truth_s = [], []
        for _ in range(4):
            p.stdin.write("0.015\n")
            p.stdin.flush()
            truth_s.append(float(p.stdout.readline()))
            seen_s.append(agent.survey([])["processes"][str(p.pid)][1])
        p.stdin.close()
    grown_s = [(b - a, d - c) for (a, b), (c, d) in zip(*map(itertools.pairwise, (truth_s, seen_s)), strict=True)]
    assert all(seen == pytest.approx(truth, abs=0.002) for truth, seen in grown_s), grown_s


@pytest.mark.parametrize(("load_s", "hidden_pct"), [(0.6, 2.5 / 0.6), (2.0, 1.5), (60.0, 1.5)])
def test_cpu_time_that_the_gates_may_miss(load_s: float, hidden_pct: float) -> None:
    assert gates.hidden_pct(load_s) == pytest.approx(hidden_pct)


def test_the_agent_reads_this_machine() -> None:
    seen = agent.survey([])
    assert seen["cpus"] > 0
    assert set(seen["idle_s"]) == set(seen["steal_s"])
    assert all(0 <= seen["steal_s"][cpu] <= idle_s for cpu, idle_s in seen["idle_s"].items())
    assert all(len(row) == 5 for row in seen["processes"].values())
    assert abs(agent.clock()["ahead_s"] - agent.clock()["ahead_s"]) < 0.001
    assert agent.network()["OutSegs"] >= 0
    assert agent.ports("127.0.0.1", 1)["available"] > 0


def test_a_load_of_two_thirds_of_a_second_has_enough_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the second, and 20 times a second, the gates on clock rate and warm-up saw nothing of most such loads. This
    machine may not govern its clock rate, so that one is injected.
    """
    monkeypatch.setattr("vmtoll.agent.sampler.mhz", lambda: 3000.0)
    fewest_rates, fewest_pulses = 4, 2 * stalls.FEWEST_SLICES + 1
    # A busy machine may not let the sampler run as often as it asks to: the best of several loads is what it takes.
    for _ in range(10):
        counters, rates, pulses_taken = _samples_during(Sampler(1.0, SHORT_PULSE_S, mhz_s=SHORT_MHZ_S), 0.65)
        if rates >= fewest_rates and pulses_taken >= fewest_pulses:
            break
    assert rates >= fewest_rates
    assert pulses_taken >= fewest_pulses
    assert counters == 2


def _samples_during(sampler: Sampler, load_s: float) -> tuple[int, int, int]:
    """How many counters a sampler takes in all, and how many clock rates and pulses during the load."""
    began_s = time.time()
    assert not sampler.stopped.wait(load_s)
    ended_s = time.time()
    taken = sampler.stop()
    rates, pulse = (sum(began_s <= time_s <= ended_s for time_s, _ in taken[name]) for name in ("mhz", "pulse"))
    return len(taken["counters"]), rates, pulse


def test_a_slow_start_of_a_short_load_is_a_drift() -> None:
    """0.65 s, the first fifth of a second at half of the rate."""
    sizes = [500.0 + 20 * (i % 2) if i < 11 else 1000.0 + 40 * (i % 2) for i in range(32)]
    pulse = [(i * SHORT_PULSE_S, total) for i, total in enumerate(itertools.accumulate(sizes, initial=0.0))]
    assert stalls.slower_start_pct(stalls.slices(pulse, 0.0, 0.65)) == pytest.approx(50, abs=2)
    twenty_a_second = stalls.slices(pulses(sizes[:11]), 0.0, 0.65)
    assert stalls.slower_start_pct(twenty_a_second) is None


@pytest.mark.parametrize("pulse_s", [PULSE_S, SHORT_PULSE_S])
def test_sampling_costs_less_than_a_hundredth_of_a_core(pulse_s: float) -> None:
    """The client's sampler, counters and interference, as a ratio of its CPU time to the wall clock."""
    shares = []
    for _ in range(3):  # what others take of this CPU meanwhile is counted as the sampler's on a virtual machine
        sampler = Sampler(1.0, pulse_s)
        done = sampler.stopped.wait(3.0)
        taken = sampler.stop()
        assert not done
        assert len(taken["pulse"]) > 30
        assert len(taken["counters"]) >= 4
        shares.append(taken["cpu_s"] / 3.0)
        if shares[-1] < 0.01:
            break
    assert min(shares) < 0.01, shares
