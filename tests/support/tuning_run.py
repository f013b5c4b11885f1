"""Make synthetic runs of tuning steps, with known levels for each profile."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.synthetic_run import Row, Truth, closed_load, make_run, rate_load
from vmtoll.model.finding import Finding
from vmtoll.model.trial import Accelerator

STEPS = {
    "cumulative": ["kvm-2009", "kvm-default", "kvm-step-pinned", "kvm-tuned"],
    "base": "kvm-default",
    "single": ["kvm-pinned", "kvm-halt-poll"],
}


@dataclass(frozen=True)
class TrueFigures:
    """The truth of one environment: requests per second, µs of p99, µs of the host's CPU per request."""

    rps: float
    p99_us: float
    host_us: float


LEVELS = {
    "metal": TrueFigures(10_000, 900, 40),
    "kvm-2009": TrueFigures(2_000, 6_000, 400),
    "kvm-default": TrueFigures(6_000, 2_000, 120),
    "kvm-step-pinned": TrueFigures(6_000, 2_000, 120),  # no effect
    "kvm-tuned": TrueFigures(7_500, 1_500, 130),  # faster, and costs the host more CPU
    "kvm-pinned": TrueFigures(6_000, 2_000, 120),
    "kvm-halt-poll": TrueFigures(6_600, 1_600, 150),
}


@dataclass
class TuningTruth:
    """Settings of a synthetic tuning run: profiles, number of blocks, noise (sd of a log figure)."""

    guests: tuple[str, ...] = tuple(name for name in LEVELS if name != "metal")
    servers: tuple[str, ...] = ("nginx",)  # all alike
    blocks: int = 8
    noise: float = 0.01
    accelerator: Accelerator = Accelerator.KVM
    seed: int = 1
    skipped: list[dict[str, str]] = field(default_factory=list)
    findings: dict[str, tuple[Finding, ...]] = field(default_factory=dict)  # environment → findings of its trials


def make_tuning(parent: Path, tuning: TuningTruth) -> Path:
    """Write the run, a closed loop and an open one; return its folder."""
    rng = np.random.default_rng(tuning.seed)
    drift = rng.normal(0, 0.05, tuning.blocks + 1)  # of each block, the same in all its trials

    def change(row: Row) -> list[Row]:
        environment = row["arm"].environment
        truth = LEVELS[environment]
        noise = np.exp(rng.normal(0, tuning.noise, 3))
        slow = float(np.exp(drift[row["block"]]))
        rps = truth.rps / slow * noise[0]
        figures: dict[str, Any] = {"throughput_rps": rps, "crosscheck_throughput_rps": rps}
        if "response_time_p99_us" in row:
            parts = {"p50": 0.3, "p90": 0.6, "p99": 1.0, "p999": 2.5, "max": 4.0}
            times = {f"response_time_{name}_us": part * truth.p99_us * noise[0] for name, part in parts.items()}
            figures = times | {"throughput_rps": row["throughput_rps"]}
        if environment in tuning.guests:
            figures |= {"host_cpu_us_per_request": truth.host_us * noise[1]}
            figures |= {"host_exits_per_request": truth.host_us / 10, "host_vcpu_cpu_us_per_request": truth.host_us / 2}
        figures["server_cpu_us_per_request"] = 30 * noise[2]
        return [row | figures | {"findings": tuning.findings.get(environment, ())}]

    truth = Truth(
        dict.fromkeys(tuning.servers, 1.0), blocks=tuning.blocks, guests=tuning.guests, accelerator=tuning.accelerator,
        change=change, loads=(closed_load(), rate_load(1000)), seed=tuning.seed,
    )  # fmt: skip
    path = make_run(parent, truth)
    document = json.loads((path / "run.json").read_text())
    document["experiment"]["tuning_steps"] = STEPS
    document["skipped"] = tuning.skipped
    (path / "run.json").write_text(json.dumps(document))
    return path
