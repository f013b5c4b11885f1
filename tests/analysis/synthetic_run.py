"""Make synthetic run directories with a known truth. Nothing in them was ever measured."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from scipy.stats import norm

from analysis.load import COLUMNS
from workloads.runner.latency import by_second

Row = dict[str, Any]
SPREAD = 0.55  # sd of a log latency within a trial
SECONDS = 4
DEADLINE_MS = 50.0


@dataclass
class Truth:
    """What the synthetic machines are like; ratios are guest/metal."""

    servers: dict[str, float] = field(default_factory=lambda: {"nginx": 0.9})  # server → throughput ratio
    latency_ratio: float = 1.2
    cpu_ratio: float = 1.1
    blocks: int = 6
    noise: float = 0.004  # sd of a log figure
    drift: float = 0.05  # sd of a block's own log effect
    aa: bool = True
    guests: tuple[str, ...] = ("kvm-default",)
    accelerator: str = "kvm"
    link: str = "unshaped"
    status: str = "complete"
    histograms: bool = False
    loads: tuple[str, ...] = ("closed:10",)  # offered loads; `rate:` and `share:` are rungs of the sweep `ladder`
    open_capacity_rps: float = 4000.0  # of metal, where the open loop ends; the guest's is this times its ratio
    change: Callable[[Row], list[Row]] | None = None  # row → the rows (attempts) that take its place
    undeclared: list[dict[str, Any]] = field(default_factory=list)
    seed: int = 1


def make_run(parent: Path, truth: Truth) -> Path:
    """Write run.json, hosts.json, trials.csv (and histograms) of a synthetic run; returns its directory."""
    path = parent / "results" / "synthetic" / "20260101T000000-synthetic"
    (path / "histograms").mkdir(parents=True)
    rng = np.random.default_rng(truth.seed)
    rows: list[Row] = []
    environments = ["metal", *(["metal-b"] if truth.aa else []), *truth.guests]
    for block in range(1, truth.blocks + 1):
        scenarios = [(e, s, load) for s in truth.servers for load in truth.loads for e in environments]
        drift = {server: rng.normal(0, truth.drift) for server in truth.servers}
        for order, index in enumerate(rng.permutation(len(scenarios)), start=1):
            environment, server, load = scenarios[index]
            row = _row(rng, truth, block, order, environment, server, drift[server]) | {"offered_load": load}
            if not load.startswith("closed:"):
                row = _open(rng, truth, row, drift[server])
            rows += truth.change(row) if truth.change else [row]
    with (path / "trials.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if truth.histograms:
        for row in rows:
            _histogram(rng, path, row)
    planned = truth.blocks * len(environments) * len(truth.servers) * len(truth.loads)
    _write(path / "run.json", _run_json(path.name, truth, planned))
    _write(path / "hosts.json", _hosts_json(truth))
    return path


def failed(row: Row, reason: str) -> Row:
    """The same trial, failed: empty metrics and a reason."""
    keep = COLUMNS[: COLUMNS.index("requests") + 1]
    return {k: row[k] for k in keep if k in row} | {"twin": row["twin"], "verdict": "invalid", "reasons": reason}


def suspected(row: Row, *reasons: str) -> Row:
    """The same trial with reasons to doubt it."""
    return row | {"verdict": "suspect", "reasons": " | ".join(reasons)}


def _row(
    rng: np.random.Generator, truth: Truth, block: int, order: int, environment: str, server: str, drift: float
) -> Row:
    guest = environment in truth.guests

    def figure(base: float, ratio: float, sign: float = 1.0) -> float:
        log = np.log(base) + sign * drift + rng.normal(0, truth.noise) + (np.log(ratio) if guest else 0.0)
        return round(float(np.exp(log)), 4)

    place = list(truth.servers).index(server)
    ratio = truth.servers[server]
    rps = figure(8000 - 500 * place, ratio)
    twin_rps = figure(21000 - 2500 * place, ratio)
    p50 = figure(300 + 40 * place, truth.latency_ratio, -1)
    row: Row = {
        "run_id": "20260101T000000-synthetic", "block": block, "order": order, "attempt": 1,
        "environment": environment, "accelerator": truth.accelerator if guest else "none",
        "server": server, "workload": "siege-site", "tool": "siege", "offered_load": "closed:10",
        "started_at": f"2026-01-01T{block % 24:02d}:{order % 60:02d}:00Z",
        "users": 10, "requests": 20000, "duration_s": round(20000 / rps, 4), "transactions": 20000,
        "availability_pct": 100.0, "transferred_mb": 182.4, "throughput_rps": rps,
        "throughput_mb_per_s": 70.1, "response_time_mean_ms": 1.2, "concurrency": 9.7, "successful": 20000,
        "failed": 0, "longest_ms": 30.0, "shortest_ms": 0.0,
        "twin": "h2load", "twin_requests": 20000, "twin_duration_s": round(20000 / twin_rps, 4),
        "twin_throughput_rps": twin_rps, "twin_failed": 0,
        "service_time_mean_us": p50 * 1.1, "service_time_p50_us": p50, "service_time_p90_us": p50 * 1.8,
        "service_time_p99_us": figure(1200, truth.latency_ratio, -1),
        "service_time_p999_us": figure(4000, truth.latency_ratio, -1),
        "server_cpu_user_s": 0.4, "server_cpu_system_s": 0.9,
        "server_cpu_us_per_request": figure(45 + 9 * place, truth.cpu_ratio, -1),
        "twin_server_cpu_us_per_request": figure(40 + 8 * place, truth.cpu_ratio, -1),
        "memory_pss_kib": int(figure(5200 + 4000 * place, 1.0)), "processes": 2 + place,
        "client_cpu_s": 1.9, "client_cpu_share": 0.7, "twin_client_cpu_share": 0.4, "steal_pct": 0.0,
        "bodies_checked": 16, "bodies_wrong": 0, "fixed_cost_s": 1.4, "verdict": "valid", "reasons": "",
    }  # fmt: skip
    if guest:
        row |= {
            "host_cpu_s": 4.1,
            "host_cpu_us_per_request": figure(70 + 9 * place, truth.cpu_ratio, -1),
            "twin_host_cpu_us_per_request": figure(66 + 8 * place, truth.cpu_ratio, -1),
        }
    return row


def _open(rng: np.random.Generator, truth: Truth, row: Row, drift: float) -> Row:
    """The same trial as an open loop: lognormal response times whose median grows as 1/(1 − utilisation)."""
    guest = row["environment"] in truth.guests
    place = list(truth.servers).index(row["server"])
    ratio = truth.servers[row["server"]] if guest else 1.0
    capacity = truth.open_capacity_rps * (1 - 0.1 * place) * ratio * float(np.exp(drift))
    kind, _, figure = row["offered_load"].partition(" ")[0].partition(":")
    offered = float(figure) * (capacity if kind == "share" else 1.0)
    used = offered / capacity
    idle_us = 250 * (truth.latency_ratio if guest else 1.0) * float(np.exp(rng.normal(0, truth.noise)))
    median_us = idle_us / (1 - min(used, 0.97)) + 2e6 * max(used - 1, 0)
    attained = min(offered, capacity)
    percentiles = {
        f"response_time_{name}_us": round(median_us * float(np.exp(SPREAD * norm.ppf(p))), 1)
        for name, p in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 0.99999))
    }
    within = float(norm.cdf(np.log(DEADLINE_MS * 1000 / median_us) / SPREAD))
    requests = int(offered * SECONDS)
    closed = ("service_time_", "response_time_", "longest", "shortest", "concurrency", "users")
    return {key: value for key, value in row.items() if not key.startswith(closed)} | percentiles | {
        "workload": "ladder", "tool": "vegeta", "twin": "oha", "offered_rps": round(offered, 2),
        "requests": requests, "transactions": requests, "successful": requests, "failed": 0,
        "duration_s": round(requests / attained, 4), "throughput_rps": round(attained, 4),
        "transferred_mb": requests * 9120 / 1e6, "twin_requests": requests,
        "twin_throughput_rps": round(attained, 4), "twin_response_time_p99_us": percentiles["response_time_p99_us"],
        "response_time_mean_us": round(median_us * float(np.exp(SPREAD**2 / 2)), 1), "lateness_p99_us": 40.0,
        "deadline_ms": DEADLINE_MS, "goodput_rps": round(attained * within, 4),
    }  # fmt: skip


def _histogram(rng: np.random.Generator, path: Path, row: Row) -> None:
    """2,000 lognormal values, as the runner writes them: whole, and by second."""
    median_us = row.get("service_time_p50_us") or row.get("response_time_p50_us")
    if median_us is None:
        return
    histogram = HdrHistogram(1, 3_600_000_000, 3)
    values = rng.lognormal(np.log(median_us), SPREAD, 2000).astype(np.int64)
    for value in values:
        histogram.record_value(int(value))
    name = f"b{row['block']:03d}-o{row['order']:03d}-a{row['attempt']}"
    (path / "histograms" / f"{name}.hdr").write_bytes(histogram.encode())
    sent = np.linspace(0, SECONDS * 1e6 - 1, len(values)).astype(np.int64)
    (path / "histograms" / f"{name}.csv").write_bytes(by_second(sent, values))


def _run_json(run_id: str, truth: Truth, planned: int) -> dict[str, Any]:
    accelerators = {"metal": "none"} | dict.fromkeys(truth.guests, truth.accelerator)
    return {
        "schema": 1, "run_id": run_id, "experiment": {"name": "synthetic", "description": "made up by a test"},
        "order_seed": truth.seed, "versions": {"vmtoll": "0.1.0"}, "commit": "0" * 40,
        "started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T01:00:00Z", "status": truth.status,
        "accelerators": accelerators, "emulated": truth.accelerator == "tcg", "lab": "embedded",
        "link": truth.link, "link_mbit": 100 if truth.link == "100mbit" else None,
        "differences": {"declared": ["container", "cpu_model", "virtualization"], "undeclared": truth.undeclared},
        "trials_planned": planned, "verdict": None,
    }  # fmt: skip


def _hosts_json(truth: Truth) -> dict[str, Any]:
    def facts(role: str, environment: str | None, virtualization: str) -> dict[str, Any]:
        return {
            "role": role, "environment": environment, "kernel": "6.1.0-synthetic", "cmdline": "ro quiet",
            "cpu_model": "Synthetic CPU" if virtualization == "none" else "Synthetic vCPU",
            "cpus_allowed": "1", "microcode": "0x1", "mitigations": {"meltdown": "Not affected"},
            "governor": None, "smt": "on", "numa_nodes": 1, "clock_source": "tsc", "memory_kib": 2097152,
            "virtualization": virtualization, "container": "systemd-nspawn" if role != "kvm_guest" else "none",
            "nic": {"driver": "veth", "speed_mbit": 10000},
            "sysctls": {"net.core.somaxconn": "4096", "net.ipv4.tcp_rmem": "4096 131072 6291456"},
            "packages": dict.fromkeys(truth.servers, "1.0-1"),
            "servers": {
                name: {"binary_sha256": "ab" * 32, "config_sha256": "cd" * 32, "workers": 1, "version": "1.0"}
                for name in truth.servers
            },
            "content_digest": "ef" * 32, "workers": 1,
        }  # fmt: skip

    hosts = {"client": facts("client", None, "none"), "metal": facts("metal", "metal", "none")}
    for guest in truth.guests:
        hosts[guest] = facts("kvm_guest", guest, "kvm")
    hosts["host"] = {"role": "kvm_host", "environment": None, "kernel": "6.1.0-synthetic", "qemu_version": "7.2"}
    hosts["host"] |= {"libvirt_version": "9.0.0", "domains": {"kvm": "<domain type='kvm'>made up</domain>"}}
    return hosts


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
