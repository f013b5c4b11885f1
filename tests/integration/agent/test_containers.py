"""A real container of podman on this machine: found by name, its control group read while it works."""

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmtoll.agent.containers import Container, engine_of, find_container
from vmtoll.agent.service import find

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes such containers")

# Works for 1 s of CPU time in a child process, tells, and waits.
WORK = "timeout 1 sh -c 'while :; do :; done'; touch /tmp/worked; exec sleep 600"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty root filesystem that has this machine's /usr."""
    folder = tmp_path_factory.mktemp("container") / "root"
    for name in ("usr", "tmp", "proc", "sys", "dev", "etc"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    return folder


@pytest.fixture
def name(root: Path) -> Iterator[str]:
    """The name of a container with a control group of its own."""
    name, files = f"vmtoll-test-{os.getpid()}", resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    (root / "tmp" / "worked").unlink(missing_ok=True)
    options = [
        f"--ulimit=nofile={files}:{files}",
        "--ulimit=nproc=4096:4096",
        "--network=none",
        "--volume=/usr:/usr:ro",
    ]
    argv = [
        "podman",
        "--runtime=runc",
        "run",
        "--detach",
        "--name",
        name,
        *options,
        "--rootfs",
        str(root),
        "sh",
        "-c",
        WORK,
    ]
    try:
        subprocess.run(argv, check=True, capture_output=True)
        yield name
    finally:
        subprocess.run(["podman", "rm", "--force", "--time", "0", name], check=True, capture_output=True)


def test_its_cpu_time_is_that_of_all_its_processes(name: str, root: Path) -> None:
    container = find_container(name)
    deadline = time.monotonic() + 60
    while not (root / "tmp" / "worked").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    times = container.cpu()
    assert 0.1 < times["total_s"] < 2.0
    assert times["method"] in ("cgroup", "cpuacct")
    assert container.pids() == [container.pid]
    by_processes = Container(container.pid, "no-such-group").cpu()
    assert by_processes["method"] == "cpu-clock"
    assert by_processes["total_s"] == pytest.approx(times["total_s"], abs=0.3)
    assert container.usage()["cpus"] > 0
    assert find("container", name).cpu([])["total_s"] >= times["total_s"]
    assert container.runs
    subprocess.run(["podman", "kill", name], check=True, capture_output=True)
    while container.runs:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with pytest.raises(RuntimeError, match=f"no container {name} of podman or docker runs here"):
        find_container(name)
    assert engine_of(name) == "podman", "which can start it again"


def test_a_container_that_is_found_again_is_the_same(name: str) -> None:
    first, second = find_container(name), find_container(name)
    assert isinstance(first, Container)
    assert (first.pid, first.identity) == (second.pid, second.identity)
