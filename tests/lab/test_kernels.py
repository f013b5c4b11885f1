"""Two kernels of one release, guest against guest without metal, by the shipped experiment."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.the_lab import VMTOLL

pytestmark = [pytest.mark.lab, pytest.mark.long]

GENERIC, CLOUD = "kvm-default", "kvm-default-kernel-cloud-amd64"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the run."""
    results = tmp_path_factory.mktemp("results")
    subprocess.run([VMTOLL, "lab", "up", "--guests", f"{GENERIC},{CLOUD}"], check=True)
    subprocess.run([VMTOLL, "run", "kernels", "--results", results, "--json"], check=True)
    yield (results / "latest").resolve()
    subprocess.run([VMTOLL, "lab", "down"], check=True)


def test_the_machines_differ_in_the_kernel_alone_and_the_page_says_so(run: Path) -> None:
    hosts = json.loads((run / "hosts.json").read_text())
    kernels = {facts["environment"]: facts["kernel"] for facts in hosts.values() if facts.get("environment")}
    assert "cloud" in kernels[CLOUD]
    assert kernels[CLOUD].replace("-cloud", "") == kernels[GENERIC]
    differences = json.loads((run / "run.json").read_text())["differences"]
    assert set(differences["declared"]) <= {"cmdline", "kernel", "mitigations", "memory_kib"}
    assert "kernel" in differences["declared"]
    assert differences["undeclared"] == []
    page = (run / "report.html").read_text()
    assert f"{CLOUD} differs from {GENERIC} by design in kernel: linux-image-cloud-amd64" in page
    assert "No undeclared difference" in page


def test_the_verdicts_are_judged(run: Path) -> None:
    analysis = json.loads((run / "analysis.json").read_text())
    assert len(analysis["comparisons"]) == 2
    judged = dict[str, dict[str, str]]()
    for comparison in analysis["comparisons"]:
        assert (comparison["baseline"]["environment"], comparison["arm"]["environment"]) == (GENERIC, CLOUD)
        kinds = {name: verdict["kind"] for name, verdict in comparison["verdicts"].items()}
        judged[comparison["scenario"]["workload"]] = {
            name: kind for name, kind in kinds.items() if kind != "not-judged"
        }
    # A share of the capacity has none beside much other work, which hides the capacity.
    assert judged["document-siege"]
