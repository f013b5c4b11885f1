"""The role kvm_guest makes and removes guests of a real libvirt, also where a guest changes by itself meanwhile."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.libvirt import MISSING, libvirtd
from vmtoll.agent.changed import changes_left, clean_up
from vmtoll.agent.domains import Domains, libvirt_address
from vmtoll.agent.virsh import virsh as ask
from vmtoll.model.errors import VmtollError
from vmtoll.shell import play

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

# It boots nothing: QEMU's firmware looks for a disk.
DOMAIN = """<domain type='qemu'>
  <name>one</name>
  <memory unit='MiB'>64</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator><memballoon model='none'/></devices>
</domain>
"""
PLAY = "- hosts: localhost\n  connection: local\n  roles: [kvm_guest]\n"
# What happens to the guest right after the role has read its state.
MEANWHILE = """\
#!/bin/sh
virsh --connect "{uri}" "$@"
status=$?
[ "$1" != domstate ] || virsh --connect "{uri}" {verb} one >/dev/null
exit $status
"""

PARTS = ("xml", "host_key", "qcow2")

Make = Callable[..., set[str]]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with libvirtd(tmp_path_factory.mktemp("libvirt")) as uri:
        yield uri
        subprocess.run(["virsh", "-c", uri, "destroy", "one"], capture_output=True, check=False)


def state(uri: str) -> str:
    """The guest's state by libvirt; empty where there is none."""
    argv = ["virsh", "-c", uri, "domstate", "one"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def virsh(uri: str, *words: str) -> None:
    subprocess.run(["virsh", "-c", uri, *words], capture_output=True, check=True)


@pytest.fixture
def make(uri: str, tmp_path: Path) -> Iterator[Make]:
    """Run the role for one guest; the steps that changed something. `meanwhile`: virsh's verb after each look."""
    image = tmp_path / "image"
    image.mkdir()
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image / "guest.qcow2", "1M"], check=True)
    for name in ("key.pub", "host_key"):
        (tmp_path / name).write_text("key\n")
    (tmp_path / "play.yml").write_text(PLAY)

    def run(
        meanwhile: str = "",
        state: str = "present",
        xml: str = DOMAIN,
        *,
        check: bool = False,
        socket: Path | None = None,
    ) -> set[str]:
        command = ["virsh", "--connect", f"qemu+unix:///system?socket={socket}" if socket else uri]
        if meanwhile:
            wrapper = tmp_path / "virsh"
            wrapper.write_text(MEANWHILE.format(uri=uri, verb=meanwhile))
            wrapper.chmod(0o755)
            command = [str(wrapper)]
        variables = {
            "kvm_guest_list": [{"name": "one", "state": state, "xml": xml, "public_key": str(tmp_path / "key.pub")}],
            "kvm_guest_virsh": ["env", "LC_ALL=C", *command],
            "kvm_guest_folder": str(tmp_path / "guests"),
            "kvm_guest_image": str(image),
            "kvm_guest_host_key": str(tmp_path / "host_key"),
            "kvm_guest_one_by_one": False,
        }
        changes: dict[str, Any] = {}
        words = [str(tmp_path / "play.yml"), "-e", json.dumps(variables), *(["--check"] if check else [])]
        play(*words, changes=changes)
        steps = "".join(diff["after"] for change in changes["localhost"] for diff in change["diff"])
        return set(steps.splitlines())

    yield run
    subprocess.run(["virsh", "-c", uri, "destroy", "one"], capture_output=True, check=False)
    subprocess.run(["virsh", "-c", uri, "undefine", "one"], capture_output=True, check=False)


def test_a_guest_is_made_once_and_removed_once(uri: str, make: Make, tmp_path: Path) -> None:
    files = tmp_path / "guests"
    assert make(check=True) == {"make one", "start one"}
    assert state(uri) == ""
    assert make() == {"make one", "start one"}
    assert state(uri) == "running"
    assert {(file.name, file.stat().st_mode & 0o777) for file in files.iterdir()} == {
        ("one.xml", 0o600), ("one.host_key", 0o600), ("one.qcow2", 0o644),
    }  # fmt: skip
    assert make() == set()
    assert make(check=True, state="absent") >= {"remove one"}
    assert state(uri) == "running"
    assert make(state="absent") == {"remove one", *(f"remove {files}/one.{part}" for part in PARTS)}
    assert state(uri) == ""
    assert not list(files.iterdir())
    assert make(state="absent") == set()


def test_a_guest_that_starts_by_itself_meanwhile_is_up(uri: str, make: Make) -> None:
    make()
    virsh(uri, "destroy", "one")
    assert make("start") == set()
    assert state(uri) == "running"


def test_a_guest_whose_key_has_changed_and_one_that_libvirt_has_lost_are_made_again(
    uri: str, make: Make, tmp_path: Path
) -> None:
    make()
    (tmp_path / "host_key").write_text("another key\n")
    assert {"remove one", "make one", "start one"} <= make()
    virsh(uri, "destroy", "one")
    virsh(uri, "undefine", "one")  # a run that was killed before it had defined the guest
    assert {"make one", "start one"} <= make()
    assert state(uri) == "running"


def test_a_domain_that_breaks_the_schema_costs_no_guest(uri: str, make: Make) -> None:
    make()
    with pytest.raises(VmtollError, match="one: virt-xml-validate - domain: "):
        make(xml=DOMAIN.replace("memballoon", "balloon"))
    assert state(uri) == "running"
    assert make() == set()


def test_a_guest_keeps_its_disk_where_libvirt_does_not_answer(uri: str, make: Make, tmp_path: Path) -> None:
    make()
    files = {file: file.stat().st_ino for file in (tmp_path / "guests").iterdir()}
    for state in ("present", "absent"):
        with pytest.raises(VmtollError, match=r"one: .* domstate one: .*ailed to connect"):
            make(state=state, socket=tmp_path / "no-socket")
    assert {file: file.stat().st_ino for file in (tmp_path / "guests").iterdir()} == files


def test_a_paused_guest_goes_on(uri: str, make: Make) -> None:
    make()
    virsh(uri, "suspend", "one")
    make()
    assert state(uri) == "running"


@pytest.mark.parametrize("meanwhile", ["destroy", pytest.param("undefine", marks=pytest.mark.long)])
def test_a_guest_is_removed_whatever_happens_to_it_meanwhile(uri: str, make: Make, meanwhile: str) -> None:
    make()
    make(meanwhile, state="absent")
    assert state(uri) == ""


@pytest.mark.long
def test_a_guest_that_is_paused_meanwhile_is_made_again(uri: str, make: Make) -> None:
    make()
    make("suspend", xml=DOMAIN.replace(">64<", ">80<"))
    assert state(uri) == "running"


@pytest.fixture
def running(uri: str, tmp_path: Path) -> Iterator[None]:
    """The guest runs; it was defined by virsh, not by the role."""
    (tmp_path / "one.xml").write_text(DOMAIN)
    virsh(uri, "define", str(tmp_path / "one.xml"))
    virsh(uri, "start", "one")
    yield
    subprocess.run(["virsh", "-c", uri, "destroy", "one"], capture_output=True, check=False)
    virsh(uri, "undefine", "one")


@pytest.mark.usefixtures("running")
def test_a_guest_that_a_killed_agent_has_paused_is_listed_and_goes_on(uri: str, tmp_path: Path) -> None:
    Domains(tmp_path).pause(libvirt_address("one", uri))
    assert changes_left(tmp_path, None)["paused"] == ["one"]
    assert clean_up(tmp_path) == ["guest one resumed"]
    assert state(uri) == "running"
    assert changes_left(tmp_path, None)["paused"] == []
    with pytest.raises(RuntimeError, match="no-such"):
        Domains(tmp_path).pause(libvirt_address("no-such", uri))
    assert clean_up(tmp_path) == []


@pytest.mark.usefixtures("running")
def test_the_agent_leaves_a_guest_alone_that_goes_on_already(uri: str, tmp_path: Path) -> None:
    domains = Domains(tmp_path)
    domains.pause(libvirt_address("one", uri))
    domains.pause(libvirt_address("one", uri))
    virsh(uri, "resume", "one")
    domains.resume(libvirt_address("one", uri))
    domains.resume_left(libvirt_address("one", uri))
    assert not domains.paused
    assert ask(uri, "domstate", "one") == "running"
    virsh(uri, "destroy", "one")
    with pytest.raises(RuntimeError, match=r"virsh resume one: .*not running"):
        domains.resume(libvirt_address("one", uri))
