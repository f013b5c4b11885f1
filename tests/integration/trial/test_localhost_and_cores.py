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

from tests.support.local_server import server_pids
from tests.support.measured import plan, run
from tests.support.records import assert_sound, primary, records_of
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.facts import tool_versions
from vmtoll.machines.session import Session
from vmtoll.model.errors import ExperimentError, InventoryError
from vmtoll.model.facts import HostFacts
from vmtoll.model.finding import Code
from vmtoll.model.inventory import Host
from vmtoll.model.trial import ClientPlace, TrialRecord
from vmtoll.spec.catalog import Registry
from vmtoll.spec.machines import load_inventory

Records = list[TrialRecord]
Measured = Callable[..., Records]
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
    """Run a workload on the page index.html of metal; its records. `host`: more of metal's variables."""

    def go(host: dict[str, Any] | None = None, **keys: Any) -> Records:
        tree = yaml.safe_load(inventory.read_text())
        tree["all"]["children"]["metal_hosts"]["hosts"]["metal"] |= host or {}
        inventory.write_text(yaml.safe_dump(tree))
        project.workload_file("tiny").write_text(yaml.safe_dump(without_none(**{**PAGE, **keys})))
        path = rewrite(blocks=1, environments=["metal"], noise_floor=None, duration_s=0.3)
        return records_of(run(path, inventory, tmp_path / "results", registry=project))

    return go


@pytest.fixture
def sut(inventory: Path) -> Iterator[AgentLine]:
    variables = yaml.safe_load(inventory.read_text())["all"]["children"]["metal_hosts"]["hosts"]["metal"]
    line = AgentLine(Host("metal", "metal", variables))
    line.open()
    yield line
    line.close()


def test_the_client_on_the_machine_itself_needs_no_address(measured: Measured, tmp_path: Path) -> None:
    [record] = measured(NOBODY, client="localhost")
    assert_sound([record])
    own = primary(record)
    assert record.client is ClientPlace.LOCALHOST
    assert own.successful == own.requests == own.transactions
    assert Code.CLIENT_STARVED not in record.codes
    assert record.resources.link_used_pct is record.conditions.client_background_cpu_pct is own.host_cpu_s is None
    assert not any((f.process or "").startswith("ab ") for f in record.findings), "the load tool is no stranger there"
    [sampled] = (tmp_path / "results/latest/samples").glob("*.csv")
    with sampled.open(encoding="utf-8", newline="") as handle:
        assert {line["host"] for line in csv.DictReader(handle)} == {"metal"}


def test_a_load_of_two_thirds_of_a_second_is_long_enough_for_its_gates(
    project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite
) -> None:
    """The pulse of most such loads was too coarse to compare their beginning with the rest.

    A load is sized by what the server served before it, and the first of a run by a very short one: it is shorter.
    """
    project.workload_file("tiny").write_text(yaml.safe_dump({**PAGE, "tool": "siege", "client": "localhost"}))
    path = rewrite(blocks=4, environments=["metal"], noise_floor=None, duration_s=0.8)
    records = records_of(run(path, inventory, tmp_path / "results", registry=project))
    as_long = [record for record in records if 0.4 <= (primary(record).duration_s or 0) <= 0.8]
    assert as_long, [primary(record).duration_s for record in records]
    for record in as_long:
        assert primary(record).warmup_slower_pct is not None
        assert record.conditions.longest_gap_ms is not None


def test_the_tool_must_be_on_every_machine_that_sends_and_the_same(
    project: Registry, inventory: Path, rewrite: Rewrite
) -> None:
    project.workload_file("tiny").write_text(yaml.safe_dump({**PAGE, "client": "localhost"}))
    resolved = plan(rewrite(), project).resolved
    machines = load_inventory(inventory, resolved.experiment.environments)
    facts = {"client": HostFacts()}
    session = cast(Session, SimpleNamespace(resolved=resolved, inventory=machines, facts=facts, lines={}))
    for name, version in (("metal", "2.4.62"), ("metal-two", "2.4.62")):
        facts[name] = HostFacts(packages={"apache2-utils": version})
    assert tool_versions(session) == {"ab": "2.4.62"}, "the client needs none"
    facts["metal-two"].packages["apache2-utils"] = "2.4.57"
    with pytest.raises(InventoryError, match=r"metal-two: .*tool ab .*2\.4\.57, .*2\.4\.62; "):
        tool_versions(session)
    del facts["metal"].packages["apache2-utils"]
    with pytest.raises(InventoryError, match=r"metal: .*tool ab .*`make provision`"):
        tool_versions(session)


def test_a_remote_client_does_need_it(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmtoll.trial.server.SERVER_LIMIT_S", 3.0)
    for record in measured(NOBODY):
        assert record.client is ClientPlace.REMOTE
        assert record.codes == {Code.SERVER_FAILED}
        assert record.findings[0].machine == "metal", "the client told of it"
        message = record.findings[0].detail
        assert "http://127.0.0.9:" in message and "does not answer" in message


def test_a_ramp_and_its_capacity_come_from_the_machine_itself(measured: Measured) -> None:
    records = measured(NOBODY, client="localhost", capacity={"tool": "ab", "users": 5}, **RAMP)
    assert [record.client for record in records] == [ClientPlace.LOCALHOST] * 2
    assert all(record.offered.capacity_rps and primary(record).goodput_rps for record in records)


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


def test_the_record_has_how_many_cores_the_server_had(measured: Measured) -> None:
    """Conditions are shares of these cores, too."""

    def cores_of(records: Records) -> list[tuple[int | None, int | None]]:
        return [(record.resources.server_cores, primary(record).cpus) for record in records]

    assert cores_of(measured(cores=1)) == [(1, 1)]
    assert cores_of(measured()) == [(CORES, CORES)]


DIES = "import socket\ns = socket.create_server(('127.0.0.1', {}))\nfor _ in range(3): s.accept()"


def test_a_server_that_dies_once_it_listens_is_not_waited_for(measured: Measured, tmp_path: Path) -> None:
    """It lives for the two looks that the agent takes, and for the first that the client takes."""
    path = tmp_path / "metal/etc/vmtoll/servers/lighttz.json"
    spec = json.loads(path.read_text())
    path.write_text(json.dumps({**spec, "command": ["python3", "-c", DIES.format(spec["port"])]}))
    for record in measured():
        found = [(finding.code, finding.detail) for finding in record.findings]
        assert found == [(Code.SERVER_FAILED, "metal: server_check: lighttz has ended")]


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
        [record] = records_of(run(path, inventory, tmp_path / "results", registry=project, scale=scale))
        assert_sound([record])
        sent[scale] = primary(record).requests
    assert sent["full"] == 1235 != sent["small"]
    assert plan(path, project, scale="full").total_s < 10, "the number counts, not the duration"


def test_fifty_requests_have_no_p99(project: Registry, inventory: Path, tmp_path: Path, rewrite: Rewrite) -> None:
    """ab prints one from beyond the end of its list."""
    project.workload_file("tiny").write_text(yaml.safe_dump({**PAGE, "requests": 50}))
    path = rewrite(
        blocks=None, warmup_s=None, duration_s=None, environments=["metal"], noise_floor=None,
        scales={"full": {"blocks": 1, "warmup_s": 0.05, "duration_s": 60.0}},
    )  # fmt: skip
    run_dir = run(path, inventory, tmp_path / "results", registry=project, scale="full")
    [record] = records_of(run_dir)
    own = primary(record)
    assert (own.transactions, own.service_time.p99_us, own.dropped_figures) == (50, None, 1)
    assert own.service_time.p50_us and own.service_time.p90_us and own.logs_service_times
    with (run_dir / "trials.csv").open(encoding="utf-8", newline="") as handle:
        [row] = csv.DictReader(handle)
    assert (row["service_time_p99_us"], row["dropped_figures"]) == ("", "1")


def test_users_share_the_requests_equally(project: Registry) -> None:
    path = project.workload_file("tiny")
    path.write_text(yaml.safe_dump({**PAGE, "requests": 1234}))
    with pytest.raises(ExperimentError, match=r"requests: 1234 .*of 5, .*users"):
        plan(project.experiment_file("tiny"), project)
