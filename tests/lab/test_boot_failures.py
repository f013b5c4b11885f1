"""A guest whose kernel does not boot: named with its last lines, in bounded time, and nothing is left of the lab."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.lab.the_lab import LAB, VMTOLL

pytestmark = [pytest.mark.lab, pytest.mark.long]


def test_a_kernel_that_does_not_boot_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    """It panics."""
    (tmp_path / "lab.yml").write_text("all: {}\n")
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments/stuck.yml").write_text(
        "description: panics\nof: [kvm-default]\ncmdline: [rdinit=/nowhere, init=/nowhere]\n"
    )
    done = subprocess.run(
        [VMTOLL, "lab", "up", "--guests", "stuck"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode not in (0, None), done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert re.search("the guest stuck (does not boot|panicked): ", last)
    assert "Kernel panic - not syncing" in last
    assert not LAB.exists()
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert "vmtoll-" not in namespaces
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"{LAB}/guests" not in processes
