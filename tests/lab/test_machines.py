"""What every machine of the lab is: reachable by key only, of one image, and left alone by provisioning."""

import hashlib
import json
import re
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.lab.the_lab import MACHINES, VMTOLL, Ssh
from tests.support.measured import plan
from vmtoll.agent.accelerator import probe
from vmtoll.builds import tools
from vmtoll.lab import embedded
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry

pytestmark = pytest.mark.lab

# Those of the demo: h2load from its package, oha compiled.
WORKLOADS = plan(Registry().experiment_file("demo")).resolved.workloads.values()


@pytest.mark.parametrize(
    "machines", [("client", "metal"), pytest.param(("kvm",), marks=pytest.mark.guest_minutes)], ids=["metal", "guest"]
)
def test_provisioning_changes_nothing_but_the_compiled_tools(lab: Path, machines: Sequence[str]) -> None:
    argv: list[str | Path] = [VMTOLL, "provision", "--limit", ",".join(machines), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    provisioned = json.loads(done.stdout)["machines"]
    assert [machine["name"] for machine in provisioned] == sorted(machines)
    tasks = {change["task"] for machine in provisioned for change in machine["changes"]}
    assert tasks <= {"load_tools : Copy the load tools that were built on the controller"}


def test_the_status_leaves_a_scripts_input_to_the_script(lab: Path) -> None:
    said = subprocess.run(
        ["bash", "-c", f"{VMTOLL} lab status >/dev/null; cat"],
        input="the rest\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "the rest\n"


def test_the_client_has_every_compiled_tool_when_the_lab_is_up(ssh: Ssh) -> None:
    for tool in tools.binaries():
        digest = hashlib.sha256(Path(tool["binary"]).read_bytes()).hexdigest()
        assert ssh("client", f"sha256sum /usr/local/bin/{tool['name']}").split()[0] == digest


def test_a_compiled_tool_is_copied_to_a_lab_without_it(lab: Path, ssh: Ssh) -> None:
    embedded.equip(WORKLOADS, say)
    ssh("client", "rm /usr/local/bin/oha")
    built = json.loads((lab / "built.json").read_text())
    (lab / "built.json").write_text(json.dumps(built | {"tools": []}))
    embedded.equip(WORKLOADS, say)
    assert ssh("client", "oha --version")
    (copied,) = json.loads((lab / "built.json").read_text())["tools"]
    assert copied.startswith("clients oha-")


def test_up_twice_is_harmless(lab: Path, ssh: Ssh) -> None:
    before = [
        ssh(machine, "cat /proc/sys/kernel/random/boot_id; systemctl show -p ActiveEnterTimestamp ssh")
        for machine in MACHINES
    ]
    subprocess.run([VMTOLL, "lab", "up"], check=True)
    after = [
        ssh(machine, "cat /proc/sys/kernel/random/boot_id; systemctl show -p ActiveEnterTimestamp ssh")
        for machine in MACHINES
    ]
    assert before == after


def test_each_machine_has_a_unique_id(ssh: Ssh) -> None:
    ids = {ssh(machine, "cat /etc/machine-id") for machine in MACHINES}
    assert len(ids) == len(MACHINES)
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)


def test_status_says_up(lab: Path) -> None:
    done = subprocess.run([VMTOLL, "lab", "status", "--json"], capture_output=True, text=True, check=True)
    state = json.loads(done.stdout)
    assert state["up"] is True
    assert state["silent_machines"] == []


@pytest.mark.parametrize("machine", MACHINES)
def test_no_password_logs_in(ssh: Ssh, machine: str) -> None:
    settings = ssh(machine, "sshd -T").splitlines()
    assert "passwordauthentication no" in settings
    assert "kbdinteractiveauthentication no" in settings
    assert re.fullmatch(r"root:[*!].*", ssh(machine, "grep ^root: /etc/shadow"))


def test_the_key_is_the_owners_alone(lab: Path) -> None:
    assert stat.S_IMODE((lab / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE((lab / "host_key").stat().st_mode) == 0o600


def test_metal_and_guest_run_the_same_server_on_the_same_site(ssh: Ssh) -> None:
    command = "sha256sum /usr/local/sbin/lighttz /etc/vmtoll/servers/*/* /srv/vmtoll/sites/office.manifest.json"
    assert ssh("metal", command) == ssh("kvm", command)
    assert "lighttz" in ssh("metal", command)


def test_metal_and_guest_have_the_same_kernel_parameters(ssh: Ssh) -> None:
    command = "sysctl -n $(grep -o '^[a-z0-9_.]*' /etc/sysctl.d/60-vmtoll.conf)"
    assert ssh("metal", command).split() == ssh("kvm", command).split()


def test_the_guest_matches_the_inventory(lab: Path, ssh: Ssh) -> None:
    """`systemd-detect-virt` tells KVM from emulation by CPUID; the probe must have come to the same."""
    built = yaml.safe_load((lab / "inventory.yml").read_text())
    assert built["all"]["children"]["kvm_hosts"]
    kernel = Path(json.loads((lab / "built.json").read_text())["image"]) / "vmlinuz"
    kind, why = probe(kernel)
    assert ssh("kvm", "systemd-detect-virt || true") == {"kvm": "kvm", "tcg": "qemu"}[kind], why


def test_a_device_that_boots_nothing_is_not_kvm(lab: Path, tmp_path: Path) -> None:
    kernel = Path(json.loads((lab / "built.json").read_text())["image"]) / "vmlinuz"
    assert probe(kernel, device=tmp_path / "kvm") == ("tcg", f"{tmp_path}/kvm does not exist")
    kind, why = probe(tmp_path / "no-kernel")
    assert kind == "tcg", why


def test_the_root_namespace_has_no_way_into_the_lab(lab: Path) -> None:
    routes = subprocess.run(["ip", "route", "show", "table", "all"], capture_output=True, text=True, check=True).stdout
    addresses = subprocess.run(["ip", "-o", "address"], capture_output=True, text=True, check=True).stdout
    assert "198.18." not in routes + addresses
