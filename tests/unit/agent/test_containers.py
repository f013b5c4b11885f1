"""Where a container's control group is, by each version of control groups."""

import os
import subprocess

import pytest

from vmtoll.agent import containers

IDENTITY = "1f" * 32
GROUPS = {
    # podman on cgroup v2: its first process has gone into a group of its own below the container's.
    f"0::/machine.slice/libpod-{IDENTITY}.scope/container/init.scope": {
        f"/sys/fs/cgroup/machine.slice/libpod-{IDENTITY}.scope/cpu.stat": "usage_usec 3000000\nuser_usec 2000000\n"
        "system_usec 1000000"
    },
    f"4:memory:/docker/{IDENTITY}\n2:cpu,cpuacct:/docker/{IDENTITY}/system.slice": {
        f"/sys/fs/cgroup/cpuacct/docker/{IDENTITY}/cpuacct.usage": "3000000000",
        f"/sys/fs/cgroup/cpuacct/docker/{IDENTITY}/cpuacct.usage_user": "2000000000",
        f"/sys/fs/cgroup/cpuacct/docker/{IDENTITY}/cpuacct.usage_sys": "1000000000",
    },
}


@pytest.mark.parametrize(("group", "files"), GROUPS.items())
def test_the_whole_group_is_read(group: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"/proc/7/cgroup": group, **files}
    monkeypatch.setattr(containers, "read", lambda path: contents.get(path, ""))
    times = containers.Container("7", IDENTITY).cpu()
    assert (times["total_s"], times["user_s"], times["system_s"]) == (3.0, 2.0, 1.0)
    assert times["method"] == ("cgroup" if "0::" in group else "cpuacct")


def test_without_a_group_of_its_own_the_processes_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that was told `--cgroups=disabled`; this process stands for the container."""
    pid = str(os.getpid())
    monkeypatch.setattr(containers, "all_pids", lambda: [pid])
    times = containers.Container(pid, IDENTITY).cpu()
    assert times["method"] == "cpu-clock"
    assert times["total_s"] > 0


def test_a_container_that_does_not_run_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def engine(argv: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        if argv[0] == "docker":
            raise FileNotFoundError(argv[0])
        return subprocess.CompletedProcess(argv, 0, '[{"Id": "1f", "State": {"Pid": 0}}]', "")

    monkeypatch.setattr(subprocess, "run", engine)
    with pytest.raises(RuntimeError, match=r"^no container box of podman or docker runs here; start it, or correct"):
        containers.find_container("box")


def test_a_container_that_is_off_is_started_by_the_engine_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def engine(argv: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(argv, 0, '[{"Id": "1f"}]' if argv[0] == "docker" else "[]", "")

    monkeypatch.setattr(subprocess, "run", engine)
    assert containers.engine_of("box") == "docker"
    with pytest.raises(RuntimeError, match=r"^there is no container box of podman here; make it, or correct its name$"):
        containers.engine_of("box", ["podman"])
