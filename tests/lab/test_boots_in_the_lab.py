"""Several boots by default in the embedded lab: its containers and its guest restart, and this machine does not."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.the_lab import VMTOLL
from vmtoll.agent.machine import read
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.report.words import headline
from vmtoll.runner.plan import restart_s

pytestmark = [pytest.mark.lab, pytest.mark.long]

EXPERIMENT = {
    "question": "does a run at full scale restart the lab's machines?",
    "environments": ["metal", "container", "kvm-default"], "servers": ["nginx"], "workloads": ["site-siege"],
    "noise_floor": None, "warmup_s": 0.5, "duration_s": 1.0, "scales": {"full": {"blocks": 8}, "small": {"blocks": 8}},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the experiment, while the lab with a container is up."""
    subprocess.run([VMTOLL, "lab", "up", "--topology", "containers"], check=True, stdin=subprocess.DEVNULL)
    work = tmp_path_factory.mktemp("boots")
    (work / "experiments").mkdir()
    (work / "lab.yml").write_text("all: {}\n")
    (work / "experiments" / "restarts.yml").write_text(yaml.safe_dump(EXPERIMENT))
    yield work
    subprocess.run([VMTOLL, "lab", "down"], check=True)


def vmtoll(folder: Path, *words: str) -> str:
    argv = [str(VMTOLL), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=folder, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_full_scale_restarts_guest_and_containers_between_boots(folder: Path) -> None:
    boot_id = read("/proc/sys/kernel/random/boot_id")
    words = ("run", "restarts", "--scale", "full")
    assert "4 boots: 3 restarts of guest and container (the host is not rebooted), " in vmtoll(
        folder, *words, "--dry-run"
    )
    answer = json.loads(vmtoll(folder, *words, "--json"))
    assert read("/proc/sys/kernel/random/boot_id") == boot_id
    run = load_run(next((folder / "results" / "restarts").glob("2*")))
    assert (run.manifest.experiment.boots, run.manifest.one_boot) == (4, None), answer
    assert sorted({(record.block, record.boot) for record in run.records}) == [
        (block, (block + 1) // 2) for block in range(1, 9)
    ]
    assert {str(record.arm) for record in run.records} == {"metal", "container", "kvm-default"}
    assert "4 boots (restarts of guest and container; the host was not rebooted)" in headline(analyse(run)).basis
    took_s = restart_s(run.records)
    assert took_s is not None
    assert 1 < took_s < 600
    again = json.loads(vmtoll(folder, *words, "--dry-run", "--json"))
    assert again["boots"]["restart_s"] == pytest.approx(took_s)


def test_small_scale_restarts_nothing(folder: Path) -> None:
    assert json.loads(vmtoll(folder, "run", "restarts", "--dry-run", "--json"))["boots"] == {
        "count": 1, "restarts": 0, "restart_s": None, "why_one": None,
    }  # fmt: skip
