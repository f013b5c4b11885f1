"""Servers that this machine's Docker runs, where it has no podman: by a daemon of the test's own, with its own storage
and its own bridge.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.root_filesystem import make
from vmtoll.agent.docker import ROOTFS_LABEL
from vmtoll.builds import tools
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host
from vmtoll.spec.runtimes import load

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root runs dockerd"),
    pytest.mark.skipif(not (shutil.which("dockerd") and shutil.which("docker")), reason="no Docker here"),
]

BRIDGE, GATEWAY = f"tolld{os.getpid()}"[:15], "198.18.11.1"
CPU = max(os.sched_getaffinity(0))
PAGE = "srv/vmtoll/sites/pages/page.html"
Open = Callable[..., AgentLine]


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory, port: int) -> Path:
    return make(tmp_path_factory.mktemp("docker") / "root", port)


@pytest.fixture(scope="module")
def without_podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """PATH without podman."""
    folder = tmp_path_factory.mktemp("bin")
    for place in os.environ["PATH"].split(":"):
        for file in Path(place).glob("*"):
            if file.name != "podman" and not (folder / file.name).is_symlink():
                (folder / file.name).symlink_to(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder))
        yield


@pytest.fixture(scope="module")
def dockerd(without_podman: None) -> Iterator[None]:
    """A daemon with runc, and gVisor (systrap) as `gvisor`."""
    runsc = {"path": str(tools.runtime("runsc")), "runtimeArgs": ["--platform", "systrap"]}
    folder = Path(tempfile.mkdtemp(prefix="tolld", dir="/tmp"))  # a socket's path is short
    (folder / "daemon.json").write_text(json.dumps({"runtimes": {"gvisor": runsc}}))
    subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], check=True)
    subprocess.run(["ip", "address", "add", f"{GATEWAY}/24", "dev", BRIDGE], check=True)
    subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)
    argv = [
        "dockerd", f"--config-file={folder}/daemon.json", f"--data-root={folder}/data", f"--exec-root={folder}/exec",
        f"--pidfile={folder}/pid", f"--host=unix://{folder}/sock", f"--bridge={BRIDGE}", "--iptables=false",
        "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--storage-driver=vfs",
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, (folder / "log").open("w") as log:
        patch.setenv("DOCKER_HOST", f"unix://{folder}/sock")
        daemon = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            for _ in range(300):
                if subprocess.run(["docker", "info"], check=False, capture_output=True).returncode == 0:
                    break
                assert daemon.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
            yield
        finally:
            daemon.terminate()
            daemon.wait(30)
            subprocess.run(["ip", "link", "delete", BRIDGE], check=False)
            mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
            for mount in (mount for mount in reversed(mounts) if mount.startswith(f"{folder}/")):
                subprocess.run(["umount", mount], check=False)
            shutil.rmtree(folder)


@pytest.fixture
def opened(dockerd: None, rootfs: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens lines to agents; each has its own folder."""
    lines: list[AgentLine] = []

    def open_line(name: str, **variables: Any) -> AgentLine:
        given = {
            "runtime": name, "container_host": "here", "rootfs": str(rootfs), "cpus": str(CPU), "memory_mib": 512,
            "network": "bridge", "address": "127.0.0.1", "root": str(tmp_path / name), **variables,
        }  # fmt: skip
        if name.startswith("runsc"):
            given.setdefault("runtime_path", str(tools.runtime("runsc")))
        carrier = Host("here", "kvm_host", {"ansible_connection": "local"})
        host_variables = {f"vmtoll_{key}": value for key, value in given.items()}
        host = Host(f"test-{name}", "container", host_variables, runtime=load(name), carrier=carrier)
        lines.append(AgentLine(host))
        lines[-1].open()
        return lines[-1]

    yield open_line
    for line in lines:
        line.close()
    assert docker("ps", "--all", "--quiet") == ""


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout.strip()


def page(port: int) -> bytes:
    """The page, as a client gets it."""
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/pages/page.html", timeout=5) as answer:
                body: bytes = answer.read()
                return body
        except OSError:
            time.sleep(0.1)
    raise AssertionError("no answer")


@pytest.mark.parametrize(
    ("runtime", "network", "name"),
    [("runc", "host", "runc"), ("runc", "bridge", "runc"), ("runsc-systrap", "bridge", "gvisor")],
)
def test_a_server_serves_the_files_of_the_root_file_system(
    opened: Open, rootfs: Path, port: int, runtime: str, network: str, name: str
) -> None:
    line = opened(runtime, network=network)
    facts = line.call("facts", 180, site="pages")
    assert f"--runtime={name} " in facts["runtime"]["commands"]["nginx"]
    assert facts["runtime"]["commands"]["nginx"].startswith("docker run ")
    assert facts["runtime"]["image_digest"].startswith("sha256:")
    assert line.call("sandbox_works", 90)
    started = line.call("server_start", 90, name="nginx")
    assert page(port) == (rootfs / PAGE).read_bytes()
    assert started["binary_sha256"] == facts["servers"]["nginx"]["binary_sha256"]
    assert started["cores"] == 1
    assert line.call("changed")["servers"] == [f"vmtoll-test-{runtime}"]
    before = line.call("usage", server="nginx")["server"]
    for _ in range(200):
        page(port)
    after = line.call("usage", server="nginx")["server"]
    assert after["method"] in ("cgroup", "cpuacct")
    assert after["processes"] >= 2
    assert after["total_s"] - before["total_s"] > 0.002
    docker("kill", f"vmtoll-test-{runtime}")
    time.sleep(0.5)
    with pytest.raises(AgentError, match="nginx has ended"):
        line.call("server_check", name="nginx")
    line.call("server_stop", 60, name="nginx")
    assert line.call("changed")["servers"] == []


def images() -> list[str]:
    return docker("image", "ls", "--quiet", f"--filter=label={ROOTFS_LABEL}").split()


def test_the_image_is_that_of_the_folder_as_it_is_now(opened: Open, rootfs: Path, port: int) -> None:
    line = opened("runc")
    line.call("server_start", 90, name="nginx")
    before = images()
    line.call("server_stop", 60, name="nginx")
    (rootfs / "etc/nginx.conf").write_text((rootfs / "etc/nginx.conf").read_text().replace("root /srv", "root  /srv"))
    again = opened("runc")
    again.call("server_start", 90, name="nginx")
    assert len(before) == len(images()) == 1
    assert images() != before
    assert page(port) == (rootfs / PAGE).read_bytes()
    inside = docker(
        "exec", "vmtoll-test-runc", "/bin/sh", "-c", 'while read -r line; do echo "$line"; done </etc/nginx.conf'
    )
    assert "root  /srv" in inside


@pytest.mark.parametrize(
    ("runtime", "variables", "words"),
    [
        (
            "runsc-systrap-host-stack",
            {},
            r'platform=systrap network=host; write "runtimes": {"runsc-.*-platform-systrap-network-host": {"path": "/',
        ),
        (
            "runc",
            {"image": f"localhost/x@sha256:{'0' * 64}", "rootfs": None},
            "Docker does not show the files of an image",
        ),
        ("runc", {"runtime_path": "/nowhere/runc"}, "container runtime /nowhere/runc is not here"),
    ],
)
def test_what_docker_does_not_do(opened: Open, runtime: str, variables: dict[str, Any], words: str) -> None:
    with pytest.raises(AgentError, match=words) as caught:
        opened(runtime, **variables).call("facts", 90, site="pages")
    assert "\n" not in str(caught.value)


def test_a_user_namespace_is_dockerds(opened: Open) -> None:
    with pytest.raises(AgentError, match="leave user_namespace out"):
        opened("runc").call("server_start", 90, name="nginx", isolation={"user_namespace": True})


def test_a_container_of_somebody_else_with_the_name(opened: Open) -> None:
    line = opened("runc")
    line.call("facts", 90, site="pages")
    docker("create", "--name=vmtoll-test-runc", images()[0], "/bin/true")
    try:
        with pytest.raises(AgentError, match="docker has a container vmtoll-test-runc here that vmtoll did not make"):
            line.call("server_start", 90, name="nginx")
        assert docker("inspect", "--format", "{{.State.Status}}", "vmtoll-test-runc") == "created"
    finally:
        docker("rm", "vmtoll-test-runc")
