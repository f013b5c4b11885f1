"""Where the embedded lab is, for the tests that use it."""

from collections.abc import Callable

from tests.support.program import VMTOLL
from vmtoll.paths import LAB

__all__ = ["LAB", "MACHINES", "VMTOLL", "Ssh"]

MACHINES = ("client", "metal", "kvm")

# machine, command -> what it printed
Ssh = Callable[[str, str], str]
