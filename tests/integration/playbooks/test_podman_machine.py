"""What the module leaves alone, and what it takes away after a kill: the real module, podman and network."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vmtoll.paths import PLAYBOOKS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes such containers")

MODULE = PLAYBOOKS / "plugins/modules/podman_machine.py"
HOST, NAME = f"test-podman-{os.getpid()}", f"test-box-{os.getpid()}"


def on_host(*argv: object) -> "subprocess.CompletedProcess[str]":
    """Run a command in the network namespace that stands for the host's."""
    words = ["nsenter", f"--net=/run/netns/{HOST}", *map(str, argv)]
    return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def module(folder: Path, state: str, *, check: bool = False, **options: Any) -> dict[str, Any]:
    """Run the module as Ansible runs it; return its answer."""
    arguments = {"name": NAME, "state": state, "folder": str(folder), "cpus": "0", "_ansible_check_mode": check}
    given = json.dumps({"ANSIBLE_MODULE_ARGS": arguments | options})
    argv = ["nsenter", f"--net=/run/netns/{HOST}", sys.executable, str(MODULE)]
    done = subprocess.run(argv, input=given, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = json.loads(done.stdout or done.stderr)
    return answer


@pytest.fixture(scope="module", autouse=True)
def host() -> Iterator[None]:
    subprocess.run(["ip", "netns", "add", HOST], check=True)
    try:
        on_host("ip", "link", "add", "br-test", "type", "bridge")
        yield
    finally:
        subprocess.run(["podman", "rm", "--force", NAME], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "delete", f"toll-{NAME}"], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "delete", HOST], check=True)


def bridge(folder: Path) -> dict[str, Any]:
    return {"network": "bridge", "bridge": "br-test", "address": "198.19.78.8/24", "rootfs": str(folder / "root")}


def identity() -> str:
    argv = ["podman", "inspect", "--type", "container", "--format", "{{.Id}}", NAME]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def cards() -> str:
    return on_host("ip", "-o", "link", "show", "type", "veth").stdout


def test_a_container_of_others_is_refused_and_never_touched(tmp_path: Path) -> None:
    root = tmp_path / "theirs"
    root.mkdir()
    argv = ["podman", "--runtime=runc", "create", "--network=none", f"--name={NAME}", "--rootfs", str(root), "/init"]
    subprocess.run(argv, check=True, capture_output=True)
    theirs = identity()
    try:
        answer = module(tmp_path, "present", **bridge(tmp_path))
        assert answer["failed"]
        assert answer["msg"].startswith(
            f"container {NAME}: podman has a container of this name that vmtoll did not make"
        )
        assert not module(tmp_path, "absent")["changed"]
        assert identity() == theirs
        assert not cards()
    finally:
        subprocess.run(["podman", "rm", "--force", NAME], check=True, capture_output=True)


def test_one_that_does_not_start_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()  # it has no /sbin/init
    answer = module(tmp_path, "present", **bridge(tmp_path))
    assert answer["failed"]
    assert answer["msg"].startswith(f"container {NAME}: podman --runtime runc: ")
    assert not identity()
    assert not cards()
    assert not (tmp_path / NAME).exists()
    assert not Path(f"/run/netns/toll-{NAME}").exists()


@pytest.mark.parametrize("network", ["bridge", "host"])
def test_a_network_that_a_kill_left_is_removed_whatever_the_network_is_now(tmp_path: Path, network: str) -> None:
    (tmp_path / "root").mkdir()
    failed = module(tmp_path, "present", **bridge(tmp_path) | {"gateway": "192.0.2.1"})
    assert "Nexthop has invalid gateway" in failed["msg"], "its network is made before it is"
    subprocess.run(["ip", "netns", "add", f"toll-{NAME}"], check=True)
    card = _card_of(NAME)
    peer = ["type", "veth", "peer", "name", "eth0", "netns", f"toll-{NAME}"]
    assert on_host("ip", "link", "add", card, *peer).returncode == 0
    assert module(tmp_path, "absent", check=True, network=network)["changed"]
    assert card in cards()
    assert module(tmp_path, "absent", network=network)["diff"]["after"] == f"remove network of {NAME}\n"
    assert not cards()
    assert not Path(f"/run/netns/toll-{NAME}").exists()
    assert not module(tmp_path, "absent", network=network)["changed"]


def _card_of(name: str) -> str:
    code = f"import sys; sys.path.insert(0, {str(MODULE.parent)!r}); import podman_machine as m; " + (
        f"print(m.Machine({{'name': {name!r}, 'folder': '/', 'namespace': ''}}, check=True).card)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()
