"""Whole runs on this machine: real agents, real tools, a real lighttz."""

import base64
import contextlib
import csv
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hdrh.histogram import HdrHistogram

from tests.support.local_server import server_pids
from tests.support.machines import WORKLOAD
from tests.support.measured import run
from tests.support.records import BUSY, assert_sound, crosscheck, primary, records_of
from vmtoll.analysis.run import load_run
from vmtoll.model.columns import COLUMNS
from vmtoll.model.errors import ExperimentError, InventoryError, ResultsError, VmtollError
from vmtoll.model.event import (
    BlockEnded,
    ComparingMachines,
    Connecting,
    Event,
    MarginHidden,
    Phase,
    RunEnded,
    TrialEnded,
    TrialStep,
)
from vmtoll.model.finding import Code, Role, Validity
from vmtoll.model.hardware import hardware_of
from vmtoll.model.run import Differences, Manifest
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.paths import PROJECT
from vmtoll.runner.run import same_experiment, with_recorded_control
from vmtoll.runs.folder import read_hosts, read_manifest
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load
from vmtoll.trial.loads import LoadDriver

Rewrite = Callable[..., Path]

RUNNER = """
import sys
from pathlib import Path
from tests.support.measured import run
from vmtoll.spec.catalog import Registry
experiment, inventory, results, project, resume = sys.argv[1:]
run(Path(experiment), Path(inventory), Path(results), resume=Path(resume) if resume else None,
    registry=Registry(Path(project)))
"""


def manifest_of(run_dir: Path) -> Manifest:
    return Manifest.model_validate_json((run_dir / "run.json").read_bytes())


def eventually_none_left(tmp_path: Path) -> bool:
    deadline = time.monotonic() + 15
    while any(server_pids(tmp_path / name) for name in ("metal", "metal-two")):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_run_writes_the_files_of_the_contract(project: Registry, inventory: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    results = tmp_path / "results"
    run_dir = run(project.experiment_file("tiny"), inventory, results, registry=project, listener=events.append)
    assert run_dir.parent == results / "tiny"
    assert (results / "latest").resolve() == run_dir.resolve()
    records = records_of(run_dir)
    with (run_dir / "trials.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert list(rows[0]) == COLUMNS
    assert len(rows) == len(records) == 6
    assert [record.key for record in records] == [(b, o) for b in (1, 2) for o in (1, 2, 3)]
    of_one_block = {record.arm for record in records if record.block == 1}
    assert of_one_block == {Arm("metal"), Arm("metal-two"), Arm("metal", 2)}
    assert_sound(records)
    of_other_loads = (
        "response_time_", "lateness_", "goodput_", "connect_", "first_response_", "connection_", "request_rps",
        "reply_rps_", "messages_", "deadline_", "offered_rps", "capacity_", "neighbour_", "load_guests", "arrivals",
        "blackout_", "brownout_", "late_answers",
    )  # fmt: skip
    of_other_machines = ("host_", "guest_", "guests_paused", "start_spread_", "link_used_", "cpu_mhz_", "findings")
    elsewhere = (*of_other_loads, *of_other_machines, "server_time_", "server_loop_lag_")  # it tells no metrics
    of_siege = ("response_time_mean_ms", "longest_ms", "shortest_ms", "concurrency", "availability_pct")
    # A slow machine answers fewer requests than a p99.9 needs.
    may_be_short = ("longest_gap_ms", "warmup_slower_pct", "service_time_p999_us")
    for row in rows:
        empty = {name for name, value in row.items() if value == ""}
        bare = {name.removeprefix("crosscheck_") for name in empty if not name.startswith("service_time_")}
        assert {name for name in bare if not name.startswith(elsewhere)} <= {
            *of_siege, *may_be_short,
        }, row  # fmt: skip
        assert empty.isdisjoint(of_siege)
        assert row["service_time_p99_us"] == "" != row["crosscheck_service_time_p99_us"], "siege logs no requests"
    for record in records:
        own, other = primary(record), crosscheck(record)
        for measurement in (own, other):
            assert measurement.transactions == measurement.successful == measurement.requests
            assert measurement.transactions and measurement.duration_s
        assert own.throughput_rps == (own.transactions or 0) / (own.duration_s or 1), "siege logs no requests"
        assert other.throughput_rps and other.throughput_rps >= (other.transactions or 0) / (other.duration_s or 1)
        assert not own.logs_service_times
        assert other.service_time.p50_us and other.service_time.p99_us
        assert other.service_time.p50_us <= other.service_time.p99_us
        assert record.counts.bodies_wrong == 0 < (record.counts.bodies_checked or 0)
        name = record.name
        assert (own.histogram, other.histogram) == (None, f"histograms/{name}.hdr")
        histogram = HdrHistogram.decode((run_dir / str(other.histogram)).read_bytes().strip())
        assert histogram.get_total_count() == other.requests
        by_second = list(csv.DictReader((run_dir / "histograms" / f"{name}.csv").read_text().splitlines()))
        assert sum(int(line["count"]) for line in by_second) == other.requests
        assert base64.b64decode((run_dir / "histograms" / f"{name}.hdr").read_bytes())
        assert (run_dir / "raw" / name / "siege.stderr").read_text().startswith("** SIEGE")
        assert (run_dir / "raw" / name / "h2load.requests.log.gz").stat().st_size > 0
        assert (run_dir / "samples" / f"{name}.csv").read_text().count("\n") >= 3
    assert min(record.fixed_cost_s for record in records) < 2
    assert all(record.loaded_s and record.loaded_s > 0.1 for record in records)
    _assert_documents(run_dir)
    assert eventually_none_left(tmp_path)
    _assert_told(events, run_dir)
    with pytest.raises(ResultsError, match=r"is complete; .*--resume"):
        run(project.experiment_file("tiny"), inventory, results, resume=run_dir, registry=project)


def _assert_documents(run_dir: Path) -> None:
    """run.json and hosts.json of a run of six trials on two machines alike."""
    recorded = manifest_of(run_dir)
    assert json.loads((run_dir / "run.json").read_text())["schema"] == 3
    assert recorded.status == "complete"
    assert recorded.accelerators == {"metal": Accelerator.NONE, "metal-two": Accelerator.NONE}
    assert recorded.emulated is False
    hardware = {name: hardware_of(facts) for name, facts in read_hosts(run_dir).items()}
    assert recorded.hardware == {name: hardware[name] for name in ("metal", "metal-two")}
    assert {record.hardware for record in load_run(run_dir).records} == set(recorded.hardware.values())
    assert recorded.site
    assert (list(recorded.workloads), recorded.site.name) == (["tiny"], "tiny")
    assert recorded.differences == Differences()
    assert recorded.trials_planned == 6
    assert recorded.versions["siege"].startswith("4.")
    facts = json.loads((run_dir / "hosts.json").read_text())
    assert set(facts) == {"client", "metal", "metal-two"}
    assert recorded.disclosure is not None
    assert set(recorded.disclosure.machines) == set(facts)
    assert all({"cpu", "kernel"} <= set(items) for items in recorded.disclosure.machines.values())
    assert facts["metal"]["servers"]["lighttz"]["workers"] == 1
    assert facts["metal"]["content_digest"] == facts["metal-two"]["content_digest"]


def _assert_told(events: list[Event], run_dir: Path) -> None:
    """The events of a run of six trials that nothing disturbed."""
    assert [type(event) for event in events[:3]] == [MarginHidden, Connecting, ComparingMachines], "loads of 0.1 s"
    assert events[-1] == RunEnded(run_dir, records_of(run_dir))
    ends = [(e.block, e.blocks, sum(e.validity.values())) for e in events if isinstance(e, BlockEnded)]
    assert ends == [(1, 2, 3), (2, 2, 3)]
    assert [(e.number, e.trials) for e in events if isinstance(e, TrialEnded)] == [(n, 6) for n in range(1, 7)]
    assert [e.record for e in events if isinstance(e, TrialEnded)] == records_of(run_dir)
    steps = [(e.phase, e.tool, e.role) for e in events if isinstance(e, TrialStep) and e.number == 1]
    assert steps == [
        (Phase.STARTING, None, None),
        (Phase.PREPARING, "siege", Role.PRIMARY),
        (Phase.MEASURING, "siege", Role.PRIMARY),
        (Phase.PREPARING, "h2load", Role.CROSSCHECK),
        (Phase.MEASURING, "h2load", Role.CROSSCHECK),
    ]


def test_both_tools_have_their_latencies_and_one_keeps_its_histogram(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, load_tools: None
) -> None:
    experiment = rewrite(blocks=1, noise_floor=None, environments=["metal"])
    path = project.workload_file("tiny")
    histograms = {}
    for other in ("h2load", "siege", None):
        path.write_text(yaml.safe_dump({**WORKLOAD, "tool": "oha", "crosscheck": other}))
        (record,) = records_of(run(experiment, inventory, tmp_path / "r", registry=project))
        assert_sound([record])
        histograms[other] = [measurement.histogram is not None for measurement in record.measurements]
        assert primary(record).logs_service_times
        assert (other == "h2load") == (record.crosscheck is not None and record.crosscheck.logs_service_times)
    assert histograms == {"h2load": [False, True], "siege": [True, False], None: [True]}


def test_each_number_of_users_is_a_separate_load(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    rewrite(blocks=2, noise_floor=None, environments=["metal"])
    project.workload_file("tiny").write_text(yaml.safe_dump({**WORKLOAD, "users": [1, 4]}))
    records = records_of(run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project))
    assert_sound(records)
    assert sorted((r.block, r.scenario.load.value, r.offered.users) for r in records) == [
        (block, users, users) for block in (1, 2) for users in (1, 4)
    ]


def start(project: Registry, inventory: Path, results: Path, resume: Path | None) -> subprocess.Popen[bytes]:
    words = [project.experiment_file("tiny"), inventory, results, project.root, resume or ""]
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, *map(str, words)], cwd=PROJECT, stderr=subprocess.PIPE, start_new_session=True
    )


def test_killed_at_random_moments_no_trial_is_lost_or_doubled(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    rewrite(blocks=4)
    results, seed = tmp_path / "results", int.from_bytes(os.urandom(2), "big")
    rng, run_dir, seen = random.Random(seed), None, 0
    for _ in range(5):
        process = start(project, inventory, results, run_dir)
        time.sleep(rng.uniform(0.8, 2.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = sorted((results / "tiny").glob("*/")) if (results / "tiny").exists() else []
        assert len(found) <= 1, f"seed {seed}: one run, however often it is resumed"
        run_dir = found[0] if found else None
        if run_dir and (run_dir / "trials.jsonl").exists():
            records = records_of(run_dir)
            assert len(records) >= seen, f"seed {seed}: a record was lost"
            seen = len(records)
            if (run_dir / "run.json").exists() and json.loads((run_dir / "run.json").read_text())["ended_at"]:
                break
    else:
        last = start(project, inventory, results, run_dir)
        assert last.wait(300) == 0, (seed, last.stderr and last.stderr.read())
    run_dir = run_dir or next((results / "tiny").glob("*/"))
    records = records_of(run_dir)
    assert [(*r.key, r.attempt) for r in records] == [(b, o, 1) for b in range(1, 5) for o in range(1, 4)], seed
    assert_sound(records)
    with (run_dir / "trials.csv").open(encoding="utf-8", newline="") as handle:
        assert len(list(csv.DictReader(handle))) == len(records), f"seed {seed}: the table lacks a record"
    assert len(list((run_dir / "histograms").glob("*.hdr"))) == len(records)
    assert manifest_of(run_dir).status == "complete"
    assert eventually_none_left(tmp_path)


def test_a_machine_that_vanishes_fails_the_trial_and_the_run_continues(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    rewrite(blocks=1, noise_floor=None, environments=["metal"], warmup_s=0.1, duration_s=2.0)
    killed = threading.Event()

    def pull_the_plug(event: Event) -> None:
        if is_at(event, Phase.MEASURING, "siege") and not killed.is_set():
            killed.set()
            threading.Timer(0.2, kill_agent_of, [tmp_path / "metal"]).start()

    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, listener=pull_the_plug)
    failed, good = records_of(run_dir)
    assert (failed.attempt, failed.validity) == (1, Validity.INVALID)
    assert failed.codes == {Code.HOST_LOST}
    assert failed.findings[0].detail
    assert failed.findings[0].machine == "metal"
    assert failed.measurements == ()
    assert failed.arm == Arm("metal")
    assert good.attempt == 2
    assert_sound([good])


def test_a_server_lost_in_a_warm_up_leaves_no_rate_behind(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    """Refusals come fast: taken for answers they would make the next attempt's load one of hours."""
    rewrite(blocks=1, noise_floor=None, environments=["metal"], warmup_s=0.1, duration_s=0.5)
    killed = threading.Event()

    def pull(event: Event) -> None:
        if is_at(event, Phase.PREPARING, "h2load") and not killed.is_set():
            killed.set()
            for pid in server_pids(tmp_path / "metal"):
                with contextlib.suppress(ProcessLookupError):  # a worker goes with its master
                    os.kill(pid, signal.SIGKILL)

    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, listener=pull)
    failed, good = records_of(run_dir)
    assert failed.attempt == 1
    assert failed.codes == {Code.SERVER_FAILED}
    assert failed.findings[0].machine == "metal"
    assert failed.findings[0].detail.startswith("metal: server_check: lighttz has ended; h2load: ")
    assert good.attempt == 2
    assert_sound([good])


def is_at(event: Event, phase: Phase, tool: str | None = None) -> bool:
    """Whether a trial enters this phase, with this tool."""
    return isinstance(event, TrialStep) and event.phase is phase and tool in (None, event.tool)


def kill_agent_of(root: Path) -> None:
    """Kill the agent that holds the machine's lock, and the server if it runs, as a power cut would."""
    inode = (root / "run" / "vmtoll.lock").stat().st_ino
    sessions = {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3] for pid in server_pids(root)}
    doomed = []
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            doomed.append(int(fields[4]))
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if path.read_text().rpartition(")")[2].split()[3] in sessions:
                doomed.append(int(path.parent.name))
    for pid in doomed:
        os.kill(pid, signal.SIGKILL)


def test_two_runs_at_once_are_refused(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(blocks=4, duration_s=1.0)
    first = start(project, inventory, tmp_path / "r", None)
    try:
        deadline = time.monotonic() + 20
        while not list((tmp_path / "r").glob("tiny/*/run.json")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        monkeypatch.setattr("vmtoll.machines.recovery.LOCK_S", 0.3)
        with pytest.raises(ResultsError, match=r"client is in use .* of tiny \(process \d+, "):
            run(project.experiment_file("tiny"), inventory, tmp_path / "other", registry=project)
        with pytest.raises(ResultsError, match=r"another process .*this run"):
            run_dir = next((tmp_path / "r" / "tiny").glob("*/"))
            run(project.experiment_file("tiny"), inventory, tmp_path / "r", resume=run_dir, registry=project)
    finally:
        first.kill()
        first.wait()
    assert eventually_none_left(tmp_path)


def test_injected_faults_make_trials_invalid(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    rewrite(blocks=1, noise_floor=None)
    root = tmp_path / "metal-two"
    (root / "policy.conf").write_text("keepalive_requests 100;\n")
    for path in (root / "srv/vmtoll/sites/tiny").rglob("*"):
        if path.is_file():
            path.write_bytes(b"wrong")
    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project)
    records = {record.arm.environment: record for record in records_of(run_dir)}
    assert_sound([records["metal"]])
    faulty = records["metal-two"]
    assert faulty.validity is Validity.INVALID
    assert faulty.codes - BUSY == {Code.FINGERPRINT, Code.WRONG_BODY}
    fingerprints = [finding for finding in faulty.findings if finding.code is Code.FINGERPRINT]
    assert [(f.machine, f.process, f.detail.partition(":")[0]) for f in fingerprints] == [
        ("metal-two", "lighttz", "config_sha256"), ("metal-two", None, "content_digest"),
    ]  # fmt: skip
    undeclared = manifest_of(run_dir).differences.undeclared
    assert [difference.fact for difference in undeclared] == ["servers: lighttz", "content_digest"]


def test_a_server_that_does_not_start_is_tried_twice(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    rewrite(blocks=1, noise_floor=None, environments=["metal"])
    (tmp_path / "metal" / "lighttz.conf").write_text("nonsense;\n")
    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project)
    records = records_of(run_dir)
    assert [record.attempt for record in records] == [1, 2]
    for record in records:
        assert record.codes == {Code.SERVER_FAILED}
        assert record.findings[0].detail.startswith("metal: server_start: lighttz ended ")
        assert record.findings[0].machine == "metal"


@pytest.mark.parametrize("missing", ["server", "link"])
def test_conflicting_settings_are_refused_in_one_sentence(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, missing: str
) -> None:
    path = project.experiment_file("tiny")
    expected: type[VmtollError] = InventoryError
    if missing == "server":
        path, said = rewrite(servers=["lighttz", "apache-prefork"]), "server apache-prefork is not provisioned"
    elif missing == "link":
        path = rewrite(link="100mbit")
        said = (
            r"/tiny\.yml: link: 100mbit, but in /.*/inventory\.yml the client client has vmtoll_link: unshaped; "
            r"limit its link to 100mbit and set vmtoll_link .* so, or choose an experiment with `link: unshaped`$"
        )
    with pytest.raises(expected, match=said):
        run(path, inventory, tmp_path / "r", registry=project)


class KilledError(Exception):
    """As if the program had been killed."""


@pytest.fixture
def begun(project: Registry, inventory: Path, tmp_path: Path) -> Path:
    """A run that was killed after its second trial."""

    def kill(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.number == 2:
            raise KilledError

    with pytest.raises(KilledError):
        run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, listener=kill)
    (run_dir,) = (tmp_path / "r" / "tiny").iterdir()
    return run_dir


@pytest.mark.parametrize("change", ["experiment", "workload"])
def test_a_run_of_what_has_changed_is_not_resumed(
    project: Registry, inventory: Path, begun: Path, rewrite: Rewrite, change: str
) -> None:
    if change == "experiment":
        rewrite(blocks=3)
    else:
        path = project.workload_file("tiny")
        path.write_text(path.read_text().replace("users: 2", "users: 4"))
    with pytest.raises(ExperimentError, match="has changed since"):
        run(project.experiment_file("tiny"), inventory, begun.parent.parent, resume=begun, registry=project)
    assert len(records_of(begun)) == 2


def test_a_run_begun_without_a_control_is_resumed_without_one(
    project: Registry, inventory: Path, begun: Path, rewrite: Rewrite
) -> None:
    """Its experiment says nothing of one, and experiments that say nothing have not always had one."""
    recorded = read_manifest(begun)
    quiet = recorded.experiment.model_copy(update={"noise_floor": None, "purpose": "measure", "blocks": 6})
    today = load(rewrite(noise_floor=None, purpose="measure", blocks=6), project)
    assert today.experiment.noise_floor is not None
    before = recorded.model_copy(update={"experiment": quiet})
    assert same_experiment(before, today)
    assert with_recorded_control(today, before).experiment.noise_floor is None
    other = recorded.model_copy(update={"experiment": quiet.model_copy(update={"blocks": 7})})
    assert not same_experiment(other, today)


def test_a_resumed_run_takes_its_rates_from_the_records(
    project: Registry, inventory: Path, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cross-check needs no warm-up of its own where an earlier trial has seen its rate."""
    before = records_of(begun)
    arms = {record.arm.environment for record in before}
    warmed: list[tuple[str, str]] = []
    warm = LoadDriver.warm

    def counted(driver: LoadDriver, tool: str, users: int, duration_s: float) -> float:
        warmed.append((driver.arm.environment, tool))
        return warm(driver, tool, users, duration_s)

    monkeypatch.setattr(LoadDriver, "warm", counted)
    run(project.experiment_file("tiny"), inventory, begun.parent.parent, resume=begun, registry=project)
    records = records_of(begun)
    assert records[:2] == before
    assert [record.key for record in records] == [(b, o) for b in (1, 2) for o in (1, 2, 3)]
    assert_sound(records)
    assert {environment for environment, tool in warmed if tool == "h2load"} == {"metal", "metal-two"} - arms
