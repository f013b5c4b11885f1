"""A container of podman beside metal and a guest: found by its host, measured by its control group, gone afterwards."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.conftest import run_there
from tests.lab.faults import once
from tests.lab.records import measure, primary
from tests.lab.the_lab import LAB, VMTOLL, Ssh
from vmtoll.agent.containers import find_container
from vmtoll.agent.machine import read
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.builds import suite
from vmtoll.model.event import Phase
from vmtoll.model.finding import Validity
from vmtoll.model.metric import HOST_CPU
from vmtoll.model.trial import Accelerator
from vmtoll.paths import PROJECT
from vmtoll.report.html import write_report

pytestmark = [pytest.mark.lab, pytest.mark.long]

NAME = "vmtoll-lab-container"
BESIDE, SWITCH = "vmtoll-test-beside", "vmtoll-switch"
EXPERIMENT = PROJECT / "workloads" / "experiments" / "metal-container-guest.yml"


@pytest.fixture(scope="module")
def there() -> Iterator[Ssh]:
    """Bring the topology `containers` up; return a function that runs a command on one of its machines."""
    subprocess.run([VMTOLL, "lab", "up", "--topology", "containers"], check=True, stdin=subprocess.DEVNULL)
    yield run_there(LAB)
    subprocess.run([VMTOLL, "lab", "down"], check=True)
    assert not podman("ps", "--all", "--quiet", "--filter", f"name={NAME}")
    assert not Path("/run/netns/vmtoll-container").exists()


def podman(*words: str) -> str:
    return subprocess.run(["podman", *words], check=True, capture_output=True, text=True).stdout.strip()


def vmtoll(*words: object) -> "subprocess.CompletedProcess[str]":
    argv = [str(VMTOLL), *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_its_control_group_has_what_its_processes_use(there: Ssh) -> None:
    container = find_container(NAME)
    before = container.cpu()
    there("container", "timeout 2 sh -c 'while :; do :; done' || true")
    after = container.cpu()
    assert before["method"] == after["method"] == "cgroup" or after["method"] == "cpuacct"
    assert 1.0 < after["total_s"] - before["total_s"] < 4.0
    programs = {read(f"/proc/{pid}/comm") for pid in container.pids()}
    assert {"systemd", "systemd-journal", "sshd"} <= programs
    assert there("container", "nproc") == "1"


def test_container_against_metal_and_guest(there: Ssh, tmp_path: Path) -> None:
    experiment = tmp_path / EXPERIMENT.name
    experiment.write_text(yaml.safe_dump(yaml.safe_load(EXPERIMENT.read_text()) | {"workloads": ["site-siege"]}))
    folder, records = measure(experiment, LAB / "inventory.yml", tmp_path / "results")
    by_arm = {record.arm.environment: record for record in records if record.validity is not Validity.INVALID}
    assert set(by_arm) == {"metal", "container", "kvm-default"}
    for record in by_arm.values():
        account = primary(record).machine_cpu
        assert account is not None, record.arm
        assert 0 < account.total_s < 4 * (primary(record).duration_s or 0)
    contained = primary(by_arm["container"])
    assert by_arm["container"].accelerator is Accelerator.NONE
    assert contained.server_cpu_s is not None
    assert contained.host_cpu_s is not None
    assert contained.host_cpu_s > 0.9 * contained.server_cpu_s, "the group holds the server"
    run = load_run(folder)
    analysis = analyse(run)
    verdicts = {c.arm.environment: c.verdicts[HOST_CPU.name] for c in analysis.comparisons}
    assert set(verdicts) == {"container", "kvm-default"}
    assert "shows what podman adds to systemd-nspawn" in write_report(run, analysis).read_text()


def test_a_container_that_ends_in_mid_run_is_started_again(there: Ssh, tmp_path: Path) -> None:
    experiment = tmp_path / EXPERIMENT.name
    document = yaml.safe_load(EXPERIMENT.read_text()) | {
        "purpose": "smoke", "environments": ["container"], "workloads": ["site-siege"], "blocks": 2, "warmup_s": 0.5,
        "duration_s": 2.0, "noise_floor": None,
    }  # fmt: skip
    del document["scales"]
    experiment.write_text(yaml.safe_dump(document))
    kill = once(Phase.MEASURING, lambda: podman("kill", NAME))
    _, records = measure(experiment, LAB / "inventory.yml", tmp_path / "results", kill)
    assert any(record.validity is Validity.INVALID for record in records)
    assert {record.block for record in records if record.validity is not Validity.INVALID} == {1, 2}
    assert podman("inspect", "--format", "{{.State.Status}}", NAME) == "running"


def test_a_container_without_the_server_is_refused_and_leaves_nothing(there: Ssh, tmp_path: Path) -> None:
    file = "/etc/vmtoll/servers/nginx.json"
    before = podman("ps", "--all", "--quiet")
    there("container", f"mv {file} /root")
    try:
        done = vmtoll("run", EXPERIMENT.stem, "--results", tmp_path / "results")
    finally:
        there("container", f"mv /root/nginx.json {file}")
    assert done.returncode == 2
    assert "container: server nginx is not provisioned; run vmtoll provision" in done.stderr
    assert podman("ps", "--all", "--quiet") == before
    assert there("container", "ls /run/vmtoll* /tmp/vmtoll-* 2>/dev/null || true") in ("", "/run/vmtoll.lock")


def test_a_container_that_its_host_does_not_run_is_refused(there: Ssh, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text((LAB / "inventory.yml").read_text().replace(NAME, "elsewhere"))
    done = vmtoll("run", EXPERIMENT.stem, "--inventory", inventory, "--scale", "small", "--results", tmp_path)
    assert done.returncode == 2
    assert "container: " in done.stderr
    assert "no container elsewhere of podman or docker runs here; start it, or correct" in done.stderr


@pytest.fixture
def with_host_network(there: Ssh, tmp_path: Path) -> Iterator[Path]:
    """The lab's inventory with a container more, which shares the network of the lab's switch as its host's."""
    lab = yaml.safe_load((LAB / "inventory.yml").read_text())
    beside = {
        "vmtoll_environment": "container-host-network", "ansible_host": "198.18.0.1", "ansible_port": 2222,
        "ansible_user": "root", "vmtoll_cpus": "0", "vmtoll_container_host": "this-machine", "vmtoll_workers": 1,
        "vmtoll_http_port": 8080, "vmtoll_lab": "embedded", "vmtoll_suite": suite.lab_release("").suite,
        "ansible_ssh_private_key_file": str(LAB / "key"),
        "podman_container_known_hosts": f"{tmp_path}/known_hosts", "ansible_ssh_common_args":
            f"-o UserKnownHostsFile={tmp_path}/known_hosts -o IdentitiesOnly=yes "
            f"-o ProxyCommand='nsenter --net=/run/netns/{SWITCH} nc %h %p'",
    }  # fmt: skip
    hosts = lab["all"]["children"]["kvm_hosts"]
    alone = tmp_path / "beside.yml"
    alone.write_text(
        yaml.safe_dump({"all": {"children": {"kvm_hosts": hosts, "containers": {"hosts": {BESIDE: beside}}}}})
    )
    words: list[str | Path] = [
        "nsenter",
        f"--net=/run/netns/{SWITCH}",
        VMTOLL,
        "provision",
        "--inventory",
        alone,
        "--yes",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    try:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
        lab["all"]["children"]["suts"]["children"]["containers"]["hosts"][BESIDE] = beside
        (tmp_path / "both.yml").write_text(yaml.safe_dump(lab))
        yield tmp_path / "both.yml"
    finally:
        words[words.index("provision")] = "unprovision"
        undone = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert undone.returncode == 0, undone.stdout[-3000:] + undone.stderr
        assert not podman("ps", "--all", "--quiet", "--filter", f"name={BESIDE}")


def test_a_container_with_the_hosts_network_is_measured_against_one_on_a_bridge(
    with_host_network: Path, tmp_path: Path
) -> None:
    experiment = tmp_path / "host-network.yml"
    experiment.write_text(yaml.safe_dump({
        "question": "what does the bridge of a container cost?", "purpose": "smoke",
        "environments": ["container", "container-host-network"], "servers": ["nginx"], "workloads": ["site-siege"],
        "blocks": 2, "warmup_s": 0.3, "duration_s": 1.0, "noise_floor": None,
    }))  # fmt: skip
    folder, records = measure(experiment, with_host_network, tmp_path / "results")
    measured = {record.arm.environment for record in records if record.validity is not Validity.INVALID}
    assert measured == {"container", "container-host-network"}
    for record in records:
        assert primary(record).successful == primary(record).requests
        assert (primary(record).host_cpu_us_per_request or 0) > 0
    run = load_run(folder)
    assert run.baseline.environment == "container"
    (comparison,) = analyse(run).comparisons
    assert comparison.arm.environment == "container-host-network"
