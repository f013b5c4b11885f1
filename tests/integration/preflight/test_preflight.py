"""The checks before a run, on machines that are this one: real agents, real iperf3, faults injected."""

import json
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.ports import free_port
from tests.support.program import vmtoll
from tests.support.this_machine import local_lab, opened_lab
from vmtoll import preflight
from vmtoll.agent.accelerator import KVM_PATIENCE_S
from vmtoll.agent.commands import Commands
from vmtoll.agent.preflight import kvm_works
from vmtoll.agent.protocol import KvmAnswer
from vmtoll.machines.connection import AgentLine
from vmtoll.model.complaint import Complaint, ok
from vmtoll.model.errors import AgentError, HostLostError
from vmtoll.model.inventory import Host
from vmtoll.preflight import Lab, results


def by_machine(found: list[Complaint]) -> dict[str, Complaint]:
    return {finding.machine: finding for finding in found}


def test_preflight_reports_unreachable_machines_and_checks_the_others(tmp_path: Path) -> None:
    closed, empty = free_port(), {"ansible_python_interpreter": "/nonexistent/python3"}
    tree = local_lab(tmp_path, client=empty)
    tree["metal_hosts"]["hosts"].append("gone")
    tree["_meta"]["hostvars"]["gone"] = {"ansible_host": "127.0.0.1", "ansible_port": closed}
    with opened_lab(tree) as (lab, found):
        said = by_machine(found)
        assert list(lab.lines) == ["metal"]
    assert said["metal"].level == "ok"
    assert f"port {closed} of 127.0.0.1" in said["gone"].found
    assert "/nonexistent/python3 does not run" in said["client"].found
    assert "ansible_python_interpreter" in said["client"].advice


def test_an_old_python_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho 0 3 8\n")
    old.chmod(0o755)
    with opened_lab(local_lab(tmp_path, metal={"ansible_python_interpreter": str(old)})) as (_, found):
        assert by_machine(found)["metal"].found == f"{old} is Python 3.8"


def test_a_machine_that_is_measured_is_left_alone(tmp_path: Path) -> None:
    tree = local_lab(tmp_path)
    lines = [AgentLine(host) for host in Lab(Path("lab.yml"), tree).hosts]
    with opened_lab(tree) as (lab, _):
        try:
            for line in lines:
                line.open()
            assert lines[0].call("lock", owner="run 7")["held_by"] is None
            with socket.socket() as server:
                server.bind(("", lab.hosts[1].port))
                server.listen()
                said = by_machine(list(preflight.free(lab)))
        finally:
            for line in lines:
                line.close()
        assert (said["client"].level, said["client"].found) == ("fail", "in use by run 7")
        assert "Address already in use" in said["metal"].found
        assert lab.in_use == {"client", "metal"}
        assert list(preflight.link(lab)) == []


def test_clocks_of_one_machine_agree_and_one_that_is_ahead_is_found(tmp_path: Path) -> None:
    ahead = tmp_path / "python3"  # the agent's Python is isolated: no module of ours is found by its name
    change = "import sys, time; now = time.time; time.time = lambda: now() + 5; exec(sys.argv[-1])"
    ahead.write_text(f"#!/bin/sh\nexec {sys.executable} -u -c '{change}' \"$@\"\n")
    ahead.chmod(0o755)
    with opened_lab(local_lab(tmp_path)) as (lab, _):
        assert [finding.level for finding in preflight.clock(lab)] == ["ok", "ok"]
    with opened_lab(local_lab(tmp_path, metal={"ansible_python_interpreter": str(ahead)})) as (lab, _):
        _, metal = preflight.clock(lab)
    assert metal.level == "fail"
    said = re.fullmatch(r"([0-9.]+) ms ahead of client \(± ([0-9.]+)\)", metal.found)
    assert said, metal.found
    ahead_ms, error_ms = map(float, said.groups())
    assert abs(ahead_ms - 5000) <= error_ms + 0.1, "and the last digit's rounding"
    assert "chrony" in metal.advice


def test_one_machine_is_on_one_segment_with_itself_and_its_link_is_measured(tmp_path: Path) -> None:
    assert shutil.which("iperf3"), "packages.txt names it"
    said: list[str] = []
    with opened_lab(local_lab(tmp_path)) as (lab, _):
        lab.say = said.append
        (segment,) = preflight.network(lab)
        (speed,) = preflight.link(lab)
    assert (segment.level, segment.machine) == ("ok", "client–metal")
    assert "segment (lo, lo)" in segment.found
    assert speed.level == "ok"
    there, back = (int(word) for word in speed.found.replace(" Mbit/s there,", "").split()[:2])
    assert there > 0
    assert back > 0
    (loaded,) = said
    assert "client and metal, twice 2 s" in loaded


def test_a_route_over_a_router_and_a_missing_route_are_distinguished(tmp_path: Path) -> None:
    with opened_lab(local_lab(tmp_path)) as (lab, _):
        nowhere = lab.ask(lab.hosts[0], "route", name="255.255.255.255")
    assert nowhere["error"]


def test_kvm_is_tested_by_running_a_guest(tmp_path: Path) -> None:
    """On whatever machine this runs: the sentence and the verdict belong together, and no device is no KVM."""
    with opened_lab(local_lab(tmp_path)) as (lab, _):
        here = lab.ask(lab.hosts[1], "kvm_works", KVM_PATIENCE_S)
    assert bool(here["why"]) == bool(here["advice"])
    none = kvm_works(Commands(), device=f"{tmp_path}/kvm")
    (tmp_path / "kvm").write_text("no device")
    file = kvm_works(Commands(), device=f"{tmp_path}/kvm")
    assert none["why"] == f"{tmp_path}/kvm does not exist"
    assert "firmware" in none["advice"]
    assert file["why"].startswith(f"{tmp_path}/kvm exists, but ")
    assert preflight.judge_kvm("host", file, embedded=False).level == "fail"
    assert preflight.judge_kvm("host", file, embedded=True).level == "warn"
    works: KvmAnswer = {
        "why": "", "advice": "", "booted": "vmlinuz-6.1", "kvm_modules": ["kvm_amd"], "kvm_flags": ["svm"],
    }  # fmt: skip
    assert preflight.judge_kvm("host", works, embedded=False).level == "ok"
    assert "belongs to" not in preflight.judge_kvm("host", works, embedded=False).found


def test_preflight_names_a_module_that_is_not_the_processors_own() -> None:
    answer: KvmAnswer = {
        "why": "/dev/kvm exists, but vmlinuz printed no banner under KVM within 8 s", "advice": "Look.",
        "booted": "", "kvm_modules": ["kvm_pvm"], "kvm_flags": [],
    }  # fmt: skip
    named = "; /dev/kvm belongs to kvm_pvm, which is neither kvm_intel nor kvm_amd"
    for embedded in (True, False):
        assert preflight.judge_kvm("host", answer, embedded=embedded).found.endswith(f"within 8 s{named}")
    assert preflight.judge_kvm("host", answer | {"why": ""}, embedded=False).found.endswith(named)


NODE = """<node>{}<cpu><mhz>2000</mhz><model>x86_64</model><active>1</active><nodes>1</nodes><sockets>1</sockets>
<cores>1</cores><threads>1</threads></cpu><memory>4194304</memory></node>"""
DOMAIN = """<domain type='test'><name>{}</name><memory>65536</memory><vcpu>1</vcpu><os><type>hvm</type>{}</os>
</domain>"""


def test_the_kernels_that_guests_boot_decide_whether_kvm_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On libvirt's own test driver: two guests boot one kernel from a file of the host, one its disk."""
    kernel = "<kernel>/srv/pvm &amp; more/bzImage</kernel>"
    texts = {"one": kernel, "two": kernel, "disk": "<boot dev='hd'/>"}
    node = tmp_path / "node.xml"
    node.write_text(NODE.format("".join(DOMAIN.format(name, text) for name, text in texts.items())))
    tree = local_lab(tmp_path)
    tree["kvm_guests"], tree["kvm_hosts"] = {"hosts": [*texts, "later"]}, {"hosts": ["host", "other"]}
    tree["_meta"]["hostvars"] |= {
        name: {"ansible_connection": "local", "vmtoll_kvm_host": "host", "vmtoll_domain": name}
        for name in (*texts, "later")
    }
    uri = {"ansible_connection": "local", "vmtoll_libvirt_uri": f"test://{node}"}
    tree["_meta"]["hostvars"] |= {"host": uri, "other": uri}
    booted: list[tuple[str, str]] = []

    def ask(lab: Lab, host: Host, op: str, limit_s: float = 0, **args: str) -> KvmAnswer:
        booted.append((host.name, args["kernel"]))
        works: KvmAnswer = {"why": "", "advice": "", "booted": "bzImage", "kvm_modules": ["kvm_pvm"], "kvm_flags": []}
        return works

    with opened_lab(tree) as (lab, _):
        monkeypatch.setattr(Lab, "ask", ask)
        found = {complaint.machine: complaint.found for complaint in preflight.kvm(lab)}
    assert sorted(booted) == [("host", "/srv/pvm & more/bzImage"), ("other", "")]
    assert found["host"].startswith("KVM runs code, and boots bzImage; /dev/kvm belongs to kvm_pvm")


def test_a_guest_has_a_domain_and_its_host_what_the_profile_needs(tmp_path: Path) -> None:
    """On libvirt's own test driver, which has one domain, `test`; no host has a virtual function ffff:ff:1f.7."""
    sriov = {"vmtoll_environment": "kvm-sriov", "vmtoll_profile": "kvm-sriov", "vmtoll_cpus": "0"}
    domains: dict[str, dict[str, str]] = {
        "well": {"vmtoll_domain": "test"},
        "gone": {"vmtoll_domain": "nope"},
        "unmade": {"vmtoll_domain": "later", **sriov, "vmtoll_vf": "ffff:ff:1f.7"},
    }
    tree = local_lab(tmp_path)
    tree["kvm_guests"] = {"hosts": list(domains)}
    tree["kvm_hosts"] = {"hosts": ["host"]}
    tree["_meta"]["hostvars"] |= {
        name: {"ansible_connection": "local", "vmtoll_kvm_host": "host", **said} for name, said in domains.items()
    }
    tree["_meta"]["hostvars"]["host"] = {"ansible_connection": "local", "vmtoll_libvirt_uri": "test:///default"}
    with opened_lab(tree) as (lab, _):
        found = list(preflight.guests(lab))
    levels = [(f.machine, f.level) for f in found]
    assert levels[:3] == [("well", "ok"), ("gone", "fail"), ("unmade", "warn")]
    lacks = [f for f in found[3:] if f.found.startswith("unmade (kvm-sriov): ")]
    assert {f.level for f in lacks} == {"fail"}
    assert any("IOMMU" in f.found or "ffff:ff:1f.7" in f.found for f in lacks), found


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_new(_: Lab) -> Iterator[Complaint]:
        yield from ()
        raise AgentError("no such thing")

    def second_new(_: Lab) -> Iterator[Complaint]:
        yield ok("metal", "all is well")

    monkeypatch.setattr(preflight, "CHECKS", (first_new, second_new))
    (first, broke), (second, well) = results(Lab(Path("lab.yml"), {}))
    assert (first, broke.level, broke.found.partition(": ")[2]) == ("first_new", "fail", "no such thing")
    assert (second, well) == ("second_new", Complaint("metal", "ok", "all is well"))


def test_a_machine_lost_during_the_checks_is_a_finding(tmp_path: Path) -> None:
    with opened_lab(local_lab(tmp_path)) as (lab, _):
        lab.lines["metal"].give_up("pulled")
        said = by_machine(list(preflight.system(lab)))
        with pytest.raises(HostLostError):
            lab.ask(lab.hosts[1], "system")
    assert said["metal"].found.endswith("broke off: metal: pulled")
    assert "broke off" not in said["client"].found


def test_the_verb_prints_every_finding_and_its_exit_code_is_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "lab.yml"
    tree, groups = local_lab(tmp_path), {"clients": "client", "metal_hosts": "metal"}
    variables = tree["_meta"]["hostvars"]
    variables["metal"]["vmtoll_enviroment"] = "metal"
    path.write_text(yaml.safe_dump({"all": {"children": {g: {"hosts": {h: variables[h]}} for g, h in groups.items()}}}))
    told = vmtoll("preflight", "-i", path, "--json")
    assert told.returncode == 1, told.stderr
    report = json.loads(told.stdout)
    assert report["fit"] is False
    names = [check.__name__ for check in preflight.CHECKS]
    without_hosts = {"guests", "kvm", "runtimes"}
    assert {f["check"] for f in report["findings"]} >= set(names) - without_hosts
    (typo,) = (f for f in report["findings"] if "vmtoll_enviroment" in f["found"])
    assert typo["advice"] == "Did you mean vmtoll_environment?"
    assert all(f["advice"] for f in report["findings"] if f["level"] != "ok")
