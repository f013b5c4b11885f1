"""Host CPU per request is the same account on every arm: what the physical machine spent on it."""

import pytest

from tests.unit.trial.test_conditions import survey
from vmtoll.agent.protocol import ContainerUsage, Reading, ServerUsage
from vmtoll.model.finding import Role
from vmtoll.model.metric import HOST_CPU
from vmtoll.model.trial import Measurement
from vmtoll.trial.machine_cpu import machine_cpu
from vmtoll.trial.usage import Usage, with_cpu


def process(name: str, cpu_s: float) -> list[object]:
    return [name, cpu_s, 0b11, "pid:[1]", True]


def server(total_s: float) -> ServerUsage:
    return {
        "total_s": total_s, "user_s": total_s / 2, "system_s": total_s / 2, "method": "cgroup", "pss_kib": 1,
        "processes": 1, "cpus": 1, "waits_ns": None,
    }  # fmt: skip


def container(total_s: float) -> ContainerUsage:
    return {"total_s": total_s, "user_s": total_s, "system_s": 0.0, "method": "cgroup", "cpus": 1}


@pytest.mark.parametrize("charged_s", [0.0, 1.5])
def test_an_interrupt_counts_once_whether_or_not_the_kernel_charges_it_to_a_process(charged_s: float) -> None:
    """The server worked 2 s and was interrupted for 1.5 s; the kernel's threads took 0.5 s; two CPUs, 10 s."""
    before = survey(0.0, {"0": 0.0, "1": 0.0}, p1=process("nginx", 1.0), p2=process("ksoftirqd/0", 0.0))
    after = survey(
        10.0, {"0": 10.0, "1": 6.0}, p1=process("nginx", 3.0 + charged_s), p2=process("ksoftirqd/0", 0.5)
    )  # fmt: skip
    account = machine_cpu(2.0 + charged_s, before, after)
    assert account.total_s == pytest.approx(4.0)
    assert account.kernel_threads_s == 0.5
    assert account.interrupts_s == pytest.approx(1.5 - charged_s)


def test_a_processs_time_that_began_before_and_one_that_ended_are_not_interrupts() -> None:
    before = survey(0.0, {"0": 0.0}, p1=process("cron", 2.0), p2=process("sh", 5.0))
    after = survey(10.0, {"0": 9.0}, p1=process("cron", 2.5), p3=process("bash", 5.5))
    assert machine_cpu(0.0, before, after).interrupts_s == 0.0


def usages(sut_s: float, host: Reading | None, *, sees_machine: bool = True) -> Usage:
    sut: Reading = {"server": server(sut_s), "survey": survey(10 * sut_s, {"0": 9 * sut_s}, p1=process("nginx", sut_s))}
    return Usage({"client": {}}, {"sut": sut}, host, sees_machine)


def measured(before: Usage, after: Usage) -> Measurement:
    return with_cpu(Measurement(role=Role.PRIMARY, tool="oha", transactions=100), before, after)


def test_metal_has_its_servers_processes_and_what_its_kernel_did_for_them() -> None:
    figures = measured(usages(1.0, None), usages(2.0, None))
    assert figures.host_cpu_us_per_request is None
    assert figures.machine_cpu is not None
    assert figures.machine_cpu.arm_s == pytest.approx(1.0)
    assert HOST_CPU.of(figures, guest=False) == pytest.approx(1e4)


def test_a_container_has_its_control_group_and_its_hosts_kernel() -> None:
    def host(total_s: float) -> Reading:
        return {
            "domains": {}, "containers": {"box": container(total_s)},
            "survey": survey(10 * total_s, {"0": 8 * total_s}, p1=process("nginx", total_s)),
        }  # fmt: skip

    figures = measured(usages(0.5, host(1.0)), usages(1.0, host(2.0)))
    assert figures.host_cpu_s == pytest.approx(1.0)
    assert figures.machine_cpu is not None
    assert figures.machine_cpu.arm_s == pytest.approx(1.0)
    assert figures.machine_cpu.interrupts_s == pytest.approx(1.0)
    assert HOST_CPU.of(figures, guest=False) == pytest.approx(2e4)


def test_a_machine_whose_host_is_not_seen_has_no_account() -> None:
    figures = measured(usages(1.0, None, sees_machine=False), usages(2.0, None, sees_machine=False))
    assert figures.machine_cpu is None
    assert HOST_CPU.of(figures, guest=True) is None
