"""Where the embedded lab is, for the tests that use it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.program import VMTOLL
from vmtoll.paths import LAB

__all__ = ["LAB", "MACHINES", "VMTOLL", "Ssh", "virsh"]

MACHINES = ("client", "metal", "kvm")

# machine, command -> what it printed
Ssh = Callable[[str, str], str]


def virsh(lab: Path, *words: str) -> str:
    """What a command of the lab's libvirt prints. Raises CalledProcessError."""
    uri = f"qemu+unix:///system?socket={lab}/libvirt/run/libvirt-sock"
    return subprocess.run(["virsh", "-c", uri, *words], capture_output=True, text=True, check=True).stdout
