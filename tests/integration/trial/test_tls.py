"""Whole runs over TLS and HTTP/2 on this machine: real servers, each with its own configuration, and real tools."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.machines import SITE
from tests.support.measured import run
from tests.support.ports import free_ports
from tests.support.real_servers import install
from tests.support.records import assert_sound, primary, records_of
from vmtoll.analysis.equality import FactStatus, equality
from vmtoll.analysis.run import load_run
from vmtoll.builds import certificate
from vmtoll.model.finding import Code, Validity
from vmtoll.model.transport import CIPHER, PROTOCOL
from vmtoll.paths import PROJECT
from vmtoll.runs.store import Store
from vmtoll.sites import build
from vmtoll.spec.catalog import Registry

MACHINES = ("metal", "metal-two")
Measure = Callable[..., Path]
HTTP2 = {"tool": "h2load", "crosscheck": "oha", "users": 2, "keep_alive": True, "http": "2", "streams": 5}


@pytest.fixture
def measured(
    project: Registry,
    tmp_path: Path,
    readable_folder: Path,
    rewrite: Callable[..., Path],
    load_tools: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Measure:
    """Measure a server of the project on two machines by a workload with these keys; the run's folder."""
    monkeypatch.setenv("GOMAXPROCS", "1")
    shutil.copytree(
        PROJECT / "server-builds", project.servers_folder(), dirs_exist_ok=True,
        ignore=lambda folder, names: [n for n in names if Path(folder, n).is_file() and n != "server.yml"],
    )  # fmt: skip
    site = SITE | {"files": 12}
    project.site_file("tiny").write_text(yaml.safe_dump(site))

    def go(server: str, spoil: Callable[[Path], None] | None = None, also: str = "", **workload: Any) -> Path:
        hosts: dict[str, dict[str, Any]] = {}
        for name in ("client", *MACHINES):
            root = readable_folder / name
            port = free_ports()
            hosts[name] = {
                "ansible_connection": "local", "ansible_host": "127.0.0.1", "vmtoll_root": str(root),
                "vmtoll_http_port": port, "vmtoll_workers": 1,
            }  # fmt: skip
            root.mkdir()
            if name in MACHINES:
                hosts[name]["vmtoll_environment"] = name
                install(server, root, port, tmp_path)
                build(project.site_file("tiny"), root / "srv/vmtoll/sites")
        if spoil:
            spoil(readable_folder / MACHINES[1])
        tree = {
            "clients": {"hosts": {"client": hosts["client"]}},
            "metal_hosts": {"hosts": {name: hosts[name] for name in MACHINES}},
        }
        inventory = tmp_path / "real.yml"
        inventory.write_text(yaml.safe_dump({"all": {"children": tree}}))
        document = {"description": "over TLS", "site": "tiny", "tls": True, **workload}
        project.workload_file("tiny").write_text(yaml.safe_dump(document))
        servers = [server, *([also] if also else [])]
        experiment = rewrite(blocks=1, servers=servers, noise_floor=None, duration_s=0.3)
        return run(experiment, inventory, tmp_path / "results", registry=project)

    return go


def handshakes(folder: Path, server: str) -> list[dict[str, Any]]:
    """What both machines' facts say of the server's handshakes."""
    facts = json.loads((folder / "hosts.json").read_text())
    return [facts[name]["servers"][server]["tls"] for name in MACHINES]


NO_H2O = 'VERSION_ID="13"' in Path("/etc/os-release").read_text()
H2O = pytest.param("h2o", marks=pytest.mark.skipif(NO_H2O, reason="Debian 13 does not ship h2o"))


@pytest.mark.parametrize("server", ["nginx", "lighttpd", "apache-event", "caddy", H2O])
def test_every_server_speaks_http2_and_both_sides_are_proven_equal(measured: Measure, server: str) -> None:
    folder = measured(server, **HTTP2)
    records = records_of(folder)
    assert len(records) == len(MACHINES)
    assert_sound(records)
    for record in records:
        own = primary(record)
        assert own.successful == own.requests == own.transactions
        assert (record.counts.bodies_wrong, record.offered.users) == (0, 2)
    seen = handshakes(folder, server)
    digest = seen[0]["HTTP/2"]["certificate_sha256"]
    agreed = {"protocol": PROTOCOL, "cipher": CIPHER, "alpn": "h2", "certificate_sha256": digest}
    assert seen == [{"HTTP/2": {**agreed, "resumption": False, "kernel": False}}] * 2
    facts = {fact.name: fact for fact in equality(load_run(folder))}
    for key, value in (("protocol", PROTOCOL), ("cipher", CIPHER), ("alpn", "h2")):
        fact = facts[f"servers: {server}: tls: HTTP/2: {key}"]
        assert (fact.status, list(fact.values.values())) == (FactStatus.EQUAL, [value])


@pytest.mark.parametrize("server", ["nginx", "lighttpd", "apache-event"])
def test_an_open_loop_resumes_sessions_where_the_server_does(measured: Measure, server: str) -> None:
    resumed = {"keep_alive": False, "tls_resumption": True}
    folder = measured(server, kind="rate", rate_rps=100.0, deadline_ms=50.0, tool="vegeta", crosscheck=None, **resumed)
    assert_sound(records_of(folder))
    assert [seen["HTTP/1.1 resumed"]["resumption"] for seen in handshakes(folder, server)] == [True, True]


def test_full_handshakes_by_siege_and_a_server_without_tls_that_is_skipped(measured: Measure) -> None:
    folder = measured("nginx", also="lighttz", tool="siege", crosscheck="oha", users=2, keep_alive=False)
    records = records_of(folder)
    assert_sound(records)
    assert {record.scenario.server for record in records} == {"nginx"}
    store = Store(folder)
    try:
        manifest = store.manifest()
    finally:
        store.close()
    assert manifest is not None
    assert [(skipped.server, "TLS" in skipped.why) for skipped in manifest.skipped] == [("lighttz", True)]


def test_another_cipher_on_one_side_makes_its_trials_invalid(measured: Measure) -> None:
    def spoil(root: Path) -> None:
        file = root / "etc/vmtoll/servers/nginx/nginx.conf"
        assert CIPHER in file.read_text()
        file.write_text(file.read_text().replace(CIPHER, "TLS_AES_256_GCM_SHA384"))

    folder = measured("nginx", spoil, **HTTP2)
    good, bad = sorted(records_of(folder), key=lambda record: record.arm.environment)
    assert_sound([good])
    (finding,) = [finding for finding in bad.findings if finding.code is Code.FINGERPRINT]
    assert (finding.machine, finding.process) == ("metal-two", "nginx")
    assert finding.detail == f"TLS cipher: {CIPHER} -> TLS_AES_256_GCM_SHA384"
    cipher = next(fact for fact in equality(load_run(folder)) if fact.name.endswith("tls: HTTP/2: cipher"))
    assert cipher.status is FactStatus.UNDECLARED


def test_another_certificate_on_one_side_makes_its_trials_invalid(measured: Measure, tmp_path: Path) -> None:
    def spoil(root: Path) -> None:
        for path, (content, _) in certificate.files(tmp_path / "another").items():
            (root / path.lstrip("/")).write_bytes(content)

    records = records_of(measured("nginx", spoil, **HTTP2 | {"crosscheck": None}))
    details = [f.detail for record in records for f in record.findings if f.code is Code.FINGERPRINT]
    assert [detail for detail in details if re.fullmatch(r"TLS certificate: [0-9a-f]{12} -> [0-9a-f]{12}", detail)]
    assert any(record.validity is Validity.INVALID for record in records)


def test_declared_but_missing_kernel_tls_makes_trials_invalid(measured: Measure) -> None:
    def spoil(root: Path) -> None:
        file = root / "etc/vmtoll/servers/nginx.json"
        spec = json.loads(file.read_text())
        file.write_text(json.dumps({**spec, "tls": {**spec["tls"], "kernel": True}}))

    records = records_of(measured("nginx", spoil, **HTTP2))
    details = {record.arm.environment: [f.detail for f in record.findings if f.code is Code.FINGERPRINT]
               for record in records}  # fmt: skip
    assert details == {"metal": [], "metal-two": ["TLS kernel: True -> False"]}
