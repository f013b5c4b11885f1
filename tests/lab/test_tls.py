"""TLS and HTTP/2 in the lab: provisioned servers, one certificate, and every server that speaks TLS on both sides."""

import json
from pathlib import Path

import pytest
import yaml

from tests.lab.records import BY_CLIENT, BY_OPEN_CLIENT, measure, primary, undisturbed
from vmtoll.model.finding import Code
from vmtoll.model.release import release_of_name
from vmtoll.model.transport import CIPHER, PROTOCOL
from vmtoll.spec.server import read_server, read_servers

pytestmark = pytest.mark.lab

# The lab's metal has the kernel of this machine, which may lack kernel TLS.
SERVERS = sorted(server.name for server in read_servers() if server.tls and not server.tls.kernel)


def experiment(path: Path, **keys: object) -> Path:
    document = {
        "question": "does every server speak TLS?", "purpose": "smoke", "environments": ["metal"], "servers": SERVERS,
        "blocks": 1, "warmup_s": 0.2, "duration_s": 0.5, **keys,
    }  # fmt: skip
    path.write_text(yaml.safe_dump(document))
    return path


def test_every_server_speaks_http2_on_metal(lab: Path, tmp_path: Path) -> None:
    written = experiment(tmp_path / "http2.yml", workloads=["site-http2-users-8"])
    folder, records = measure(written, lab / "inventory.yml", tmp_path / "results")
    release = release_of_name(records[0].release)
    assert release is not None
    shipped = [server for server in SERVERS if release.suite not in read_server(server).not_in]
    assert [record.scenario.server for record in sorted(records, key=lambda r: r.scenario.server)] == shipped
    for record in records:
        assert undisturbed(record) <= BY_CLIENT, f"{record.scenario.server}: {record.findings}"
        assert record.counts.bodies_wrong == 0
        assert primary(record).successful == primary(record).requests
    facts = json.loads((folder / "hosts.json").read_text())["metal"]["servers"]
    agreed = [facts[server]["tls"]["HTTP/2"] for server in shipped]
    assert {(seen["protocol"], seen["cipher"], seen["alpn"]) for seen in agreed} == {(PROTOCOL, CIPHER, "h2")}
    assert len({seen["certificate_sha256"] for seen in agreed}) == 1


@pytest.mark.guest_minutes
@pytest.mark.parametrize("workload", ["tls-handshakes-users", "tls-resumed"])
def test_handshakes_on_metal_and_guest(lab: Path, tmp_path: Path, workload: str) -> None:
    both = ["metal", "kvm-default"]
    written = experiment(tmp_path / "tls.yml", workloads=[workload], environments=both, servers=["nginx"])
    folder, records = measure(written, lab / "inventory.yml", tmp_path / "results")
    assert {record.arm.environment for record in records} == set(both)
    for record in records:
        assert undisturbed(record) <= BY_OPEN_CLIENT, f"{record.arm}: {record.findings}"
    facts = json.loads((folder / "hosts.json").read_text())
    name = "HTTP/1.1 resumed" if workload == "tls-resumed" else "HTTP/1.1"
    metal, guest = (facts[machine]["servers"]["nginx"]["tls"][name] for machine in ("metal", "kvm"))
    assert metal == guest
    assert metal["resumption"] is (workload == "tls-resumed")


@pytest.mark.guest_minutes
def test_the_kernel_of_a_guest_encrypts(lab: Path, tmp_path: Path) -> None:
    """The guest has Debian's kernel and its module `tls`; metal has whatever kernel this machine has."""
    written = experiment(
        tmp_path / "kernel.yml",
        workloads=["large-transport-tls-users"],
        environments=["kvm-default"],
        servers=["nginx", "nginx-ktls"],
    )
    folder, records = measure(written, lab / "inventory.yml", tmp_path / "results")
    assert {record.scenario.server for record in records} == {"nginx", "nginx-ktls"}
    for record in records:
        assert Code.FINGERPRINT not in record.codes, record.findings
        assert primary(record).successful == primary(record).requests
    servers = json.loads((folder / "hosts.json").read_text())["kvm"]["servers"]
    seen = {name: servers[name]["tls"]["HTTP/1.1"]["kernel"] for name in ("nginx", "nginx-ktls")}
    assert seen == {"nginx": False, "nginx-ktls": True}
