"""No name of a machine or a person gets into a bundle: injected into every input file, searched in every byte."""

import json
import zipfile
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.support.synthetic_run import Row, Truth, failed_trial, make_run, with_findings
from vmtoll.analysis.run import load_run
from vmtoll.model.finding import Code, Finding
from vmtoll.model.payload import HostedMachine
from vmtoll.publish.bundle import publish
from vmtoll.publish.scrub import Scrubber, command_line, domain_xml

pytestmark = pytest.mark.slow

HOSTS = {"client": "blaster7.fra.corp.test", "metal": "db-altair", "kvm-default": "vm-vega", "host": "hyper-rigel"}
SECRETS = {
    "short host name": "blaster7", "domain of the hosts": "corp.test", "metal's name": "altair",
    "guest's name": "vega", "KVM host's name": "rigel", "libvirt domain": "prod-shop-3", "user": "mallory",
    "IPv4 address": "203.0.113.77", "IPv4 of the guest": "203.0.113.78", "IPv6 address": "2001:db8:77::beef",
    "link-local address": "fe80::5054:ff:feab:cdef", "MAC": "52:54:00:ab:cd:ef", "disk serial": "S4EVNX0R123456",
    "chassis serial": "CZJ94711XY", "machine id": "0123456789abcdef0123456789abcdef",
    "UUID": "a89ec68e-bdf9-4331-a010-0cc38f120fba", "home folder": "/home/mallory", "key file": "id_ed25519_lab",
    "key": "AAAAC3NzaC1lZDI1NTE5AAAAIPlantedPlantedPlanted", "volume": "vg_payroll",
    "host name on the kernel command line": "vegakern",
}  # fmt: skip
DOMAIN = """<domain type='kvm' id='3' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>prod-shop-3</name><uuid>a89ec68e-bdf9-4331-a010-0cc38f120fba</uuid><title>mallory's shop</title>
  <metadata><owner>mallory</owner></metadata><memory unit='KiB'>1048576</memory><vcpu>2</vcpu>
  <sysinfo type='smbios'><system><entry name='serial'>CZJ94711XY</entry></system></sysinfo>
  <os><type arch='x86_64'>hvm</type><cmdline>root=/dev/vg_payroll/root ip=203.0.113.78</cmdline></os>
  <devices><disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/>
  <source file='/home/mallory/vm-vega.qcow2'/><target dev='vda' bus='virtio'/><serial>S4EVNX0R123456</serial></disk>
  <interface type='bridge'><mac address='52:54:00:ab:cd:ef'/><model type='virtio'/></interface>
  <graphics type='vnc' listen='203.0.113.77' passwd='mallory'/></devices>
  <qemu:commandline><qemu:arg value='/home/mallory/extra'/></qemu:commandline></domain>"""


def _injected(row: Row) -> list[Row]:
    if row["order"] == 1:
        message = "ssh: mallory@blaster7.fra.corp.test port 22: no route to host 203.0.113.77"
        return [failed_trial(row, Code.HOST_LOST, message), row | {"attempt": 2}]
    if row["order"] == 2:
        detail = "of vm-vega (203.0.113.78, 52:54:00:ab:cd:ef) on hyper-rigel for mallory"
        return [with_findings(row, Finding(Code.STEAL, 3.0, 0.5, machine="vm-vega", detail=detail))]
    if row["order"] == 3:
        detail = "2001:db8:77::beef and fe80::5054:ff:feab:cdef, /home/mallory/.ssh/id_ed25519_lab"
        process = "backup-mallory (pid 77)"
        return [
            with_findings(
                row, Finding(Code.BACKGROUND_CPU, 9.0, 1.0, machine="db-altair", process=process, detail=detail)
            )
        ]
    if row["order"] == 5:
        payload = HostedMachine("vm-vega")
        return [with_findings(row, Finding(Code.HOST_BACKGROUND_CPU, 9.0, 1.0, machine="hyper-rigel", payload=payload))]
    if row["order"] == 4:
        return [with_findings(row, Finding(Code.LITTLES_LAW, 203, 52, tool="siege"))]
    return [row]


def inject(run_dir: Path) -> Path:
    """Put the secrets into every file that a publication reads or may read."""
    hosts = json.loads((run_dir / "hosts.json").read_text())
    named = {HOSTS[name]: facts for name, facts in hosts.items()}
    for name, facts in named.items():
        facts |= {"hostname": name, "machine_id": SECRETS["machine id"], "disks": [SECRETS["disk serial"]]}
        facts |= {"addresses": [SECRETS["IPv4 address"], SECRETS["IPv6 address"]], "user": "mallory"}
        facts["cmdline"] = (
            "BOOT_IMAGE=/vmlinuz root=/dev/mapper/vg_payroll-root ro mitigations=off systemd.hostname=vegakern "
            "ip=203.0.113.78::203.0.113.1 rd.luks.uuid=a89ec68e-bdf9-4331-a010-0cc38f120fba isolcpus=1"
        )
        facts |= {"packages": {"nginx": "1.0-1+mallory1", "lighttz": "1.0-1"}}
        facts["nic"] = f"virtio_net mtu=1500 ({SECRETS['MAC']})"
    named[HOSTS["host"]]["domains"] = {"prod-shop-3": DOMAIN}
    (run_dir / "hosts.json").write_text(json.dumps(named))
    run = json.loads((run_dir / "run.json").read_text())
    run["experiment"]["question"] = "is db-altair, mallory's machine at 203.0.113.77, faster than prod-shop-3?"
    run["one_boot"] = {"machine": HOSTS["host"], "why": "may not be restarted (vmtoll_reboot)"}
    run["differences"]["undeclared"] = [
        {
            "fact": "cmdline",
            "values": {"metal": "ssh-ed25519 " + SECRETS["key"] + " mallory@altair", "kvm-default": "x"},
        }
    ]
    (run_dir / "run.json").write_text(json.dumps(run))
    private = {
        "hosts": {HOSTS["kvm-default"]: ["vegakern", "203.0.113.78", "prod-shop-3"], HOSTS["client"]: ["CZJ94711XY"]},
        "users": ["mallory", "/srv/keys/id_ed25519_lab"],
    }
    (run_dir / "private.json").write_text(json.dumps(private))
    _inject_files(run_dir)
    return run_dir


def _inject_files(run_dir: Path) -> None:
    """Samples that name their machines, and files that no bundle takes over."""
    (run_dir / "samples").mkdir()
    for record in load_run(run_dir).records:
        name = record.name
        lines = ["time_s,host,role,cpu_user_pct,cpu_system_pct,steal_pct,rx_mbit,tx_mbit,load1,pressure_cpu_pct"]
        for second in (1.0, 2.0):
            for host, role in ((HOSTS["client"], "client"), (HOSTS["metal"], "metal"), (HOSTS["host"], "kvm_host")):
                lines.append(f"{second:.3f},{host},{role},1.5,2.5,0.000,10,20,0.5,0")
        (run_dir / "samples" / f"{name}.csv").write_text("\n".join(lines) + "\n")
        (run_dir / "raw" / name).mkdir(parents=True)
        (run_dir / "raw" / name / "siege.stderr").write_text(" ".join(SECRETS.values()))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scrub")
    run_dir = inject(make_run(folder, Truth({"nginx": 0.9, "lighttz": 0.8}, change=_injected, histograms=True)))
    return publish(run_dir, folder / "bundle")


def _readable(bundle: Path) -> dict[str, bytes]:
    """Every byte of the bundle, and what its packed files hold unpacked."""
    found = {file.name: file.read_bytes() for file in bundle.iterdir()}
    with zipfile.ZipFile(bundle / "tables.ods") as archive:
        found |= {f"tables.ods: {name}": archive.read(name) for name in archive.namelist()}
    for name in ("samples", "histograms"):
        rows = duckdb.execute(f"SELECT * FROM read_parquet('{bundle / f'{name}.parquet'}')").fetchall()
        assert rows
        found[f"{name}.parquet: rows"] = repr(rows).encode()
    return found


def test_the_reason_for_one_boot_names_the_machines_role(bundle: Path) -> None:
    one_boot = json.loads((bundle / "run.json").read_text())["one_boot"]
    assert one_boot == {"machine": "kvm-host-1", "why": "may not be restarted (vmtoll_reboot)"}


@pytest.mark.parametrize("what", SECRETS)
def test_bundle_contains_no_injected_name(bundle: Path, what: str) -> None:
    for name, content in _readable(bundle).items():
        assert SECRETS[what].lower().encode() not in content.lower(), name


def test_machines_bear_the_names_of_their_roles(bundle: Path) -> None:
    hosts = json.loads((bundle / "hosts.json").read_text())
    assert list(hosts) == ["client", "metal", "kvm-default", "kvm-host-1"]
    assert list(hosts["kvm-host-1"]["domains"]) == ["kvm-default"]
    found = duckdb.execute(f"SELECT DISTINCT host FROM read_parquet('{bundle / 'samples.parquet'}') ORDER BY 1")
    assert found.fetchall() == [("client",), ("kvm-host-1",), ("metal",)]


def test_relevant_values_are_kept(bundle: Path) -> None:
    hosts = json.loads((bundle / "hosts.json").read_text())
    assert hosts["metal"]["cmdline"] == "ro mitigations=off isolcpus=1 (5 more left out)"
    assert hosts["metal"]["packages"] == {"nginx": "1.0-1+[user]1", "lighttz": "1.0-1"}
    xml = hosts["kvm-host-1"]["domains"]["kvm-default"]
    assert "<name>kvm-default</name>" in xml
    assert 'cache="none"' in xml
    findings = {finding.code: finding for record in load_run(bundle).records for finding in record.findings}
    assert findings[Code.HOST_LOST] == Finding(Code.HOST_LOST)
    assert findings[Code.LITTLES_LAW] == Finding(Code.LITTLES_LAW, 203, 52, tool="siege")
    assert (findings[Code.STEAL].value, findings[Code.STEAL].machine) == (3.0, "kvm-default")
    assert findings[Code.STEAL].detail == "of kvm-default ([address], [mac]) on kvm-host-1 for [user]"
    assert findings[Code.BACKGROUND_CPU].machine == "metal"
    assert findings[Code.BACKGROUND_CPU].process == "backup-[user] (pid 77)"
    assert findings[Code.HOST_BACKGROUND_CPU].payload == HostedMachine("kvm-default")
    question = json.loads((bundle / "run.json").read_text())["experiment"]["question"]
    assert question == "is metal, [user]'s machine at [address], faster than kvm-default?"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("at 12:30:45 on 2026-01-01, 3.5% of 1.2.3", "at 12:30:45 on 2026-01-01, 3.5% of 1.2.3"),
        ("net.ipv4.tcp_rmem: 4096 131072 6291456", "net.ipv4.tcp_rmem: 4096 131072 6291456"),
        ("libc6 2.36-9+deb12u14, nginx-light 1.22.1-9", "libc6 2.36-9+deb12u14, nginx-light 1.22.1-9"),
        ("std::string, kvm, metal, root", "std::string, kvm, metal, root"),
        ("192.0.2.1:80 192.0.2.1-192.0.2.9.", "[address]:80 [address]-[address]."),
        ("[2001:db8::1]:80, fe80::1%eth0", "[[address]]:80, [address]%eth0"),
        ("web1 WEB1 web11 pre-web1.rack", "client client web11 pre-client.rack"),
        (
            "see db.corp.example.net, trials.csv, run.py and e.g. net.core.somaxconn",
            "see [host], trials.csv, run.py and e.g. net.core.somaxconn",
        ),
        ("shop-db71 and myshop-db7", "guest1 and myguest"),
        ("nginx and nginx-light", "nginx and nginx-light"),
        ("~/.ssh/config and /root/x", "[path] and [path]"),
    ],
)
def test_texts(text: str, clean: str) -> None:
    known = {"web1": "client", "shop-db7": "guest", "metal": "kvm-host-1", "nginx": "gone", "root": "gone"}
    assert Scrubber(known, frozenset({"nginx"})).text(text) == clean


def test_versions_and_digests_are_not_taken_for_addresses() -> None:
    facts: dict[str, Any] = {"packages": {"tool": "1.2.3.4"}, "servers": {"x": {"version": "tool 1.2.3.4"}}}
    assert Scrubber({}).tree(facts) == facts


def test_a_definition_that_is_no_xml_is_left_out() -> None:
    assert domain_xml("mallory", "guest-1") == "(left out: not a domain definition)"
    assert command_line("quiet root=/dev/vda") == "quiet (1 more left out)"


@pytest.mark.parametrize("name", ["server", "lab", "closed", "complete", "claims"])
def test_a_machine_called_like_a_word_of_the_format_does_not_hinder(tmp_path: Path, name: str) -> None:
    run_dir = make_run(tmp_path, Truth({"nginx": 0.9}))
    (run_dir / "private.json").write_text(json.dumps({"hosts": {}, "users": [name]}))
    before = json.loads((run_dir / "run.json").read_text())
    published = json.loads((publish(run_dir, tmp_path / "bundle") / "run.json").read_text())
    assert published["experiment"]["name"] == before["experiment"]["name"]
