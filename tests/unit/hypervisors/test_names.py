"""Guests with names that a shell, virsh or virt-xml could take for something else."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vmtoll.agent.virsh import names, virsh
from vmtoll.guests.diagnosis.apply import unchanged
from vmtoll.hypervisors import Virsh
from vmtoll.hypervisors.libvirt import LibvirtGuest
from vmtoll.hypervisors.operations import script
from vmtoll.model.inventory import Host
from vmtoll.model.operation import Operation

ODD = ["Home Assistant", "--web", "-x", "it's", 'say "a", \\ $b', "a,b"]


class Line:
    """A KVM host that lists these names."""

    host = Host("big1", "kvm_host", {})

    def call(self, op: str, timeout_s: float = 30.0, **args: Any) -> Any:
        return {"exit_status": 0, "stdout": "\n".join([*ODD, "", ""]), "stderr": ""}


def test_a_list_of_names_is_read_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Virsh(Line()).names("list", "--name") == ODD
    monkeypatch.setattr("vmtoll.agent.virsh.run", lambda *_: "\n".join(ODD))
    assert names("test:///default") == ODD


@pytest.mark.parametrize("name", ODD)
def test_the_shell_of_an_operation_gives_virsh_the_whole_name(name: str, tmp_path: Path) -> None:
    guest = LibvirtGuest(Host("guest1", "kvm_guest", {"vmtoll_domain": name}), Line())
    operation = Operation(of="kvm-default", do="pause", at_s=1, for_s=0.01)
    made = script(operation, guest)
    fake = 'virsh() { shift 3; if [ $# = 0 ]; then cat; else [ "$1" != domstate ] || echo running; fi; }; '
    done = subprocess.run(["sh", "-c", fake + made.run], capture_output=True, text=True, check=True, cwd=tmp_path)
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    assert done.stdout.strip() == f'resume --domain "{escaped}"'
    words = shlex.split(made.undo.partition("$(")[2].partition(")")[0])
    assert words[-1] == name
    assert words[-2] == ("--domain" if name.startswith("-") else "domstate")


@pytest.mark.parametrize("name", ODD)
def test_the_file_of_a_definition_is_no_option(name: str) -> None:
    save, restore = unchanged("test:///default", name)
    words, file = shlex.split(save.rpartition(" >")[0]), shlex.split(restore)[-1]
    assert words[-1] == name
    assert not file.startswith("-")
    assert file.endswith(f"{name}-before.xml")


def test_virsh_itself_takes_such_names(tmp_path: Path) -> None:
    """libvirt's own test driver, with the guests of a file."""
    guest = "<domain type='test'><name>{}</name><memory>1024</memory><os><type>hvm</type></os></domain>"
    known = ["Home Assistant", "--web", "a,b"]
    (tmp_path / "node.xml").write_text(f"<node>{''.join(guest.format(name) for name in known)}</node>")
    uri = f"test://{tmp_path}/node.xml"
    assert sorted(names(uri, "--all")) == sorted(known)
    for name in known:
        xml = LibvirtGuest(Host("g", "kvm_guest", {"vmtoll_domain": name}), Line()).virsh.words("dumpxml")
        assert xml[0] == "virsh"
        assert f"<name>{name}</name>" in virsh(uri, "dumpxml", *(["--domain"] if name[0] == "-" else []), name)
