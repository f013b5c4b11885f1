"""A QEMU that delays packets, as an environment of a folder: `vmtoll ab` finds it, with two emulated guests."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.the_lab import VMTOLL

pytestmark = [pytest.mark.lab, pytest.mark.long]

DELAY_MS = 4
# libvirt calls the guest's card hostnet0. It starts the same program to ask what it can do, without a card.
WRAPPER = """#!/bin/sh
case "$*" in
    *hostnet0*) exec {qemu} "$@" -object filter-buffer,id=delay,netdev=hostnet0,interval={interval_us} ;;
    *) exec {qemu} "$@" ;;
esac
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose environment `slow-qemu` has the wrapper, and a lab with its guest beside the usual one."""
    folder = tmp_path_factory.mktemp("folder")
    (folder / "lab.yml").write_text("all:\n")
    wrapper = folder / "slow-qemu"
    wrapper.write_text(WRAPPER.format(qemu=shutil.which("qemu-system-x86_64"), interval_us=1000 * DELAY_MS))
    wrapper.chmod(0o755)
    (folder / "environments").mkdir()
    (folder / "environments/slow-qemu.yml").write_text(
        f"description: a QEMU that delays packets\nof: [kvm-default]\nemulator: {wrapper}\n"
    )
    words: list[str | Path] = [VMTOLL, "lab", "up", "--guests", "kvm-default,slow-qemu"]
    subprocess.run(words, check=True, cwd=folder, stdin=subprocess.DEVNULL)
    yield folder
    subprocess.run([VMTOLL, "lab", "down"], check=True, cwd=folder, stdin=subprocess.DEVNULL)


def test_the_delay_is_found_and_named(folder: Path) -> None:
    words = ["--server", "nginx", "--workload", "document-siege", "--blocks", "8", "--duration-s", "0.65", "--json"]
    done = subprocess.run(
        [VMTOLL, "ab", "kvm-default", "slow-qemu", *words],
        capture_output=True, text=True, check=False, cwd=folder, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    rates = {row["metric"]: row for row in answer["verdicts"]}["throughput"]
    assert (rates["baseline"], rates["compared"], rates["kind"]) == ("kvm-default", "slow-qemu", "slower"), done.stderr
    assert done.returncode == 1
    run = (folder / "results/latest").resolve()
    assert "slow-qemu differs from kvm-default by design in emulator" in (run / "report.html").read_text()
