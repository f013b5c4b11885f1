"""A guest that an inventory describes by a profile is made by `vmtoll provision` on its KVM host, and removed again.

The KVM host is this machine, by the lab's libvirt; the way there is that of any other host. It fetches the image by
itself from a web server.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.the_lab import LAB, VMTOLL, virsh
from tests.support.ports import free_ports

pytestmark = [pytest.mark.lab, pytest.mark.long]

NAME, ADDRESS = "by-inventory", "198.18.0.99"


def inventory(folder: Path, lab: Path, **variables: Any) -> Path:
    reach = (
        f"-o UserKnownHostsFile={folder}/known_hosts -o IdentitiesOnly=yes "
        "-o ProxyCommand='nsenter --net=/run/netns/vmtoll-switch nc %h %p'"
    )
    guest = {
        "ansible_host": ADDRESS,
        "ansible_ssh_private_key_file": str(lab / "key"),
        "ansible_ssh_common_args": reach,
        "kvm_guest_known_hosts": str(folder / "known_hosts"),
        "vmtoll_environment": "kvm-step-pinned",
        "vmtoll_profile": "kvm-step-pinned",
        "vmtoll_kvm_host": "box",
        "vmtoll_domain": NAME,
        "vmtoll_accelerator": "tcg",
        "vmtoll_cpus": "0-1",
        "vmtoll_bridge": "vt-br0",
        "vmtoll_prefix": 15,
        "vmtoll_gateway": "198.18.0.1",
        "vmtoll_disk_cache": "unsafe",
        **variables,
    }
    box = {
        "ansible_connection": "local",
        "vmtoll_libvirt_uri": f"qemu+unix:///system?socket={lab}/libvirt/run/libvirt-sock",
        "kvm_guest_packages": [],
        "kvm_guest_enter": ["nsenter", "--net=/run/netns/vmtoll-switch"],
        "kvm_guest_folder": str(folder / "kvm-host"),
        "kvm_guest_console_folder": str(folder / "kvm-host"),
        **yaml.safe_load((folder / "image.yml").read_text()),
    }
    file = folder / "inventory.yml"
    groups = {"kvm_hosts": {"hosts": {"box": box}}, "suts": {"children": {"kvm_guests": {"hosts": {NAME: guest}}}}}
    everywhere = {"ansible_user": "root", "vmtoll_lab": "hosts", "vmtoll_workers": 1}
    file.write_text(yaml.safe_dump({"all": {"vars": everywhere, "children": groups}}))
    return file


def provision(file: Path) -> str:
    asked: list[str | Path] = [VMTOLL, "provision", "--inventory", file, "--yes"]
    state = os.environ | {"ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(asked, capture_output=True, text=True, check=False, env=state, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def lab() -> Path:
    """The standard lab, whatever the module before this one left; its folder."""
    subprocess.run([VMTOLL, "lab", "up"], check=True, stdin=subprocess.DEVNULL)
    return LAB


@pytest.fixture(scope="module")
def made(lab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an inventory whose guest has been made."""
    folder = tmp_path_factory.mktemp("by-inventory")
    folder.chmod(0o755)
    served, port = folder / "served", free_ports()
    asked: list[str | Path] = [VMTOLL, "lab", "image", "--output", served, "--json"]
    answer = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    image = {"vmtoll_image_url": f"http://127.0.0.1:{port}/", "vmtoll_image_sha256": answer["sha256"]}
    (folder / "image.yml").write_text(yaml.safe_dump(image))
    words: list[str | Path] = ["-m", "http.server", "--bind", "127.0.0.1", "--directory", served, str(port)]
    with (folder / "requests.log").open("w") as log:
        server = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log)
        try:
            said = provision(inventory(folder, lab))
        finally:
            server.terminate()
            server.wait()
    assert "Fetch the image" in said
    assert "GET /guest.qcow2" in (folder / "requests.log").read_text()
    yield folder
    if NAME in virsh(lab, "list", "--name"):
        virsh(lab, "destroy", NAME)


def test_the_guest_matches_its_profile(made: Path, lab: Path) -> None:
    pins = re.findall(r"^ *\d+ +(\S+)$", virsh(lab, "vcpupin", NAME), re.M)
    assert pins == ["0", "1"]
    known = [f"UserKnownHostsFile={made}/known_hosts", f"HostKeyAlias={ADDRESS}"]
    look = "nproc; ls /sys/class/net/eth0/queues | grep -c rx; hostname; ls /etc/vmtoll/servers/nginx.json"
    options = [word for option in known for word in ("-o", option)]
    reach: list[str | Path] = ["ssh", "-F", lab / "ssh_config", *options, ADDRESS, look]
    said = subprocess.run(reach, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["2", "2", NAME, "/etc/vmtoll/servers/nginx.json"]


def test_a_second_provisioning_changes_nothing(made: Path, lab: Path) -> None:
    before = virsh(lab, "domid", NAME)
    recap = re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+) ", provision(made / "inventory.yml"), re.M)
    assert {name for name, _ in recap} == {"box", NAME}
    assert {changed for _, changed in recap} == {"0"}
    assert virsh(lab, "domid", NAME) == before


def test_missing_host_prerequisites_are_named_and_nothing_is_made(made: Path, lab: Path) -> None:
    file = inventory(made, lab, vmtoll_bridge="br-none")
    done = subprocess.run([VMTOLL, "provision", "-i", file, "--yes"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        f"box: {NAME} (kvm-step-pinned): there is no bridge br-none; make it, or name another in"
        in done.stdout + done.stderr
    )
    assert "br-none" not in virsh(lab, "dumpxml", NAME)


def test_a_guest_whose_domain_has_changed_is_made_again(made: Path, lab: Path) -> None:
    before = virsh(lab, "domid", NAME)
    provision(inventory(made, lab, vmtoll_disk_cache="none"))
    assert "cache='none'" in virsh(lab, "dumpxml", NAME)
    assert virsh(lab, "domid", NAME) != before
    files = {file.name for file in (made / "kvm-host").glob(f"{NAME}.*")}
    assert files == {f"{NAME}.{part}" for part in ("xml", "qcow2", "host_key")}


def test_it_is_removed_without_a_trace(made: Path, lab: Path) -> None:
    provision(inventory(made, lab, vmtoll_state="absent"))
    assert NAME not in virsh(lab, "list", "--all", "--name")
    assert not list((made / "kvm-host").glob(f"{NAME}.*"))
