"""Make run directories of synthetic readings. Nothing in them was ever measured."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from scipy.stats import norm

from vmtoll.model.columns import to_csv
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.table import columns_of
from vmtoll.model.trial import (
    CROSSCHECK,
    METAL,
    Accelerator,
    Arm,
    ClientPlace,
    Conditions,
    Counts,
    MachineKind,
    Measurement,
    Offered,
    Resources,
    Scenario,
    TrialRecord,
    kind_of,
    to_json,
    trial_name,
)
from vmtoll.trial.latency import by_second

# A trial as a test writes it: the columns of trials.csv by name, and `arm`, `load`, `findings` as objects.
Row = dict[str, Any]
RUN_ID = "20260101T000000-synthetic"
SPREAD = 0.55  # sd of a log latency within a trial
SECONDS = 4
DEADLINE_MS = 50.0
CLOSED_LOOP, SWEEP = "siege-site", "sweep"
CONTROL = Arm(METAL, 2)


def closed_load(users: int = 10, **keys: Any) -> Load:
    """A closed loop of this number of users."""
    return Load(LoadKind.CLOSED, users, **keys)


def rate_load(rps: float, **keys: Any) -> Load:
    """An open loop at this number of requests per second."""
    return Load(LoadKind.RATE, rps, **keys)


def share_load(fraction: float, **keys: Any) -> Load:
    """An open loop at this share of each side's capacity."""
    return Load(LoadKind.SHARE, fraction, **keys)


@dataclass
class Truth:
    """Properties of the synthetic machines; ratios are guest/metal. `guests`: all environments but metal, so a
    container or a change as well.
    """

    servers: dict[str, float] = field(default_factory=lambda: {"nginx": 0.9})  # server → throughput ratio
    latency_ratio: float = 1.2
    cpu_ratio: float = 1.1
    blocks: int = 6
    noise: float = 0.004  # sd of a log figure
    drift: float = 0.05  # sd of a block's own log effect
    aa: bool = True
    guests: tuple[str, ...] = ("kvm-default",)
    accelerator: Accelerator = Accelerator.KVM
    hardware: Hardware = Hardware.NATIVE  # below all machines
    kvm_modules: tuple[str, ...] = ("kvm_amd",)
    link: str = "unshaped"
    status: str = "complete"
    histograms: bool = False
    loads: tuple[Load, ...] = (closed_load(),)  # open loops are steps of the workload SWEEP
    open_capacity_rps: float = 4000.0  # metal's capacity in an open loop; the guest's is this times its ratio
    change: Callable[[Row], list[Row]] | None = None  # row → the rows (attempts) that take its place
    undeclared: list[dict[str, Any]] = field(default_factory=list)
    seed: int = 1
    unseen_hosts: tuple[str, ...] = ()  # guests whose KVM hosts were not seen
    metal: bool = True  # without it the first guest is the baseline
    baseline: str | None = None  # of the experiment
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the experiment; their names are in `guests`
    guest_control: str = ""  # a guest that each block measures twice; its second trials are drawn last

    @property
    def arms(self) -> list[Arm]:
        metal = [Arm(METAL), *([CONTROL] if self.aa else [])] if self.metal else []
        return [*metal, *map(Arm, self.guests)]

    @property
    def environments(self) -> list[str]:
        return [*([METAL] if self.metal else []), *self.guests]

    @property
    def machines(self) -> dict[str, str]:
        """Environment of a machine → the first environment that is measured on it."""
        machines: dict[str, str] = {}
        for name in self.environments:
            machines.setdefault(self.changes.get(name, {}).get("of", name), name)
        return machines

    def kind_of(self, environment: str) -> MachineKind:
        """The kind of an environment's machine."""
        return kind_of(self.changes.get(environment, {}).get("of", environment))

    def accelerator_of(self, environment: str) -> Accelerator:
        """What ran an environment's code."""
        return self.accelerator if self.kind_of(environment) is MachineKind.GUEST else Accelerator.NONE


def make_run(parent: Path, truth: Truth) -> Path:
    """Write run.json, hosts.json, trials.jsonl (and histograms) of a synthetic run; returns its directory."""
    path = parent / "results" / "synthetic" / RUN_ID
    (path / "histograms").mkdir(parents=True)
    rng = np.random.default_rng(truth.seed)
    rows: list[Row] = []
    for block in range(1, truth.blocks + 1):
        scenarios = [(arm, s, load) for s in truth.servers for load in truth.loads for arm in truth.arms]
        drift = {server: rng.normal(0, truth.drift) for server in truth.servers}
        order = list(rng.permutation(len(scenarios)))
        if truth.guest_control:
            control = Arm(truth.guest_control, 2)
            scenarios += [(control, s, load) for s in truth.servers for load in truth.loads]
            order += range(len(order), len(scenarios))
        for position, index in enumerate(order, start=1):
            arm, server, load = scenarios[index]
            row = _row(rng, truth, block, position, arm, server, drift[server]) | {"load": load}
            if load.is_open:
                row = _open(rng, truth, row, drift[server])
            rows += truth.change(row) if truth.change else [row]
    if truth.histograms:
        rows = [row | {"histogram": _histogram(rng, path, row)} for row in rows]
    write_trials(path, rows)
    planned = truth.blocks * len(truth.arms) * len(truth.servers) * len(truth.loads)
    _write(path / "run.json", _run_json(path.name, truth, planned))
    _write(path / "hosts.json", _hosts_json(truth))
    return path


def write_trials(path: Path, rows: Iterable[Row]) -> None:
    """Write trials.jsonl and trials.csv of a run with these rows."""
    records = [record_of(row) for row in rows]
    (path / "trials.jsonl").write_bytes(b"".join(to_json(record) + b"\n" for record in records))
    (path / "trials.csv").write_bytes(to_csv(records))


def record_of(row: Row) -> TrialRecord:
    """The row as a record. Its histogram belongs to the cross-check if that logs service times, else to the primary."""
    of_crosscheck = row.get(f"{CROSSCHECK}service_time_p99_us") is not None
    histogram = row.get("histogram")
    measurements = (
        _measurement(row, Role.PRIMARY, "", None if of_crosscheck else histogram),
        _measurement(row, Role.CROSSCHECK, CROSSCHECK, histogram if of_crosscheck else None),
    )
    return TrialRecord(
        **{
            key: row[key]
            for key in ("run_id", "block", "order", "attempt", "arm", "accelerator", "hardware", "started_at")
        },
        scenario=Scenario(row["server"], row["workload"], row["load"]),
        boot=row.get("boot", 1),
        client=ClientPlace(row.get("client", "remote")),
        clients=row.get("clients", 1),
        guests=row.get("guests", 1),
        offered=Offered(**_fields_of(row, Offered)),
        measurements=tuple(measured for measured in measurements if measured),
        resources=Resources(**_fields_of(row, Resources)),
        conditions=Conditions(**_fields_of(row, Conditions)),
        counts=Counts(**_fields_of(row, Counts)),
        findings=tuple(row.get("findings", ())),
        fixed_cost_s=row.get("fixed_cost_s", 0.0),
    )


def _fields_of(row: Row, group: type, prefix: str = "") -> Row:
    """The fields of a group that the row has."""
    return {f.name: row[prefix + f.name] for f in fields(group) if row.get(prefix + f.name) is not None}


def _measurement(row: Row, role: Role, prefix: str, histogram: str | None) -> Measurement | None:
    if not row.get(f"{prefix}tool"):
        return None
    columns = [each.name for each in columns_of(Measurement) if each.name != "tool"]
    figures = {name: row[prefix + name] for name in columns if row.get(prefix + name) is not None}
    machine_cpu = row.get(f"{prefix}machine_cpu")
    bare = Measurement(role=role, tool=row[f"{prefix}tool"], histogram=histogram, machine_cpu=machine_cpu)
    return bare.with_columns(figures) if figures else None


def failed_trial(row: Row, code: Code, detail: str = "") -> Row:
    """The same trial as failed, with this finding: nothing was measured."""
    kept_keys = (
        "run_id",
        "block",
        "order",
        "attempt",
        "arm",
        "accelerator",
        "hardware",
        "server",
        "workload",
        "load",
        "started_at",
    )
    return {key: row[key] for key in kept_keys} | {"findings": (Finding(code, detail=detail),)}


def with_findings(row: Row, *findings: Finding | Code) -> Row:
    """The same trial with these findings; a code becomes a finding of the whole trial."""
    return row | {"findings": tuple(f if isinstance(f, Finding) else Finding(f) for f in findings)}


def role_findings(code: Code, *roles: Role) -> tuple[Finding, ...]:
    """A finding with this code for each of these measurements."""
    return tuple(Finding(code, role=role) for role in roles)


def _row(rng: np.random.Generator, truth: Truth, block: int, order: int, arm: Arm, server: str, drift: float) -> Row:
    guest = arm.environment in truth.guests

    def figure(base: float, ratio: float, sign: float = 1.0) -> float:
        log = np.log(base) + sign * drift + rng.normal(0, truth.noise) + (np.log(ratio) if guest else 0.0)
        return round(float(np.exp(log)), 4)

    index = list(truth.servers).index(server)
    ratio = truth.servers[server]
    rps = figure(8000 - 500 * index, ratio)
    crosscheck_rps = figure(21000 - 2500 * index, ratio)
    p50 = figure(300 + 40 * index, truth.latency_ratio, -1)
    row: Row = {
        "run_id": RUN_ID, "block": block, "order": order, "attempt": 1,
        "arm": arm, "accelerator": truth.accelerator_of(arm.environment),
        "hardware": truth.hardware,
        "server": server, "workload": CLOSED_LOOP, "tool": "siege",
        "started_at": f"2026-01-01T{block % 24:02d}:{order % 60:02d}:00Z",
        "users": 10, "requests": 20000, "duration_s": round(20000 / rps, 4), "transactions": 20000,
        "availability_pct": 100.0, "transferred_mb": 182.4, "throughput_rps": rps,
        "throughput_mb_per_s": 70.1, "response_time_mean_ms": 1.2, "concurrency": 9.7, "successful": 20000,
        "failed": 0, "longest_ms": 30.0, "shortest_ms": 0.0,
        "crosscheck_tool": "h2load", "crosscheck_requests": 20000, "crosscheck_successful": 20000,
        "crosscheck_duration_s": round(20000 / crosscheck_rps, 4),
        "crosscheck_throughput_rps": crosscheck_rps, "crosscheck_failed": 0,
        "crosscheck_service_time_mean_us": p50 * 1.1, "crosscheck_service_time_p50_us": p50,
        "crosscheck_service_time_p90_us": p50 * 1.8,
        "crosscheck_service_time_p99_us": figure(1200, truth.latency_ratio, -1),
        "crosscheck_service_time_p999_us": figure(4000, truth.latency_ratio, -1),
        "server_cpu_user_s": 0.4, "server_cpu_system_s": 0.9,
        "server_cpu_us_per_request": figure(45 + 9 * index, truth.cpu_ratio, -1),
        "crosscheck_server_cpu_us_per_request": figure(40 + 8 * index, truth.cpu_ratio, -1),
        "memory_pss_kib": int(figure(5200 + 4000 * index, 1.0)), "processes": 2 + index,
        "client_cpu_s": 1.9, "client_cpu_share": 0.7, "crosscheck_client_cpu_share": 0.4, "steal_pct": 0.0,
        "background_cpu_pct": 0.0,
        "bodies_checked": 16, "bodies_wrong": 0, "fixed_cost_s": 1.4, "findings": (),
    }  # fmt: skip
    if truth.kind_of(arm.environment) is not MachineKind.METAL and arm.environment not in truth.unseen_hosts:
        row |= {
            "host_cpu_s": 4.1,
            "host_cpu_us_per_request": figure(70 + 9 * index, truth.cpu_ratio, -1),
            "crosscheck_host_cpu_us_per_request": figure(66 + 8 * index, truth.cpu_ratio, -1),
        }
    return row


def _open(rng: np.random.Generator, truth: Truth, row: Row, drift: float) -> Row:
    """The same trial as an open loop: lognormal response times whose median grows as 1/(1 − utilization)."""
    guest = row["arm"].environment in truth.guests
    index = list(truth.servers).index(row["server"])
    ratio = truth.servers[row["server"]] if guest else 1.0
    capacity = truth.open_capacity_rps * (1 - 0.1 * index) * ratio * float(np.exp(drift))
    load: Load = row["load"]
    offered = load.value * (capacity if load.kind is LoadKind.SHARE else 1.0)
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
    closed_loop_columns = ("crosscheck_service_time_", "response_time_", "longest", "shortest", "concurrency", "users")
    return {key: value for key, value in row.items() if not key.startswith(closed_loop_columns)} | percentiles | {
        "workload": SWEEP, "tool": "vegeta", "crosscheck_tool": "oha", "offered_rps": round(offered, 2),
        "requests": requests, "transactions": requests, "successful": requests, "failed": 0,
        "duration_s": round(requests / attained, 4), "throughput_rps": round(attained, 4),
        "transferred_mb": requests * 9120 / 1e6, "crosscheck_requests": requests, "crosscheck_successful": requests,
        "crosscheck_throughput_rps": round(attained, 4),
        "crosscheck_response_time_p99_us": percentiles["response_time_p99_us"],
        "response_time_mean_us": round(median_us * float(np.exp(SPREAD**2 / 2)), 1), "lateness_p99_us": 40.0,
        "deadline_ms": DEADLINE_MS, "goodput_rps": round(attained * within, 4),
    }  # fmt: skip


def _histogram(rng: np.random.Generator, path: Path, row: Row) -> str | None:
    """2,000 lognormal values, as the runner writes them: whole, and by second. Returns the file's name."""
    median_us = row.get("crosscheck_service_time_p50_us") or row.get("response_time_p50_us")
    if median_us is None:
        return None
    histogram = HdrHistogram(1, 3_600_000_000, 3)
    values = rng.lognormal(np.log(median_us), SPREAD, 2000).astype(np.int64)
    for value in values:
        histogram.record_value(int(value))
    file = path / "histograms" / f"{trial_name(row['block'], row['order'], row['attempt'])}.hdr"
    file.write_bytes(histogram.encode())
    sent = np.linspace(0, SECONDS * 1e6 - 1, len(values)).astype(np.int64)
    file.with_suffix(".csv").write_bytes(by_second(sent, values))
    return f"histograms/{file.name}"


def _run_json(run_id: str, truth: Truth, planned: int) -> dict[str, Any]:
    workloads = _workloads(truth.loads)
    return {
        "schema": 3, "run_id": run_id,
        "experiment": {
            "name": "synthetic", "question": "made up by a test", "scale": "small", "warmup_s": 0.5, "duration_s": 4.0,
            "environments": truth.environments, "baseline": truth.baseline, "changes": truth.changes,
            "servers": list(truth.servers), "workloads": list(workloads),
            "blocks": truth.blocks,
        },
        "workloads": workloads,
        "site": {
            "name": "pages", "description": "made up by a test", "seed": 1, "pages": {"index.html": "<html></html>"},
        },
        "order_seed": truth.seed, "versions": {"vmtoll": "0.1.0"}, "commit": "0" * 40,
        "started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T01:00:00Z", "status": truth.status,
        "accelerators": {name: truth.accelerator_of(name).value for name in ("metal", *truth.guests)},
        "lab": "embedded",
        "hardware": dict.fromkeys(("metal", *truth.guests), truth.hardware.value),
        "unseen_hosts": list(truth.unseen_hosts),
        "link": truth.link, "link_mbit": 100.0 if truth.link == "100mbit" else None,
        "differences": {"declared": ["container", "cpu_model", "virtualization"], "undeclared": truth.undeclared},
        "trials_planned": planned,
    }  # fmt: skip


def _workloads(loads: Iterable[Load]) -> dict[str, dict[str, Any]]:
    """The documents of the workloads that these loads are scenarios of."""
    users = sorted({int(load.value) for load in loads if not load.is_open})
    steps = sorted({(load.kind, load.value) for load in loads if load.is_open})
    documents: dict[str, dict[str, Any]] = {}
    common = {"description": "made up by a test", "site": "pages", "keep_alive": False}
    if users:
        documents[CLOSED_LOOP] = common | {
            "name": CLOSED_LOOP, "kind": "closed", "tool": "siege", "crosscheck": "h2load", "users": users,
        }  # fmt: skip
    if steps:
        kind = steps[0][0]
        values = [value for other, value in steps if other is kind]
        values += [2 * values[0]] if len(values) == 1 else []
        documents[SWEEP] = common | {
            "name": SWEEP, "kind": "sweep", "tool": "vegeta", "crosscheck": "oha", "deadline_ms": DEADLINE_MS,
            ("shares" if kind is LoadKind.SHARE else "rates_rps"): values,
        }  # fmt: skip
        if kind is LoadKind.SHARE:
            documents[SWEEP]["capacity"] = {"tool": "h2load", "users": 10}
    return documents


def _hosts_json(truth: Truth) -> dict[str, Any]:
    def facts(role: str, environment: str | None, virtualization: str) -> dict[str, Any]:
        return {
            "role": role, "environment": environment, "release": "Debian 12", "kernel": "6.1.0-synthetic",
            "cmdline": "ro quiet",
            "cpu_model": "Synthetic CPU" if virtualization == "none" else "Synthetic vCPU",
            "cpus_allowed": 1, "microcode": "0x1", "mitigations": {"meltdown": "Not affected"},
            "governor": None, "smt": "on", "numa_nodes": 1, "clock_source": "tsc", "memory_kib": 2097152,
            "virtualization": virtualization, "container": "systemd-nspawn" if virtualization == "none" else "none",
            "nic": "virtual mtu=1500",
            "sysctls": {"net.core.somaxconn": "4096", "net.ipv4.tcp_rmem": "4096 131072 6291456"},
            "packages": dict.fromkeys(truth.servers, "1.0-1"),
            "servers": {
                name: {"binary_sha256": "ab" * 32, "config_sha256": "cd" * 32, "workers": 1, "version": "1.0"}
                for name in truth.servers
            },
            "content_digest": "ef" * 32, "workers": 1,
        }  # fmt: skip

    hosts = {"client": facts("client", None, "none")}
    for machine, environment in truth.machines.items():
        is_guest = kind_of(machine) is MachineKind.GUEST
        hosts[machine] = facts("sut", environment, "kvm" if is_guest else "none")
    hosts["host"] = {"role": "kvm_host", "environment": None, "kernel": "6.1.0-synthetic", "qemu_version": "7.2"}
    hosts["host"] |= {"kvm_modules": list(truth.kvm_modules), "kvm_flags": ["svm"] * ("kvm_amd" in truth.kvm_modules)}
    hosts["host"] |= {"libvirt_version": "9.0.0", "domains": {"kvm": "<domain type='kvm'>made up</domain>"}}
    return hosts


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
