"""In the embedded lab: `vmtoll ab` by its own command line, with the verdict as its exit code."""

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.lab.the_lab import VMTOLL

pytestmark = [pytest.mark.lab, pytest.mark.guest_minutes]


def test_an_emulated_guest_is_worse_than_metal(lab: Path, tmp_path: Path) -> None:
    words = ["--workload", "document-siege", "--blocks", "6", "--duration-s", "0.3"]
    done = subprocess.run(
        [VMTOLL, "ab", "metal", "kvm-default", *words, "--results", tmp_path, "--junit", tmp_path / "ab.xml", "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "18 trials, about 1 minute, " in done.stderr
    said = json.loads(done.stdout)
    (row,) = said["verdicts"]
    assert (row["baseline"], row["compared"]) == ("metal", "kvm-default")
    assert row["ratio"] < 0.8
    # Other users of the machine can leave it open.
    assert (done.returncode, row["kind"]) in {(1, "slower"), (125, "undecided")}, done.stderr
    assert said["exit"] == done.returncode
    assert ElementTree.parse(tmp_path / "ab.xml").getroot().get("failures") == str(int(done.returncode == 1))
