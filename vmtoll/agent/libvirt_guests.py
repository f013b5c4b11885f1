"""Guests' definitions and their KVM host's facts about them, for a diagnosis. Changes nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vmtoll.agent.kvm_host import cpu_flags, cpu_list, memory, online_cpus
from vmtoll.agent.machine import read
from vmtoll.agent.virsh import CommandError, called, names, run, virsh


def parsed(xml: str) -> Any:
    """The root of a definition."""
    from xml.etree import ElementTree  # noqa: PLC0415 (a Python that was cut down may lack it)

    return ElementTree.fromstring(xml)


def qemu_pid(uuid: str, proc: str = "/proc") -> int | None:
    """The process of the guest with this UUID, by its command line, as libvirt starts QEMU."""
    for folder in Path(proc).glob("[0-9]*"):
        words = read(f"{folder}/cmdline").split("\0")
        if "-uuid" in words and words[words.index("-uuid") + 1 :][:1] == [uuid]:
            return int(folder.name)
    return None


def vhost_threads(pid: int, proc: str = "/proc") -> int:
    """Number of vhost threads of a QEMU process: its tasks since Linux 6.4, kernel threads named after it before."""
    names = [*Path(f"{proc}/{pid}/task").glob("*/comm"), *Path(proc).glob("[0-9]*/comm")]
    return sum(read(str(name)) == f"vhost-{pid}" for name in names)


def chosen(line: str) -> str:
    """The word in brackets of a kernel's list of choices."""
    return line.partition("[")[2].partition("]")[0]


def cores(root: str = "/sys/devices/system/cpu") -> dict[str, int]:
    """CPU → the first CPU of its core."""
    first = {}
    for file in Path(root).glob("cpu[0-9]*/topology/thread_siblings_list"):
        siblings = cpu_list(read(str(file)))
        if siblings:
            first[file.parts[-3][3:]] = siblings[0]
    return first


def nodes(root: str = "/sys/devices/system/node") -> dict[str, int]:
    """CPU → its NUMA node."""
    files = {int(file.parts[-2][4:]): file for file in Path(root).glob("node[0-9]*/cpulist")}
    return {str(cpu): node for node, file in files.items() for cpu in cpu_list(read(str(file)))}


def model_flags(uri: str, xml: str) -> list[str] | None:
    """The features of the CPU model that a definition names, of qemu64 if it has no CPU; None if it names no model, or
    libvirt does not know it.
    """
    root = parsed(xml)
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
        except CommandError:
            return None
    return [str(one.get("name")) for one in parsed(answer).iterfind("feature")]


def bridges(root: str = "/sys/class/net") -> list[str]:
    """The host's bridges; those that libvirt and Docker make for themselves come last."""
    names = sorted(folder.parent.name for folder in Path(root).glob("*/bridge"))
    return sorted(names, key=lambda name: name.startswith(("virbr", "docker", "br-")))


def groups(pid: int, root: str = "/") -> list[dict[str, object]]:
    """The control groups around a process that limit CPU time or memory, from its own outwards.

    Groups that libvirt makes below the guest's own, for kinds of threads, are left out: they repeat the definition.
    """
    found: list[dict[str, object]] = []
    for line in read(f"{root}/proc/{pid}/cgroup").splitlines():
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


def cpus_of(folder: str) -> float | None:
    """CPU time that a control group of version 2 or 1 may use, in CPUs; None without a limit."""
    quota, _, period = read(f"{folder}/cpu.max").partition(" ")
    if not quota:
        quota, period = read(f"{folder}/cpu.cfs_quota_us"), read(f"{folder}/cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def memory_of(folder: str) -> int | None:
    """Bytes of memory that a control group may use; None without a limit, for which version 1 writes nearly 2^63."""
    limits = [read(f"{folder}/{name}") for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
    numbers = [int(limit) for limit in limits if limit.isdigit() and int(limit) < 2**60]
    return min(numbers) if numbers else None


def facts() -> dict[str, object]:
    """The host's facts that vmtoll/guests/diagnosis uses."""
    now, poll = memory(), read("/sys/module/kvm/parameters/halt_poll_ns")
    return {
        "architecture": os.uname().machine,
        "kvm_device": Path("/dev/kvm").exists(),
        "vhost_net": Path("/dev/vhost-net").exists(),
        "cpus": online_cpus(),
        "cores": cores(),
        "nodes": nodes(),
        "flags": cpu_flags(),
        "bridges": bridges(),
        "cgroup_version": 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1,
        "hugepages": {
            "size_kib": now.get("Hugepagesize", 2048),
            "free": now.get("HugePages_Free", 0) - now.get("HugePages_Rsvd", 0),
        },
        "transparent_hugepages": chosen(read("/sys/kernel/mm/transparent_hugepage/enabled")),
        "halt_poll_ns": int(poll) if poll.isdigit() else None,
    }


def guest(uri: str, domain: str) -> dict[str, object]:
    """Read a guest: `xml`, `running`, its `facts`; and `next_xml`, the definition for its next start, if it runs.

    Raises CommandError.
    """
    xml = virsh(uri, "dumpxml", *called(domain))
    answer: dict[str, object] = {"name": domain, "xml": xml}
    answer["running"] = virsh(uri, "domstate", *called(domain)).strip() == "running"
    if answer["running"]:
        answer["next_xml"] = virsh(uri, "dumpxml", "--inactive", *called(domain))
    pid = qemu_pid(parsed(xml).findtext("uuid") or "")
    answer["facts"] = {"model_flags": model_flags(uri, xml), **({} if pid is None else of_process(pid))}
    return answer


def libvirt_guests(uri: str, domain: str | None = None) -> dict[str, object]:
    """Return `guests`, all or this one, the `facts` of the host, `error`; `domains`: the names of all guests; `uuids`,
    `pins`: those of running guests.
    """
    try:
        domains = names(uri, "--all")
        guests = [guest(uri, name) for name in domains if domain in (None, name)]
        running = {name: virsh(uri, "dumpxml", *called(name)) for name in names(uri)}
        uuids = virsh(uri, "list", "--uuid").split()
    except CommandError as error:
        return {"error": error.reason, "domains": [], "uuids": [], "guests": [], "facts": {}}
    pins = {
        name: [pin.get("cpuset", "") for pin in parsed(xml).iterfind("cputune/vcpupin")]
        for name, xml in running.items()
    }
    return {"error": "", "domains": domains, "uuids": uuids, "guests": guests, "facts": facts(), "pins": pins}


def of_process(pid: int) -> dict[str, object]:
    """What a diagnosis needs to know of a guest's process."""
    return {"vhost_threads": vhost_threads(pid), "groups": groups(pid)}


def guest_processes(pids: Sequence[int]) -> dict[str, object]:
    """`facts` of the host, and `processes`: facts of each of these."""
    return {"facts": facts(), "processes": {str(pid): of_process(pid) for pid in pids}}


def refusals(uri: str, definitions: Sequence[str]) -> list[str]:
    """Why libvirt refuses each of these definitions, by its schema or by parsing it as it does to define it; empty if
    it accepts one. Defines nothing.

    For that libvirt makes a tap device of each card. The libvirt of a user that is not root may not: then it gets the
    definition without the cards, and only the schema has checked these.
    """
    with tempfile.TemporaryDirectory() as folder:
        return [_refusal(uri, xml, Path(folder, "domain.xml")) for xml in definitions]


def _refusal(uri: str, xml: str, file: Path) -> str:
    file.write_text(xml, encoding="utf-8")
    try:
        run(["virt-xml-validate", str(file), "domain"])
        virsh(uri, "domxml-to-native", "qemu-argv", str(file))
    except CommandError as error:
        from xml.etree import ElementTree  # noqa: PLC0415 (as above)

        domain = parsed(xml)
        cards = [(devices, card) for devices in domain.iterfind("devices") for card in devices.findall("interface")]
        if not cards or "/dev/net/tun" not in error.reason:
            return error.reason
        for devices, card in cards:
            devices.remove(card)
        return _refusal(uri, ElementTree.tostring(domain, encoding="unicode"), file)
    return ""
