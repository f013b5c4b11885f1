"""Where the embedded lab is, for the tests that use it."""

import sys
from collections.abc import Callable
from pathlib import Path

from vmtoll.paths import LAB

__all__ = ["LAB", "MACHINES", "VMTOLL", "Ssh"]

VMTOLL = Path(sys.executable).parent / "vmtoll"
MACHINES = ("client", "metal", "kvm")

# machine, command -> what it printed
Ssh = Callable[[str, str], str]
