"""Container runtimes of the embedded lab against a plain process: one server on all, measured, gone afterwards."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.records import measure
from tests.lab.the_lab import LAB, VMTOLL
from vmtoll.analysis.run import Run, load_run
from vmtoll.model.trial import MachineKind

pytestmark = [pytest.mark.lab, pytest.mark.long]

EXPERIMENT = """
question: does every runtime of the lab serve the same files?
purpose: smoke
environments: [process, runc, crun, runsc-systrap, runsc-ptrace, runsc-systrap-host-stack]
servers: [nginx, node, ruby]
workloads: [site-siege]
link: unshaped
blocks: 1
warmup_s: 0.2
duration_s: 0.5
noise_floor: null
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Bring the topology `runtimes` up and measure every runtime once; nothing of it is left afterwards."""
    folder = tmp_path_factory.mktemp("runtimes")
    file = folder / "every-runtime.yml"
    file.write_text(EXPERIMENT)
    subprocess.run([VMTOLL, "lab", "up", "--topology", "runtimes"], check=True, stdin=subprocess.DEVNULL)
    path, _ = measure(file, LAB / "inventory.yml", folder)
    yield load_run(path)
    subprocess.run([VMTOLL, "lab", "down"], check=True)
    listing = ["podman", "ps", "--all", "--quiet", "--filter", "label=vmtoll.sandbox"]
    assert subprocess.run(listing, check=True, capture_output=True, text=True).stdout == ""
    assert not list(Path("/sys/fs/cgroup").glob("*/vmtoll-process"))
    assert not Path("/run/netns/vmtoll-runc").exists()


def test_every_runtime_serves_every_server(run: Run) -> None:
    failed = {str(trial.arm): trial.findings for trial in run.trials if not trial.measurements}
    assert failed == {}
    assert {trial.counts.bodies_wrong for trial in run.trials} == {0}
    assert len(run.trials) == 18


def test_kinds_are_declared_and_facts_agree(run: Run) -> None:
    kinds = {arm.environment: run.kind(arm) for arm in run.arms}
    assert kinds.pop("process") is MachineKind.PROCESS
    assert set(kinds.values()) == {MachineKind.CONTAINER}
    assert run.manifest.differences.undeclared == []


def test_cpu_is_of_control_groups_and_tcp_only_where_the_host_serves_it(run: Run) -> None:
    for trial in run.trials:
        measured = trial.measurements[0]
        assert measured.server_cpu_us_per_request
        assert measured.background_cpu_pct is not None
        is_own_stack = trial.arm.environment in ("runsc-systrap", "runsc-ptrace")
        assert (measured.retransmitted_segments is None) == is_own_stack


def test_the_record_has_what_started_each_server(run: Run) -> None:
    hosts = json.loads((run.path / "hosts.json").read_text())
    for name in ("runc", "crun", "runsc-systrap"):
        record = hosts[name]["runtime"]
        assert record["version"]
        assert record["seccomp"].endswith("seccomp.json")
        assert record["commands"]["nginx"].startswith("podman --runtime=")
    assert hosts["process"]["runtime"]["commands"]["node"].endswith("application.js'")


def test_preflight_starts_each_runtime(run: Run) -> None:
    done = subprocess.run(
        [VMTOLL, "preflight", "-i", LAB / "inventory.yml"], capture_output=True, text=True, check=False
    )
    assert done.stdout.count("starts containers on this kernel") == 5
    assert "was not started by systemd" not in done.stdout
