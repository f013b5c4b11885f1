"""The role kvm_guest takes all that it needs as variables: a domain with words to replace, a probe to run."""

import json
from pathlib import Path

import pytest

from vmtoll.guests import needs, profiles
from vmtoll.guests.domain import Files, render
from vmtoll.guests.inventory import Guest
from vmtoll.paths import PLAYBOOKS
from vmtoll.provisioning.guests import role_entry
from vmtoll.shell import play

HERE = "- hosts: localhost\n  connection: local\n"
WRITE = f"""{HERE}  vars_files: ["{PLAYBOOKS}/roles/kvm_guest/vars/main.yml"]
  tasks:
    - ansible.builtin.copy:
        content: "{{{{ kvm_guest_xml }}}}"
        dest: "{{{{ kvm_guest_folder }}}}/one.xml"
        mode: "0600"
"""
FACTS = f"""{HERE}  tasks:
    - ansible.builtin.include_role: {{name: kvm_guest, tasks_from: facts}}
"""


def test_the_role_writes_the_domain_that_vmtoll_renders(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA me\n")
    described = Guest(name="one", profile="kvm-tuned", cpus="2-5", domain="dom", public_key=str(tmp_path / "key.pub"))
    variables = {
        "kvm_guest": role_entry(described),
        "kvm_guest_image": "/images/abc",
        "kvm_guest_folder": str(tmp_path),
        "kvm_guest_console_folder": "/consoles",
    }
    (tmp_path / "play.yml").write_text(WRITE)
    play(str(tmp_path / "play.yml"), "-e", json.dumps(variables), quiet=True)
    files = Files(
        "/images/abc/vmlinuz",
        "/images/abc/initrd.img",
        f"{tmp_path}/one.qcow2",
        "/consoles/one-console.log",
        {"ssh.authorized_keys.root": "c3NoLWVkMjU1MTkgQUFBQSBtZQo="},
        {"vmtoll.ssh_host_key": f"{tmp_path}/one.host_key"},
    )
    assert (tmp_path / "one.xml").read_text() == render(profiles.load("kvm-tuned"), described, files)


@pytest.mark.parametrize(("image", "folder"), [("abc", "{}/abc"), ("/lab/abc", "/lab/abc")])
def test_a_guest_of_another_release_boots_from_its_own_image(tmp_path: Path, image: str, folder: str) -> None:
    """It is named by its folder, below the role's or, in the embedded lab, by its path."""
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA me\n")
    described = Guest(
        name="one", profile="kvm-default-release-bookworm", cpus="0", public_key=str(tmp_path / "key.pub")
    )
    entry = role_entry(described, images={"bookworm": image, "trixie": "other"})
    variables = {
        "kvm_guest": entry, "kvm_guest_image": "/images/newest", "kvm_guest_folder": str(tmp_path),
        "kvm_guest_console_folder": "/consoles",
    }  # fmt: skip
    (tmp_path / "play.yml").write_text(WRITE)
    play(str(tmp_path / "play.yml"), "-e", json.dumps(variables), quiet=True)
    assert f"<kernel>{folder.format(tmp_path)}/vmlinuz</kernel>" in (tmp_path / "one.xml").read_text()


def test_the_facts_of_a_kvm_host_reach_the_controller(tmp_path: Path) -> None:
    """Also in check mode, which changes nothing and has to know all the same."""
    (tmp_path / "play.yml").write_text(FACTS)
    variables = {
        "kvm_guest_probe": str(needs.PROBE),
        "kvm_guest_facts_folder": str(tmp_path),
        "kvm_guest_libvirt_uri": "test:///default",
    }
    play(str(tmp_path / "play.yml"), "--check", "-e", json.dumps(variables), quiet=True)
    seen = json.loads((tmp_path / "localhost.json").read_text())
    assert seen["running"][:1] == ["test"]
    assert "lo" in seen["facts"]["interfaces"]


@pytest.mark.parametrize("word", ["import vmtoll", "from vmtoll", "playbook_dir", "../"])
def test_the_playbooks_need_nothing_of_the_program(word: str) -> None:
    """No import of the program, and no path out of playbooks/."""
    for file in PLAYBOOKS.rglob("*"):
        if file.is_file() and file.suffix in {".yml", ".j2", ".py", ".sh"}:
            code = [line for line in file.read_text().splitlines() if not line.lstrip().startswith(("#", "{#"))]
            hits = [line for line in code if word in line]
            assert not hits, (file, hits)
