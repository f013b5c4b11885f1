"""`vmtoll init` with a real virsh, over a real sshd, and at a terminal."""

import getpass
import json
import os
import pty
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support import program
from tests.support.ports import free_port
from tests.support.program import VMTOLL
from vmtoll.folder.sources import libvirt_guests
from vmtoll.model.inventory import Host

LIBVIRT = "test:///default"  # libvirt's own driver for tests: one guest called test, with an address


def vmtoll(*words: str | Path, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return program.vmtoll(*words, cwd=cwd, **({"VMTOLL_STATE": str(cwd / "state")} | environment))


def hosts(folder: Path) -> dict[str, dict[str, dict[str, object]]]:
    children = yaml.safe_load((folder / "lab.yml").read_text())["all"]["children"]
    groups = children | children["suts"]["children"]
    return {
        name: groups[name]["hosts"] for name in ("clients", "kvm_hosts", "metal_hosts", "kvm_guests") if name in groups
    }


def test_guests_of_libvirt_are_taken_by_name(tmp_path: Path) -> None:
    words = ("init", "my-lab", "--client", "load1", "--from-libvirt", "localhost", "--connect", LIBVIRT)
    unnamed = vmtoll(*words, cwd=tmp_path)
    assert (unnamed.returncode, unnamed.stderr.count("\n")) == (2, 1)
    assert "--guest: test (running)" in unnamed.stderr
    misspelt = vmtoll(*words, "--guest", "tset", cwd=tmp_path)
    assert "did you mean 'test'" in misspelt.stderr
    assert not (tmp_path / "my-lab").exists()
    done = vmtoll(*words, "--guest", "test", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["environments"] == ["test"]
    (guest,) = hosts(tmp_path / "my-lab")["kvm_guests"].values()
    assert (guest["vmtoll_domain"], guest["vmtoll_kvm_host"]) == ("test", "localhost")
    assert guest["ansible_host"] == "192.168.122.3", "libvirt's test driver says so"


def test_every_command_works_in_the_folder(tmp_path: Path) -> None:
    words = ("--client", "load1", "--metal", "big1", "--from-libvirt", "localhost", "-c", LIBVIRT, "--guest", "test")
    assert vmtoll("init", "my-lab", *words, cwd=tmp_path).returncode == 0
    folder = tmp_path / "my-lab"
    below = folder / "experiments"
    planned = vmtoll("run", "first", "--dry-run", "--json", cwd=below)
    assert planned.returncode == 0, planned.stderr
    assert {trial["arm"] for trial in json.loads(planned.stdout)["trials"]} == {"metal", "metal#2", "test"}
    listed = json.loads(vmtoll("list", "--json", cwd=below).stdout)
    assert listed["folder"] == str(folder)
    assert (listed["own"]["experiments"], listed["own"]["environments"]) == (["first"], ["test"])
    (below / "demo.yml").write_text((below / "first.yml").read_text())
    shadowing = vmtoll("run", "demo", "--dry-run", cwd=below)
    assert shadowing.stderr == (f"vmtoll: experiment demo: {below}/demo.yml, in place of the one that vmtoll ships\n")
    diagnosed = json.loads(vmtoll("diagnose", "test", "--json", cwd=folder).stdout)
    assert diagnosed["guest"] == "test"


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    done = vmtoll("init", ".", "--embedded", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = vmtoll("init", ".", "--embedded", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (2, f"vmtoll: {Path()}: not empty; give the name of a new folder\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name the machines: --client"),
        (("--client", "a"), "--guest and --metal are missing"),
        (("--guest", "a"), "--client is missing"),
        (("--embedded", "--client", "a"), "--embedded names no machine"),
        (("--from-libvirt", "a", "--from-proxmox", "b"), "give one of them"),
        (("--client", "a", "--from-libvirt", "localhost", "-c", "test:///none"), "localhost: virsh cannot list its"),
        (("--client", "a", "--from-proxmox", "localhost"), "localhost: qm cannot list its guests: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = vmtoll("init", "my-lab", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = done.stderr.splitlines()
    assert said in sentence
    assert not (tmp_path / "my-lab").exists()


def test_a_guest_whose_name_looks_like_an_option_is_listed(tmp_path: Path) -> None:
    """Two guests of libvirt's test driver, whose names virsh must not read as an option or as several words."""
    domain = "<domain type='test'><name>{}</name><memory>65536</memory><os><type>hvm</type></os></domain>"
    guests = ["--web", 'Bob\'s "web", 2']
    (tmp_path / "node.xml").write_text(f"<node>{''.join(map(domain.format, guests))}</node>")
    host = Host(
        "localhost", "kvm_host", {"ansible_connection": "local", "vmtoll_libvirt_uri": f"test://{tmp_path}/node.xml"}
    )
    assert {guest.name: guest.state for guest in libvirt_guests(host)} == dict.fromkeys(guests, "running")


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment whose `ssh` reaches this machine as `big1`, by a real sshd, and a file of that configuration."""
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key], check=True)
    port, pid = free_port(), tmp_path / "pid"
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/user.pub\n"
        f"StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile {pid}\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    (tmp_path / "config").write_text(
        f"Host big1\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {tmp_path}/user\n"
        f"  StrictHostKeyChecking no\n  UserKnownHostsFile {tmp_path}/known\n  LogLevel ERROR\n"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {tmp_path}/config "$@"\n')
    (tmp_path / "bin/ssh").chmod(0o755)
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "sshd is of the Debian package openssh-server (tests/packages.txt)"
    with subprocess.Popen([program, "-D", "-e", "-f", tmp_path / "sshd_config"]) as sshd:
        try:
            deadline = time.monotonic() + 60
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        finally:
            sshd.terminate()


def test_a_kvm_host_is_asked_over_ssh(tmp_path: Path, ssh: dict[str, str]) -> None:
    words = ("--client", "big1", "--from-libvirt", "big1", "--connect", LIBVIRT, "--guest", "test")
    done = vmtoll("init", "my-lab", *words, "--from-ssh-config", tmp_path / "config", cwd=tmp_path, **ssh)
    assert done.returncode == 0, done.stderr
    made = hosts(tmp_path / "my-lab")
    assert made["kvm_hosts"]["big1-host"]["ansible_host"] == "big1"
    assert made["kvm_guests"]["test"]["vmtoll_kvm_host"] == "big1-host"
    assert f"ansible_ssh_common_args: -F {tmp_path}/config" in (tmp_path / "my-lab/lab.yml").read_text()
    misspelt = vmtoll(
        "init", "x", "--client", "bgi1", "--metal", "big1", "--from-ssh-config", tmp_path / "config", cwd=tmp_path
    )
    assert "did you mean 'big1'" in misspelt.stderr


# Output of `qm list` and of `qm guest cmd ID network-get-interfaces`, as the manual of Proxmox VE 8 has them.
QM = """#!/bin/sh
case "$1 $3" in
"list ") cat <<'END'
      VMID NAME                 STATUS     MEM(MB)    BOOTDISK(GB) PID
       100 web1                 running    2048              32.00 1234
       101 web2                 stopped    2048              32.00 0
       102 web2                 stopped    2048              32.00 0
END
;;
*) [ "$3" = 100 ] || exit 255
cat <<'END'
[ { "name": "lo", "ip-addresses": [ { "ip-address": "127.0.0.1", "ip-address-type": "ipv4" } ] },
  { "name": "eth0", "ip-addresses": [ { "ip-address": "fe80::1", "ip-address-type": "ipv6" },
                                      { "ip-address": "192.0.2.7", "ip-address-type": "ipv4" } ] } ]
END
;;
esac
"""


def test_guests_of_proxmox_are_taken_by_name(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/qm").write_text(QM)
    (tmp_path / "bin/qm").chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    words = ("--client", "load1", "--from-proxmox", "localhost")
    listed = vmtoll("init", "my-lab", *words, cwd=tmp_path, PATH=path)
    assert "--guest: 100 web1 (running), 101 web2 (stopped), 102 web2 (stopped)" in listed.stderr
    ambiguous = vmtoll("init", "my-lab", *words, "--guest", "web2", cwd=tmp_path, PATH=path)
    assert "101 web2 (stopped), 102 web2 (stopped)" in ambiguous.stderr
    done = vmtoll("init", "my-lab", *words, "--guest", "web1", "--guest", "102=192.0.2.8", cwd=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    assert hosts(tmp_path / "my-lab")["kvm_guests"] == {
        "web1": {
            "ansible_host": "192.0.2.7",
            "vmtoll_environment": "web1",
            "vmtoll_kvm_host": "localhost",
            "vmtoll_vmid": 100,
        },
        "web2-102": {
            "ansible_host": "192.0.2.8",
            "vmtoll_environment": "web2-102",
            "vmtoll_kvm_host": "localhost",
            "vmtoll_vmid": 102,
        },
    }


def test_at_a_terminal_it_asks(tmp_path: Path) -> None:
    answers = ["load1", "localhost", "virsh", "test", "big1", "2500"]
    controller, terminal = pty.openpty()
    environment = os.environ | {"HOME": str(tmp_path), "TERM": "dumb"}
    words: list[str | Path] = [VMTOLL, "init", "my-lab", "--connect", LIBVIRT]
    with subprocess.Popen(
        words,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        env=environment,
        text=True,
    ) as process:
        os.write(controller, "".join(f"{answer}\n" for answer in answers).encode())
        printed, _ = process.communicate()
    os.close(controller)
    os.close(terminal)
    assert process.returncode == 0, printed
    assert "guests of localhost: test (running)" in printed
    made = hosts(tmp_path / "my-lab")
    assert (list(made["clients"]), list(made["metal_hosts"]), list(made["kvm_guests"])) == (
        ["load1"],
        ["big1"],
        ["test"],
    )
    assert "vmtoll_link_mbit: 2500" in (tmp_path / "my-lab/lab.yml").read_text()
