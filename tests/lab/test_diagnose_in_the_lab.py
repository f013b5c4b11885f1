"""`vmtoll diagnose` on the lab's own guest, whose profile is known."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.lab.the_lab import LAB, VMTOLL

pytestmark = pytest.mark.lab


def test_the_guest_of_kvm_default_lacks_what_its_profile_lacks(lab: Path) -> None:
    """The lab gives its guests disks of the cache mode `unsafe`, which is none of the profile's."""
    words: list[str | Path] = [VMTOLL, "diagnose", "kvm", "--inventory", LAB / "inventory.yml", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    states = {step["tuning"]: step["state"] for step in answer["steps"]}
    assert answer["running"] is True
    assert {name: states[name] for name in ("cpu-model", "card", "disk-bus", "cache", "huge-pages")} == {
        "cpu-model": "taken", "card": "taken", "disk-bus": "taken", "cache": "lacking", "huge-pages": "lacking"
    }  # fmt: skip
