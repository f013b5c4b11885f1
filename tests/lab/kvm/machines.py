"""How a lab of virtual machines is brought up, and how the program is run against it."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.lab.conftest import run_there
from tests.lab.the_lab import LAB, VMTOLL, Ssh

# An emulated machine is up within some 100 s, a guest under KVM inside of it within 200 s; provisioning takes minutes.
PATIENCE_S = 1800


def vmtoll(*words: str | Path, status: int = 0, errors: bool = True) -> str:
    """Run the program as a user does; what it printed, `errors` as well. Fails the test for another exit status."""
    done = subprocess.run(
        [VMTOLL, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=PATIENCE_S
    )
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr if errors else done.stdout


def up(topology: str = "machines", guests: str = "", *, provisioned: bool = False) -> Ssh:
    """Bring a lab up; what runs a command on a machine of it."""
    vmtoll("lab", "up", "--topology", topology, *(["--guests", guests] if guests else []))
    if provisioned:
        vmtoll("provision", "--inventory", LAB / "inventory.yml")
    return run_there(LAB)


def preflight(inventory: Path = LAB / "inventory.yml") -> list[dict[str, Any]]:
    """The findings of a preflight, whatever its exit status."""
    done = subprocess.run(
        [VMTOLL, "preflight", "--json", "--inventory", inventory],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.stdout, done.stderr
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return findings
