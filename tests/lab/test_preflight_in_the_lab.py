"""The preflight of a lab that is well, and of one with injected faults."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.faults import changed, ruled
from tests.lab.the_lab import LAB, VMTOLL, Ssh
from vmtoll import preflight as preflight_checks
from vmtoll.preflight import Lab

pytestmark = pytest.mark.lab


def preflight(*words: str | Path) -> tuple[int, list[dict[str, str]]]:
    """Exit code and findings."""
    done = subprocess.run([VMTOLL, "preflight", "--json", *words], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["findings"]


@pytest.mark.guest_minutes
def test_the_lab_is_fit(lab: Path, ssh: Ssh) -> None:
    status, found = preflight()
    assert [f for f in found if f["level"] == "fail"] == []
    assert status == 0
    well = {(f["check"], f["machine"]) for f in found if f["level"] == "ok"}
    reached = {("reach", machine) for machine in ("client", "metal", "kvm", "this-machine")}
    pairs = {(check, f"client–{sut}") for check in ("network", "link") for sut in ("metal", "kvm")}
    assert well >= reached | pairs | {("free", "kvm"), ("system", "metal"), ("guests", "kvm"), ("versions", "")}
    (kvm,) = (f for f in found if f["check"] == "kvm")
    emulated = ssh("kvm", "systemd-detect-virt || true") == "qemu"
    assert kvm["level"] == ("warn" if emulated else "ok"), kvm


def test_injected_faults_are_found(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """A guest's clock that is ahead, a link slower than its declared rate, a metal machine with another MTU."""
    tree = yaml.safe_load((LAB / "inventory.yml").read_text())
    tree["all"]["vars"] |= {"vmtoll_link": "100mbit", "vmtoll_link_mbit": 100, "vmtoll_linc": "a typo"}
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(yaml.safe_dump(tree))
    receives = ["tc", "-n", "vmtoll-switch", "qdisc", "replace", "dev", "sw-client", "root"]
    sends = ["tc", "-n", "vmtoll-client", "qdisc", "replace", "dev", "eth0", "root"]
    bucket = ["burst", "128kb", "latency", "50ms"]
    mtu = ["ip", "-n", "vmtoll-metal", "link", "set", "eth0", "mtu"]
    slow = [[*receives, "tbf", "rate", "20mbit", *bucket], [*sends, "tbf", "rate", "100mbit", *bucket]]
    machines = Lab.read(inventory, None, lambda _: None)
    with (
        changed(ssh, "kvm", "date -s '+100 seconds'", "date -s '-100 seconds'"),
        ruled([*slow, [*mtu, "1400"]], [[*receives, "noqueue"], [*sends, "noqueue"], [*mtu, "1500"]]),
    ):
        try:
            list(preflight_checks.reach(machines))
            machines.in_use.add("kvm")  # no load to it: one link is enough
            checks = (
                preflight_checks.inventory,
                preflight_checks.clock,
                preflight_checks.network,
                preflight_checks.link,
            )
            said = {(check.__name__, f.machine): f for check in checks for f in check(machines)}
        finally:
            machines.close()
    assert said["clock", "kvm"].level == "fail"
    assert "ahead of client" in said["clock", "kvm"].found
    assert said["clock", "metal"].level == "ok"
    assert said["link", "client–metal"].level == "fail"
    assert "vmtoll_link_mbit says 100, the direction back is slower" in said["link", "client–metal"].found
    assert "the MTU is 1500 on client, 1400 on metal" in said["network", "client–metal"].found
    assert said["network", "client–kvm"].level == "ok"
    assert any("unknown variable vmtoll_linc" in finding.found for finding in said.values())


def test_a_daemon_is_stopped_and_started_again(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """A unit of the name irqbalance.service that only sleeps: what is tried is what systemd makes of it."""
    tree = yaml.safe_load((LAB / "inventory.yml").read_text())
    metal = tree["all"]["children"]["suts"]["children"]["metal_hosts"]["hosts"]["metal"]
    metal["vmtoll_tuning"] = {"irqbalance": "stopped"}
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(yaml.safe_dump(tree))
    unit, state = "/run/systemd/system/irqbalance.service", "systemctl is-active irqbalance || true"
    make = f"printf '[Service]\nExecStart=/bin/sleep infinity\n' >{unit}; systemctl daemon-reload"
    with changed(ssh, "metal", f"{make}; systemctl start irqbalance", f"systemctl stop irqbalance; rm {unit}"):
        for verb, then in (("tune", "inactive"), ("untune", "active")):
            argv: list[str | Path] = [VMTOLL, verb, "--inventory", inventory, "--limit", "metal"]
            subprocess.run(argv, check=True, capture_output=True)
            assert ssh("metal", state) == then


def test_causes_of_an_unreachable_machine_are_distinguished(lab: Path, tmp_path: Path) -> None:
    """One machine by several names, each with another fault between it and us."""
    config, keys = (LAB / "ssh_config").read_text(), {"stranger": tmp_path / "stranger", "other": tmp_path / "other"}
    for key in keys.values():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    known = tmp_path / "known"
    known.write_text(f"vmtoll-lab {keys['other'].with_suffix('.pub').read_text()}")
    (tmp_path / "none").touch()
    own, own_known = f"IdentityFile {LAB}/key", f"UserKnownHostsFile {LAB}/known_hosts"
    faults: dict[str, tuple[str, str]] = {
        "well": ("", ""),
        "wrong-key": (own, f"IdentityFile {keys['stranger']}"),
        "changed-host-key": (own_known, f"UserKnownHostsFile {known}"),
        "unknown-host-key": (own_known, f"UserKnownHostsFile {tmp_path}/none"),
        "not-there": ("", ""),
        "no-python": ("", ""),
    }
    hosts: dict[str, dict[str, Any]] = {}
    for name, (old, new) in faults.items():
        (tmp_path / f"{name}.config").write_text(config.replace(old, new) if old else config)
        address = "198.18.0.99" if name == "not-there" else "198.18.0.20"
        hosts[name] = {"ansible_host": address, "ansible_user": "root",
                       "ansible_ssh_common_args": f"-F {tmp_path}/{name}.config"}  # fmt: skip
    hosts["no-python"]["ansible_python_interpreter"] = "/opt/python3"
    there = Lab(Path("lab.yml"), {"_meta": {"hostvars": hosts}, "metal_hosts": {"hosts": list(hosts)}})
    try:
        found = {finding.machine: finding for finding in preflight_checks.reach(there)}
    finally:
        there.close()
    assert found.pop("well").level == "ok"
    assert {finding.level for finding in found.values()} == {"fail"}
    assert "it refuses the key of root" in found["wrong-key"].found
    assert "its host key is not the one that is known" in found["changed-host-key"].found
    assert "the host key of 198.18.0.20 is not known here" in found["unknown-host-key"].found
    assert "nothing answers at 198.18.0.99" in found["not-there"].found
    assert "/opt/python3 does not run" in found["no-python"].found
