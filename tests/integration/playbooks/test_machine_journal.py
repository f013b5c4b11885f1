"""A machine's files, folders and kernel parameters recorded and restored: the real module over a tree.

Packages and units need a machine of their own: tests/lab/test_unprovision.py.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vmtoll.agent.changed import changes_left
from vmtoll.paths import PLAYBOOKS

MODULE = PLAYBOOKS / "plugins/modules/machine_journal.py"
SYSCTL = "proc/sys/net/core/somaxconn"
MINE = "etc/sysctl.d/60-vmtoll.conf"
NAMED: dict[str, Any] = {
    "files": [f"/{MINE}", "/usr/local/bin/oha", "/etc/systemd/system/nginx.service"],
    "trees": ["/etc/vmtoll", "/srv/vmtoll"],
    "sysctls": ["net.core.somaxconn", "net.not.there"],
}


def journal(root: Path, state: str = "recorded", *, check: bool = False, **named: Any) -> dict[str, Any]:
    """Run the module as Ansible runs it; its answer."""
    told = json.dumps(
        {"ANSIBLE_MODULE_ARGS": {"state": state, "root": str(root), "_ansible_check_mode": check} | named}
    )
    done = subprocess.run([sys.executable, MODULE], input=told, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = json.loads(done.stdout or done.stderr)
    assert bool(answer.get("failed")) == bool(done.returncode)
    return answer


def contents(root: Path) -> dict[str, tuple[int, str]]:
    """Path → mode, and text or target of each file, link and folder."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else "",
        )
        for path in root.rglob("*")
        if not str(path.relative_to(root)).startswith("var/lib/vmtoll")
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine on which a user has a file where provisioning writes one."""
    for folder in ("etc/sysctl.d", "etc/systemd/system", "usr/local/bin", "srv", "proc/sys/net/core", "var/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / MINE).write_text("mine\n")
    (tmp_path / MINE).chmod(0o640)
    (tmp_path / SYSCTL).write_text("128\n")
    return tmp_path


def provisioned(root: Path) -> None:
    """Change what provisioning changes."""
    (root / MINE).write_text("theirs\n")
    (root / MINE).chmod(0o644)
    (root / SYSCTL).write_text("4096\n")
    (root / "usr/local/bin/oha").write_text("program")
    (root / "etc/systemd/system/nginx.service").symlink_to("/dev/null")
    for folder in ("etc/vmtoll/servers/nginx", "srv/vmtoll/sites"):
        (root / folder).mkdir(parents=True)
        (root / folder / "file").write_text("x")


def test_what_provisioning_changed_is_restored(root: Path) -> None:
    before = contents(root)
    assert not journal(root, **NAMED)["changed"]
    provisioned(root)
    journal(root, **NAMED)  # provisioned again: the record is of the first time
    during = contents(root)
    would = journal(root, "restored", check=True)
    assert contents(root) == during
    did = journal(root, "restored")
    assert did["diff"] == would["diff"]
    assert contents(root) == before
    assert not (root / "var/lib/vmtoll/provisioning.json").exists()
    assert not journal(root, "restored")["changed"]


def test_a_later_provisioning_adds_to_the_record(root: Path) -> None:
    before = contents(root)
    journal(root, files=NAMED["files"][:1])
    provisioned(root)
    (root / "usr/local/bin/oha").unlink()
    for name in ("etc/vmtoll", "srv/vmtoll"):
        subprocess.run(["rm", "-r", root / name], check=True)
    (root / "etc/systemd/system/nginx.service").unlink()
    (root / SYSCTL).write_text("128\n")
    journal(root, **NAMED)
    subprocess.run(["rm", root / MINE], check=True)
    provisioned(root)
    journal(root, "restored")
    assert contents(root) == before


def test_a_file_that_cannot_be_restored_keeps_the_record(root: Path) -> None:
    journal(root, **NAMED)
    provisioned(root)
    (root / "usr/local/bin/oha").unlink()
    (root / "usr/local/bin/oha").mkdir()
    failed = journal(root, "restored")
    assert "/usr/local/bin/oha" in failed["msg"]
    (root / "usr/local/bin/oha").rmdir()
    assert journal(root, "restored")["changed"] is False
    assert not (root / "var/lib/vmtoll/provisioning.json").exists()


def test_disks_of_guests_that_the_inventory_does_not_name_stay(root: Path) -> None:
    folder = root / "var/lib/libvirt/images/vmtoll"
    journal(root, trees=["/var/lib/libvirt/images/vmtoll"])
    folder.mkdir(parents=True)
    (folder / "guest2.qcow2").touch()
    failed = journal(root, "restored")
    assert "guest2 have their disks " in failed["msg"]
    assert (folder / "guest2.qcow2").exists()
    (folder / "guest2.qcow2").unlink()
    journal(root, "restored")
    assert not (root / "var/lib/libvirt").exists()


def test_the_agent_tells_what_the_record_says(root: Path) -> None:
    assert changes_left(root, None)["provisioned"] is None
    journal(root, **NAMED)
    (root / "run/vmtoll-paused").mkdir(parents=True)
    (root / "run/vmtoll-paused/guest1").write_text("qemu:///system")
    told = changes_left(root, "the run 1")
    assert told["provisioned"] is not None
    assert told["provisioned"]["sysctls"] == ["net.core.somaxconn"]
    assert len(told["provisioned"]["files"]) == 3
    assert (told["paused"], told["held_by"], told["tuned"]) == (["guest1"], "the run 1", [])


def test_a_folder_of_a_package_is_removed_only_where_it_is_empty(root: Path) -> None:
    """The user may have installed the same server since, and configured it."""
    folder = root / "etc/dovecot/conf.d"
    for kept in (False, True):
        journal(root, folders=["/etc/dovecot/conf.d"])
        folder.mkdir(parents=True)
        if kept:
            (folder / "mine.conf").write_text("mine\n")
        journal(root, "restored")
        assert (root / "etc/dovecot").exists() is kept
