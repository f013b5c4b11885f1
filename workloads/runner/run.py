"""A run from start to end: plan it, hold the machines, measure trial by trial, resume where it stopped."""

import errno
import platform
import secrets
import subprocess
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workloads.runner import hosts, private
from workloads.runner.bench import Bench, Progress
from workloads.runner.errors import ExperimentError, InventoryError, ResultsError
from workloads.runner.experiment import Resolved, Scale, load
from workloads.runner.fits import check_inventory
from workloads.runner.inventory import Inventory, load_inventory
from workloads.runner.registry import PROJECT, Registry
from workloads.runner.results import SCHEMA, Store
from workloads.runner.revive import restore, take
from workloads.runner.rungs import without_absent
from workloads.runner.schedule import Planned, expected_s, schedule
from workloads.runner.search import decided
from workloads.runner.transport import AgentLine
from workloads.runner.trial import Trial
from workloads.sites import manifest

MOST_ATTEMPTS = 2
# A trial that ends with one of these is tried again; a gate that fires is a finding, not an accident.
_TRY_AGAIN = ("host-lost:", "tool-failed:", "server-failed:")


@dataclass(frozen=True)
class Plan:
    """What a run would do. `total_s` is wall clock."""

    resolved: Resolved
    order_seed: int
    trials: Sequence[Planned]
    total_s: float


def plan(
    experiment_path: Path,
    registry: Registry | None = None,
    order_seed: int | None = None,
    scale: Scale | None = None,
) -> Plan:
    """Check an experiment and draw its schedule; nothing is started. Raises ExperimentError."""
    resolved = load(experiment_path, registry, scale)
    return _plan(resolved, order_seed)


def _plan(resolved: Resolved, order_seed: int | None) -> Plan:
    experiment = resolved.experiment
    if order_seed is None:
        order_seed = experiment.seed if experiment.seed is not None else secrets.randbelow(2**31)
    return Plan(resolved, order_seed, schedule(resolved, order_seed), expected_s(resolved))


def run(
    experiment_path: Path,
    inventory_path: Path,
    results_dir: Path,
    resume: Path | None = None,
    *,
    progress: Progress | None = None,
    registry: Registry | None = None,
    scale: Scale | None = None,
    limit: str | None = None,
) -> Path:
    """Measure an experiment at a scale, or go on with the run in `resume`; the run's folder.

    `limit` is Ansible's pattern of hosts: the machines of the inventory that take part.
    `results_dir` gets `<experiment>/<run-id>/` and the link `latest`. A run that was killed is resumed with
    its own experiment, as recorded; the one at `experiment_path` must still say the same. Raises RunnerError
    (one clear sentence) when something does not fit or a machine does not come back; what was measured stays.
    """
    say: Progress = progress or (lambda *_: None)
    resolved = load(experiment_path, registry, scale)
    ladder = resolved.experiment.ladder
    inventory = load_inventory(
        inventory_path,
        resolved.experiment.environments,
        resolved.guests,
        limit,
        optional=ladder.environments if ladder else (),
    )
    resolved = without_absent(resolved, inventory, registry or Registry())
    check_inventory(resolved, inventory, experiment_path, inventory_path)
    if resume is None:
        planned = _plan(resolved, None)
        now = datetime.now(UTC)
        run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        store = Store.create(results_dir / resolved.experiment.name / run_id)
    else:
        store = Store(resume)
        run_id = store.run_dir.name
        planned = _recorded_plan(store, resolved, inventory) or _plan(resolved, None)
    lines = {host.name: AgentLine(host) for host in inventory.hosts()}
    bench = Bench(run_id, resolved, inventory, store, manifest(resolved.site), planned.order_seed, lines)
    try:
        _prepare(bench, planned, say)
        _point_latest(results_dir, store.run_dir)
        _measure(bench, planned, say)
        _finish(bench, len(planned.trials), say)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ResultsError(
            f"{store.run_dir}: the disk is full; what was measured is kept: free some space, then go on with "
            f"--resume {store.run_dir}"
        ) from error
    finally:
        for line in lines.values():
            line.close()
        store.close()
    return store.run_dir


def _recorded_plan(store: Store, resolved: Resolved, inventory: Inventory) -> Plan | None:
    """The plan of a run that is resumed; None when it was killed before it wrote one."""
    if not (store.run_dir / "run.json").exists():
        return None
    recorded = store.read_json("run.json")
    if recorded.get("schema") != SCHEMA:
        raise ResultsError(f"{store.run_dir}: schema {recorded.get('schema')}, this program writes {SCHEMA}")
    if recorded["status"] == "complete":
        raise ResultsError(f"{store.run_dir}: the run is complete, there is nothing to resume")
    if (recorded["experiment"], recorded.get("skipped", [])) != (resolved_document(resolved), _skipped(resolved)):
        name = resolved.experiment.name
        raise ExperimentError(f"{store.run_dir}: experiment {name}, or what it skips, has changed since the run began")
    there, here = sorted(store.read_json("hosts.json")), sorted(host.name for host in inventory.hosts())
    if there != here:
        raise InventoryError(
            f"{store.run_dir}: was measured on {', '.join(there)}; this inventory, with its --limit, has "
            f"{', '.join(here)}"
        )
    return _plan(resolved, int(recorded["order_seed"]))


def _skipped(resolved: Resolved) -> list[dict[str, str]]:
    servers = [{"server": server, "why": why} for server, why in resolved.skipped.items()]
    return servers + [{"environment": environment, "why": why} for environment, why in resolved.absent.items()]


def resolved_document(resolved: Resolved) -> dict[str, Any]:
    """`experiment` in run.json: the experiment's keys, and under `resolved` what they name."""
    document: dict[str, Any] = resolved.experiment.model_dump(mode="json")
    document["resolved"] = {
        "workloads": {name: w.model_dump(mode="json") for name, w in resolved.workloads.items()},
        "site": resolved.site.model_dump(mode="json"),
    }
    return document


def _prepare(bench: Bench, planned: Plan, say: Progress) -> None:
    """Reach and hold every machine, gather the facts, write run.json and hosts.json."""
    total = len(planned.trials)
    for name, why in (bench.resolved.skipped | bench.resolved.absent).items():
        say("skipped", 0, total, f"{name}: {why}", planned.total_s)
    say("connect", 0, total, "reaching the machines", planned.total_s)
    hosts.open_all(bench.lines.values())
    for host in bench.inventory.hosts():
        if host.role != "kvm_host":
            take(bench, host)
    say("facts", 0, total, "comparing the machines", planned.total_s)
    bench.facts = hosts.gather(bench)
    bench.accelerators = hosts.accelerators(bench)
    bench.store.write_json("hosts.json", bench.facts)
    bench.store.write_json("private.json", private.gather(bench))
    recorded = (bench.store.run_dir / "run.json").exists()
    if not recorded:
        bench.store.write_json("run.json", _document(bench, planned))
    for row in bench.store.rows():
        environment, server, workload = row["environment"].removesuffix("-b"), row["server"], row["workload"]
        if row["capacity_rps"]:
            bench.capacities[environment, server, workload] = float(row["capacity_rps"])
        place = row["offered_load"].split()[1:]
        for column, tool in (("throughput_rps", row["tool"]), ("twin_throughput_rps", row["twin"])):
            if row["users"] and row[column]:
                bench.rates[environment, server, " ".join([workload, *place]), tool] = float(row[column])


def _document(bench: Bench, planned: Plan) -> dict[str, Any]:
    inventory = bench.inventory
    suts = {
        environment if number == 1 else f"{environment}-{number}": bench.facts[host.name]
        for environment, hosts in inventory.machines.items()
        for number, host in enumerate(hosts, start=1)
    }
    return {
        "schema": SCHEMA,
        "run_id": bench.run_id,
        "experiment": resolved_document(bench.resolved),
        "order_seed": planned.order_seed,
        "versions": {
            "vmtoll": _version(),
            "python": platform.python_version(),
            **hosts.tool_versions(bench),
            **bench.resolved.sources,
        },
        "commit": _commit(),
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "ended_at": None,
        "status": "running",
        "accelerators": bench.accelerators,
        "emulated": "tcg" in bench.accelerators.values(),
        "lab": inventory.client.get("vmtoll_lab", "hosts"),
        "link": inventory.link,
        "link_mbit": inventory.link_mbit,
        "differences": hosts.differences(suts, bench.resolved.experiment.declared_differences),
        "skipped": _skipped(bench.resolved),
        "trials_planned": len(planned.trials),
        "verdict": None,
    }


def _version() -> str:
    with (PROJECT / "pyproject.toml").open("rb") as handle:
        return str(tomllib.load(handle)["project"]["version"])


def _commit() -> str | None:
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(PROJECT), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    try:
        head = git("rev-parse", "HEAD")
        return (head + ("-dirty" if git("status", "--porcelain") else "")) if head else None
    except OSError:
        return None


def _point_latest(results_dir: Path, run_dir: Path) -> None:
    latest, fresh = results_dir / "latest", results_dir / f".latest-{secrets.token_hex(4)}"
    try:
        target = run_dir.resolve().relative_to(results_dir.resolve())
    except ValueError:
        return
    fresh.symlink_to(target)
    fresh.replace(latest)


def attempts_of(rows: Sequence[Mapping[str, str]], key: tuple[int, int]) -> list[Mapping[str, str]]:
    return [row for row in rows if (int(row["block"]), int(row["order"])) == key]


def next_attempt(attempts: Sequence[Mapping[str, str]]) -> int | None:
    """The number of the attempt that a trial still needs; None when it is done."""
    if not attempts:
        return 1
    again = attempts[-1]["reasons"].startswith(_TRY_AGAIN) and len(attempts) < MOST_ATTEMPTS
    return len(attempts) + 1 if again else None


def _measure(bench: Bench, planned: Plan, say: Progress) -> None:
    total, began, done_here = len(planned.trials), time.monotonic(), 0
    for n, trial in enumerate(planned.trials, start=1):
        while number := next_attempt(attempts_of(bench.store.rows(), trial.key)):
            spent = time.monotonic() - began
            each = spent / done_here if done_here else planned.total_s / total
            left = each * (total - n + 1)

            def tell(message: str, n: int = n, left: float = left) -> None:
                say("measure", n, total, message, left)

            restore(bench, tell)
            due = decided(trial, bench.resolved, bench.store.rows())
            row = Trial(bench, due, number, tell).attempt()
            bench.store.append(row)
            done_here += 1
            outcome = f"{trial.scenario.server} on {trial.scenario.environment}: {row['verdict']} {row['reasons']}"
            say("trial", n, total, outcome.strip(), left - each)


def _finish(bench: Bench, total: int, say: Progress) -> None:
    document = bench.store.read_json("run.json")
    document["ended_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    document["status"] = "complete"
    bench.store.write_json("run.json", document)
    say("done", total, total, str(bench.store.run_dir), 0.0)
