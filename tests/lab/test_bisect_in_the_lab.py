"""In the embedded lab: `vmtoll bisect` over 64 commits of lighttz on metal, one of which adds 20 µs to each request."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.lab.the_lab import VMTOLL, Ssh
from tests.support.history import BUILD, lighttz_history
from vmtoll.agent.applied import NOTE

pytestmark = [pytest.mark.lab, pytest.mark.guest_minutes]

BINARY = "/usr/local/sbin/lighttz"


def test_the_commit_is_found_on_metal(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """Built here, copied to metal by the build command, installed there before each trial, restored at the end."""
    commits = lighttz_history(tmp_path / "repo", 64, {37: 20})
    before = ssh("metal", f"sha256sum {BINARY}")
    ssh("metal", f"mkdir -p /var/tmp/bisect && cp {BINARY} /var/tmp/bisect/before")
    try:
        done = subprocess.run(
            [
                VMTOLL, "bisect", "--git", tmp_path / "repo", "--good", commits[0], "--bad", "main", "--build",
                f"{BUILD} && scp -q -F {lab}/ssh_config build/lighttz metal:/var/tmp/bisect/{{candidate}}",
                "--apply", f"install -m 755 /var/tmp/bisect/{{candidate}} {BINARY}",
                "--revert", f"install -m 755 /var/tmp/bisect/before {BINARY}",
                "--server", "lighttz", "--workload", "site-steady-2000", "--metric", "cpu", "--blocks", "6",
                "--duration-s", "1", "--until", "1,10", "--results", tmp_path / "results", "--json",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        content = json.loads(done.stdout)
        assert (content["suspects"], content["confirmed"]) == ([commits[37]], True)
        assert ssh("metal", f"sha256sum {BINARY}") == before
        assert ssh("metal", f"ls /{NOTE} 2>/dev/null || echo gone") == "gone"
    finally:
        ssh("metal", "rm -rf /var/tmp/bisect")
