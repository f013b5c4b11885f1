"""Print guests' definitions and their KVM host's facts about them, as one line of JSON. Changes nothing.

Runs on the host as `python3 - URI [DOMAIN]`, with kvm_host.py in the same folder: standard library only. Without DOMAIN
it reads every guest. As `python3 - --processes PID…` it reads what it needs no libvirt for, of these processes.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import kvm_host  # type: ignore[import-not-found]


def virsh(uri: str, verb: str, *words: str) -> str:
    """Output of a read-only virsh. Raises RuntimeError with its message."""
    argv = ["virsh", "--readonly", "-c", uri, verb, *words]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False,
                              env={**os.environ, "LC_ALL": "C"})  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"virsh {verb}: no answer within {error.timeout:g} s") from error
    except OSError as error:
        raise RuntimeError(f"virsh: {error.strerror}") from error
    if done.returncode:  # virsh says first what failed, and last why
        raise RuntimeError(" ".join(done.stderr.rpartition("error: ")[2].split())[:300])
    return done.stdout.strip()


def text(path: str) -> str:
    """A file's text without the spaces around it; empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def qemu_pid(uuid: str, proc: str = "/proc") -> "int | None":
    """The process of the guest with this UUID, by its command line, as libvirt starts QEMU."""
    for folder in Path(proc).glob("[0-9]*"):
        words = text(f"{folder}/cmdline").split("\0")
        if "-uuid" in words and words[words.index("-uuid") + 1 :][:1] == [uuid]:
            return int(folder.name)
    return None


def vhost_threads(pid: int, proc: str = "/proc") -> int:
    """Number of vhost threads of a QEMU process: its tasks since Linux 6.4, kernel threads named after it before."""
    names = [*Path(f"{proc}/{pid}/task").glob("*/comm"), *Path(proc).glob("[0-9]*/comm")]
    return sum(text(str(name)) == f"vhost-{pid}" for name in names)


def chosen(line: str) -> str:
    """The word in brackets of a kernel's list of choices."""
    return line.partition("[")[2].partition("]")[0]


def cores(root: str = "/sys/devices/system/cpu") -> "dict[str, int]":
    """CPU → the first CPU of its core."""
    first = {}
    for file in Path(root).glob("cpu[0-9]*/topology/thread_siblings_list"):
        siblings = kvm_host.cpu_list(text(str(file)))
        if siblings:
            first[file.parts[-3][3:]] = siblings[0]
    return first


def nodes(root: str = "/sys/devices/system/node") -> "dict[str, int]":
    """CPU → its NUMA node."""
    files = {int(file.parts[-2][4:]): file for file in Path(root).glob("node[0-9]*/cpulist")}
    return {str(cpu): node for node, file in files.items() for cpu in kvm_host.cpu_list(text(str(file)))}


def flags(cpuinfo: str = "/proc/cpuinfo") -> "list[str]":
    """The CPU's flags; empty if /proc/cpuinfo has no line `flags`, as on CPUs other than x86."""
    match = re.search(r"^flags\s*:(.*)$", text(cpuinfo), re.M)
    return match[1].split() if match else []


def model_flags(uri: str, xml: str) -> "list[str] | None":
    """The features of the CPU model that a definition names, of qemu64 if it has no CPU; None if it names no model, or
    libvirt does not know it.
    """
    root = ElementTree.fromstring(xml)
    cpu = root.find("cpu")
    name = "qemu64" if cpu is None else (cpu.findtext("model") or "").strip()
    if not name or (cpu is not None and cpu.get("mode", "custom") != "custom"):
        return None
    kind = root.find("os/type")
    asked = f"<cpu><arch>{'x86_64' if kind is None else kind.get('arch', 'x86_64')}</arch><model>{name}</model></cpu>"
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(asked)
        file.flush()
        try:
            answer = virsh(uri, "cpu-baseline", file.name, "--features")
        except RuntimeError:
            return None
    return [str(one.get("name")) for one in ElementTree.fromstring(answer).iterfind("feature")]


def bridges(root: str = "/sys/class/net") -> "list[str]":
    """The host's bridges; those that libvirt and Docker make for themselves come last."""
    names = sorted(folder.parent.name for folder in Path(root).glob("*/bridge"))
    return sorted(names, key=lambda name: name.startswith(("virbr", "docker", "br-")))


def groups(pid: int, root: str = "/") -> "list[dict[str, object]]":
    """The control groups around a process that limit CPU time or memory, from its own outwards.

    Groups that libvirt makes below the guest's own, for kinds of threads, are left out: they repeat the definition.
    """
    found: list[dict[str, object]] = []
    for line in text(f"{root}/proc/{pid}/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        base = "sys/fs/cgroup" if number == "0" else f"sys/fs/cgroup/{controllers}"
        if number == "0" and not controllers and not Path(root, base, "cgroup.controllers").exists():
            base = "sys/fs/cgroup/unified"
        parts = path.strip("/").split("/") if path.strip("/") else []
        while parts:
            folder = str(Path(root, base, *parts))
            held: dict[str, object] = {"name": parts[-1], "cpus": cpus_of(folder), "memory_bytes": memory_of(folder)}
            if (held["cpus"] or held["memory_bytes"]) and parts[-1] not in ("emulator", "libvirt"):
                found.append(held)
            parts.pop()
    return found


def cpus_of(folder: str) -> "float | None":
    """CPU time that a control group of version 2 or 1 may use, in CPUs; None without a limit."""
    quota, _, period = text(f"{folder}/cpu.max").partition(" ")
    if not quota:
        quota, period = text(f"{folder}/cpu.cfs_quota_us"), text(f"{folder}/cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def memory_of(folder: str) -> "int | None":
    """Bytes of memory that a control group may use; None without a limit, for which version 1 writes nearly 2^63."""
    limits = [text(f"{folder}/{name}") for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
    numbers = [int(limit) for limit in limits if limit.isdigit() and int(limit) < 2**60]
    return min(numbers) if numbers else None


def facts() -> "dict[str, object]":
    """The host's facts that vmtoll/guests/diagnosis uses."""
    now, poll = kvm_host.memory(), text("/sys/module/kvm/parameters/halt_poll_ns")
    return {
        "kvm_device": Path("/dev/kvm").exists(),
        "vhost_net": Path("/dev/vhost-net").exists(),
        "cpus": kvm_host.online_cpus(),
        "cores": cores(),
        "nodes": nodes(),
        "flags": flags(),
        "bridges": bridges(),
        "cgroup_version": 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1,
        "hugepages": {
            "size_kib": now.get("Hugepagesize", 2048),
            "free": now.get("HugePages_Free", 0) - now.get("HugePages_Rsvd", 0),
        },
        "transparent_hugepages": chosen(text("/sys/kernel/mm/transparent_hugepage/enabled")),
        "halt_poll_ns": int(poll) if poll.isdigit() else None,
    }


def guest(uri: str, domain: str) -> "dict[str, object]":
    """Read a guest: `xml`, `running`, its `facts`; and `next_xml`, the definition for its next start, if it runs.

    Raises RuntimeError.
    """
    running = virsh(uri, "domstate", domain) == "running"
    read = {"name": domain, "running": running, "xml": virsh(uri, "dumpxml", domain)}
    if running:
        read["next_xml"] = virsh(uri, "dumpxml", "--inactive", domain)
    pid = qemu_pid(virsh(uri, "domuuid", domain))
    of_process = {} if pid is None else {"vhost_threads": vhost_threads(pid), "groups": groups(pid)}
    read["facts"] = {"model_flags": model_flags(uri, str(read["xml"])), **of_process}
    return read


def answer(uri: str, domain: str = "") -> "dict[str, object]":
    """Return `guests`, the `facts` of the host, `error`; `domains`: the names of all guests; `pins`: those of running
    guests.
    """
    try:
        names = virsh(uri, "list", "--all", "--name").split()
        wanted = [name for name in names if domain in ("", name)]
        guests = [guest(uri, name) for name in wanted]
        others = {name: virsh(uri, "dumpxml", name) for name in virsh(uri, "list", "--name").split()}
    except RuntimeError as error:
        return {"error": str(error), "domains": [], "guests": [], "facts": {}}
    pins = {
        name: [pin.get("cpuset", "") for pin in ElementTree.fromstring(xml).iterfind("cputune/vcpupin")]
        for name, xml in others.items()
    }
    return {"error": "", "domains": names, "guests": guests, "facts": facts(), "pins": pins}


def processes(pids: "list[str]") -> "dict[str, object]":
    """`facts` of the host, and `processes`: facts of each of these."""
    of_each = {pid: {"vhost_threads": vhost_threads(int(pid)), "groups": groups(int(pid))} for pid in pids}
    return {"facts": facts(), "processes": of_each}


if __name__ == "__main__":
    print(json.dumps(processes(sys.argv[2:]) if sys.argv[1] == "--processes" else answer(*sys.argv[1:3])))
