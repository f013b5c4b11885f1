"""A run from start to end: plan it, hold the machines, measure trial by trial, resume where it stopped."""

import errno
import math
import platform
import secrets
import subprocess
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from vmtoll.model.disclosure import Disclosure
from vmtoll.model.errors import ExperimentError, HostLostError, InventoryError, ResultsError, VmtollError
from vmtoll.model.event import (
    BlockEnded,
    ComparingMachines,
    Connecting,
    Listener,
    MarginHidden,
    RunEnded,
    Skipped,
    TrialEnded,
)
from vmtoll.model.experiment import SMALLEST_BLOCKS, Experiment, Scale
from vmtoll.model.inventory import Inventory
from vmtoll.model.run import Manifest
from vmtoll.model.trial import TrialRecord, TrialSpec, last_attempts
from vmtoll.model.until import Until
from vmtoll.paths import PROJECT
from vmtoll.runner import facts, gates
from vmtoll.runner.attempts import due
from vmtoll.runner.blocks import Blocks, BlocksUntil, FixedBlocks, Judge
from vmtoll.runner.boots import boot_anew, is_due
from vmtoll.runner.calibration import ensure
from vmtoll.runner.connection import AgentLine
from vmtoll.runner.idle_guests import resume_all, resume_left, settle
from vmtoll.runner.plan import expected_s, schedule
from vmtoll.runner.rates import Rates
from vmtoll.runner.recovery import restore, take
from vmtoll.runner.requirements import (
    check_inventory,
    without_absent,
    without_kernel_tls,
    without_unshipped,
)
from vmtoll.runner.search import decided
from vmtoll.runner.session import Session, Steps
from vmtoll.runner.store import Store, stopped_run
from vmtoll.runner.trial import Trial
from vmtoll.sites import manifest
from vmtoll.spec.catalog import Registry
from vmtoll.spec.documents import mistake
from vmtoll.spec.experiment import Resolved, load
from vmtoll.spec.inventory import load_inventory

# How many times the machines are held and compared again because one of them was lost meanwhile.
LOSSES = 2


@dataclass(frozen=True)
class Plan:
    """Plan of a run; with `until`, up to its first look. `total_s` is wall clock, of `until` at most."""

    resolved: Resolved
    order_seed: int
    trials: Sequence[TrialSpec]
    total_s: float


def plan(
    experiment_path: Path,
    registry: Registry | None = None,
    order_seed: int | None = None,
    scale: Scale | None = None,
    until: Until | None = None,
) -> Plan:
    """Check an experiment and draw its schedule; nothing is started. Raises ExperimentError."""
    return _plan(with_until(load(experiment_path, registry, scale), until, experiment_path), order_seed)


def with_until(resolved: Resolved, until: Until | None, path: Path) -> Resolved:
    """The experiment with this `until` in place of its own, where one is given, and the blocks that a first look needs.

    Raises ExperimentError.
    """
    if until is None:
        return resolved
    keys = resolved.experiment.model_dump()
    blocks = keys["boots"] * math.ceil(max(keys["blocks"], SMALLEST_BLOCKS) / keys["boots"])
    try:
        experiment = Experiment.model_validate(keys | {"until": until, "blocks": blocks})
    except ValidationError as error:
        raise mistake(path, Experiment, error) from None
    return replace(resolved, experiment=experiment)


def on_machines(planned: Plan, inventory_path: Path, registry: Registry, limit: str | None = None) -> Plan:
    """The plan as these machines allow it; none of them is contacted, so servers that their release does not ship stay.

    Raises InventoryError, WrongLinkError, ExperimentError.
    """
    inventory = _inventory(planned.resolved, inventory_path, limit)
    resolved = without_absent(planned.resolved, inventory, registry)
    check_inventory(resolved, inventory, registry.experiment_file(resolved.experiment.name), inventory_path)
    return _plan(resolved, planned.order_seed)


def unmeasured(planned: Plan, run_dir: Path) -> Plan:
    """The rest of an interrupted run; with `until`, up to its first look. The run's folder is not changed.

    Raises ResultsError, ExperimentError.
    """
    recorded, records = stopped_run(run_dir)
    if recorded is None:
        return planned
    _check_same(run_dir, recorded, planned.resolved)
    resolved = with_recorded_control(planned.resolved, recorded)
    whole = _plan(replace(resolved, skipped=recorded.skipped), recorded.order_seed)
    of_block: dict[int, list[TrialRecord]] = {}
    for record in records:
        of_block.setdefault(record.block, []).append(record)
    trials = [trial for trial in whole.trials if due([trial], of_block.get(trial.block, []))]
    if until := recorded.experiment.until:
        return replace(whole, trials=trials, total_s=max(0.0, until.at_most_s - (recorded.measured_s or 0.0)))
    return replace(whole, trials=trials, total_s=whole.total_s * len(trials) / len(whole.trials))


def _inventory(resolved: Resolved, path: Path, limit: str | None) -> Inventory:
    steps = resolved.experiment.tuning_steps
    optional = steps.environments if steps else ()
    return load_inventory(path, resolved.experiment.environments, resolved.guests, limit, optional)


def _plan(resolved: Resolved, order_seed: int | None) -> Plan:
    experiment = resolved.experiment
    if order_seed is None:
        order_seed = experiment.seed if experiment.seed is not None else secrets.randbelow(2**31)
    total_s = expected_s(resolved)
    if experiment.until:
        total_s = max(total_s, experiment.until.at_most_s)
    return Plan(resolved, order_seed, schedule(resolved, order_seed), total_s)


def run(
    experiment_path: Path,
    inventory_path: Path,
    results_dir: Path,
    resume: Path | None = None,
    *,
    listener: Listener | None = None,
    registry: Registry | None = None,
    scale: Scale | None = None,
    limit: str | None = None,
    until: Until | None = None,
    judge: Judge | None = None,
) -> Path:
    """Measure an experiment at a scale, or go on with the run in `resume`; the run's folder.

    `until`: in place of the experiment's own; a run that is resumed keeps that of its record. `judge`: what looks at a
    run that goes on until its comparisons are known, which needs one.

    `limit` is Ansible's pattern of hosts: the machines of the inventory that take part.
    `results_dir` gets `<experiment>/<run-id>/` and the link `latest`. A run that was killed is resumed with
    its own experiment, as recorded; the one at `experiment_path` must still say the same. Raises VmtollError
    (one clear sentence) when something does not fit or a machine does not come back; what was measured stays.
    `listener` gets an event for each step.
    """
    tell: Listener = listener or (lambda _: None)
    begun = _manifest_of(resume)
    resolved = load(experiment_path, registry, scale)
    if begun:
        resolved = with_recorded_control(resolved, begun)
    resolved = with_until(resolved, until or (begun.experiment.until if begun else None), experiment_path)
    if resolved.experiment.until and judge is None:
        raise ExperimentError(f"{experiment_path}: until: nothing here looks at a run while it is measured; remove it")
    inventory = _inventory(resolved, inventory_path, limit)
    resolved = without_absent(resolved, inventory, registry or Registry())
    resolved = without_unshipped(resolved, inventory, registry or Registry())
    resolved = without_kernel_tls(resolved, inventory, registry or Registry())
    check_inventory(resolved, inventory, experiment_path, inventory_path)
    if resume is None:
        planned = _plan(resolved, None)
        now = datetime.now(UTC)
        run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        store = Store.create(results_dir / resolved.experiment.name / run_id)
    else:
        store = Store(resume)
        run_id = store.run_dir.name
        try:
            planned = _recorded_plan(store, resolved, inventory) or _plan(resolved, None)
        except VmtollError:
            store.close()
            raise
    lines = {host.name: AgentLine(host) for host in inventory.hosts()}
    session = Session(
        run_id=run_id,
        resolved=resolved,
        inventory=inventory,
        store=store,
        content=manifest(resolved.site),
        order_seed=planned.order_seed,
        lines=lines,
        rates=Rates(store.records()),
    )
    try:
        _prepare(session, planned, tell)
        _point_latest(results_dir, store.run_dir)
        blocks = _blocks(session, planned, judge, tell)
        _measure(session, blocks, tell)
        _finish(session, tell)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ResultsError(
            f"{store.run_dir}: the disk is full; what was measured is kept; free some space, then go on with "
            f"--resume {store.run_dir}"
        ) from error
    finally:
        resume_all(session)
        for line in lines.values():
            line.close()
        store.close()
    return store.run_dir


def _manifest_of(resumed: Path | None) -> Manifest | None:
    """What a run that is resumed recorded of itself; None without one, and before it was recorded."""
    if resumed is None or not (resumed / "run.json").exists():
        return None
    store = Store(resumed)
    try:
        return store.manifest()
    finally:
        store.close()


def with_recorded_control(resolved: Resolved, recorded: Manifest) -> Resolved:
    """The experiment without an A/A control where the run began without one, and nothing else differs: experiments that
    do not say `noise_floor` have not always had one.
    """
    without = resolved.experiment.model_copy(update={"noise_floor": None, "until": recorded.experiment.until})
    if without != recorded.experiment:
        return resolved
    return replace(resolved, experiment=resolved.experiment.model_copy(update={"noise_floor": None}))


def _recorded_plan(store: Store, resolved: Resolved, inventory: Inventory) -> Plan | None:
    """The plan of a run that is resumed; None when it was killed before it wrote one."""
    recorded = store.manifest()
    if recorded is None:
        return None
    _check_same(store.run_dir, recorded, resolved)
    if recorded.skipped != list(resolved.skipped):
        raise _changed(store.run_dir, resolved)
    measured_on, hosts = sorted(store.read_json("hosts.json")), sorted(host.name for host in inventory.hosts())
    if measured_on != hosts:
        raise InventoryError(
            f"{store.run_dir}: was measured on {', '.join(measured_on)}; this inventory, with its --limit, has "
            f"{', '.join(hosts)}"
        )
    return _plan(resolved, recorded.order_seed)


def _check_same(run_dir: Path, recorded: Manifest, resolved: Resolved) -> None:
    """Raise ResultsError for a run that is complete, ExperimentError for one of another experiment."""
    if recorded.status == "complete":
        raise ResultsError(f"{run_dir}: the run is complete; leave out --resume to start another")
    if not same_experiment(recorded, resolved):
        raise _changed(run_dir, resolved)


def _changed(run_dir: Path, resolved: Resolved) -> ExperimentError:
    return ExperimentError(
        f"{run_dir}: experiment {resolved.experiment.name}, or what it skips, has changed since the run began; "
        "restore it, or leave out --resume to start another run"
    )


def same_experiment(recorded: Manifest, resolved: Resolved) -> bool:
    """Return whether the experiment, and everything it names, is the same today as when the run began."""
    resolved = with_recorded_control(resolved, recorded)
    return (recorded.experiment, recorded.workloads, recorded.site) == (
        resolved.experiment,
        dict(resolved.workloads),
        resolved.site,
    )


def _prepare(session: Session, planned: Plan, tell: Listener) -> None:
    """Reach every machine, hold and compare them; one that is lost meanwhile is brought back.

    Raises VmtollError when machines are lost again and again.
    """
    total = len(planned.trials)
    for skip in session.resolved.skipped:
        tell(Skipped(skip.name, skip.why))
    experiment = session.resolved.experiment
    if (hidden := gates.hidden_pct(experiment.duration_s)) > experiment.margin_pct:
        tell(MarginHidden(hidden, experiment.margin_pct, experiment.duration_s))
    tell(Connecting(total, planned.total_s))
    kvm_hosts = [line for line in session.lines.values() if line.host.role == "kvm_host"]
    facts.open_all(kvm_hosts)
    resume_left(session)
    facts.open_all([line for line in session.lines.values() if line not in kvm_hosts])
    for losses_left in reversed(range(LOSSES + 1)):
        tell(ComparingMachines(total, planned.total_s))
        try:
            _hold_and_compare(session, planned)
        except HostLostError as error:
            if not losses_left:
                raise VmtollError(f"{error}; machines were lost {LOSSES + 1} times before the first trial") from error
            restore(session, tell)
        else:
            return


def _hold_and_compare(session: Session, planned: Plan) -> None:
    """Hold the machines, gather the facts, write run.json and hosts.json.

    Raises ResultsError when a machine is held, InventoryError, HostLostError, AgentError.
    """
    for host in session.inventory.hosts():
        if host.role != "kvm_host":
            take(session, host)
    session.facts = facts.gather(session)
    session.accelerators, session.hardware = facts.accelerators(session), facts.hardware(session)
    if session.store.manifest() is not None:
        facts.keep_handshakes(session.store.read_json("hosts.json"), session.facts)
    session.releases = facts.releases(session)
    session.store.write_json("hosts.json", session.facts)
    session.store.write_json("private.json", facts.gather_private(session))
    if session.store.manifest() is None:
        session.store.write_manifest(_manifest(session, planned, facts.disclosure(session)))


def _manifest(session: Session, planned: Plan, disclosure: Disclosure) -> Manifest:
    inventory, resolved = session.inventory, session.resolved
    suts = {
        environment if number == 1 else f"{environment}-{number}": session.facts[host.name]
        for environment, hosts in inventory.machines.items()
        for number, host in enumerate(hosts, start=1)
    }
    return Manifest(
        run_id=session.run_id,
        experiment=resolved.experiment,
        workloads=dict(resolved.workloads),
        site=resolved.site,
        order_seed=planned.order_seed,
        versions={
            "vmtoll": _version(),
            "python": platform.python_version(),
            **facts.tool_versions(session),
            **resolved.sources,
        },
        commit=_commit(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        status="running",
        accelerators=session.accelerators,
        hardware=session.hardware,
        lab=inventory.client.vars.lab,
        link=inventory.link,
        link_mbit=inventory.link_mbit,
        differences=facts.differences(suts, resolved.experiment.declared_differences),
        skipped=list(resolved.skipped),
        trials_planned=len(planned.trials),
        hidden_pct=round(gates.hidden_pct(resolved.experiment.duration_s), 2),
        disclosure=disclosure,
    )


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


def _blocks(session: Session, planned: Plan, judge: Judge | None, tell: Listener) -> Blocks:
    until = session.resolved.experiment.until
    if until is None or judge is None:
        return FixedBlocks(planned.trials, planned.total_s)
    return BlocksUntil(session, until, judge, tell)


def _measure(session: Session, blocks: Blocks, tell: Listener) -> None:
    before, done_here, store = 0, 0, session.store
    for of_block in blocks:
        numbers = {trial.key: before + number for number, trial in enumerate(of_block, start=1)}
        due_attempt, done_before = due(of_block, _of_block(store, of_block)), done_here
        while due_attempt:
            trial, attempt = due_attempt
            number, total = numbers[trial.key], blocks.scheduled
            left_s = blocks.left_s(number, done_here)
            spec = decided(trial, session.resolved, store.records())
            steps = Steps(tell, spec, attempt, number, total, blocks.total, left_s)
            if is_due(trial.boot, store.records()):
                boot_anew(session, tell)
            ensure(session, steps)
            settle(session, steps)
            record = Trial(session, steps).attempt()
            store.append(record)
            done_here += 1
            due_attempt = due(of_block, _of_block(store, of_block))
            again = due_attempt is not None and due_attempt[0].key <= trial.key
            tell(TrialEnded(record, number, total, blocks.left_s(number + 1, done_here), again))
        before += len(of_block)
        if done_here > done_before:
            counts = Counter(record.validity for record in last_attempts(_of_block(store, of_block)))
            tell(BlockEnded(of_block[0].block, blocks.total, counts, blocks.left_s(before + 1, done_here)))


def _of_block(store: Store, of_block: Sequence[TrialSpec]) -> list[TrialRecord]:
    """The records of a block's trials, in the order in which they were stored."""
    blocks = {trial.block for trial in of_block}
    return [record for record in store.records() if record.block in blocks]


def _finish(session: Session, tell: Listener) -> None:
    recorded = session.store.manifest()
    if recorded is None:
        raise ResultsError(f"{session.store.manifest_file} was deleted during the run; trials.jsonl keeps the trials")
    ended_at = datetime.now(UTC).isoformat(timespec="seconds")
    session.store.write_manifest(recorded.model_copy(update={"ended_at": ended_at, "status": "complete"}))
    tell(RunEnded(session.store.run_dir, last_attempts(session.store.records())))
