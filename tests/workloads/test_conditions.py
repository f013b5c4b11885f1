"""What the machines went through: figures from readings whose truth is known, gates on both sides of their bounds."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from workloads.runner import gates, machine_gates, pulse
from workloads.runner.agent import conditions as agent
from workloads.runner.agent.sampler import Sampler
from workloads.runner.conditions import Load, Names, Sender, judge
from workloads.runner.gates import Reason
from workloads.runner.neighbours import Others, others
from workloads.runner.usage import Usage

BUSY = Others(share_pct=50, idle_pct=0, spent_s=1.0, worst="yes (pid 7)")
ALONE = Names({"metal": ""}, None, frozenset())
QUIET = Others(share_pct=0.9, idle_pct=0, spent_s=0.018, worst="")


def survey(time_s: float, idle_s: dict[str, float], **processes: list[Any]) -> dict[str, Any]:
    """`processes`: p<pid> = [name, CPU seconds, CPU mask, namespace, ours]."""
    table = {pid[1:]: row for pid, row in processes.items()}
    return {"time_s": time_s, "idle_s": idle_s, "cpus": 0b11, "namespace": "pid:[1]", "processes": table}


@pytest.mark.parametrize(
    ("quiet", "loud", "code"),
    [
        (machine_gates.foreign_cpu(QUIET, "m"), machine_gates.foreign_cpu(BUSY, "m"), "foreign-cpu"),
        (
            machine_gates.host_foreign_cpu(QUIET, "h", "m"),
            machine_gates.host_foreign_cpu(BUSY, "h", "m"),
            "host-foreign-cpu",
        ),
        (
            machine_gates.client_starved(Others(50, 20, 1.0, "yes"), "c", "siege"),
            machine_gates.client_starved(BUSY, "c", "siege"),
            "client-starved",
        ),
        (machine_gates.retransmits(0.1, "m"), machine_gates.retransmits(0.11, "m"), "retransmits"),
        (machine_gates.listen_drops(0, "m"), machine_gates.listen_drops(1, "m"), "listen-drops"),
        (machine_gates.ports_exhausted(90, 100, "c"), machine_gates.ports_exhausted(91, 100, "c"), "ports-exhausted"),
        (machine_gates.clock_stepped(0.009, "m"), machine_gates.clock_stepped(-0.011, "m"), "clock-stepped"),
        (machine_gates.clock_source("tsc", "tsc", "m"), machine_gates.clock_source("tsc", "hpet", "m"), "clock-source"),
        (machine_gates.frequency_spread(5.0, "m"), machine_gates.frequency_spread(5.1, "m"), "frequency-spread"),
        (machine_gates.warmup_drift(None, "m"), machine_gates.warmup_drift(10.1, "m"), "warmup-drift"),
        (machine_gates.stalled(0.3, 60, "m"), machine_gates.stalled(0.3, 600, "m"), "stalled"),
        (
            machine_gates.sysctls({"a": "1"}, {"a": "2"}, "m", ["sysctls"]),
            machine_gates.sysctls({"a": "1"}, {"a": "2"}, "m", []),
            "sysctl",
        ),
        (
            gates.rate_not_reached(1000, 1000, 20_000, "vegeta"),
            gates.rate_not_reached(1000, 1000, 21_000, "vegeta"),
            "rate-not-reached",
        ),
        (
            gates.start_spread(0.039, 2.0, "oha")
            + gates.start_spread(0.9, 60.0, "oha")
            + gates.start_spread(None, 1, ""),
            gates.start_spread(0.051, 2.0, "oha"),
            "start-spread",
        ),
        (
            gates.mean_over_p99({"service_time_mean_us": 5.0, "service_time_p99_us": None}, "service_time"),
            gates.mean_over_p99({"service_time_mean_us": 5.0, "service_time_p99_us": 4.0}, "service_time"),
            "mean-over-p99",
        ),
    ],
)
def test_gate(quiet: list[Reason], loud: list[Reason], code: str) -> None:
    assert quiet == []
    assert [r.code for r in loud] == [code]
    assert gates.verdict(loud) == "suspect"


def test_others_are_what_neither_we_nor_our_namespaces_used() -> None:
    before = survey(0, {"0": 0.0, "1": 0.0}, p1=["server", 1.0, 0b11, "a", True], p2=["yes", 5.0, 0b11, "a", False])
    after = survey(
        10, {"0": 2.0, "1": 8.0},
        p1=["server", 5.0, 0b11, "a", True], p2=["yes", 8.0, 0b11, "a", False], p3=["lab", 9.0, 0b11, "b", False],
    )  # fmt: skip
    seen = others(before, after, own=frozenset({"b"}))
    assert (seen.spent_s, seen.idle_pct, seen.worst) == (0.0, 50.0, "yes (pid 2)"), "ours explain all ten busy seconds"
    after["processes"]["3"][1] = 2.0
    seen = others(before, after, own=frozenset({"b"}))
    assert (seen.spent_s, seen.share_pct) == (3.0, 15.0)


def test_others_that_may_run_elsewhere_are_bounded_by_what_the_cpu_did() -> None:
    """A process of any CPU used 9 s, but CPU 1 was busy for 1 s only, 0.6 s of which was the guest's."""
    before = survey(0, {"0": 0.0, "1": 0.0})
    after = survey(10, {"0": 0.0, "1": 9.0}, p5=["make", 9.0, 0b11, "a", False], p6=["qemu", 0.6, 0b10, "a", True])
    seen = others(before, after, cpus=0b10)
    assert seen.spent_s == pytest.approx(0.4)
    assert seen.share_pct == pytest.approx(4.0)


def test_a_child_that_ended_is_counted_once_by_its_parent() -> None:
    before = survey(0, {"0": 0.0}, p1=["make", 1.0, 1, "a", False], p2=["cc", 4.0, 1, "a", False])
    after = survey(10, {"0": 0.0}, p1=["make", 7.0, 1, "a", False])
    after["cpus"] = 1
    assert others(before, after).spent_s == pytest.approx(2.0), "cc's last two seconds"


def pulses(sizes: Sequence[float]) -> list[tuple[float, float]]:
    """Twenty slices a second, of so many bytes."""
    return [(i * 0.05, float(total)) for i, total in enumerate(itertools.accumulate(sizes, initial=0.0))]


def steady(slices: int) -> list[tuple[float, float]]:
    """A pulse whose slices alternate by 10 %."""
    return pulses([1050.0 if i % 2 else 950.0 for i in range(slices)])


def test_a_steady_pulse_has_no_gap_and_no_drift() -> None:
    found = pulse.slices(steady(40), 0.0, 2.0)
    assert len(found) == 40
    assert (pulse.longest_gap_s(found), pulse.slower_start_pct(found)) == (0.0, 0.0)
    assert pulse.slices([], 0.0, 2.0) == []
    assert pulse.longest_gap_s([]) is None
    assert pulse.slower_start_pct(found[:11]) is None


def test_a_gap_is_as_long_as_the_silence_the_agents_line_included() -> None:
    sizes = [1000.0] * 20 + [0.0, 0.0, 5.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0] + [1000.0] * 20
    assert pulse.longest_gap_s(pulse.slices(pulses(sizes), 0.0, 3.0)) == pytest.approx(0.5)


def test_a_slow_start_is_a_drift_and_uneven_files_are_none() -> None:
    slow = [rate * (1 + 0.05 * (i % 2)) for i, rate in enumerate([500.0] * 14 + [1000.0] * 28)]
    assert pulse.slower_start_pct(pulse.slices(pulses(slow), 0.0, 3.0)) == pytest.approx(50, abs=2)
    uneven = [100.0 if i % 5 else 4000.0 for i in range(42)]
    assert pulse.slower_start_pct(pulse.slices(pulses(uneven), 0.0, 3.0)) == 0.0


def reading(time_s: float, **changes: Any) -> dict[str, Any]:
    plain = {
        "machine": {"time_s": time_s},
        "clock": {"ahead_s": 100.0, "source": "tsc"},
        "network": dict.fromkeys(("RetransSegs", "OutSegs", "ListenOverflows", "ListenDrops", "TCPReqQFullDrop"), 0),
        "ports": {"used": 3, "available": 100},
        "survey": {**survey(time_s, {"0": time_s, "1": time_s}), "cpus": 0b01},
    }
    return {**plain, **changes}


def sent(tool: str, clients: Sequence[str], old: dict[str, Any], new: dict[str, Any], *, twin: bool = False) -> Load:
    """A load of these clients, begun at 0, with the same readings of every machine."""
    elapsed_s = new["machine"]["time_s"] - old["machine"]["time_s"]
    before, after = (Usage(dict.fromkeys(clients, seen), {"metal": seen}, None) for seen in (old, new))
    return Load(tool, before, after, dict.fromkeys(clients, Sender(0.0, elapsed_s, 1000.0)), twin)


def test_a_quiet_load_has_figures_and_no_reason() -> None:
    load = sent("siege", ["client"], reading(0), reading(2))
    series = {"client": {"counters": [], "pulse": steady(40)}, "metal": {"counters": [], "pulse": []}}
    columns, reasons = judge(load, ALONE, series, {"client": "tsc", "metal": "tsc"})
    assert reasons == []
    assert columns == {
        "client_foreign_cpu_pct": 0.0,
        "foreign_cpu_pct": 0.0,
        "host_foreign_cpu_pct": None,
        "retransmitted_pct": 0.0,
        "listen_drops": 0,
        "ports_used_pct": 3.0,
        "clock_step_ms": 0.0,
        "cpu_mhz_spread_pct": None,
        "longest_gap_ms": 0.0,
        "warmup_slower_pct": 0.0,
    }


BURNT = {**survey(3, {"0": 0.0, "1": 0.0}, p7=["yes", 1.5, 0b01, "a", False]), "cpus": 0b01}


def starved(*clients: str, twin: bool) -> list[str]:
    """The codes when somebody burns half of the one core of metal and of each client, whichever there are."""
    load = sent("h2load", clients, reading(0), reading(3, survey=BURNT), twin=twin)
    series = {name: {"counters": [], "pulse": steady(60)} for name in (*clients, "metal")}
    return [reason.code for reason in judge(load, ALONE, series, dict.fromkeys(series, "tsc"))[1]]


def test_a_starved_twin_has_a_code_of_its_own() -> None:
    assert starved("client", twin=False) == ["foreign-cpu", "client-starved"]
    assert starved("client", twin=True) == ["foreign-cpu", "twin-client-starved"]


def test_where_the_client_is_the_machine_itself_nobody_is_told_twice() -> None:
    assert starved("metal", twin=False) == ["foreign-cpu"]


def test_each_of_several_clients_is_judged_with_its_name() -> None:
    """The second is starved and out of ports; the third hears nothing for half a second."""
    quiet, clients = reading(3), ("client1", "client2", "client3")
    ports = {"used": 95, "available": 100}
    new = dict.fromkeys(clients, quiet) | {"client2": reading(3, survey=BURNT, ports=ports)}
    old = dict.fromkeys(clients, reading(0))
    senders = dict.fromkeys(clients, Sender(0.0, 3.0, 1000.0))
    load = Load("oha", Usage(old, {"metal": reading(0)}, None), Usage(new, {"metal": quiet}, None), senders)
    silent = [1000.0] * 25 + [0.0] * 10 + [1000.0] * 25
    series = {name: {"counters": [], "pulse": steady(60)} for name in (*clients, "metal")}
    series["client3"]["pulse"] = pulses(silent)
    columns, reasons = judge(load, ALONE, series, dict.fromkeys(series, "tsc"))
    assert [str(reason).partition(" took")[0] for reason in reasons] == [
        "client-starved: client2: others than oha",
        "ports-exhausted: client2: 95 of 100 local ports in use or in TIME_WAIT",
        "stalled: metal: no response for 0.50 s",
    ]
    assert columns["client_foreign_cpu_pct"] == pytest.approx(50.0)
    assert (columns["ports_used_pct"], columns["longest_gap_ms"]) == (95.0, pytest.approx(500.0))


@pytest.mark.parametrize("client", ["client", "metal"])
def test_a_clock_rate_that_sinks_is_named_with_its_machine(client: str) -> None:
    """The lab's machines do not govern theirs, so this fault is planted in the series."""
    rows = [{"time_s": float(second), "mhz": 3000.0 - 100 * second} for second in range(4)]
    load = sent("siege", [client], reading(0), reading(3))
    series = {"client": {"counters": [], "pulse": steady(60)}, "metal": {"counters": rows, "pulse": steady(60)}}
    columns, reasons = judge(load, ALONE, series, {"client": "tsc", "metal": "tsc"})
    assert [str(r) for r in reasons] == ["frequency-spread: metal: the clock rate moved by 10.0 %"]
    assert columns["cpu_mhz_spread_pct"] == pytest.approx(10.0)


def test_the_agent_reads_this_machine() -> None:
    seen = agent.survey([])
    assert seen["cpus"] > 0
    assert set(seen["idle_s"])
    assert all(len(row) == 5 for row in seen["processes"].values())
    assert abs(agent.clock()["ahead_s"] - agent.clock()["ahead_s"]) < 0.001
    assert agent.network()["OutSegs"] >= 0
    assert agent.ports("127.0.0.1", 1)["available"] > 0


def test_sampling_costs_less_than_a_hundredth_of_a_core() -> None:
    """The client's sampler, counters and pulse, as a ratio of its CPU time to the wall clock."""
    shares = []
    for _ in range(3):  # what others take of this CPU meanwhile is counted as the sampler's on a virtual machine
        sampler = Sampler(1.0, 0.05)
        done = sampler.enough.wait(3.0)
        taken = sampler.stop()
        assert not done
        assert len(taken["pulse"]) > 30
        assert len(taken["counters"]) >= 4
        shares.append(taken["cpu_s"] / 3.0)
        if shares[-1] < 0.01:
            break
    assert min(shares) < 0.01, shares
