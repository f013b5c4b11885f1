"""A root filesystem booted as a container with this machine's network, reached over SSH on the loopback."""

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from vmtoll.model.errors import UserError
from vmtoll.shell import run

BOOT_TIMEOUT_S = 60


@dataclass(frozen=True)
class BootedMachine:
    """A booted machine. `ssh_command`: the command line to put before a command; `inventory`: its Ansible inventory."""

    ssh_command: Sequence[str | Path]
    inventory: Path


@contextmanager
def booted(root: Path, folder: Path, name: str, groups: Sequence[str]) -> Iterator[BootedMachine]:
    """Boot a tree that has systemd and an SSH server, as a machine of these groups. `folder`: for its keys and console.

    Raises UserError if the machine does not answer.
    """
    key, known_hosts, inventory = folder / "machine-key", folder / "known_hosts", folder / "inventory.yml"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    port_config = root / "etc/ssh/sshd_config.d/00-vmtoll-port.conf"
    port_config.write_text(f"Port {port}\nListenAddress 127.0.0.1\nPasswordAuthentication no\n")
    host_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
    known_hosts.write_text(f"[127.0.0.1]:{port} {' '.join(host_key)}\n")
    ssh_options = f"-o UserKnownHostsFile={known_hosts} -o IdentitiesOnly=yes"
    variables = {
        "ansible_host": "127.0.0.1",
        "ansible_port": port,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(key),
        "ansible_ssh_common_args": ssh_options,
    }
    children = {group: {"hosts": {name: None}} for group in groups}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {name: variables}, "children": children}}))
    # The machine dies with this process, so an interrupted build leaves nothing running.
    console = folder / "console.log"
    machine = subprocess.Popen(
        [
            *("setpriv", "--pdeathsig", "KILL", "systemd-nspawn", "--quiet", "--keep-unit", "--register=no", "--boot"),
            *(f"--directory={root}", f"--machine=vmtoll-{name}", "--resolv-conf=copy-host", "--timezone=off"),
            "--link-journal=no",  # otherwise systemd-nspawn needs this machine's ID, which a container may lack
            f"--load-credential=ssh.authorized_keys.root:{key}.pub",
        ],
        stdin=subprocess.DEVNULL,
        stdout=console.open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        ssh_command: list[str | Path] = ["ssh", *ssh_options.split(), "-i", key, "-p", str(port), "root@127.0.0.1"]
        _wait_for_ssh(ssh_command, machine, console)
        yield BootedMachine(ssh_command, inventory)
    finally:
        machine.terminate()  # systemd-nspawn powers its machine off
        try:
            machine.wait(timeout=20)
        except subprocess.TimeoutExpired:
            machine.kill()
            machine.wait()
    for file in (port_config, key, key.with_suffix(".pub"), inventory, known_hosts):
        file.unlink(missing_ok=True)


def _wait_for_ssh(ssh_command: list[str | Path], machine: "subprocess.Popen[bytes]", console: Path) -> None:
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    while subprocess.run([*map(str, ssh_command), "true"], capture_output=True, check=False).returncode != 0:
        if machine.poll() is not None or time.monotonic() > deadline:
            last = console.read_text(errors="replace").strip().rpartition("\n")[2]
            raise UserError(f"the machine of {console.parent} does not answer: {last!r}; see {console}")
        time.sleep(0.2)
