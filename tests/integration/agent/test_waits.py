"""Waits for a CPU, as the kernel counts them: of threads that compete, of a server, and of a real QEMU's threads."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from vmtoll.agent.machine import process_ns
from vmtoll.agent.sampler import Sampler
from vmtoll.agent.servers import wait_until
from vmtoll.agent.waits import MOST_SAMPLED, WaitCounter, guest_waits, kind_of, merge_kinds, thread_waits
from vmtoll.trial.observation import COLUMNS, to_csv

CPU = min(os.sched_getaffinity(0))
SPIN = ["taskset", "-c", str(CPU), "/usr/bin/python3", "-c", "while True: pass"]
PERIOD_S = 2.0


@pytest.fixture
def spin() -> Iterator[Callable[[], str]]:
    """Starts a process that keeps one CPU busy, the same for all; its PID."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> str:
        started.append(subprocess.Popen(SPIN))
        pid = str(started[-1].pid)
        wait_until(lambda: process_ns(pid) > 100_000_000, 30, "it does not run")
        return pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def waited_s(pid: str) -> float:
    waits = thread_waits([pid])
    assert waits and list(waits) == [pid]
    return waits[pid] / 1e9


def test_a_thread_waits_for_the_share_that_a_hog_takes(spin: Callable[[], str]) -> None:
    """One that always wants to run either runs or waits, and waits at least while the hog runs."""
    pid, hog = spin(), spin()
    begun_s, waited_before_s, ran_before_s, hog_before_s = (
        time.monotonic(), waited_s(pid), process_ns(pid) / 1e9, process_ns(hog) / 1e9,
    )  # fmt: skip
    wait_until(lambda: time.monotonic() - begun_s > PERIOD_S, 30, "time stands still")
    wait_s, ran_s, hog_s = (
        waited_s(pid) - waited_before_s, process_ns(pid) / 1e9 - ran_before_s, process_ns(hog) / 1e9 - hog_before_s,
    )  # fmt: skip
    elapsed_s = time.monotonic() - begun_s
    assert wait_s + ran_s == pytest.approx(elapsed_s, rel=0.1)
    assert wait_s > 0.9 * hog_s > 0.1


def test_waits_are_sampled_in_percent_of_the_time(spin: Callable[[], str]) -> None:
    pids = [spin(), spin()]
    sampler = Sampler(0.5, wait_counter=WaitCounter(lambda: thread_waits(pids)))
    wait_until(lambda: len(sampler.counters) > 3, 30, "no samples")
    rows = to_csv([("sut", "metal", sampler.stop()["counters"])]).decode().splitlines()
    assert rows[0].split(",") == COLUMNS
    percents = [float(row.split(",")[-1]) for row in rows[1:4]]
    assert all(percent > 80 for percent in percents), "of two that share a CPU one waits all the time"


def test_more_threads_than_are_cheap_to_read_are_not_sampled() -> None:
    many = {str(thread): 1 for thread in range(MOST_SAMPLED + 1)}
    assert WaitCounter(lambda: many).total_s() is None
    assert WaitCounter(lambda: None).total_s() is None, "a kernel without the figure"
    (row,) = to_csv([("sut", "metal", [{**COUNTERS, "time_s": 1.0}, {**COUNTERS, "time_s": 2.0}])]).splitlines()[1:]
    assert row.endswith(b",")


COUNTERS = dict.fromkeys(
    ("time_s", "load1", "pressure_us", "user_s", "system_s", "idle_s", "steal_s", "rx_bytes", "tx_bytes"), 0.0
)


def test_ended_and_new_threads_do_not_count_twice() -> None:
    readings = iter([{"1": 10, "2": 500}, {"1": 25, "3": 4}, {"1": 25, "3": 6}])
    waiting = WaitCounter(lambda: next(readings))
    assert [waiting.total_s(), waiting.total_s()] == [pytest.approx(19e-9), pytest.approx(21e-9)]


def test_the_threads_of_a_real_qemu_are_read_by_kind() -> None:
    argv = [
        "qemu-system-x86_64", "-accel", "tcg", "-nodefaults", "-display", "none", "-m", "64",
        "-object", "iothread,id=iothread1", "-name", "guest=toll,debug-threads=on",
    ]  # fmt: skip
    with subprocess.Popen(argv) as process:
        try:
            pid = str(process.pid)
            wait_until(
                lambda: {"vcpu", "iothread"} <= {k for k, t in (guest_waits(pid, []) or {}).items() if t}, 30, "none"
            )
            waits = guest_waits(pid, [])
        finally:
            process.kill()
    assert waits is not None and waits["vhost"] == {}
    assert len(waits["vcpu"]) == len(waits["iothread"]) == 1 <= len(waits["qemu"])
    assert set(merge_kinds([waits, None])) == {thread for threads in waits.values() for thread in threads}


@pytest.mark.parametrize(
    ("thread", "kind"),
    [
        ("CPU 0/KVM", "vcpu"), ("CPU 11/TCG", "vcpu"), ("fc_vcpu 0", "vcpu"), ("vcpu12", "vcpu"),
        ("crosvm_vcpu0", "vcpu"), ("vhost-4711", "vhost"), ("IO iothread1", "iothread"), ("IO mon_iothread", "qemu"),
        ("qemu-system-x86", "qemu"), ("worker", "qemu"),
    ],
)  # fmt: skip
def test_kinds_of_threads_by_their_names(thread: str, kind: str) -> None:
    assert kind_of(thread) == kind


def test_a_process_that_is_gone_has_no_waits() -> None:
    assert thread_waits(["0"]) == {}
    assert guest_waits("0", []) == {"vcpu": {}, "vhost": {}}
