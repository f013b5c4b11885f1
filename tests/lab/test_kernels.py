"""Two kernels of one release, guest against guest without metal, as a user compares them in a folder of their own."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.the_lab import LAB, VMTOLL

pytestmark = [pytest.mark.lab, pytest.mark.long]


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    folder = tmp_path_factory.mktemp("my-lab")
    (folder / "lab.yml").write_text("all: {}\n")
    (folder / "environments").mkdir()
    (folder / "environments/cloud-kernel.yml").write_text(
        "description: kvm-default with the cloud's kernel\nof: [kvm-default]\nkernel: linux-image-cloud-amd64\n"
    )
    subprocess.run([VMTOLL, "lab", "up", "--guests", "kvm-default,cloud-kernel"], check=True, cwd=folder)
    words = ["ab", "kvm-default", "cloud-kernel", "--blocks", "6", "--duration-s", "0.65", "--json"]
    words += ["--inventory", str(LAB / "inventory.yml")]
    done = subprocess.run([VMTOLL, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 125), done.stderr[-3000:]
    yield json.loads(done.stdout)
    subprocess.run([VMTOLL, "lab", "down"], check=True, cwd=folder)


def test_the_machines_differ_in_the_kernel_alone(answer: dict[str, object]) -> None:
    run = Path(str(answer["run"]))
    hosts = json.loads((run / "hosts.json").read_text())
    kernels = {facts["environment"]: facts["kernel"] for facts in hosts.values() if facts.get("environment")}
    assert "cloud" in kernels["cloud-kernel"]
    assert kernels["cloud-kernel"].replace("-cloud", "") == kernels["kvm-default"]
    differences = json.loads((run / "run.json").read_text())["differences"]
    assert "kernel" in differences["declared"]
    assert [entry["fact"] for entry in differences["undeclared"]] == []


def test_the_verdicts_are_judged(answer: dict[str, object]) -> None:
    rows = answer["verdicts"]
    assert isinstance(rows, list) and rows
    assert {row["baseline"] for row in rows} == {"kvm-default"}
    assert all(row["kind"] in {"faster", "slower", "equivalent", "undecided"} for row in rows)
