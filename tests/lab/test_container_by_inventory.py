"""Containers that an inventory describes: made by podman on a bridge of their host, changed, started again, removed.

Their host is this machine in a network namespace of its own: its bridge, and all traffic, are in there.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.the_lab import VMTOLL

pytestmark = pytest.mark.long

HOST, NAME, ADDRESS = "test-container-host", "test-box", "198.19.77.8"
FOLDER = Path("/var/lib/vmtoll/containers")


def run(*words: object, check: bool = True) -> "subprocess.CompletedProcess[str]":
    argv = ["nsenter", f"--net=/run/netns/{HOST}", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=check, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A namespace with a bridge that stands for the host's network; a folder with a key."""
    folder = tmp_path_factory.mktemp("containers")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    subprocess.run(["ip", "netns", "add", HOST], check=True)
    try:
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "br-test", "type", "bridge")
        run("ip", "address", "add", "198.19.77.1/24", "dev", "br-test")
        run("ip", "link", "set", "br-test", "up")
        yield folder
    finally:
        subprocess.run(["podman", "rm", "--force", "--time", "0", NAME], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "delete", f"toll-{NAME}"], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "delete", HOST], check=True)


def inventory(folder: Path, **variables: object) -> Path:
    """The inventory of a host with one container, which has these variables as well."""
    box = {
        "vmtoll_environment": "container", "ansible_host": ADDRESS, "vmtoll_prefix": 24, "vmtoll_bridge": "br-test",
        "vmtoll_cpus": "0", "vmtoll_memory_mib": 512, "vmtoll_container_host": "host", **variables,
    }  # fmt: skip
    shared = {
        "ansible_user": "root", "ansible_ssh_private_key_file": str(folder / "key"),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={folder}/known_hosts",
        "podman_container_known_hosts": f"{folder}/known_hosts",
    }  # fmt: skip
    children = {
        "kvm_hosts": {"hosts": {"host": {"ansible_connection": "local"}}},
        "containers": {"hosts": {NAME: box}},
    }
    file = folder / "hosts.yml"
    file.write_text(yaml.safe_dump({"all": {"vars": shared, "children": children}}))
    return file


def vmtoll(verb: str, folder: Path, **variables: object) -> "subprocess.CompletedProcess[str]":
    return run(VMTOLL, verb, "--inventory", inventory(folder, **variables), "--yes", check=False)


def facts(template: str) -> str:
    """What podman knows of the container; empty if there is none."""
    argv = ["podman", "inspect", "--type", "container", "--format", template, NAME]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def inside(folder: Path, command: str) -> str:
    ssh = ["ssh", "-i", folder / "key", "-o", f"UserKnownHostsFile={folder}/known_hosts", f"root@{ADDRESS}", command]
    return run(*ssh).stdout.strip()


def test_a_container_is_made_changed_started_again_and_removed(keys: Path) -> None:
    assert os.geteuid() == 0
    made = vmtoll("provision", keys)
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr
    assert facts("{{.HostConfig.CpusetCpus}} {{.HostConfig.Memory}}") == f"0 {512 << 20}"
    assert inside(keys, "hostname; nproc; sysctl -n net.core.somaxconn").split() == [NAME, "1", "4096"]
    assert "nginx.json" in inside(keys, "ls /etc/vmtoll/servers")

    identity = facts("{{.Id}}")
    assert vmtoll("provision", keys).returncode == 0
    assert facts("{{.Id}}") == identity, "it is as it should be"
    # As after a boot of its host.
    subprocess.run(["podman", "stop", "--time", "2", NAME], check=True, capture_output=True)
    subprocess.run(["ip", "netns", "delete", f"toll-{NAME}"], check=True)
    assert vmtoll("provision", keys).returncode == 0
    assert facts("{{.Id}} {{.State.Status}}") == f"{identity} running"
    assert vmtoll("provision", keys, vmtoll_memory_mib=640).returncode == 0
    assert facts("{{.Id}}") != identity
    assert facts("{{.HostConfig.Memory}}") == str(640 << 20)

    assert vmtoll("unprovision", keys, vmtoll_memory_mib=640).returncode == 0
    assert not facts("{{.Id}}")
    images = subprocess.run(
        ["podman", "images", "--quiet", "localhost/vmtoll"], capture_output=True, text=True, check=True
    )
    assert not images.stdout
    assert not FOLDER.exists()
    assert not Path(f"/run/netns/toll-{NAME}").exists()


def test_a_container_that_cannot_be_made_leaves_nothing(keys: Path) -> None:
    failed = vmtoll("provision", keys, vmtoll_bridge="br-none")
    assert failed.returncode == 2
    assert 'argument "br-none" is wrong: Device does not exist' in failed.stderr
    assert not facts("{{.Id}}")
    assert not Path(f"/run/netns/toll-{NAME}").exists()
    assert not (FOLDER / NAME).exists()
    assert vmtoll("unprovision", keys).returncode == 0


def test_a_container_with_the_hosts_network_answers_at_the_hosts_address(keys: Path) -> None:
    variables = {"vmtoll_environment": "container-host-network", "ansible_host": "198.19.77.1", "ansible_port": 2222}
    made = vmtoll("provision", keys, **variables)
    try:
        assert made.returncode == 0, made.stdout[-3000:] + made.stderr
        assert facts("{{.HostConfig.NetworkMode}}") == "host"
        ssh = ["ssh", "-p", "2222", "-i", keys / "key", "-o", f"UserKnownHostsFile={keys}/known_hosts"]
        seen = run(*ssh, "root@198.19.77.1", "ls /etc/vmtoll/servers; cat /proc/net/dev").stdout
        assert "nginx.json" in seen
        assert "br-test:" in seen
    finally:
        undone = vmtoll("unprovision", keys, **variables)
    assert undone.returncode == 0, undone.stdout[-3000:] + undone.stderr
    assert not facts("{{.Id}}")
    assert not FOLDER.exists()


def test_a_container_of_others_is_refused_in_one_sentence_and_stays(keys: Path, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    theirs = ["podman", "--runtime=runc", "create", "--network=none", f"--name={NAME}"]
    subprocess.run([*theirs, "--rootfs", tmp_path / "root", "/init"], check=True, capture_output=True)
    try:
        identity = facts("{{.Id}}")
        refused = vmtoll("provision", keys)
        assert refused.returncode == 2
        assert f"container {NAME}: podman has a container of this name that vmtoll did not make" in refused.stderr
        assert vmtoll("unprovision", keys).returncode == 0
        assert facts("{{.Id}}") == identity
    finally:
        subprocess.run(["podman", "rm", "--force", "--time", "0", NAME], check=True, capture_output=True)
