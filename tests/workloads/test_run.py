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
from hdrh.histogram import HdrHistogram
from local_server import server_pids

from workloads.runner.errors import ExperimentError, InventoryError, ResultsError, RunnerError
from workloads.runner.registry import PROJECT, Registry
from workloads.runner.results import COLUMNS, Store
from workloads.runner.run import run

Rewrite = Callable[..., Path]

RUNNER = """
import sys
from pathlib import Path
from workloads.runner.registry import Registry
from workloads.runner.run import run
experiment, inventory, results, project, resume = sys.argv[1:]
run(Path(experiment), Path(inventory), Path(results), resume=Path(resume) if resume else None,
    registry=Registry(Path(project)))
"""


def rows_of(run_dir: Path) -> list[dict[str, str]]:
    store = Store(run_dir)
    try:
        return store.rows()
    finally:
        store.close()


def eventually_none_left(tmp_path: Path) -> bool:
    deadline = time.monotonic() + 15
    while any(server_pids(tmp_path / name) for name in ("metal", "metal-two")):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_run_writes_what_the_contract_says(project: Registry, inventory: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int, str, float | None]] = []
    results = tmp_path / "results"
    run_dir = run(
        project.experiment_file("tiny"), inventory, results, registry=project, progress=lambda *a: told.append(a)
    )
    assert run_dir.parent == results / "tiny"
    assert (results / "latest").resolve() == run_dir.resolve()
    rows = rows_of(run_dir)
    assert list(rows[0]) == COLUMNS
    assert len(rows) == 6
    assert sorted((r["block"], r["order"]) for r in rows) == [(str(b), str(o)) for b in (1, 2) for o in (1, 2, 3)]
    may_be_empty = {"host_cpu_s", "host_cpu_us_per_request", "twin_host_cpu_us_per_request", "link_used_pct", "reasons"}
    may_be_empty |= {"host_foreign_cpu_pct", "cpu_mhz_spread_pct", "longest_gap_ms", "warmup_slower_pct"}
    may_be_empty |= {name for name in COLUMNS if name.startswith(("response_time_", "twin_response_time_"))}
    may_be_empty |= {name for name in COLUMNS if name.startswith(("host_", "guest_", "start_spread_", "neighbour_"))}
    may_be_empty |= {"offered_rps", "capacity_rps", "lateness_p99_us", "deadline_ms", "goodput_rps"}  # of an open loop
    may_be_empty |= {name for name in COLUMNS if name.startswith(("request_rps", "connection_rps", "reply_rps_"))}
    may_be_empty |= {name for name in COLUMNS if name.startswith(("connect_", "first_response_"))}  # of oha
    may_be_empty |= {name for name in COLUMNS if name.startswith(("messages_", "delivery_", "host_energy_"))}  # of mail
    for row in rows:
        assert {k for k, v in row.items() if v == ""} <= may_be_empty, row
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        assert row["transactions"] == row["successful"] == row["requests"]
        assert float(row["service_time_p50_us"]) <= float(row["service_time_p99_us"])
        assert float(row["throughput_rps"]) == pytest.approx(
            int(row["transactions"]) / float(row["duration_s"]), rel=1e-6
        )
        assert row["bodies_wrong"] == "0" < row["bodies_checked"]
        name = f"b{int(row['block']):03d}-o{int(row['order']):03d}-a1"
        histogram = HdrHistogram.decode((run_dir / "histograms" / f"{name}.hdr").read_bytes().strip())
        assert histogram.get_total_count() == int(row["twin_requests"])
        by_second = list(csv.DictReader((run_dir / "histograms" / f"{name}.csv").read_text().splitlines()))
        assert sum(int(line["count"]) for line in by_second) == int(row["twin_requests"])
        assert base64.b64decode((run_dir / "histograms" / f"{name}.hdr").read_bytes())
        assert (run_dir / "raw" / name / "siege.stderr").read_text().startswith("** SIEGE")
        assert (run_dir / "raw" / name / "h2load.requests.log.gz").stat().st_size > 0
        assert (run_dir / "samples" / f"{name}.csv").read_text().count("\n") >= 3
    assert min(float(row["fixed_cost_s"]) for row in rows) < 2
    document = json.loads((run_dir / "run.json").read_text())
    assert document["schema"] == 1
    assert document["status"] == "complete"
    assert document["accelerators"] == {"metal": "none", "metal-two": "none"}
    assert document["emulated"] is False
    assert document["differences"] == {"declared": [], "undeclared": []}
    assert document["trials_planned"] == 6
    assert document["versions"]["siege"].startswith("4.")
    facts = json.loads((run_dir / "hosts.json").read_text())
    assert set(facts) == {"client", "metal", "metal-two"}
    assert facts["metal"]["servers"]["lighttz"]["workers"] == 1
    assert facts["metal"]["content_digest"] == facts["metal-two"]["content_digest"]
    assert told[0][0] == "connect"
    assert told[-1][:3] == ("done", 6, 6)
    assert eventually_none_left(tmp_path)
    with pytest.raises(ResultsError, match="complete, there is nothing to resume"):
        run(project.experiment_file("tiny"), inventory, results, resume=run_dir, registry=project)


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
        if run_dir and (run_dir / "trials.csv").exists():
            rows = rows_of(run_dir)
            assert len(rows) >= seen, f"seed {seed}: a row was lost"
            seen = len(rows)
            if (run_dir / "run.json").exists() and json.loads((run_dir / "run.json").read_text())["ended_at"]:
                break
    else:
        last = start(project, inventory, results, run_dir)
        assert last.wait(300) == 0, (seed, last.stderr and last.stderr.read())
    run_dir = run_dir or next((results / "tiny").glob("*/"))
    rows = rows_of(run_dir)
    assert [(r["block"], r["order"], r["attempt"]) for r in rows] == [
        (str(b), str(o), "1") for b in range(1, 5) for o in range(1, 4)
    ], f"seed {seed}"
    assert all(r["verdict"] in {"valid", "suspect"} for r in rows), (seed, [r["reasons"] for r in rows])
    assert len(list((run_dir / "histograms").glob("*.hdr"))) == len(rows)
    assert json.loads((run_dir / "run.json").read_text())["status"] == "complete"
    assert eventually_none_left(tmp_path)


def test_a_machine_that_vanishes_is_a_failed_row_and_the_run_goes_on(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    rewrite(blocks=1, noise_floor=None, environments=["metal"], warmup_s=0.1, duration_s=2.0)
    killed = threading.Event()

    def pull_the_plug(stage: str, n: int, of: int, message: str, left_s: float | None) -> None:
        if message.endswith(": siege measures") and not killed.is_set():
            killed.set()
            threading.Timer(0.2, kill_agent_of, [tmp_path / "metal"]).start()

    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, progress=pull_the_plug)
    rows = rows_of(run_dir)
    assert (rows[0]["attempt"], rows[0]["verdict"]) == ("1", "invalid")
    assert rows[0]["reasons"].startswith("host-lost: ")
    assert rows[0]["throughput_rps"] == rows[0]["service_time_p99_us"] == ""
    assert rows[0]["environment"] == "metal"
    assert rows[1]["attempt"] == "2"
    assert rows[1]["verdict"] in {"valid", "suspect"}, rows[1]["reasons"]
    assert len(rows) == 2


def test_a_server_lost_in_a_warm_up_leaves_no_rate_behind(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    """Refusals come fast: taken for answers they would make the next attempt's load one of hours."""
    rewrite(blocks=1, noise_floor=None, environments=["metal"], warmup_s=0.1, duration_s=0.5)
    killed = threading.Event()

    def pull(stage: str, n: int, of: int, message: str, left_s: float | None) -> None:
        if message.endswith(": h2load") and not killed.is_set():
            killed.set()
            for pid in server_pids(tmp_path / "metal"):
                with contextlib.suppress(ProcessLookupError):  # a worker goes with its master
                    os.kill(pid, signal.SIGKILL)

    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project, progress=pull)
    rows = rows_of(run_dir)
    assert [(row["attempt"], row["verdict"] == "invalid") for row in rows] == [("1", True), ("2", False)], rows
    assert rows[0]["reasons"].startswith("tool-failed: h2load: finished 0 of ")


def kill_agent_of(root: Path) -> None:
    """SIGKILL whoever holds the machine's lock, and its server: what a pulled plug does."""
    inode = (root / "run" / "vmtoll.lock").stat().st_ino
    (session, *_) = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3] for pid in server_pids(root)]
    doomed = []
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            doomed.append(int(fields[4]))
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if path.read_text().rpartition(")")[2].split()[3] == session:
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
        monkeypatch.setattr("workloads.runner.revive.LOCK_S", 0.3)
        with pytest.raises(ResultsError, match=r"client is in use by run .* of tiny \(process \d+, since "):
            run(project.experiment_file("tiny"), inventory, tmp_path / "other", registry=project)
        with pytest.raises(ResultsError, match="another process is running this run"):
            run_dir = next((tmp_path / "r" / "tiny").glob("*/"))
            run(project.experiment_file("tiny"), inventory, tmp_path / "r", resume=run_dir, registry=project)
    finally:
        first.kill()
        first.wait()
    assert eventually_none_left(tmp_path)


def test_planted_faults_make_trials_invalid(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    rewrite(blocks=1, noise_floor=None)
    root = tmp_path / "metal-two"
    (root / "policy.conf").write_text("keepalive_requests 100;\n")
    for path in (root / "srv/vmtoll/sites/tiny").rglob("*"):
        if path.is_file():
            path.write_bytes(b"wrong")
    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project)
    rows = {r["environment"]: r for r in rows_of(run_dir)}
    assert rows["metal"]["verdict"] in {"valid", "suspect"}
    assert rows["metal-two"]["verdict"] == "invalid"
    for reason in ("fingerprint: lighttz: config_sha256 differ", "fingerprint: content digest", "wrong-body: "):
        assert reason in rows["metal-two"]["reasons"]
    document = json.loads((run_dir / "run.json").read_text())
    assert [d["fact"] for d in document["differences"]["undeclared"]] == ["servers: lighttz", "content_digest"]


def test_a_server_that_does_not_start_is_tried_twice(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    rewrite(blocks=1, noise_floor=None, environments=["metal"])
    (tmp_path / "metal" / "lighttz.conf").write_text("nonsense;\n")
    run_dir = run(project.experiment_file("tiny"), inventory, tmp_path / "r", registry=project)
    rows = rows_of(run_dir)
    assert [r["attempt"] for r in rows] == ["1", "2"]
    assert all(r["reasons"].startswith("server-failed: metal: server_start: lighttz ended without") for r in rows)


@pytest.mark.parametrize("missing", ["server", "link", "changed"])
def test_what_does_not_fit_is_refused_in_one_sentence(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite, missing: str
) -> None:
    path = project.experiment_file("tiny")
    expected: type[RunnerError] = InventoryError
    if missing == "server":
        path, said = rewrite(servers=["lighttz", "apache-prefork"]), "server apache-prefork is not provisioned"
    elif missing == "link":
        path = rewrite(link="100mbit")
        said = (
            r"/tiny\.yml: link: 100mbit, but in /.*/inventory\.yml the client client has vmtoll_link: unshaped; "
            r"limit its link to 100mbit and set vmtoll_link .* so, or choose an experiment with `link: unshaped`$"
        )
    resume = None
    if missing == "changed":
        expected, said = ExperimentError, "has changed since the run began"
        resume = tmp_path / "r" / "tiny" / "x"
        store = Store.create(resume)
        store.write_json("run.json", {"schema": 1, "status": "running", "experiment": {"name": "tiny"}})
        store.close()
    with pytest.raises(expected, match=said):
        run(path, inventory, tmp_path / "r", resume=resume, registry=project)
