"""A run from start to end: plan it, lock the machines, measure trial by trial, resume where it stopped."""

import contextlib
import errno
import math
import platform
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from vmtoll.machines import differences, facts
from vmtoll.machines.boots import is_reboot_due, reboot
from vmtoll.machines.changes import check_settings, revert_all, revert_left, undo_operations
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.idle_guests import resume_all, resume_left, settle
from vmtoll.machines.recovery import restore, take
from vmtoll.machines.session import Session, TrialReporter
from vmtoll.model.disclosure import Disclosure
from vmtoll.model.errors import (
    ExperimentError,
    HostLostError,
    InventoryError,
    LoadError,
    ResultsError,
    RunInterruptedError,
    VmtollError,
)
from vmtoll.model.event import (
    BlockEnded,
    ComparingMachines,
    Connecting,
    Listener,
    MarginHidden,
    NotMeasured,
    RunEnded,
    TrialEnded,
)
from vmtoll.model.experiment import SMALLEST_BLOCKS, Experiment
from vmtoll.model.finding import Code
from vmtoll.model.inventory import Inventory
from vmtoll.model.run import Manifest
from vmtoll.model.trial import TrialRecord, TrialSpec, last_attempts
from vmtoll.model.until import Until
from vmtoll.runner.attempts import next_attempt
from vmtoll.runner.blocks import Blocks, BlocksToBreak, BlocksUntil, FixedBlocks, Judge
from vmtoll.runner.calibration import ensure_capacities
from vmtoll.runner.explain import explain, prepare
from vmtoll.runner.first_answers import check_starts, measure_starts
from vmtoll.runner.operations import check_operations
from vmtoll.runner.plan import BOOT_S, expected_s, restart_s, schedule
from vmtoll.runner.requirements import (
    check_inventory,
    with_default_boots,
    without_absent,
    without_kernel_tls,
    without_unshipped,
)
from vmtoll.runner.search import with_searched_load
from vmtoll.runner.service import compare_arms
from vmtoll.runs.folder import read_hosts, read_stopped
from vmtoll.runs.rates import Rates
from vmtoll.runs.store import Store
from vmtoll.sites import NO_FILES, site_files
from vmtoll.spec.documents import validation_error
from vmtoll.spec.experiment import Resolved
from vmtoll.spec.machines import load_inventory
from vmtoll.trial import gates
from vmtoll.trial.trial import Trial
from vmtoll.version import commit, version

# How often vmtoll locks and compares the machines again after one of them was lost meanwhile.
MAX_LOSSES = 2


@dataclass(frozen=True)
class Plan:
    """Plan of a run on its machines; with `until`, its trials up to the first look."""

    resolved: Resolved
    order_seed: int
    trials: Sequence[TrialSpec]
    total_s: float  # expected wall clock; with `until`, at least its time limit
    restarts: int = 0  # how often the machines under test boot for `boots`
    restart_s: float | None = None  # what one took in an earlier run, None if that is not known and BOOT_S counts
    inventory: Inventory | None = None  # None for the embedded lab before it is up


def plan(
    resolved: Resolved,
    inventory: Path | None = None,
    limit: str | None = None,
    *,
    until: Until | None = None,
    resume: Path | None = None,
    order_seed: int | None = None,
) -> Plan:
    """Draw the schedule of an experiment, without starting anything.

    `inventory`, with Ansible's host pattern `limit`: the machines that it is for, see `on_machines`. `until`: replaces
    the experiment's own. `resume`: the folder of a stopped run, which keeps its A/A control, its order and, unless
    given here, its `until`. The order is drawn from `order_seed`, else the experiment's seed, else a random one. Raises
    ExperimentError, LoadError, InventoryError, WrongLinkError.
    """
    manifest = read_stopped(resume)[0] if resume else None
    if manifest:
        resolved = _as_recorded(resolved, manifest)
        until, order_seed = until or manifest.experiment.until, manifest.order_seed
    if until:
        resolved = _with_until(resolved, until)
    if order_seed is None:
        order_seed = resolved.experiment.seed
    if order_seed is None:
        order_seed = secrets.randbelow(2**31)
    return _on_machines(resolved, order_seed, inventory, limit) if inventory else _drawn(resolved, order_seed)


def _with_until(resolved: Resolved, until: Until) -> Resolved:
    """The experiment with this `until`, and at least the blocks that a first look needs. Raises ExperimentError."""
    keys, boots = resolved.experiment.model_dump(), resolved.experiment.boots
    if "boots" not in resolved.experiment.model_fields_set:
        del keys["boots"]
    blocks = boots * math.ceil(max(keys["blocks"], SMALLEST_BLOCKS) / boots)
    try:
        experiment = Experiment.model_validate(keys | {"until": until, "blocks": blocks})
    except ValidationError as error:
        raise validation_error(resolved.file, Experiment, error) from None
    return replace(resolved, experiment=experiment)


def on_machines(planned: Plan, inventory: Path, limit: str | None = None) -> Plan:
    """The plan for these machines. It contacts none of them, so servers that their release does not ship remain.

    Raises InventoryError, WrongLinkError, ExperimentError.
    """
    return _on_machines(planned.resolved, planned.order_seed, inventory, limit)


def _on_machines(resolved: Resolved, order_seed: int, path: Path, limit: str | None) -> Plan:
    inventory = _load_inventory(resolved, path, limit)
    resolved = without_absent(resolved, inventory)
    check_inventory(resolved, inventory, path)
    return _drawn(with_default_boots(resolved, inventory), order_seed, inventory)


def in_embedded_lab(planned: Plan) -> Plan:
    """The plan for the machines of the embedded lab, which need not be up."""
    return _drawn(with_default_boots(planned.resolved, None), planned.order_seed)


def remaining_plan(planned: Plan, run_dir: Path) -> Plan:
    """The trials left in the interrupted run that this plan resumes; with `until`, up to the first look.

    Does not change the run's folder. Raises ResultsError, ExperimentError, LoadError.
    """
    manifest, records = read_stopped(run_dir)
    if manifest is None:
        return planned
    _check_same(run_dir, manifest, planned.resolved)
    resolved = replace(planned.resolved, skipped=manifest.skipped)
    full_plan = _drawn(resolved, manifest.order_seed, planned.inventory)
    records_by_block: dict[int, list[TrialRecord]] = {}
    for record in records:
        records_by_block.setdefault(record.block, []).append(record)
    trials = [trial for trial in full_plan.trials if next_attempt([trial], records_by_block.get(trial.block, []))]
    restarts = sum(is_reboot_due(boot, records) for boot in {trial.boot for trial in trials})
    if until := manifest.experiment.until:
        total_s = max(0.0, until.at_most_s - (manifest.measured_s or 0.0))
    else:
        measuring_s = full_plan.total_s - full_plan.restarts * BOOT_S
        total_s = measuring_s * len(trials) / len(full_plan.trials) + restarts * BOOT_S
    return replace(full_plan, trials=trials, total_s=total_s, restarts=restarts)


def with_recorded_restarts(planned: Plan, runs: Iterable[Path]) -> Plan:
    """The plan with the time that a restart took in the first of these runs that had one on the same machines."""
    for run_dir in runs if planned.restarts else ():
        with contextlib.suppress(LoadError):
            manifest, records = read_stopped(run_dir)
            if manifest and _is_on_machines(manifest, run_dir, planned.inventory) and (took_s := restart_s(records)):
                more_s = 0.0 if manifest.experiment.until else planned.restarts * (took_s - BOOT_S)
                return replace(planned, restart_s=took_s, total_s=planned.total_s + more_s)
    return planned


def _is_on_machines(manifest: Manifest, run_dir: Path, inventory: Inventory | None) -> bool:
    if inventory is None:
        return manifest.lab == "embedded"
    return sorted(read_hosts(run_dir)) == sorted({host.name for host in inventory.hosts()})


def _load_inventory(resolved: Resolved, path: Path, limit: str | None) -> Inventory:
    steps = resolved.experiment.tuning_steps
    baseline = resolved.experiment.baseline_arm.environment
    optional = [name for name in steps.environments if name != baseline] if steps else ()
    experiment = resolved.experiment
    machine_of = {name: experiment.machine_of(name) for name in experiment.environments}
    machines = list(dict.fromkeys(machine_of.values()))
    if resolved.requests:  # a service may be all that is seen of its machine
        inventory = load_inventory(path, machines, limit=limit, optional=machines, purpose="machines")
    else:
        targets = [operation.to for operation in experiment.during.values() if operation.to]
        inventory = load_inventory(path, machines, resolved.guests, limit, optional, targets=targets)
    return inventory.with_environments(machine_of)


def _drawn(resolved: Resolved, order_seed: int, inventory: Inventory | None = None) -> Plan:
    experiment, total_s = resolved.experiment, expected_s(resolved)
    if experiment.until:
        total_s = max(total_s, experiment.until.at_most_s)
    trials = schedule(resolved, order_seed)
    return Plan(resolved, order_seed, trials, total_s, restarts=experiment.boots - 1, inventory=inventory)


def _without_lacking(planned: Plan, inventory: Inventory) -> Plan:
    """The plan without the servers that its machines, when asked, turn out not to have."""
    resolved = planned.resolved
    for leave_out in (without_unshipped, without_kernel_tls):
        resolved = leave_out(resolved, inventory)
    is_whole = resolved.skipped == planned.resolved.skipped
    return planned if is_whole else _drawn(resolved, planned.order_seed, inventory)


def run(
    planned: Plan,
    results_dir: Path,
    resume: Path | None = None,
    *,
    listener: Listener | None = None,
    judge: Judge | None = None,
) -> Path:
    """Measure a plan on its machines, or its rest if it resumes the run in folder `resume`; return the run's folder.

    `judge`: judges the comparisons at each look; an experiment with `until` needs it. `results_dir` gets
    `<experiment>/<run-id>/` and the link `latest`. The planned experiment must be the one that a resumed run recorded.
    `listener` gets an event for each step. Raises VmtollError (one clear sentence) when something does not fit or a
    machine does not come back; finished trials are kept.
    """
    tell: Listener = listener or (lambda _: None)
    inventory = planned.inventory
    if inventory is None:
        raise ValueError("the plan is for no machines: see on_machines")
    if planned.resolved.experiment.until and judge is None:
        raise ExperimentError("until: this command cannot stop early; remove `until`", planned.resolved.file)
    planned = _without_lacking(planned, inventory)
    resolved = planned.resolved
    if resume is None:
        run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        store = Store.create(results_dir / resolved.experiment.name / run_id)
    else:
        store = Store(resume)
        run_id = store.run_dir.name
        try:
            _check_resumed(store, resolved, inventory)
        except VmtollError:
            store.close()
            raise
    lines = {host.name: AgentLine(host) for host in inventory.hosts()}
    session = Session(
        run_id=run_id,
        resolved=resolved,
        inventory=inventory,
        store=store,
        content=site_files(resolved.site) if resolved.site else NO_FILES,
        order_seed=planned.order_seed,
        lines=lines,
        rates=Rates(store.records()),
    )
    try:
        _prepare(session, planned, tell)
        _point_latest(results_dir, store.run_dir)
        blocks = _blocks(session, planned, judge, tell)
        _measure(session, blocks, tell)
        explain(session, blocks, tell)
        _finish(session, tell)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ResultsError(
            f"{store.run_dir}: the disk is full; what was measured is kept; free some space, then go on with "
            f"--resume {store.run_dir}"
        ) from error
    except KeyboardInterrupt as error:
        raise (RunInterruptedError(store.run_dir) if store.records() else error) from None
    finally:
        try:
            resume_all(session)  # a paused guest could not revert its change
        finally:
            revert_all(session, tell)
        for line in lines.values():
            line.close()
        store.close()
        if resume is None:
            store.discard_unmeasured()
    return store.run_dir


def with_recorded_control(resolved: Resolved, manifest: Manifest) -> Resolved:
    """The experiment without its A/A control if the run began without one and nothing else but `until` differs: earlier
    versions gave experiments without the key `noise_floor` no control.
    """
    without = resolved.experiment.model_copy(update={"noise_floor": None, "until": manifest.experiment.until})
    if without != manifest.experiment:
        return resolved
    return replace(resolved, experiment=resolved.experiment.model_copy(update={"noise_floor": None}))


def _as_recorded(resolved: Resolved, manifest: Manifest) -> Resolved:
    """The experiment as a run of it began: with the run's boots unless it sets them itself, and the run's control."""
    if "boots" not in resolved.experiment.model_fields_set:
        experiment = resolved.experiment.model_copy(update={"boots": manifest.experiment.boots})
        has_default = manifest.experiment.boots > 1
        resolved = replace(resolved, experiment=experiment, one_boot=manifest.one_boot, has_default_boots=has_default)
    return with_recorded_control(resolved, manifest)


def _check_resumed(store: Store, resolved: Resolved, inventory: Inventory) -> None:
    """Raise VmtollError if the store holds a run of another experiment or inventory; without run.json do nothing."""
    manifest = store.manifest()
    if manifest is None:
        return
    _check_same(store.run_dir, manifest, resolved)
    if manifest.skipped != list(resolved.skipped):
        raise _changed_error(store.run_dir, resolved)
    measured_on, hosts = sorted(store.hosts()), sorted(host.name for host in inventory.hosts())
    if measured_on != hosts:
        raise InventoryError(
            f"{store.run_dir}: was measured on {', '.join(measured_on)}; this inventory, with its --limit, has "
            f"{', '.join(hosts)}"
        )


def _check_same(run_dir: Path, manifest: Manifest, resolved: Resolved) -> None:
    """Raise ResultsError if the run is complete, ExperimentError if it is of another experiment."""
    if manifest.status == "complete":
        raise ResultsError(f"{run_dir}: the run is complete; leave out --resume to start another")
    if not same_experiment(manifest, resolved):
        raise _changed_error(run_dir, resolved)


def _changed_error(run_dir: Path, resolved: Resolved) -> ExperimentError:
    return ExperimentError(
        f"experiment {resolved.experiment.name}, or what it skips, has changed since the run began; restore it, or "
        "leave out --resume to start another run",
        run_dir,
    )


def same_experiment(manifest: Manifest, resolved: Resolved) -> bool:
    """Return whether the experiment, its workloads and its site are the same as when the run began."""
    resolved = _as_recorded(resolved, manifest)
    return (manifest.experiment, manifest.workloads, manifest.site) == (
        resolved.experiment,
        dict(resolved.workloads),
        resolved.site,
    )


def _prepare(session: Session, planned: Plan, tell: Listener) -> None:
    """Connect to every machine, lock and compare them; bring back a machine that is lost meanwhile.

    Raises VmtollError when a machine does not answer, or machines are lost more than MAX_LOSSES times.
    """
    total = len(planned.trials)
    for skip in session.resolved.skipped:
        tell(NotMeasured(skip.name, skip.why))
    experiment = session.resolved.experiment
    if (hidden := gates.hidden_pct(experiment.duration_s)) > experiment.margin_pct:
        tell(MarginHidden(hidden, experiment.margin_pct, experiment.duration_s))
    tell(Connecting(total, planned.total_s, planned.resolved.experiment.baseline_arm.environment))
    kvm_hosts = [line for line in session.lines.values() if line.host.role == "kvm_host"]
    complaints = facts.unreachable(kvm_hosts)
    if not complaints:
        resume_left(session)
    others = [line for line in session.lines.values() if line not in kvm_hosts]
    complaints += facts.unreachable(others)
    if complaints and undo_operations(session):
        complaints = facts.unreachable([line for line in (*kvm_hosts, *others) if line.lost_because])
    if complaints:
        raise HostLostError(facts.as_lines(complaints))
    for losses_left in reversed(range(MAX_LOSSES + 1)):
        tell(ComparingMachines(total, planned.total_s))
        try:
            _lock_and_compare(session, planned, tell)
        except HostLostError as error:
            if not losses_left:
                raise VmtollError(
                    f"{error}; machines were lost {MAX_LOSSES + 1} times before the first trial"
                ) from error
            restore(session, tell)
        else:
            break
    if requests := planned.resolved.requests:
        compare_arms(session, requests, tell)


def _lock_and_compare(session: Session, planned: Plan, tell: Listener) -> None:
    """Lock the machines, gather their facts, write run.json, hosts.json and private.json.

    Raises ResultsError when another run holds a machine, InventoryError, HostLostError, AgentError.
    """
    facts.refuse_wrong_machines(session)
    for host in session.inventory.hosts():
        if host.role != "kvm_host":
            take(session, host)
    revert_left(session, tell)
    session.facts = facts.gather(session)
    session.accelerators, session.hardware = facts.accelerators(session), facts.hardware(session)
    if session.store.manifest() is not None:
        facts.keep_handshakes(session.store.hosts(), session.facts)
    session.releases = facts.releases(session)
    prepare(session)
    check_starts(session)
    check_operations(session)
    check_settings(session)
    session.store.write_hosts(session.facts)
    session.store.write_json("private.json", facts.gather_private(session))
    if session.store.manifest() is None:
        session.store.write_manifest(_new_manifest(session, planned, facts.disclosure(session)))


def _new_manifest(session: Session, planned: Plan, disclosure: Disclosure) -> Manifest:
    inventory, resolved = session.inventory, session.resolved
    return Manifest(
        run_id=session.run_id,
        experiment=resolved.experiment,
        workloads=dict(resolved.workloads),
        site=resolved.site,
        order_seed=planned.order_seed,
        versions={
            "vmtoll": version(),
            "python": platform.python_version(),
            **facts.tool_versions(session),
            **resolved.sources,
            **({"emulator": inventory.client.vars.emulator} if inventory.client.vars.emulator else {}),
        },
        commit=commit(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        status="running",
        accelerators=session.accelerators,
        hardware=session.hardware,
        unseen_hosts=inventory.unseen_hosts,
        lab=inventory.client.vars.lab,
        link=inventory.link,
        link_mbit=inventory.link_mbit,
        differences=differences.of_run(session),
        skipped=list(resolved.skipped),
        one_boot=resolved.one_boot,
        trials_planned=len(planned.trials),
        hidden_pct=round(gates.hidden_pct(resolved.experiment.duration_s), 2),
        disclosure=disclosure,
        documents=list(resolved.documents),
    )


def _point_latest(results_dir: Path, run_dir: Path) -> None:
    latest, new_link = results_dir / "latest", results_dir / f".latest-{secrets.token_hex(4)}"
    try:
        target = run_dir.resolve().relative_to(results_dir.resolve())
    except ValueError:
        return
    new_link.symlink_to(target)
    new_link.replace(latest)


def _blocks(session: Session, planned: Plan, judge: Judge | None, tell: Listener) -> Blocks:
    until = session.resolved.experiment.until
    if until is None or judge is None:
        has_density = session.resolved.experiment.density is not None
        return (
            BlocksToBreak(session, planned.trials, planned.total_s)
            if has_density
            else FixedBlocks(planned.trials, planned.total_s)
        )
    return BlocksUntil(session, until, judge, tell)


def _measure(session: Session, blocks: Blocks, tell: Listener) -> None:
    trials_before, trials_done, store = 0, 0, session.store
    for block in blocks:
        numbers = {trial.key: trials_before + number for number, trial in enumerate(block, start=1)}
        due_attempt, done_before_block = next_attempt(block, _records_of_block(store, block)), trials_done
        while due_attempt:
            trial, attempt = due_attempt
            number, total = numbers[trial.key], blocks.scheduled
            left_s = blocks.left_s(number, trials_done)
            spec = with_searched_load(trial, session.resolved, store.records())
            reporter = TrialReporter(tell, spec, attempt, number, total, blocks.total, left_s)
            if is_reboot_due(trial.boot, store.records()):
                reboot(session, tell)
            ensure_capacities(session, reporter)
            settle(session, reporter)
            record = Trial(session, reporter).attempt()
            store.append(record)
            _end_if_failing(session, record)
            trials_done += 1
            due_attempt = next_attempt(block, _records_of_block(store, block))
            is_repeated = due_attempt is not None and due_attempt[0].key <= trial.key
            tell(TrialEnded(record, number, total, blocks.left_s(number + 1, trials_done), is_repeated))
        measure_starts(session, block[0].block, tell)
        trials_before += len(block)
        if trials_done > done_before_block:
            counts = Counter(record.validity for record in last_attempts(_records_of_block(store, block)))
            tell(BlockEnded(block[0].block, blocks.total, counts, blocks.left_s(trials_before + 1, trials_done)))


def _end_if_failing(session: Session, record: TrialRecord) -> None:
    """Raise VmtollError if a service failed in this trial: the run sends it no more requests."""
    if session.resolved.requests and Code.SERVER_FAILED in record.codes:
        details = "; ".join(finding.detail for finding in record.accidents)
        run_dir = session.store.run_dir
        raise VmtollError(
            f"{record.scenario.server} on {record.arm}: {details}; the run has ended, go on with --resume {run_dir} "
            "when the service is well"
        )


def _records_of_block(store: Store, block: Sequence[TrialSpec]) -> list[TrialRecord]:
    """The records of a block, in the order in which they were stored."""
    numbers = {trial.block for trial in block}
    return [record for record in store.records() if record.block in numbers]


def _finish(session: Session, tell: Listener) -> None:
    manifest = session.store.manifest()
    if manifest is None:
        raise ResultsError(f"{session.store.manifest_file} was deleted during the run; trials.jsonl keeps the trials")
    ended_at = datetime.now(UTC).isoformat(timespec="seconds")
    session.store.write_manifest(manifest.model_copy(update={"ended_at": ended_at, "status": "complete"}))
    tell(RunEnded(session.store.run_dir, last_attempts(session.store.records())))
