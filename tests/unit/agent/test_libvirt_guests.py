"""What the agent on the KVM host reads of its files, on trees of our own making."""

from pathlib import Path

from vmtoll.agent import libvirt_guests
from vmtoll.agent.kvm_host import cpu_flags


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_cores_and_nodes(tmp_path: Path) -> None:
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    cpus = {f"cpu{n}/topology/thread_siblings_list": f"{text}\n" for n, text in siblings.items()}
    assert libvirt_guests.cores(str(written(tmp_path / "cpu", cpus))) == {"0": 0, "1": 1, "2": 0, "3": 1}
    nodes = written(tmp_path / "node", {"node0/cpulist": "0,2\n", "node1/cpulist": "1,3\n", "node2/cpulist": "\n"})
    assert libvirt_guests.nodes(str(nodes)) == {"0": 0, "2": 0, "1": 1, "3": 1}


def test_control_groups_of_version_2(tmp_path: Path) -> None:
    scope = "sys/fs/cgroup/tenants.slice/machine-qemu-1-web.scope"
    root = written(tmp_path, {
        "proc/7/cgroup": "0::/tenants.slice/machine-qemu-1-web.scope/libvirt/emulator\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        f"{scope}/libvirt/emulator/cpu.max": "1000 100000\n",
        f"{scope}/cpu.max": "max 100000\n",
        f"{scope}/memory.max": "max\n", f"{scope}/memory.high": "1073741824\n",
        "sys/fs/cgroup/tenants.slice/cpu.max": "150000 100000\n",
    })  # fmt: skip
    assert libvirt_guests.groups(7, str(root)) == [
        {"name": "machine-qemu-1-web.scope", "cpus": None, "memory_bytes": 2**30},
        {"name": "tenants.slice", "cpus": 1.5, "memory_bytes": None},
    ]


def test_control_groups_of_version_1(tmp_path: Path) -> None:
    root = written(tmp_path, {
        "proc/7/cgroup": "4:cpu,cpuacct:/machine/web\n3:memory:/machine/web\n1:name=systemd:/\n",
        "sys/fs/cgroup/cpu,cpuacct/machine/web/cpu.cfs_quota_us": "25000\n",
        "sys/fs/cgroup/cpu,cpuacct/machine/web/cpu.cfs_period_us": "50000\n",
        "sys/fs/cgroup/cpu,cpuacct/machine/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/memory/machine/web/memory.limit_in_bytes": "9223372036854771712\n",
    })  # fmt: skip
    assert libvirt_guests.groups(7, str(root)) == [{"name": "web", "cpus": 0.5, "memory_bytes": None}]


def test_flags_and_bridges(tmp_path: Path) -> None:
    written(tmp_path, {"proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu aes avx2\nbogomips\t: 1\n"})
    assert cpu_flags(str(tmp_path)) == ["fpu", "aes", "avx2"]
    assert cpu_flags(str(tmp_path / "none")) == []
    for name in ("virbr0", "lan0", "eth0"):
        (tmp_path / "net" / name / ("bridge" if name != "eth0" else "device")).mkdir(parents=True)
    assert libvirt_guests.bridges(str(tmp_path / "net")) == ["lan0", "virbr0"]
