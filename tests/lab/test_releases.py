"""Two releases in one run, guest against guest without metal, by the shipped experiment."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.the_lab import VMTOLL

pytestmark = [pytest.mark.lab, pytest.mark.long]

OLD, NEW = "kvm-default-release-bookworm", "kvm-default-release-trixie"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the run."""
    results = tmp_path_factory.mktemp("results")
    subprocess.run([VMTOLL, "lab", "up", "--guests", f"{OLD},{NEW}"], check=True)
    subprocess.run([VMTOLL, "run", "releases", "--results", results, "--json"], check=True)
    yield (results / "latest").resolve()
    subprocess.run([VMTOLL, "lab", "down"], check=True)


def test_each_guest_has_its_release_and_what_that_explains_is_declared(run: Path) -> None:
    hosts = json.loads((run / "hosts.json").read_text())
    facts = {host["environment"]: host for host in hosts.values() if host.get("environment")}
    assert {name: facts[name]["release"] for name in (OLD, NEW)} == {OLD: "Debian 12", NEW: "Debian 13"}
    differences = json.loads((run / "run.json").read_text())["differences"]
    of_servers = {"servers: *: version", "servers: *: binary_sha256"}
    assert {"release", "kernel", "packages", *of_servers} <= set(differences["declared"])
    assert [entry["fact"] for entry in differences["undeclared"] if not entry["fact"].startswith("sysctls: ")] == []
    assert (
        f"{NEW} differs from {OLD} by design in release: trixie instead of bookworm"
        in (run / "report.html").read_text()
    )


def test_the_other_servers_are_no_finding_and_the_verdicts_are_judged(run: Path) -> None:
    records = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    codes = Counter(finding["code"] for record in records for finding in record["findings"])
    assert "fingerprint" not in codes
    analysis = json.loads((run / "analysis.json").read_text())
    kinds = {v["kind"] for comparison in analysis["comparisons"] for v in comparison["verdicts"].values()}
    assert kinds - {"not-judged"}
