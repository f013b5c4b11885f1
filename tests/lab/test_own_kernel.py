"""A kernel of one's own, by the path of its file, as an environment of a folder: booted and measured beside another."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.conftest import run_there
from tests.lab.the_lab import LAB, VMTOLL
from vmtoll.builds import image, suite
from vmtoll.shell import say

pytestmark = [pytest.mark.lab, pytest.mark.long]

OWN = "own-kernel"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a kernel and its initial RAM disk, an environment that boots them, and a lab with its guest."""
    folder = tmp_path_factory.mktemp("folder")
    built = image.ensure(say, suite.lab_release(""))
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(built / name, folder / f"my-{name}")
    for name, content in {
        "lab.yml": None,
        f"environments/{OWN}.yml": {
            "description": "a kernel of my own", "of": ["kvm-default"], "kernel": str(folder / "my-vmlinuz"),
            "initrd": str(folder / "my-initrd.img"), "cmdline": ["vmtoll.own=1"],
        },
        "experiments/own.yml": {
            "question": "what does my kernel cost?", "purpose": "smoke", "environments": ["kvm-default", OWN],
            "servers": ["nginx"], "workloads": ["document-siege"], "blocks": 2, "warmup_s": 0.3, "duration_s": 1.0,
        },
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(yaml.safe_dump(content) if content else "all:\n")
    words: list[str | Path] = [VMTOLL, "lab", "up", "--guests", f"kvm-default,{OWN}"]
    subprocess.run(words, check=True, cwd=folder, stdin=subprocess.DEVNULL)
    yield folder
    subprocess.run([VMTOLL, "lab", "down"], check=True, cwd=folder, stdin=subprocess.DEVNULL)


def test_it_boots_and_is_measured_against_the_images(folder: Path) -> None:
    ssh = run_there(LAB)
    assert "vmtoll.own=1" in ssh(OWN, "cat /proc/cmdline")
    done = subprocess.run(
        [VMTOLL, "run", "own", "--json"], capture_output=True, text=True, check=False, cwd=folder,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = (folder / "results/latest").resolve()
    differences = json.loads((run / "run.json").read_text())["differences"]
    assert set(differences["declared"]) <= {"cmdline", "memory_kib"}
    assert differences["undeclared"] == []
    assert f"{OWN} differs from kvm-default by design in" in (run / "report.html").read_text()
