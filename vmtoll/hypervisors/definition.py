"""Write the definition of a guest that libvirt does not run as libvirt would, for the checks of a diagnosis.

`of_command_line` makes it from QEMU's command line, the process and its monitor.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vmtoll.hypervisors.cards import cards
from vmtoll.hypervisors.command_line import CommandLine, Option
from vmtoll.hypervisors.disks import disks
from vmtoll.hypervisors.elements import add

_FEATURE_VALUES = {"on": "require", "off": "disable"}
# Properties of -cpu that are switches of QEMU, not features of a CPU.
_NO_FEATURES = frozenset({"migratable", "host-phys-bits", "enforce", "check", "pmu", "kvm", "l3-cache", "kvmclock"})
_SIZE = re.compile(r"(\d+)([bKMGT]?)B?", re.IGNORECASE)
_SHIFT = {"B": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True)
class Live:
    """State of a running process that its command line lacks. `kvm`: whether KVM runs it; `pins`: virtual CPU → CPUs
    that its thread may use, unless these are all; `emulator`: the same for the other threads. `blocks`: a disk's name →
    its cache, from query-block. None, or empty: not known.
    """

    kvm: bool | None = None
    pins: Mapping[int, Sequence[int]] = field(default_factory=dict)
    emulator: Sequence[int] = ()
    blocks: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)


@dataclass(frozen=True)
class Definition:
    """`domain`: the definition. `disks`, `cards`: the options that make a device, by its name in the definition."""

    domain: ET.Element
    disks: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)
    cards: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)

    @property
    def xml(self) -> str:
        """The definition as text."""
        ET.indent(self.domain)
        return ET.tostring(self.domain, encoding="unicode")


def of_command_line(line: CommandLine, name: str, live: Live = Live()) -> Definition:
    """The definition of a guest that plain QEMU runs."""
    domain = ET.Element("domain", type="kvm" if _is_kvm(line, live) else "qemu")
    add(domain, "name", name)
    _memory(domain, line)
    _virtual_cpus(domain, line, live)
    _system(domain, line)
    _cpu(domain, line)
    _clock(domain, line)
    devices = add(domain, "devices")
    disks_by_name = {disk.name: disk for disk in disks(line, live.blocks)}
    cards_by_mac = {card.mac: card for card in cards(line)}
    for element in (
        *(disk.element for disk in disks_by_name.values()),
        *(card.element for card in cards_by_mac.values()),
    ):
        devices.append(element)
    for model in _scsi_controllers(line):
        add(devices, "controller", type="scsi", model=model)
    if any(option.get("qom-type").startswith(("sev-", "tdx-")) for option in line.all("object")):
        add(domain, "launchSecurity", type="sev")
    return Definition(
        domain,
        {key: disk.options for key, disk in disks_by_name.items()},
        {key: card.options for key, card in cards_by_mac.items()},
    )


def _is_kvm(line: CommandLine, live: Live) -> bool:
    if live.kvm is not None:
        return live.kvm
    accelerators = line.merged("machine").get("accel") or ":".join(option.get("accel") for option in line.all("accel"))
    return line.has("enable-kvm") or accelerators.split(":")[0] == "kvm"


def size_bytes(text: str, unit: str = "M") -> int:
    """Bytes of a size in QEMU's notation, `4096` or `4G`; 0 if it is no size."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) << _SHIFT[(match[2] or unit).upper()] if match else 0


def _memory(domain: ET.Element, line: CommandLine) -> None:
    size = size_bytes(line.merged("m").get("size", default="128"))
    add(domain, "memory", str(size >> 10), unit="KiB")
    backends = [option for option in line.all("object") if option.get("qom-type").startswith("memory-backend")]
    paths = [option.get("mem-path") for option in backends] + [option.text for option in line.all("mem-path")]
    if any("huge" in path for path in paths) or any(option.is_on("hugetlb") for option in backends):
        add(add(domain, "memoryBacking"), "hugepages")


def _virtual_cpus(domain: ET.Element, line: CommandLine, live: Live) -> None:
    smp = line.merged("smp")
    parts = [int(smp.get(key, default="1")) for key in ("sockets", "dies", "cores", "threads")]
    product = parts[0] * parts[1] * parts[2] * parts[3]
    count = int(smp.get("cpus", default=smp.get("maxcpus", default=str(product))))
    set_virtual_cpus(domain, count, live)
    if iothreads := [option for option in line.all("object") if option.get("qom-type") == "iothread"]:
        add(domain, "iothreads", str(len(iothreads)))


def set_virtual_cpus(domain: ET.Element, count: int, live: Live) -> None:
    """Add the number of virtual CPUs and the pins of their threads."""
    together = {cpu for cpus in live.pins.values() for cpu in cpus}
    cpuset = {"cpuset": as_set(together)} if len(live.pins) == count else {}
    add(domain, "vcpu", str(count), **cpuset)
    pinned = {number: cpus for number, cpus in live.pins.items() if cpus}
    if pinned or live.emulator:
        tune = add(domain, "cputune")
        for number, cpus in sorted(pinned.items()):
            add(tune, "vcpupin", vcpu=str(number), cpuset=as_set(cpus))
        if live.emulator:
            add(tune, "emulatorpin", cpuset=as_set(live.emulator))


def as_set(cpus: Sequence[int] | set[int]) -> str:
    """A list of CPUs: `0,2,3`."""
    return ",".join(map(str, sorted(cpus)))


def _system(domain: ET.Element, line: CommandLine) -> None:
    arch = line.program.rpartition("qemu-system-")[2] if "qemu-system-" in line.program else "x86_64"
    system = add(domain, "os")
    add(system, "type", "hvm", arch={"i386": "i686"}.get(arch, arch), machine=line.merged("machine").get("type"))
    for name, tag in (("kernel", "kernel"), ("append", "cmdline")):
        if option := line.last(name):
            add(system, tag, option.text)


def _cpu(domain: ET.Element, line: CommandLine) -> None:
    cpu_option = line.last("cpu")
    set_cpu(domain, cpu_option.values if cpu_option else {}, line)


def set_cpu(domain: ET.Element, cpu_option: Mapping[str, str], line: CommandLine | None = None) -> None:
    """Add the CPU model and its features. `cpu_option`: values of -cpu."""
    name = cpu_option.get("model", "qemu64").removesuffix("-x86_64-cpu")
    mode = {"host": "host-passthrough", "max": "maximum"}.get(name, "custom")
    cpu = add(domain, "cpu", mode=mode)
    if mode == "custom":
        add(cpu, "model", name)
    threads = line.merged("smp").get("threads") if line else ""
    if threads:
        add(cpu, "topology", threads=threads)
    for feature, value in cpu_option.items():
        if value in _FEATURE_VALUES and feature not in _NO_FEATURES and not feature.startswith(("hv", "kvm")):
            add(cpu, "feature", policy=_FEATURE_VALUES[value], name=feature)


def _clock(domain: ET.Element, line: CommandLine) -> None:
    cpu_option = line.last("cpu")
    set_clock(domain, hpet=has_hpet(line), kvmclock=not (cpu_option and cpu_option.is_off("kvmclock")))


def has_hpet(line: CommandLine) -> bool:
    """Return whether the guest of a command line has an HPET: machines such as microvm know none."""
    machine = line.merged("machine")
    knows_it = machine.get("type", default="pc").startswith(("pc", "q35"))
    return knows_it and not line.has("no-hpet") and not machine.is_off("hpet")


def set_clock(domain: ET.Element, *, hpet: bool, kvmclock: bool) -> None:
    """Add the timers that a guest has or lacks."""
    clock = add(domain, "clock", offset="utc")
    if not hpet:
        add(clock, "timer", name="hpet", present="no")
    if not kvmclock:
        add(clock, "timer", name="kvmclock", present="no")


def _scsi_controllers(line: CommandLine) -> Iterator[str]:
    names = {"virtio-scsi": "virtio-scsi", "lsi": "lsilogic", "pvscsi": "vmpvscsi", "megasas": "lsisas1078"}
    for device in line.all("device"):
        yield from (model for start, model in names.items() if device.get("driver").startswith(start))


def live_of(process: Mapping[str, Any], online: Sequence[int], answers: Mapping[str, Any]) -> Live:
    """Combine the agent's `process` with the answers of QEMU's monitor.

    `online`: CPUs of the host. A thread that may use all of them is not pinned.
    """
    threads = {thread["tid"]: thread for thread in process.get("threads", ())}
    numbers = threads_of(process, answers)
    pins = {number: _pinned(threads[tid], online) for number, tid in numbers.items() if tid in threads}
    others = [thread for tid, thread in threads.items() if tid == process.get("pid")]
    emulator = _pinned(others[0], online) if others else []
    blocks = dict(_blocks(answers.get("query-block") or ()))
    kvm = (answers.get("query-kvm") or {}).get("enabled", process.get("kvm"))
    return Live(kvm, {n: cpus for n, cpus in pins.items() if cpus}, emulator, blocks)


def threads_of(process: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[int, int]:
    """Number of each virtual CPU → its thread ID, from QEMU's monitor, else from the threads' names."""
    thread_by_number = {cpu["cpu-index"]: cpu["thread-id"] for cpu in answers.get("query-cpus-fast") or ()}
    return thread_by_number or {number: tid for tid, number in _by_names(process.get("threads", ()))}


def _by_names(threads: Any) -> Iterator[tuple[int, int]]:
    """Yield thread ID and number of each virtual CPU, by QEMU's name of the thread: `CPU 0/KVM`."""
    for thread in threads:
        if match := re.fullmatch(r"CPU (\d+)/(?:KVM|TCG)", thread["name"]):
            yield thread["tid"], int(match[1])


def _pinned(thread: Mapping[str, Any], online: Sequence[int]) -> list[int]:
    cpus = [cpu for cpu in thread["cpus"] if cpu in online]
    return [] if set(cpus) >= set(online) else cpus


def _blocks(devices: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, bool]]]:
    for device in devices:
        cache = (device.get("inserted") or {}).get("cache")
        names = (device.get("device"), device.get("qdev"), (device.get("inserted") or {}).get("node-name"))
        yield from ((str(name), cache) for name in names if name and cache)
