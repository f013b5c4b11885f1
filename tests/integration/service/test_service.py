"""Runs on services that vmtoll did not install: small applications and nginx on this machine, by the real vegeta."""

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.measured import run
from tests.support.ports import free_port
from vmtoll.agent.servers import listens
from vmtoll.analysis.run import load_run
from vmtoll.commands.conclude import conclude
from vmtoll.commands.help import NOTHING_VALID
from vmtoll.commands.measured import finish
from vmtoll.model.errors import ExperimentError, VmtollError
from vmtoll.model.event import Event, Phase, ServiceCompared, TrialStep
from vmtoll.model.finding import Code
from vmtoll.model.trial import TrialRecord
from vmtoll.publish.bundle import publish
from vmtoll.runs.folder import read
from vmtoll.spec.catalog import Registry

APP = Path(__file__).parents[2] / "support" / "service_app.py"
Start = Callable[..., "App"]

pytestmark = pytest.mark.usefixtures("load_tools")


@dataclass(frozen=True)
class App:
    """A running application; see tests/support/service_app.py."""

    address: str
    state: Path
    pid: int

    def become(self, mode: str) -> None:
        Path(f"{self.state}.mode").write_text(mode)

    @property
    def requests(self) -> str:
        """A letter for each request so far."""
        return Path(f"{self.state}.count").read_text()

    @property
    def last_request_s(self) -> float:
        """Time of the last request, since the epoch."""
        return Path(f"{self.state}.count").stat().st_mtime


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def start_app(name: str, *certificate: Path) -> App:
            port, state = free_port(), tmp_path / name
            process = subprocess.Popen([sys.executable, APP, str(port), state, *certificate])
            stack.callback(process.wait)
            stack.callback(process.terminate)
            while not listens(port):
                assert process.poll() is None
                time.sleep(0.02)
            return App(f"http{'s' if certificate else ''}://localhost:{port}", state, process.pid)

        yield start_app


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """An inventory of this machine alone, as client."""
    hosts = {"here": {"ansible_connection": "local", "vmtoll_root": str(tmp_path / "here")}}
    file = tmp_path / "client.yml"
    file.write_text(yaml.safe_dump({"all": {"children": {"clients": {"hosts": hosts}}}}))
    return file


def experiment(folder: Path, service: dict[str, Any], **keys: Any) -> Path:
    service = {"name": "shop", "urls": ["/", "/a?b=1,2", "/c"], "at_most_rps": 200} | service
    document = {
        "question": "does it work?", "purpose": "smoke", "environments": ["before", "after"], "service": service,
        "blocks": 2, "warmup_s": 0.2, "duration_s": 1.0, "seed": 7, **keys,
    }  # fmt: skip
    file = folder / "shop.yml"
    file.write_text(yaml.safe_dump(document))
    return file


STEADY = {"steady": {"kind": "rate", "rate_rps": 100, "deadline_ms": 100}}


def records_of(results: Path) -> list[TrialRecord]:
    (run_dir,) = (results / "shop").iterdir()
    return list(read(run_dir).records)


def test_rates_and_users(start: Start, client: Path, tmp_path: Path, project: Registry) -> None:
    before, after = start("before"), start("after")
    addresses = {"before": before.address, "after": after.address}
    loads = STEADY | {"users": {"users": 4}}
    events: list[Event] = []
    file = experiment(tmp_path, {"address": addresses, "loads": loads, "urls": ["/", "/a?b=1,2", "/now", "/c"]})
    run_dir = run(file, client, tmp_path / "results", registry=project, listener=events.append)
    (compared,) = (event for event in events if isinstance(event, ServiceCompared))
    assert (compared.urls, compared.arms, compared.found) == (4, ("before", "after"), ("/now",))
    records = list(read(run_dir).records)
    assert len(records) == 8
    for record in records:
        primary = record.primary
        assert primary is not None
        assert primary.failed == 0
        assert primary.server_cpu_us_per_request is None
        if record.scenario.workload == "steady":
            assert primary.requests == 100
            assert primary.response_time.p50_us
        else:
            assert 0 < (primary.requests or 0) <= 201
            assert primary.service_time.p50_us
    pages = json.loads((run_dir / "service.json").read_text())["urls"]
    assert [(page["status"], page["dynamic"]) for page in pages] == [
        (200, "no"),
        (200, "no"),
        (200, "found"),
        (200, "no"),
    ]


@pytest.mark.parametrize("load", [{"kind": "rate", "rate_rps": 150, "deadline_ms": 100}, {"users": 4}])
@pytest.mark.parametrize("mode", ["broken", "hanging"])
def test_the_load_stops_when_the_service_fails(
    start: Start, client: Path, tmp_path: Path, project: Registry, load: dict[str, Any], mode: str
) -> None:
    app, broken_s = start("app"), list[float]()

    def break_now() -> None:
        broken_s.append(time.time())
        app.become(mode)

    def break_it(event: Event) -> None:
        if isinstance(event, TrialStep) and event.phase is Phase.MEASURING:
            threading.Timer(1.0, break_now).start()

    file = experiment(
        tmp_path, {"address": app.address, "loads": {"load": load}}, environments=["one"], duration_s=20.0, blocks=3
    )
    with pytest.raises(VmtollError, match="--resume"):
        run(file, client, tmp_path / "results", registry=project, listener=break_it)
    after = app.requests.count("b")
    assert 0 < after <= 200
    assert app.last_request_s - broken_s[0] < 2
    time.sleep(1)
    assert app.requests.count("b") == after
    (record,) = records_of(tmp_path / "results")
    assert Code.SERVER_FAILED in record.codes


def test_headers_are_in_no_file_and_on_no_command_line(
    start: Start, client: Path, tmp_path: Path, project: Registry
) -> None:
    app, seen = start("app"), set[str]()
    (tmp_path / "headers.txt").write_text("Cookie: session=sesame\nX-Token: tiger-lily\n")

    def look(event: Event) -> None:
        if isinstance(event, TrialStep) and event.phase is Phase.MEASURING:
            for tenth in range(12):
                threading.Timer(tenth / 10, lambda: seen.update(command_lines())).start()

    service = {"address": app.address, "urls": ["/private", "/b"], "headers": "headers.txt", "loads": STEADY}
    file = experiment(tmp_path, service, environments=["one"])
    run_dir = run(file, client, tmp_path / "results", registry=project, listener=look)
    assert all(record.primary and record.primary.failed == 0 for record in read(run_dir).records)
    assert any("vegeta attack" in line for line in seen)
    secrets = ("sesame", "tiger-lily", "crumbs")
    assert not [line for line in seen if any(secret in line for secret in secrets)]
    conclude(run_dir)
    for path in (path for path in (tmp_path / "results").rglob("*") if path.is_file()):
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        assert not [secret for secret in secrets if secret.encode() in data], path
    port = app.address.rpartition(":")[2]
    for path in publish(run_dir, tmp_path / "bundle").iterdir():
        data = path.read_bytes()
        assert not [text for text in (*secrets, "/private", "headers.txt", f":{port}") if text.encode() in data], path
    assert load_run(tmp_path / "bundle").manifest.experiment.service
    (tmp_path / "headers.txt").write_text("Cookie: session=sesame\nX-Token tiger-lily\n")
    with pytest.raises(ExperimentError, match="line 2") as error:
        run(file, client, tmp_path / "results", registry=project)
    assert "tiger" not in str(error.value)


def command_lines() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield file.read_text().replace("\0", " ")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path, Path]:
    """An authority made here, and the certificate of localhost that it signed, with its key."""
    ca, key, signed = (tmp_path / name for name in ("ca.pem", "key.pem", "localhost.pem"))
    new: list[str | Path] = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run(
        [*new, "-subj", "/CN=A test's authority", "-keyout", tmp_path / "ca.key", "-out", ca],
        check=True,
        capture_output=True,
    )
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"]
    authority: list[str | Path] = ["-CA", ca, "-CAkey", tmp_path / "ca.key"]
    subprocess.run([*new, *name, *authority, "-keyout", key, "-out", signed], check=True, capture_output=True)
    return ca, signed, key


def test_tls_by_an_authority_of_its_own(
    start: Start, client: Path, tmp_path: Path, project: Registry, certificate: tuple[Path, Path, Path]
) -> None:
    _, signed, key = certificate
    app = start("app", signed, key)
    service = {"address": app.address, "loads": STEADY}
    with pytest.raises(VmtollError, match="CERTIFICATE_VERIFY_FAILED"):
        run(experiment(tmp_path, service, environments=["one"]), client, tmp_path / "results", registry=project)
    for terms in ({"ca": "ca.pem"}, {"verify": False}):
        file = experiment(tmp_path, service | terms, environments=["one"], blocks=1)
        run_dir = run(file, client, tmp_path / "results", registry=project)
        assert all(record.primary and record.primary.failed == 0 for record in read(run_dir).records)


def test_http_2_of_nginx(client: Path, tmp_path: Path, project: Registry, certificate: tuple[Path, Path, Path]) -> None:
    _, signed, key = certificate
    port = free_port()
    (tmp_path / "nginx.conf").write_text(f"""
        daemon off; master_process off; pid {tmp_path}/nginx.pid; error_log stderr; events {{}}
        http {{
            access_log {tmp_path}/access.log; client_body_temp_path {tmp_path}/b; proxy_temp_path {tmp_path}/p;
            fastcgi_temp_path {tmp_path}/f; uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;
            server {{
                listen 127.0.0.1:{port} ssl http2; ssl_certificate {signed}; ssl_certificate_key {key};
                location / {{ return 200 "hello"; }}
            }}
        }}""")
    nginx = subprocess.Popen(["/usr/sbin/nginx", "-c", tmp_path / "nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        while not listens(port):
            assert nginx.poll() is None
            time.sleep(0.02)
        service: dict[str, Any] = {"address": f"https://localhost:{port}", "ca": "ca.pem", "http": "2", "loads": STEADY}
        file = experiment(tmp_path, service, environments=["one"], blocks=1)
        run_dir = run(file, client, tmp_path / "results", registry=project)
        assert all(record.primary and record.primary.failed == 0 for record in read(run_dir).records)
        assert (tmp_path / "access.log").read_text().count("HTTP/2.0") >= 100
        # The log that this has made is the list of URLs of the next run.
        shutil.copy(tmp_path / "access.log", tmp_path / "copy.log")
        file = experiment(tmp_path, service | {"access_log": "copy.log", "urls": None}, environments=["one"], blocks=1)
        assert json.loads((run(file, client, tmp_path / "results", registry=project) / "service.json").read_text())
    finally:
        nginx.terminate()
        nginx.wait()


@pytest.mark.parametrize(("urls", "words"), [(["/", "/gone"], "answers 404"), (["/", "/where"], "another body")])
def test_arms_must_answer_alike(
    start: Start, client: Path, tmp_path: Path, project: Registry, urls: list[str], words: str
) -> None:
    before, after = start("before"), start("after")
    after.become("moved")
    service = {"address": {"before": before.address, "after": after.address}, "urls": urls, "loads": STEADY}
    with pytest.raises(ExperimentError, match=words):
        run(experiment(tmp_path, service), client, tmp_path / "results", registry=project)
    if words == "another body":
        file = experiment(tmp_path, service | {"dynamic": ["/where"]}, blocks=1)
        run(file, client, tmp_path / "results", registry=project)


@pytest.mark.parametrize("path", ["/where", "/c"])
def test_the_end_says_what_was_measured_and_which_page_changed(
    start: Start, client: Path, tmp_path: Path, project: Registry, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With /where, no trial is valid: its body is another one from the first load on."""
    app = start("app")

    def change(event: Event) -> None:
        if isinstance(event, TrialStep) and event.phase is Phase.MEASURING:
            app.become("moved")

    service = {"address": app.address, "urls": ["/", path], "loads": STEADY | {"users": {"users": 2}}}
    file = experiment(tmp_path, service, environments=["one"])
    run_dir = run(file, client, tmp_path / "results", registry=project, listener=change)
    if path == "/where":
        with pytest.raises(SystemExit) as ended:
            finish(run_dir, as_json=False)
        said = capsys.readouterr()
        assert ended.value.code == NOTHING_VALID
        assert "--dynamic '/where'" in said.err
        assert "no trial of 4 is valid: wrong-body in 4\n" in said.err
        assert "steady on one: none of 2 trials is valid" in said.out
        return
    finish(run_dir, as_json=True)
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert {(each["workload"], each["valid"], each["cpu_us_per_request"]) for each in measured} == {
        ("steady", 2, None), ("users", 2, None),
    }  # fmt: skip
    steady = next(each for each in measured if each["workload"] == "steady")
    assert 90 < steady["answers_per_s"] < 110
    assert 0 < steady["p50_ms"] < 1000


def with_machine(client: Path, python: str) -> Path:
    """Add the machine of a service to the client's inventory: this one once more, with this Python."""
    tree = yaml.safe_load(client.read_text())
    host = {
        "ansible_connection": "local", "ansible_python_interpreter": python, "vmtoll_environment": "before",
        "vmtoll_root": str(client.parent / "machine"),
    }  # fmt: skip
    tree["all"]["children"]["metal_hosts"] = {"hosts": {"shop-1": host}}
    client.write_text(yaml.safe_dump(tree))
    return client


def oldest_python() -> str | None:
    """A Python 3.9 of this machine, as Debian 11 and RHEL 9 have it; None without one."""
    candidates = [*Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"), Path("/usr/bin/python3.9")]
    return next((str(path) for path in candidates if path.exists()), None)


@pytest.mark.parametrize("python", ["python3", oldest_python()])
def test_cpu_per_request_of_the_processes_and_a_change_of_the_machine(
    start: Start, client: Path, tmp_path: Path, project: Registry, python: str | None
) -> None:
    """The machine of the service is in the inventory: its processes are found, and the change runs there."""
    if python is None:
        pytest.skip("no Python 3.9 here")
    app = start("app")
    with_machine(client, python)
    mode = f"{app.state}.mode"
    change = {"of": "before", "apply": f"printf moved >{mode}", "revert": f"printf well >{mode}"}
    service = {
        "address": app.address, "urls": ["/", "/where"], "dynamic": ["/where"], "loads": STEADY,
        "cpu": {"process": f"{APP} {app.address.rpartition(':')[2]}"},
    }  # fmt: skip
    file = experiment(tmp_path, service, changes={"after": change})
    records = read(run(file, client, tmp_path / "results", registry=project)).records
    assert [str(record.arm) for record in records].count("after") == 2
    for record in records:
        assert record.primary
        assert 10 < (record.primary.server_cpu_us_per_request or 0) < 100_000
        assert record.resources
        assert record.resources.processes == 1
    assert Path(mode).read_text() == "well"
    asked = len(app.requests)
    file = experiment(tmp_path, service | {"cpu": {"unit": "no-such-unit.service"}}, changes={"after": change})
    with pytest.raises(ExperimentError, match=r"service\.cpu: .*process .*no-such-unit"):
        run(file, client, tmp_path / "results", registry=project)
    assert len(app.requests) == asked


def test_the_command_writes_an_experiment_and_runs_it(
    start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    app = start("app")
    (tmp_path / "urls.txt").write_text("# the shop\n/\n/a?b=1,2\n")
    command: list[str | Path] = [
        Path(sys.executable).with_name("vmtoll"),
        "measure-service",
        app.address,
        "--at-most-rps",
        "100",
    ]
    options: list[str | Path] = [
        "--urls",
        tmp_path / "urls.txt",
        "--rate",
        "50",
        "--duration-s",
        "0.5",
        "--blocks",
        "6",
    ]
    options += ["--results", tmp_path / "results"]
    subprocess.run([*command, *options, "--dry-run"], check=True, cwd=tmp_path)
    assert not Path(f"{app.state}.count").exists()
    first = capfd.readouterr().out
    assert f"at most {6 * (50 + 4) + 4} requests" in first
    subprocess.run([*command, *options, "--dry-run", "--json"], check=True, cwd=tmp_path)
    assert json.loads(capfd.readouterr().out)["most_requests"] == 6 * (50 + 4) + 4
    subprocess.run([*command, *options], check=True, cwd=tmp_path)
    assert len(app.requests) == 6 * (50 + 4) + 4
    (run_dir,) = (tmp_path / "results" / "service").iterdir()
    assert "2</strong>, with equal status, " in (run_dir / "report.html").read_text()
    done = subprocess.run(
        [*command, *options, "--rate", "101"], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, "at_most_rps" in done.stderr) == (2, True)


# The hierarchy of control groups that this machine lets us change: version 2, or a controller's of version 1.
GROUPS = next(
    (
        folder
        for folder in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu"))
        if os.access(folder / "cgroup.procs", os.W_OK)
    ),
    None,
)


@pytest.mark.skipif(GROUPS is None, reason="control groups cannot be made here")
def test_cpu_per_request_of_a_control_group(start: Start, client: Path, tmp_path: Path, project: Registry) -> None:
    assert GROUPS
    app = start("app")
    group = GROUPS / f"vmtoll-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(app.pid))
        service = {"address": app.address, "loads": STEADY, "cpu": {"cgroup": f"/{group.name}"}}
        file = experiment(tmp_path, service, environments=["before"])
        run_dir = run(file, with_machine(client, "python3"), tmp_path / "results", registry=project)
        for record in read(run_dir).records:
            assert record.primary
            assert 10 < (record.primary.server_cpu_us_per_request or 0) < 100_000
    finally:
        (GROUPS / "cgroup.procs").write_text(str(app.pid))
        group.rmdir()
