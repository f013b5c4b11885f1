"""What limited a trial: the first of its findings and figures that applies."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.synthetic_run import Row, Truth, closed_load, make_run, rate_load, record_of
from vmtoll.analysis.limiters import limiter_of
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.limiter import Limiter
from vmtoll.model.load import Load
from vmtoll.model.trial import Accelerator, Arm, MachineKind, TrialRecord, kind_of
from vmtoll.report import words

GUEST = Arm("kvm-default")


def record(load: Load, arm: Arm = GUEST, /, *findings: Finding, **figures: float) -> TrialRecord:
    """A trial of 10 s that answered 4,000 requests of 4,000 planned, if not said otherwise."""
    accelerator = Accelerator.KVM if kind_of(arm.environment) is MachineKind.GUEST else Accelerator.NONE
    row: Row = {
        "run_id": "r", "block": 1, "order": 1, "attempt": 1, "arm": arm, "accelerator": accelerator,
        "hardware": Hardware.NATIVE, "server": "nginx", "workload": "w", "load": load,
        "started_at": "2026-01-01T00:00:00Z", "tool": "x",
        "requests": 4000, "transactions": 4000, "duration_s": 10.0, "throughput_rps": 400.0, "findings": findings,
        "server_cores": 1, "offered_rps": 400.0 if load.is_open else None,
    }  # fmt: skip
    return record_of(row | figures)


BUSY = {"server_cpu_user_s": 4.0, "server_cpu_system_s": 5.0}
IDLE = {"server_cpu_user_s": 1.0, "server_cpu_system_s": 1.0}


def vcpus(*, ran_us: float, waited_us: float) -> dict[str, float]:
    return {"host_vcpu_cpu_us_per_request": ran_us, "host_vcpu_wait_us_per_request": waited_us}


def server(*, ran_us: float, waited_us: float) -> dict[str, float]:
    return {"server_cpu_us_per_request": ran_us, "server_wait_us_per_request": waited_us}


@pytest.mark.parametrize(
    ("trial", "limiter"),
    [
        (record(closed_load(), GUEST, Finding(Code.CLIENT_SATURATED, role=Role.PRIMARY), **BUSY), Limiter.CLIENT_CPU),
        (
            record(closed_load(), GUEST, Finding(Code.CLIENT_SATURATED, role=Role.CROSSCHECK), **BUSY),
            Limiter.SERVER_CPU,
        ),
        (record(closed_load(), GUEST, Finding(Code.LINK_BOUND), **BUSY), Limiter.LINK),
        (record(closed_load(), **BUSY, host_cpu_s=11.0), Limiter.SERVER_CPU),
        (record(closed_load(), **IDLE, host_cpu_s=9.0), Limiter.HOST_CPU),
        (record(closed_load(), Arm("container"), **IDLE, host_cpu_s=9.0), Limiter.SERVER_CPU),
        (record(closed_load(), **IDLE, **vcpus(ran_us=1000, waited_us=1200)), Limiter.HOST_WAIT),
        (record(closed_load(), **IDLE, **vcpus(ran_us=1000, waited_us=1100)), Limiter.CONNECTIONS),
        (record(closed_load(), **BUSY, **vcpus(ran_us=1000, waited_us=1200)), Limiter.SERVER_CPU),
        (record(rate_load(400), **IDLE, **vcpus(ran_us=1000, waited_us=1200)), Limiter.NOTHING),
        (record(closed_load(), Arm("metal"), **IDLE, **server(ran_us=500, waited_us=1700)), Limiter.CPU_WAIT),
        (record(closed_load(), Arm("metal"), **IDLE, **server(ran_us=500, waited_us=1600)), Limiter.CONNECTIONS),
        (record(closed_load(), **IDLE), Limiter.CONNECTIONS),
        (record(rate_load(400), **BUSY), Limiter.NOTHING),
        (record(rate_load(400), **BUSY, throughput_rps=300.0), Limiter.SERVER_CPU),
        (record(rate_load(400), GUEST, Finding(Code.LISTEN_DROPS), **IDLE, throughput_rps=300.0), Limiter.CONNECTIONS),
        (record(rate_load(400), **IDLE, throughput_rps=300.0), None),
        (record(closed_load(), server_cpu_us_per_request=2300.0), Limiter.SERVER_CPU),
        (record(closed_load()), None),
    ],
)  # fmt: skip
def test_the_first_that_applies(trial: TrialRecord, limiter: Limiter | None) -> None:
    assert limiter_of(trial) is limiter


def test_a_change_of_a_container_is_judged_as_one() -> None:
    """What ran its code tells a container, of whatever name, from a guest."""
    trial = record(closed_load(), Arm("tuned"), **IDLE, host_cpu_s=9.0)
    assert limiter_of(replace(trial, accelerator=Accelerator.NONE)) is Limiter.SERVER_CPU
    assert limiter_of(replace(trial, accelerator=Accelerator.KVM)) is Limiter.HOST_CPU


def test_a_server_fills_no_more_cores_than_it_has_workers() -> None:
    trial = record(closed_load(), **BUSY, server_cores=4)
    assert limiter_of(trial) is Limiter.CONNECTIONS
    assert limiter_of(trial, cores=1) is Limiter.SERVER_CPU
    unknown = replace(trial, resources=replace(trial.resources, server_cores=None))
    assert (limiter_of(unknown), limiter_of(unknown, cores=1)) == (None, Limiter.SERVER_CPU)


@pytest.mark.parametrize("figures", [IDLE | vcpus(ran_us=1000, waited_us=1200), BUSY, IDLE | {"host_cpu_s": 9.0}])
def test_guests_that_share_a_load_fill_the_cores_of_all(figures: dict[str, float]) -> None:
    trial = record(closed_load(), **figures)
    assert limiter_of(trial) is not Limiter.CONNECTIONS
    assert limiter_of(replace(trial, guests=2)) is Limiter.CONNECTIONS


def test_each_side_of_a_row_has_its_limiter(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        guest = row["arm"] == GUEST
        spent_s = row["duration_s"] * (0.95 if guest else 0.3)
        finding = () if guest else (Finding(Code.CLIENT_SATURATED, role=Role.PRIMARY),)
        return [row | {"server_cpu_user_s": spent_s, "server_cpu_system_s": 0.0, "findings": finding}]

    (comparison,) = analyse(load_run(make_run(tmp_path, Truth({"nginx": 0.9}, change=change)))).comparisons
    cpu = comparison.verdicts["cpu"]
    assert cpu.role is Role.CROSSCHECK, "the client limited the primary tool"
    (own,) = analyse(load_run(make_run(tmp_path / "open", Truth(loads=(rate_load(1000),))))).comparisons
    assert (own.verdicts["tail"].baseline_limiter, own.verdicts["tail"].compared_limiter) == (Limiter.NOTHING,) * 2
    assert words.limiters_text(own, words.sides_of([own])(own)) == "the offered rate"


@pytest.mark.parametrize("limiter", Limiter)
def test_every_limiter_has_words(limiter: Limiter) -> None:
    assert limiter.text
