"""How a lab of virtual machines is brought up and restored, and how the program is run against it."""

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import run_there
from tests.lab.the_lab import LAB, VMTOLL, Ssh
from vmtoll.builds.suite import lab_release
from vmtoll.lab.topology import SSH_S
from vmtoll.paths import PROJECT
from vmtoll.provisioning.guests import make_guests
from vmtoll.shell import Changes
from vmtoll.spec.catalog import Registry
from vmtoll.spec.inventory import read_inventory

# A command that hangs ends the tests after so long; one that is slow does not.
PATIENCE_S = 7200
# A machine that boots shows something new on its console within this time, on two busy cores as well.
SILENCE_S = 300
INVENTORY = LAB / "inventory.yml"
LIBVIRT = ["virsh", "-c", f"qemu+unix:///system?socket={LAB}/libvirt/run/libvirt-sock"]


def vmtoll(*words: str | Path, status: int | None = 0, errors: bool = True) -> str:
    """Run the program as a user does; what it printed, `errors` as well. Fails the test for another exit status.

    `status`: None for any.
    """
    done = subprocess.run(
        [VMTOLL, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=PATIENCE_S
    )
    assert status in (None, done.returncode), done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr if errors else done.stdout


def up(topology: str = "machines", guests: str = "") -> Ssh:
    """Bring a lab up; what runs a command on a machine of it."""
    vmtoll("lab", "up", "--topology", topology, *(["--guests", guests] if guests else []))
    return run_there(LAB)


def provision() -> Changes:
    """Provision the lab; what that changed on each machine."""
    machines = json.loads(vmtoll("provision", "--inventory", INVENTORY, "--yes", "--json", errors=False))["machines"]
    return {machine["name"]: machine["changes"] for machine in machines}


def restore() -> list[str]:
    """Reset the lab's virtual machines that do not answer, wait for them and their guests; the names of those reset.

    Fails the test with the last lines of a machine's console where it shows nothing new for a while.
    """
    silent = _silent() and _silent()  # one that is only busy answers the second time
    virtual = subprocess.run([*LIBVIRT, "list", "--name"], check=True, capture_output=True, text=True).stdout.split()
    lost = [name for name in silent if name in virtual]
    for name in lost:
        print(f"{name} does not answer: reset")
        subprocess.run([*LIBVIRT, "reset", name], check=True, capture_output=True)
    for name in lost:
        wait_until_it_answers(name)
    if silent:
        print(f"{', '.join(silent)} did not answer: their guests are started")
        make_guests(read_inventory(INVENTORY), INVENTORY, [], lab_release(), quiet=True)
    return lost


def _silent() -> list[str]:
    """The lab's machines that do not answer."""
    machines: list[str] = json.loads(vmtoll("lab", "status", "--json", status=None, errors=False))["silent_machines"]
    return machines


def wait_until_it_answers(name: str) -> None:
    """Wait for a virtual machine of the lab as long as its console grows."""
    console = LAB / "guests" / f"{name}-console.log"
    reach = ["ssh", "-n", "-F", str(LAB / "ssh_config"), "-o", f"ConnectTimeout={SSH_S}", name, "true"]
    size, since = -1, time.monotonic()
    while subprocess.run(reach, capture_output=True, check=False).returncode:
        if (grown := console.stat().st_size) != size:
            size, since = grown, time.monotonic()
        last = console.read_text(errors="replace")[-2000:]
        if time.monotonic() - since > SILENCE_S:
            pytest.fail(f"{name} was reset and does not come back; its console ends with:\n{last}")
        time.sleep(1)


def copied(root: Path) -> Registry:
    """This project, with workloads and experiments of its own to change."""
    root.mkdir()
    for name in ("vmtoll", "server-builds", "vm-images"):
        (root / name).symlink_to(PROJECT / name)
    shutil.copytree(PROJECT / "workloads", root / "workloads")
    return Registry(root)


def preflight(inventory: Path = INVENTORY) -> list[dict[str, Any]]:
    """The findings of a preflight, whatever its exit status."""
    done = subprocess.run(
        [VMTOLL, "preflight", "--json", "--inventory", inventory],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.stdout, done.stderr
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return findings
