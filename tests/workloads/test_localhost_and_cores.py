"""The client on the machine under test itself, a server on some of its cores, a published number of requests."""

import csv
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from local_server import server_pids

from workloads.runner.bench import Bench
from workloads.runner.errors import ExperimentError, InventoryError
from workloads.runner.hosts import tool_versions
from workloads.runner.inventory import Host, load_inventory
from workloads.runner.registry import Registry
from workloads.runner.results import Store
from workloads.runner.run import plan, run
from workloads.runner.transport import AgentLine

Rows = list[dict[str, str]]
Measured = Callable[..., Rows]
Rewrite = Callable[..., Path]
PAGE = {"description": "one page", "site": "tiny", "page": "index.html", "tool": "ab", "users": 5, "keep_alive": True}
RAMP = {"kind": "ramp", "tool": "httperf", "users": None, "shares": [0.1, 0.2], "deadline_ms": 100.0}
# The servers of these machines listen on 127.0.0.1 only: at this address none answers.
NOBODY = {"vmtoll_address": "127.0.0.9"}
CORES = len(os.sched_getaffinity(0))


def without_none(**keys: Any) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not None}


@pytest.fixture
def measured(project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite) -> Measured:
    """Run a workload on the page index.html of metal; its rows. `host`: more of metal's variables."""

    def go(host: dict[str, Any] | None = None, **keys: Any) -> Rows:
        tree = yaml.safe_load(inventory.read_text())
        tree["all"]["children"]["metal"]["hosts"]["metal"] |= host or {}
        inventory.write_text(yaml.safe_dump(tree))
        project.workload_file("tiny").write_text(yaml.safe_dump(without_none(**{**PAGE, **keys})))
        path = rewrite(blocks=1, environments=["metal"], noise_floor=None, duration_s=0.3)
        store = Store(run(path, inventory, tmp_path / "results", registry=project))
        try:
            return store.rows()
        finally:
            store.close()

    return go


@pytest.fixture
def sut(inventory: Path) -> Iterator[AgentLine]:
    variables = yaml.safe_load(inventory.read_text())["all"]["children"]["metal"]["hosts"]["metal"]
    line = AgentLine(Host("metal", "metal", variables))
    line.open()
    yield line
    line.close()


def test_the_client_on_the_machine_itself_needs_no_address(measured: Measured, tmp_path: Path) -> None:
    [row] = measured(NOBODY, client="localhost")
    assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
    assert row["client"] == "localhost"
    assert row["successful"] == row["requests"] == row["transactions"]
    assert "client-starved" not in row["reasons"]
    assert row["link_used_pct"] == row["client_foreign_cpu_pct"] == row["host_cpu_s"] == ""
    assert "most of it ab " not in row["reasons"], "the load tool is no stranger there"
    [sampled] = (tmp_path / "results/latest/samples").glob("*.csv")
    with sampled.open(encoding="utf-8", newline="") as handle:
        assert {line["host"] for line in csv.DictReader(handle)} == {"metal"}


def test_the_tool_must_be_on_every_machine_that_sends_and_the_same(
    project: Registry, inventory: Path, rewrite: Rewrite
) -> None:
    project.workload_file("tiny").write_text(yaml.safe_dump({**PAGE, "client": "localhost"}))
    resolved = plan(rewrite(), project).resolved
    machines = load_inventory(inventory, resolved.experiment.environments)
    there: dict[str, dict[str, Any]] = {"client": {"packages": {}}}
    bench = cast(Bench, SimpleNamespace(resolved=resolved, inventory=machines, facts=there, lines={}))
    for name, version in (("metal", "2.4.62"), ("metal-two", "2.4.62")):
        there[name] = {"packages": {"apache2-utils": version}}
    assert tool_versions(bench) == {"ab": "2.4.62"}, "the client needs none"
    there["metal-two"]["packages"]["apache2-utils"] = "2.4.57"
    with pytest.raises(InventoryError, match=r"metal-two: the load tool ab is 2\.4\.57, elsewhere 2\.4\.62; run `make"):
        tool_versions(bench)
    del there["metal"]["packages"]["apache2-utils"]
    with pytest.raises(InventoryError, match="metal: the load tool ab is not there; run `make provision`"):
        tool_versions(bench)


def test_a_remote_client_does_need_it(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.runner.serving.SERVER_LIMIT_S", 3.0)
    for row in measured(NOBODY):
        assert row["client"] == "remote"
        assert "http://127.0.0.9:" in row["reasons"] and "does not answer" in row["reasons"]


def test_a_ramp_and_its_capacity_come_from_the_machine_itself(measured: Measured) -> None:
    rows = measured(NOBODY, client="localhost", capacity={"tool": "ab", "users": 5}, **RAMP)
    assert [row["client"] for row in rows] == ["localhost"] * 2
    assert all(float(row["capacity_rps"]) > 0 and float(row["goodput_rps"]) > 0 for row in rows)


def test_the_pulse_of_a_machine_that_talks_to_itself_is_that_of_the_loopback(sut: AgentLine) -> None:
    """What 200 bodies weigh has come in, and more."""
    sut.call("server_start", name="lighttz")
    files = [{"path": "tiny/index.html", "sha256": ""}] * 200
    weight = 200 * (Path(sut.host.root) / "srv/vmtoll/sites/tiny/index.html").stat().st_size
    sut.call("sample_start", pulse_s=0.01, loopback=True)
    sut.call("http_check", host="127.0.0.1", port=sut.host.port, files=files)
    while len((pulse := sut.call("sample_stop"))["pulse"]) < 2:
        sut.call("sample_start", pulse_s=0.01, loopback=True)
        sut.call("http_check", host="127.0.0.1", port=sut.host.port, files=files * 10)
    assert pulse["pulse"][-1][1] - pulse["pulse"][0][1] > weight / 10
    sut.call("server_stop", name="lighttz")


def affinities(root: Path) -> set[frozenset[int]]:
    """Of all processes, master and worker, of the server on the configuration in `root`."""
    return {frozenset(os.sched_getaffinity(pid)) for pid in server_pids(root)}


@pytest.mark.skipif(CORES < 2, reason="one core is no choice")
def test_a_server_has_the_cores_it_is_given_and_all_of_them_the_next_time(sut: AgentLine) -> None:
    root, every = Path(sut.host.root), frozenset(os.sched_getaffinity(0))
    for cores, expected in ((1, frozenset({min(every)})), (None, every), (len(every) + 1, every)):
        seen = sut.call("server_start", name="lighttz", cores=cores)
        assert (seen["cores"], affinities(root)) == (len(expected), {expected})
        sut.call("server_stop", name="lighttz")


def test_the_row_says_how_many_cores_the_server_had(measured: Measured) -> None:
    assert [row["server_cores"] for row in measured(cores=1)] == ["1"]
    assert [row["server_cores"] for row in measured()] == [str(CORES)]


DIES = "import socket\ns = socket.create_server(('127.0.0.1', {}))\nfor _ in range(3): s.accept()"


def test_a_server_that_dies_once_it_listens_is_not_waited_for(measured: Measured, tmp_path: Path) -> None:
    """It lives for the two looks that the agent takes, and for the first that the client takes."""
    path = tmp_path / "metal/etc/vmtoll/servers/lighttz.json"
    spec = json.loads(path.read_text())
    path.write_text(json.dumps({**spec, "command": ["python3", "-c", DIES.format(spec["port"])]}))
    for row in measured():
        assert row["reasons"] == "server-failed: metal: server_check: lighttz has ended"


def test_the_published_number_is_sent_at_full_scale_only(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    project.workload_file("tiny").write_text(yaml.safe_dump({**PAGE, "requests": 1235}))
    path = rewrite(
        blocks=None, warmup_s=None, duration_s=None, environments=["metal"], noise_floor=None,
        scales={
            "full": {"blocks": 1, "warmup_s": 0.05, "duration_s": 60.0},
            "small": {"blocks": 1, "warmup_s": 0.05, "duration_s": 0.02},
        },
    )  # fmt: skip
    sent = {}
    for scale in ("full", "small"):
        store = Store(run(path, inventory, tmp_path / "results", registry=project, scale=scale))
        [row] = store.rows()
        store.close()
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        sent[scale] = int(row["requests"])
    assert sent["full"] == 1235 != sent["small"]
    assert plan(path, project, scale="full").total_s < 10, "the number counts, not the duration"


def test_users_share_the_requests_equally(project: Registry) -> None:
    path = project.workload_file("tiny")
    path.write_text(yaml.safe_dump({**PAGE, "requests": 1234}))
    with pytest.raises(ExperimentError, match="requests: 1234 is no multiple of 5, the users"):
        plan(project.experiment_file("tiny"), project)
