"""Servers in container runtimes on this machine, and as plain processes: started, counted, and gone afterwards.

The runtimes are real; their network is a namespace of the test's own.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import small_disk
from tests.support.root_filesystem import make
from vmtoll.agent.protocol import Reading
from vmtoll.agent.sandboxes import group_folders
from vmtoll.builds import tools
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host
from vmtoll.spec.runtimes import load
from vmtoll.trial.background_cpu import background_cpu

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes containers and network namespaces")

PORT, ADDRESS, SWITCH = 8391, "198.18.9.2", "198.18.9.1"
NAMESPACE = f"toll-test-{os.getpid()}"
CPU = max(os.sched_getaffinity(0))
RUNTIMES = ("process", "runc", "runsc-systrap")
# Opens the line to the agent of an environment: by the name of its runtime, and what the inventory says else.
Open = Callable[..., AgentLine]


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    """A network namespace with an address that this machine reaches."""
    commands = (
        f"netns add {NAMESPACE}", f"-n {NAMESPACE} link set lo up",
        f"link add toll{os.getpid()} type veth peer name eth0 netns {NAMESPACE}",
        f"addr add {SWITCH}/24 dev toll{os.getpid()}", f"link set toll{os.getpid()} up",
        f"-n {NAMESPACE} link set eth0 up",
    )  # fmt: skip
    try:
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True)
        yield
    finally:
        subprocess.run(["ip", "netns", "delete", NAMESPACE], check=False)


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("sandbox") / "root", PORT)


@pytest.fixture
def opened(network: None, rootfs: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens lines to agents; each has its own folder."""
    lines: list[AgentLine] = []

    def open_line(name: str, **variables: Any) -> AgentLine:
        given = {
            "runtime": name, "container_host": "here", "rootfs": str(rootfs), "cpus": str(CPU), "memory_mib": 512,
            "network": "namespace", "network_namespace": NAMESPACE, "address": ADDRESS, "prefix": 24,
            "root": str(tmp_path / name), **variables,
        }  # fmt: skip
        if name.startswith("runsc"):
            given.setdefault("runtime_path", str(tools.runtime("runsc")))
        carrier = Host("here", "kvm_host", {"ansible_connection": "local"})
        host_variables = {f"vmtoll_{key}": value for key, value in given.items()}
        host = Host(f"test{os.getpid()}-{name}", "container", host_variables, runtime=load(name), carrier=carrier)
        lines.append(AgentLine(host))
        lines[-1].open()
        return lines[-1]

    yield open_line
    for line in lines:
        line.close()
    assert containers() == ""


def containers() -> str:
    """The test's containers, of whatever state."""
    argv = ["podman", "ps", "--all", "--quiet", "--filter", f"name=vmtoll-test{os.getpid()}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def page() -> bytes:
    """The page, as a client gets it."""
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"http://{ADDRESS}:{PORT}/pages/page.html", timeout=5) as answer:
                body: bytes = answer.read()
                return body
        except OSError:
            time.sleep(0.1)
    raise AssertionError("no answer")


def readings(line: AgentLine, server: str, seconds: float = 2.0) -> tuple[Reading, Reading]:
    before: Reading = line.call("usage", server=server)
    time.sleep(seconds)
    return before, line.call("usage", server=server)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_server_serves_the_files_of_the_root_file_system(opened: Open, rootfs: Path, runtime: str) -> None:
    line = opened(runtime)
    facts = line.call("facts", 120, site="pages")
    started = line.call("server_start", 90, name="nginx")
    assert page() == (rootfs / "srv/vmtoll/sites/pages/page.html").read_bytes()
    assert started["binary_sha256"] == facts["servers"]["nginx"]["binary_sha256"]
    assert started["cores"] == 1
    assert facts["runtime"]["runtime"] == runtime.partition("-")[0]
    assert "/usr/sbin/nginx -c /etc/nginx.conf" in facts["runtime"]["commands"]["nginx"]
    assert line.call("changed")["servers"] == [f"vmtoll-test{os.getpid()}-{runtime}"]
    line.call("server_stop", 60, name="nginx")
    assert line.call("changed")["servers"] == []


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_measured_start_notes_what_the_runtime_took(opened: Open, runtime: str) -> None:
    line = opened(runtime)
    start_at_s = time.time() + 0.3
    started = line.call("sandbox_start", 90, name="nginx", start_at_s=start_at_s)
    page()
    assert started["started_at"] >= start_at_s
    calls, end_s = started["calls"], started["started_at"] + started["wall_s"]
    assert all(started["started_at"] < begin < end < end_s for begin, end in calls)
    assert bool(calls) == (runtime != "process")
    assert sum(end - begin for begin, end in calls) < started["wall_s"]
    line.call("server_stop", 60, name="nginx")
    line.call("server_start", 90, name="nginx")
    assert "vmtoll-timed" not in str(runtime_of_container(runtime))
    line.call("server_stop", 60, name="nginx")


def runtime_of_container(runtime: str) -> str:
    """The program that podman has as the runtime of a test's container."""
    argv = ["podman", "inspect", "--format", "{{.OCIRuntime}}", f"vmtoll-test{os.getpid()}-{runtime}"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_busy_process_inside_is_the_servers_and_one_beside_is_background(opened: Open, runtime: str) -> None:
    line = opened(runtime)
    line.call("server_start", 90, name="busy")
    page()
    before, after = readings(line, "busy")
    wall_s = after["survey"]["time_s"] - before["survey"]["time_s"]
    server_s = after["server"]["total_s"] - before["server"]["total_s"]
    idle_s = after["survey"]["idle_s"][str(CPU)] - before["survey"]["idle_s"][str(CPU)]
    inside = background_cpu(before["survey"], after["survey"], 1 << CPU)
    # What the machine counts as busy is the server's, and what others on this machine used meanwhile.
    assert server_s + inside.spent_s == pytest.approx(wall_s - idle_s, rel=0.05)
    line.call("server_stop", 60, name="busy")
    line.call("server_start", 90, name="nginx")
    page()
    busy = f"taskset -c {CPU} sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $!"
    beside = subprocess.run(["sh", "-c", busy], capture_output=True, text=True, check=True).stdout.strip()
    try:
        before, after = readings(line, "nginx")
    finally:
        os.kill(int(beside), signal.SIGKILL)
    background = background_cpu(before["survey"], after["survey"], 1 << CPU)
    spent_s = after["survey"]["processes"][beside][1] - before["survey"]["processes"].get(beside, ("", 0.0))[1]
    assert background.spent_s > 0.9 * spent_s > 0.2


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_the_kernel_of_the_host_does_not_serve_is_not_visible(opened: Open, runtime: str) -> None:
    line = opened(runtime)
    started = line.call("server_start", 90, name="nginx")
    page()
    before, after = readings(line, "nginx", 0.1)
    assert after["server"]["processes"] >= 2
    assert after["server"]["pss_kib"] > 1000
    assert after["server"]["method"] in ("cgroup", "cpuacct")
    is_visible = runtime != "runsc-systrap"
    assert (
        bool(started["sysctls"])
        == started["answers"]
        == bool(after["network"])
        == bool(before["network"])
        == is_visible
    )


def test_a_passed_through_stack_is_counted_by_the_host(opened: Open) -> None:
    line = opened("runsc-systrap-host-stack")
    line.call("server_start", 90, name="nginx")
    page()
    before, _ = readings(line, "nginx", 0.1)
    for _ in range(20):
        page()
    assert line.call("usage", server="nginx")["network"]["OutSegs"] > before["network"]["OutSegs"] + 20


def test_a_part_of_the_isolation_is_replaced_for_one_start(opened: Open) -> None:
    line = opened("runc")
    for isolation, filters in (({"seccomp": False}, "0"), ({"content": "overlay"}, "2"), ({}, "2")):
        line.call("server_start", 90, name="nginx", isolation=isolation)
        page()
        pid = podman("inspect", "--format", "{{.State.Pid}}", f"vmtoll-test{os.getpid()}-runc")
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"Seccomp:\t{filters}" in status
        line.call("server_stop", 60, name="nginx")


def podman(*words: str) -> str:
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=True).stdout.strip()


def refusal(line: AgentLine, op: str = "server_start", **args: Any) -> str:
    """Why the agent does not start a server: one sentence."""
    with pytest.raises(AgentError) as caught:
        line.call(op, 90, **(args or ({"name": "nginx"} if op == "server_start" else {})))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_runtime(opened: Open) -> None:
    assert "container runtime /nowhere/runc is not here" in refusal(opened("runc", runtime_path="/nowhere/runc"))
    assert "container runtime kata is not here; install it" in refusal(opened("kata"))


def test_a_platform_may_not_work_on_this_machine(opened: Open) -> None:
    line = opened("runsc-kvm")
    try:
        assert "runsc" in line.call("sandbox_works", 90)
    except AgentError as error:
        assert "with platform kvm does not start a container on kernel" in str(error)


def test_a_runtime_that_is_too_old_for_its_platform(opened: Open, tmp_path: Path) -> None:
    old = tmp_path / "runsc"
    old.write_text("#!/bin/sh\n[ \"$1\" != --version ] || { echo runsc version release-20221107; exit; }\n"
                   "echo 'invalid platform type systrap' >&2; exit 128\n")  # fmt: skip
    old.chmod(0o755)
    sentence = refusal(opened("runsc-systrap", runtime_path=str(old)), "sandbox_works")
    assert "runsc version release-20221107 with platform systrap does not start a container on kernel" in sentence


def test_a_missing_image(opened: Open) -> None:
    assert "podman has no image localhost/nothing@sha256" in refusal(
        opened("runc", image=f"localhost/nothing@sha256:{'0' * 64}", rootfs=None)
    )


def test_a_port_that_is_taken(opened: Open) -> None:
    listener = f"import socket; s = socket.create_server(('0.0.0.0', {PORT})); s.accept(); input()"
    with subprocess.Popen(
        ["ip", "netns", "exec", NAMESPACE, shutil.which("python3") or "python3", "-c", listener], stdin=subprocess.PIPE
    ) as other:
        try:
            time.sleep(0.5)
            assert f"port {PORT} is already in use before nginx is started" in refusal(opened("runc"))
        finally:
            other.kill()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_server_that_is_killed_in_mid_trial(opened: Open, runtime: str) -> None:
    line = opened(runtime)
    line.call("server_start", 90, name="nginx")
    page()
    if runtime == "process":
        for pid in (group_folders(f"vmtoll-test{os.getpid()}-process")[0] / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    else:
        podman("kill", "--signal", "KILL", f"vmtoll-test{os.getpid()}-{runtime}")
    time.sleep(0.5)
    assert "nginx has ended" in refusal(line, "server_check", name="nginx")
    line.call("server_stop", 60, name="nginx")
    assert line.call("changed")["servers"] == []


def test_a_server_that_a_killed_run_has_left(opened: Open) -> None:
    for runtime in ("process", "runc"):
        line = opened(runtime)
        line.call("server_start", 90, name="nginx")
        page()
        agent = line.call("hello", root=line.host.root, sandbox=line.host.sandbox)["pid"]
        os.kill(agent, signal.SIGKILL)
        time.sleep(0.5)
        again = opened(runtime)
        assert again.call("changed")["servers"] == [f"vmtoll-test{os.getpid()}-{runtime}"]
        again.call("end_left", 60)
        assert again.call("changed")["servers"] == []


def test_a_container_of_somebody_else_with_the_name(opened: Open, rootfs: Path) -> None:
    name, files = f"vmtoll-test{os.getpid()}-runc", "--ulimit=nofile=1024:1024"
    podman("--runtime=runc", "create", f"--name={name}", files, "--network=none", "--rootfs", str(rootfs), "/bin/true")
    try:
        assert f"podman has a container {name} here that vmtoll did not make" in refusal(opened("runc"))
        assert podman("inspect", "--format", "{{.State.Status}}", name) == "created"
    finally:
        podman("rm", name)


def test_a_full_storage_of_podman(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "storage"
    with small_disk.mounted(disk, 4):
        (tmp_path / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{disk}/graph"\nrunroot = "{disk}/run"\n'
        )
        monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "storage.conf"))
        line = opened("runc")
        small_disk.fill(disk)
        assert "podman's storage on this machine is full" in refusal(line)
        monkeypatch.delenv("CONTAINERS_STORAGE_CONF")


def test_rootless_podman(opened: Open, tmp_path: Path) -> None:
    line = opened("runc")
    line.close()
    code = (
        "import os\nfrom pathlib import Path\nfrom vmtoll.agent.sandboxes import Sandbox\nos.setuid(65534)\n"
        f"Sandbox({line.host.sandbox!r}, Path('/nowhere')).call('ps')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "podman is rootless here" in done.stderr
