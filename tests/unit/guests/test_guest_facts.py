"""What the script that runs on the KVM host reads of its files, on trees of our own making."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from vmtoll.agent import kvm_host


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, beside kvm_host as on the host."""
    monkeypatch.setitem(sys.modules, "kvm_host", kvm_host)
    return import_module("vmtoll.guests.diagnosis.guest_facts")


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_cores_and_nodes(script: ModuleType, tmp_path: Path) -> None:
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    cpus = {f"cpu{n}/topology/thread_siblings_list": f"{text}\n" for n, text in siblings.items()}
    assert script.cores(written(tmp_path / "cpu", cpus)) == {"0": 0, "1": 1, "2": 0, "3": 1}
    nodes = written(tmp_path / "node", {"node0/cpulist": "0,2\n", "node1/cpulist": "1,3\n", "node2/cpulist": "\n"})
    assert script.nodes(nodes) == {"0": 0, "2": 0, "1": 1, "3": 1}


def test_control_groups_of_version_2(script: ModuleType, tmp_path: Path) -> None:
    scope = "sys/fs/cgroup/tenants.slice/machine-qemu-1-web.scope"
    root = written(tmp_path, {
        "proc/7/cgroup": "0::/tenants.slice/machine-qemu-1-web.scope/libvirt/emulator\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        f"{scope}/libvirt/emulator/cpu.max": "1000 100000\n",
        f"{scope}/cpu.max": "max 100000\n",
        f"{scope}/memory.max": "max\n", f"{scope}/memory.high": "1073741824\n",
        "sys/fs/cgroup/tenants.slice/cpu.max": "150000 100000\n",
    })  # fmt: skip
    assert script.groups(7, str(root)) == [
        {"name": "machine-qemu-1-web.scope", "cpus": None, "memory_bytes": 2**30},
        {"name": "tenants.slice", "cpus": 1.5, "memory_bytes": None},
    ]


def test_control_groups_of_version_1(script: ModuleType, tmp_path: Path) -> None:
    root = written(tmp_path, {
        "proc/7/cgroup": "4:cpu,cpuacct:/machine/web\n3:memory:/machine/web\n1:name=systemd:/\n",
        "sys/fs/cgroup/cpu,cpuacct/machine/web/cpu.cfs_quota_us": "25000\n",
        "sys/fs/cgroup/cpu,cpuacct/machine/web/cpu.cfs_period_us": "50000\n",
        "sys/fs/cgroup/cpu,cpuacct/machine/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/memory/machine/web/memory.limit_in_bytes": "9223372036854771712\n",
    })  # fmt: skip
    assert script.groups(7, str(root)) == [{"name": "web", "cpus": 0.5, "memory_bytes": None}]


def test_flags_and_bridges(script: ModuleType, tmp_path: Path) -> None:
    info = written(tmp_path, {"cpuinfo": "processor\t: 0\nflags\t\t: fpu aes avx2\nbogomips\t: 1\n"}) / "cpuinfo"
    assert script.flags(str(info)) == ["fpu", "aes", "avx2"]
    assert script.flags(str(tmp_path / "none")) == []
    for name in ("virbr0", "lan0", "eth0"):
        (tmp_path / "net" / name / ("bridge" if name != "eth0" else "device")).mkdir(parents=True)
    assert script.bridges(str(tmp_path / "net")) == ["lan0", "virbr0"]
