"""Read a neutral guest of QEMU from its monitor's answers, its process and its command line, in this order."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TypeVar

from vmtoll.agent.protocol import Process
from vmtoll.hypervisors.command_line import CommandLine, Option
from vmtoll.hypervisors.guest_config import (
    X86,
    Card,
    Cell,
    Cpu,
    Disk,
    Fact,
    GuestConfig,
    Known,
    Pins,
    Unknown,
    cpus,
    flag_name,
)  # fmt: skip

T = TypeVar("T")
LINE, QMP, _DEFAULT, _PROCESS = "the command line", "QMP", "QEMU's default", "the process"
# Properties of -cpu that are switches of QEMU, not features of a CPU.
_NO_FEATURES = frozenset({"migratable", "host_phys_bits", "enforce", "check", "pmu", "l3_cache", "kvmclock"})
_SIZE = re.compile(r"(\d+)([bKMGT]?)B?", re.IGNORECASE)
_SHIFT = {"B": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_PC = ("pc", "q35")
# Beginnings of the drivers of disks → libvirt's name of the bus.
_BUSES = {"virtio-blk": "virtio", "vhost-user-blk": "virtio", "scsi-": "scsi", "ide-": "ide", "usb-": "usb",
          "nvme": "nvme"}  # fmt: skip
_LETTERS = {"hda": "ide", "hdb": "ide", "hdc": "ide", "hdd": "ide", "sd": "sd", "mtdblock": "mtd"}
_NO_DISKS = ("pflash", "floppy", "none", "mtd", "cfi", "isa-fdc")
_STORAGES = {"rbd", "nbd", "iscsi", "ssh", "http", "https", "ftp", "ftps", "gluster", "nfs"}
_FILES = ("filename", "file.filename", "file.file.filename", "file", "path")
_LEVELS = ("cache.", "file.cache.", "file.file.cache.")
# QEMU's names of a rate → libvirt's.
_RATES = {
    f"{kind}-{qemu}{end}": f"{libvirt}_{unit}_sec{longest}"
    for kind, unit in (("bps", "bytes"), ("iops", "iops"))
    for qemu, libvirt in (("total", "total"), ("read", "read"), ("write", "write"))
    for end, longest in (("", ""), ("-max", "_max"))
} | {
    f"{kind}{way}": f"{libvirt}_{unit}_sec"
    for kind, unit in (("bps", "bytes"), ("iops", "iops"))
    for way, libvirt in (("", "total"), ("_rd", "read"), ("_wr", "write"))
}  # fmt: skip
_SCSI = {"virtio-scsi": "virtio-scsi", "vhost-scsi": "virtio-scsi", "vhost-user-scsi": "virtio-scsi",
         "lsi": "lsilogic", "pvscsi": "vmpvscsi", "megasas": "lsisas1078", "mptsas": "lsisas1068",
         "am53c974": "am53c974", "dc390": "dc390"}  # fmt: skip
# QEMU's backends → libvirt's types of an interface. A tap is a device of the host, made by QEMU or before it.
_NETWORKS = {"tap": "ethernet", "vhost-user": "vhostuser", "vhost-vdpa": "vdpa", "passt": "user (passt)"}
_CARDS = ("virtio-net", "e1000", "rtl8139", "vmxnet3", "ne2k", "pcnet", "i82", "tulip", "igb", "usb-net", "xen-net")
OFFLOADS = ("csum", "gso", "tso4", "tso6", "ecn", "ufo", "mrg_rxbuf")
_SWITCHES = {"ioeventfd": "ioeventfd", "event_idx": "event_idx", "iommu_platform": "iommu", "ats": "ats",
             "packed": "packed"}  # fmt: skip
_FIRST_MAC = 0x525400123456
_NIC = re.compile(
    r"^( \\ )?([^\n:]+(?:: #?\S+)?): (?:index=\d+,)?type=([\w-]+)(?:,model=([\w-]+),macaddr=(\S+))?", re.M
)


def guest_of_line(
    line: CommandLine,
    name: str,
    process: Process | None = None,
    answers: Mapping[str, Any] | None = None,
    architecture: str = "",
) -> GuestConfig:
    """The guest of a command line. `process`: if it runs; `answers`: its monitor's (see qemu.ask_monitor);
    `architecture`: the host's, for programs whose name has none.
    """
    answers = answers or {}
    objects = line.all("object")
    backends = [option for option in objects if option.get("qom-type").startswith("memory-backend")]
    paths = [option.get("mem-path") for option in backends] + [option.text for option in line.all("mem-path")]
    is_huge = any("huge" in path for path in paths) or any(option.is_on("hugetlb") for option in backends)
    protected = any(option.get("qom-type").startswith(("sev-", "tdx-")) for option in objects)
    machine, append, kernel = line.merged("machine").get("type"), line.last("append"), line.last("kernel")
    kind = _architecture(line, answers, architecture)
    count = _vcpus(line, answers)
    cpu = _cpu(line, answers, kind)
    return GuestConfig(
        name=name, running=process is not None, domain_type=_domain_type(line, process, answers), architecture=kind,
        machine=machine, vcpus=count, cpu=cpu,
        threads=_option(line, "smp", int(line.merged("smp").get("threads") or 1)),
        model_flags=_model_flags(answers, cpu), seen_flags=_seen_flags(answers),
        kvmclock=Known(_kvmclock(line), LINE), hpet=_hpet(line, answers, kind), memory_bytes=_memory(line, answers),
        cells=_cells(line, answers, count, backends), huge_pages=_read(line, is_huge),
        pins=pins_of(process, answers) if process else Unknown("the threads of its process"),
        quotas=Known((), LINE), weight=Known(0, LINE), memory_limits=Known({}, LINE), blkio=Known((), LINE),
        kernel=_read(line, kernel.text if kernel else ""), cmdline=append.text if append else "",
        iothreads=sum(option.get("qom-type") == "iothread" for option in objects),
        is_protected=_read(line, protected), disks=_disks(line, answers, kind),
        cards=_cards(line, answers, machine, kind), controllers=tuple(_controllers(line).values()),
        host_devices=tuple(
            device.get("host") or device.get("sysfsdev").rpartition("/")[2]
            for device in line.all("device") if device.get("driver").startswith("vfio-pci")
        ),
    )  # fmt: skip


def with_args(guest: GuestConfig, line: CommandLine) -> GuestConfig:
    """The guest with options of QEMU that its definition adds to those that its hypervisor writes: they win."""
    added = guest_of_line(line, guest.name, architecture=guest.architecture.known)
    changed: dict[str, Any] = {}
    if line.has("cpu"):
        changed |= {"cpu": added.cpu, "model_flags": added.model_flags, "kvmclock": added.kvmclock}
    if line.has("smp"):
        changed |= {"vcpus": added.vcpus, "threads": added.threads}
    if line.has("m"):
        changed["memory_bytes"] = added.memory_bytes
    if line.has("no-hpet") or line.merged("machine").get("hpet"):
        changed["hpet"] = added.hpet
    if line.has("enable-kvm", "accel") or line.merged("machine").get("accel"):
        changed["domain_type"] = added.domain_type
    for devices in ("disks", "cards"):
        mine, more = getattr(guest, devices), getattr(added, devices)
        if isinstance(mine, Known) and isinstance(more, Known) and line.has("device", "drive", "nic", "net"):
            listed = [replace(device, handle=None) for device in more.known if device.handle]
            changed[devices] = Known((*mine.known, *listed), mine.source)
    return replace(guest, host_devices=(*guest.host_devices, *added.host_devices), **changed)


def _read(line: CommandLine, value: T) -> Fact[T]:
    """A fact of the options that are there, or not: unknown if not all were read, and this one may be there."""
    return Unknown("; ".join(line.unread)) if line.unread and not value else Known(value, LINE)


def _option(line: CommandLine, name: str, value: T) -> Fact[T]:
    """A fact that an option has, else QEMU's own choice, which only a whole command line shows."""
    if line.has(name):
        return Known(value, LINE)
    return Unknown("; ".join(line.unread)) if line.unread else Known(value, _DEFAULT)


def _domain_type(line: CommandLine, process: Process | None, answers: Mapping[str, Any]) -> Fact[str]:
    enabled = (answers.get("query-kvm") or {}).get("enabled")
    if enabled is not None:
        return Known("kvm" if enabled else "qemu", QMP)
    if process and process["kvm"] is not None:
        return Known("kvm" if process["kvm"] else "qemu", _PROCESS)
    asked = line.merged("machine").get("accel") or ":".join(option.get("accel") for option in line.all("accel"))
    kinds = ["kvm"] if line.has("enable-kvm") else asked.split(":")
    if kinds[0] == "kvm" and len(kinds) > 1:
        return Unknown("QEMU's monitor (`query-kvm`): it takes KVM if it can")
    if kinds[0] != "kvm" and not asked and line.unread:
        return _unread(line)
    return Known("kvm" if kinds[0] == "kvm" else "qemu", LINE)


def _unread(line: CommandLine) -> Unknown:
    return Unknown("; ".join(line.unread))


def _architecture(line: CommandLine, answers: Mapping[str, Any], host: str) -> Fact[str]:
    program = line.program.rpartition("/")[2].partition("qemu-system-")[2]
    name = (answers.get("query-target") or {}).get("arch") or program or host
    if not name:
        return Unknown("QEMU's monitor (`query-target`), or the host's architecture")
    return Known({"i386": "i686"}.get(name, name), QMP if "query-target" in answers else LINE)


def size_bytes(text: str, unit: str = "M") -> int:
    """Bytes of a size in QEMU's notation, `4096` or `4G`; 0 if it is no size."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) << _SHIFT[(match[2] or unit).upper()] if match else 0


def _memory(line: CommandLine, answers: Mapping[str, Any]) -> Fact[int]:
    if "query-memory-size-summary" in answers:
        summary = answers["query-memory-size-summary"]
        return Known(summary["base-memory"] + summary.get("plugged-memory", 0), QMP)
    return _option(line, "m", size_bytes(line.merged("m").get("size", default="128")))


def _vcpus(line: CommandLine, answers: Mapping[str, Any]) -> Fact[int]:
    if listed := answers.get("query-cpus-fast"):
        return Known(len(listed), QMP)
    smp = line.merged("smp")
    product = 1
    for key in ("drawers", "books", "sockets", "dies", "clusters", "modules", "cores", "threads"):
        product *= int(smp.get(key, default="1"))
    return _option(line, "smp", int(smp.get("cpus", default=smp.get("maxcpus", default=str(product)))))


def _cells(
    line: CommandLine, answers: Mapping[str, Any], count: Fact[int], backends: Sequence[Option]
) -> Fact[tuple[Cell, ...]]:
    """The nodes of the host that memory is bound to, by the guest's cells."""
    if isinstance(count, Unknown):
        return count
    nodes = {option.get("id"): _host_nodes(option) for option in backends}
    source = LINE
    if "query-memdev" in answers:
        nodes = {d["id"]: frozenset(d["host-nodes"]) if d["policy"] != "default" else frozenset()
                 for d in answers["query-memdev"] if "id" in d}  # fmt: skip
        source = QMP
    everywhere = nodes.get(line.merged("machine").get("memory-backend"), frozenset())
    cells = list(_numa(line, nodes, count.known))
    if any(not cell.vcpus for cell in cells):  # -numa cpu places them by their topology
        cells = [Cell(tuple(range(count.known)), frozenset[int]().union(*(cell.nodes for cell in cells)))]
    if not cells and line.unread:
        return _unread(line)
    return Known(tuple(cells) or (Cell(tuple(range(count.known)), everywhere),), source)


def _numa(line: CommandLine, nodes: Mapping[str, frozenset[int]], count: int) -> Iterator[Cell]:
    for option in line.all("numa"):
        if option.get("type", default="node") == "node":
            listed = {cpu for text in re.findall(r"cpus=([\d-]+)", option.text) for cpu in cpus(text)}
            listed |= set(cpus(option.get("cpus").strip("[]"))) if option.is_json else set()
            vcpus = tuple(sorted(cpu for cpu in listed if cpu < count))
            yield Cell(vcpus, nodes.get(option.get("memdev"), frozenset()))


def _host_nodes(backend: Option) -> frozenset[int]:
    listed = [value for key, value in backend.values.items() if key.partition(".")[0] == "host-nodes"]
    listed += re.findall(r"host-nodes=([\d-]+)", backend.text)
    is_bound = backend.get("policy", default="default") != "default"
    return frozenset(cpus(",".join(text.strip("[]") for text in listed))) if is_bound else frozenset()


def pins_of(process: Process, answers: Mapping[str, Any]) -> Fact[Pins]:
    """The CPUs that its threads may use, without those that may use all of the host's."""
    threads = {thread["tid"]: thread for thread in process["threads"]}
    numbers = threads_of(process, answers)
    if not numbers:
        return Unknown("QEMU's monitor (`query-cpus-fast`), or names of its threads (-name …,debug-threads=on)")
    online = set(process["online"])

    def pinned(thread: Mapping[str, Any]) -> tuple[int, ...]:
        listed = [cpu for cpu in thread["cpus"] if cpu in online]
        return () if set(listed) >= online else tuple(listed)

    each = {number: pinned(threads[tid]) for number, tid in sorted(numbers.items()) if tid in threads}
    each = {number: listed for number, listed in each.items() if listed}
    allowed = {cpu for listed in each.values() for cpu in listed} if len(each) == len(numbers) else ()
    emulator = pinned(threads[process["pid"]]) if process["pid"] in threads else ()
    return Known(Pins(each, emulator=emulator, allowed=tuple(sorted(allowed))), _PROCESS)


def threads_of(process: Process, answers: Mapping[str, Any]) -> dict[int, int]:
    """Number of each virtual CPU → its thread ID, from QEMU's monitor, else from the threads' names (`CPU 0/KVM`)."""
    thread_by_number = {cpu["cpu-index"]: cpu["thread-id"] for cpu in answers.get("query-cpus-fast") or ()}
    names = ((re.fullmatch(r"CPU (\d+)/(?:KVM|TCG)", thread["name"]), thread["tid"]) for thread in process["threads"])
    return thread_by_number or {int(match[1]): tid for match, tid in names if match}


def _cpu(line: CommandLine, answers: Mapping[str, Any], architecture: Fact[str]) -> Fact[Cpu]:
    option = line.last("cpu")
    if kind := answers.get("cpu-type"):
        return Known(cpu_of({**(option.values if option else {}), "model": kind}), QMP)
    if option:
        return Known(cpu_of(option.values), LINE)
    if isinstance(architecture, Known) and architecture.known in X86:
        return Known(cpu_of({"model": "qemu64"}), _DEFAULT)
    return Unknown("QEMU's monitor (the type of `query-cpus-fast`'s object), or -cpu")


def cpu_of(values: Mapping[str, str]) -> Cpu:
    """The CPU of the values of -cpu."""
    name = re.sub(r"-[\w]+-cpu$", "", values.get("model", ""))
    mode = {"host": "host-passthrough", "max": "maximum"}.get(name, "custom")
    features = {flag_name(key): value for key, value in values.items() if not key.startswith(("hv", "kvm"))}
    on, off = (
        frozenset(feature for feature, value in features.items() if value in words and feature not in _NO_FEATURES)
        for words in (("on", "yes", "true"), ("off", "no", "false"))
    )
    return Cpu(mode, name if mode == "custom" else "", on, off)


def _model_flags(answers: Mapping[str, Any], cpu: Fact[Cpu]) -> Fact[frozenset[str]]:
    """The features of the CPU model, by QEMU."""
    model = (answers.get("query-cpu-model-expansion") or {}).get("model", {})
    if not model.get("props") or isinstance(cpu, Unknown):
        return Unknown("QEMU's monitor (`query-cpu-model-expansion`)")
    return Known(frozenset(flag_name(name) for name, value in model["props"].items() if value is True), QMP)


def _seen_flags(answers: Mapping[str, Any]) -> Fact[frozenset[str]]:
    if not answers.get("cpu-flags"):
        return Unknown("QEMU's monitor (`qom-get` of a virtual CPU)")
    return Known(frozenset(flag_name(name) for name, value in answers["cpu-flags"].items() if value is True), QMP)


def _kvmclock(line: CommandLine) -> str:
    option = line.last("cpu")
    if option and option.is_off("kvm"):
        return "no kvmclock: kvm=off hides KVM"
    return "no kvmclock" if option and option.is_off("kvmclock", "kvm-clock") else ""


def _hpet(line: CommandLine, answers: Mapping[str, Any], architecture: Fact[str]) -> Fact[bool]:
    """Whether it has an HPET: machines such as microvm know none."""
    if "unattached" in answers:
        return Known("hpet" in answers["unattached"], QMP)
    machine = line.merged("machine")
    if line.has("no-hpet") or machine.is_off("hpet"):
        return Known(False, LINE)
    if isinstance(architecture, Unknown) and not machine.get("type"):
        return architecture
    default = "pc" if isinstance(architecture, Known) and architecture.known in X86 else "none"
    return _option(line, "machine", machine.get("type", default=default).startswith(_PC))


# ---- disks


def _controllers(line: CommandLine) -> dict[str, str]:
    """The SCSI controllers: ID → libvirt's model."""
    return {
        device.get("id") or f"#{number}": model
        for number, device in enumerate(line.all("device"))
        for start, model in _SCSI.items() if device.get("driver").startswith(start)
    }  # fmt: skip


def _disks(line: CommandLine, answers: Mapping[str, Any], architecture: Fact[str]) -> Fact[tuple[Disk, ...]]:
    """Each disk, but no CD and no floppy: those of the command line that are still there, then those plugged in."""
    live = [entry for entry in answers.get("query-block") or () if entry.get("inserted")]
    types: Mapping[str, str] = answers.get("types") or {}
    if line.unread and "query-block" not in answers:
        return _unread(line)
    drives = {each.get("id"): each for each in line.all("drive") if each.get("id")}
    nodes = {each.get("node-name"): each for each in line.all("blockdev")}
    used, seen, disks = set[str](), list[Mapping[str, Any]](), list[Disk]()

    def add(name: str, bus: Fact[str], options: list[Option], device: Option | None) -> None:
        ids = {name, *(o.get(key) for o in [*options, *([device] if device else [])] for key in ("id", "node-name"))}
        path = next((found for each in options for key in _FILES if (found := each.get(key))), "")
        entry = next((one for one in live if ids & _names(one) - {""}), None)
        if not entry and device is None and path:
            entry = next((one for one in live if one["inserted"]["file"] == path), None)
        if entry:
            seen.append(entry)
        elif "query-block" in answers and name in drives | nodes:
            return  # it was unplugged
        disks.append(_disk(name, bus, options, device, entry, line))

    for device in line.all("device"):
        name, kind = device.get("drive"), device.get("driver")
        drive = drives.get(name) or nodes.get(name)
        used.add(name)
        if not name or kind.endswith("-cd") or kind.startswith(_NO_DISKS) or (drive and drive.get("media") == "cdrom"):
            continue
        add(name, _bus(line, device), [*([drive, *_below(drive, nodes)] if drive else [])], device)
    number = 0
    for each in line.all("drive", *_LETTERS):
        interface = _LETTERS.get(each.name) or each.get("if", default=_default_interface(line, architecture))
        if each.get("id", default="-") in used or each.get("media") == "cdrom" or interface in _NO_DISKS:
            continue
        bus: Fact[str] = Known(interface, LINE) if interface else Unknown("QEMU's monitor (`query-block`)")
        add(each.get("id") or f"{interface or 'disk'}{number}", bus, [each], None)
        number += 1
    for entry in live:
        kind = types.get(entry.get("qdev", ""), "")
        if not any(entry is one for one in seen) and kind and not kind.endswith("-cd") and kind != "floppy":
            start = next((bus for start, bus in _BUSES.items() if kind.startswith(start)), kind)
            bus = Unknown("the SCSI controller, in QEMU's object tree") if start == "scsi" else Known(start, QMP)
            name = entry.get("device") or entry["inserted"].get("node-name") or entry["qdev"]
            disks.append(_disk(name, bus, [], None, entry, line))
    return Known(tuple(disks), QMP if "query-block" in answers else LINE)


def _names(entry: Mapping[str, Any]) -> set[str]:
    """The names of an entry of query-block: the drive's, its node's, its device's."""
    qdev = entry.get("qdev", "")
    return {entry.get("device", ""), entry["inserted"].get("node-name", ""), qdev, *qdev.split("/")[-2:]}


def _default_interface(line: CommandLine, architecture: Fact[str]) -> str:
    machine = line.merged("machine").get("type")
    is_x86 = isinstance(architecture, Known) and architecture.known in X86
    return "ide" if machine.startswith(_PC) or (not machine and is_x86) else ""


def _bus(line: CommandLine, device: Option) -> Fact[str]:
    kind = device.get("driver")
    bus = next((bus for start, bus in _BUSES.items() if kind.startswith(start)), kind)
    if bus != "scsi":
        return Known(bus, LINE)
    controllers = _controllers(line)
    asked = controllers.get(device.get("bus").rpartition(".")[0])
    models = [asked] if asked else list(controllers.values())
    if len({"virtio" in model for model in models}) > 1:
        return Unknown("the property `bus` of the disk")
    return Known(f"scsi ({', '.join(models) or 'auto'})", LINE)


def _below(node: Option, nodes: Mapping[str, Option]) -> Iterator[Option]:
    """Yield the nodes below a node: a format has a file below it."""
    seen = set[str]()
    while (name := node.get("file")) in nodes and name not in seen:
        seen.add(name)
        node = nodes[name]
        yield node


def _disk(
    name: str, bus: Fact[str], drives: list[Option], device: Option | None, entry: Mapping[str, Any] | None,
    line: CommandLine,
) -> Disk:  # fmt: skip
    path = next((found for each in drives for key in _FILES if (found := each.get(key))), "")
    inserted: Mapping[str, Any] = entry["inserted"] if entry else {}
    drivers = {value for each in drives for key, value in each.values.items() if key.endswith("driver")}
    if not drives:
        path, drivers = inserted.get("file", ""), {inserted.get("drv", "")}
    protocol = min(_STORAGES.intersection([path.partition(":")[0], *drivers]), default="")
    is_block = path.startswith("/dev/") or "host_device" in drivers
    storage: Fact[str] = Known("block" if is_block else "network" if protocol else "file", LINE)
    if not path and not protocol:
        storage = Unknown("QEMU's monitor (`query-block`)")
    formats = [each.get(key) for each in drives for key in ("format", "driver", "file.driver")]
    format_ = next((name for name in formats if name and name != "throttle"), "raw")
    source = {"protocol": protocol} if protocol else {} if path.startswith("json:") else {"file": path}
    return Disk(
        name, bus=bus, storage=storage, cache=_cache(drives, device, inserted), switches=_switches(device, line, bus),
        rates=_rates_of(drives, inserted, line), handle=(*drives, *([device] if device else [])),
        recorded={"type": format_, **source},
    )  # fmt: skip


def _switches(device: Option | None, line: CommandLine, bus: Fact[str] | None = None) -> Fact[Mapping[str, str]]:
    """The switches of a virtio device. One that no option makes has been plugged in."""
    if device is None and isinstance(bus, Known) and bus.known == "virtio" and not line.has("drive"):
        return Unknown("the device's properties in QEMU's object tree")
    values = {libvirts: device.get(name) for name, libvirts in _SWITCHES.items() if device and device.get(name)}
    values = {name: {"true": "on", "false": "off"}.get(value, value) for name, value in values.items()}
    return Known(values | ({"txmode": "timer"} if device and device.get("tx") == "timer" else {}), LINE)


def _rates_of(drives: list[Option], inserted: Mapping[str, Any], line: CommandLine) -> Fact[Mapping[str, str]]:
    """The rates that limit a disk, by libvirt's names. QEMU's monitor shows those of a drive, not of a filter node."""
    groups = {each.get("throttle-group") for each in drives} - {""}
    limits = [o for o in line.all("object") if o.get("qom-type") == "throttle-group" and o.get("id") in groups]
    found = {k: v for o in limits for k, v in _rates(o.values.items(), "limits.", "x-").items()}
    if not drives and not inserted:
        return Unknown("QEMU's monitor (`query-block`)")
    if "iops" in inserted:
        return Known(_rates((key, str(value)) for key, value in inserted.items()) | found, QMP)
    return Known({k: v for d in drives for k, v in _rates(d.values.items(), "throttling.").items()} | found, LINE)


def _rates(values: Iterable[tuple[str, str]], *prefixes: str) -> dict[str, str]:
    found = dict[str, str]()
    for key, value in values:
        name = key
        for prefix in prefixes:
            name = name.removeprefix(prefix)
        if name in _RATES and value != "0":
            found[_RATES[name]] = value
    return found


def _cache(drives: list[Option], device: Option | None, inserted: Mapping[str, Any]) -> Fact[str]:
    """QEMU's name of the cache mode. A drive has the name or switches, a node only switches. QEMU's monitor has the
    switches as they are; its `writeback` does not count: it follows the guest's driver.
    """
    live: dict[str, bool] = inserted.get("cache") or {}
    if not drives and not live:
        return Unknown("QEMU's monitor (`query-block`)")
    mode = drives[0].get("cache") if drives else ""
    if mode and not live:
        return Known(mode if mode != "off" else "none", LINE)
    switches = {name: any(each.is_on(f"{prefix}{name}") for each in drives for prefix in _LEVELS)
                for name in ("direct", "no-flush")} | live  # fmt: skip
    through = mode in ("writethrough", "directsync") or bool(drives and drives[0].is_off("cache.writeback"))
    through = through or (device is not None and device.is_off("write-cache"))
    source = QMP if live else LINE
    if switches["direct"]:
        return Known("directsync" if through else "none", source)
    return Known("unsafe" if switches["no-flush"] else "writethrough" if through else "writeback", source)


# ---- cards


def _cards(
    line: CommandLine, answers: Mapping[str, Any], machine: str, architecture: Fact[str]
) -> Fact[tuple[Card, ...]]:
    live = dict(_live_cards(answers["networks"])) if answers.get("networks") is not None else None
    if line.unread and live is None:
        return _unread(line)
    listed = [_card(number, *pair) for number, pair in enumerate(_pairs(line, machine, architecture))]
    if live is None:
        return Known(tuple(listed), LINE)
    cards = [card for card in listed if card.mac in live]
    plugged = Unknown("the device's properties in QEMU's object tree")
    for mac, (model, network) in live.items():
        if all(card.mac != mac for card in cards):
            name = "virtio" if model.startswith("virtio") else model
            cards.append(Card(
                mac, network=Known(_NETWORKS.get(network, network), QMP), model=Known(name, QMP),
                carrier=Known("" if network == "tap" else "qemu", QMP), queues=plugged, switches=plugged,
                offloads=plugged, bandwidth=Known({}, QMP), handle=(),
            ))  # fmt: skip
    return Known(tuple(cards), QMP)


def _live_cards(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """MAC → model and type of the backend, by `info network`; a card of several queues has several lines."""
    lines = list(_NIC.finditer(text.replace("\r", "")))
    for match, following in zip_longest(lines, lines[1:]):
        if match[3] == "nic" and match[5]:
            peer = following[3] if following is not None and following[1] else "none"
            yield match[5].lower(), (match[4], "hubport" if match[1] else peer)


def mac_of(number: int) -> str:
    """QEMU's default MAC address of the n-th card."""
    return (_FIRST_MAC + number).to_bytes(6, "big").hex(":")


def _pairs(
    line: CommandLine, machine: str, architecture: Fact[str]
) -> Iterator[tuple[Option | None, Option, tuple[Option, ...]]]:
    """Yield backend, card and the options that make them. -nic and the default network are both in one."""
    backends = {option.get("id"): option for option in line.all("netdev")}
    is_pc = machine.startswith(_PC) or (not machine and isinstance(architecture, Known) and architecture.known in X86)
    default = {"model": "e1000e" if "q35" in machine else "e1000"} if is_pc else {}

    def as_device(option: Option) -> Option:
        model = {"virtio": "virtio-net-pci"}.get(option.get("model"), option.get("model"))
        return option.with_values({**default, **({"model": model} if model else {})})

    for device in line.all("device"):
        if device.get("netdev") or device.get("driver").startswith(_CARDS):
            backend = backends.get(device.get("netdev"), Option("netdev") if not device.get("netdev") else None)
            yield backend, device, (*([backend] if backend and backend.text else []), device)
    for option in line.all("nic"):
        if option.get("type") != "none":
            yield option, as_device(option), (option,)
    legacy = [option for option in line.all("net") if option.get("type") not in ("nic", "none")]
    for option in line.all("net"):
        if option.get("type") == "nic":
            named = backends.get(option.get("netdev")) if option.get("netdev") else None
            backend = named or (legacy or [Option("netdev")])[0]
            yield backend, as_device(option), (*([backend] if backend.text else []), option)
    if not line.has("netdev", "nic", "net", "nodefaults") and is_pc:
        yield Option("nic", "", {"type": "user"}), Option("nic", "", default), ()


def _card(number: int, backend: Option | None, device: Option, options: tuple[Option, ...]) -> Card:
    """A card. `backend` is None where no option has the one that the card names."""
    model = device.get("driver", "model")
    is_virtio = model.startswith("virtio")
    unread = Unknown("QEMU's monitor (`info network`)")
    kind = backend.get("type") if backend else ""
    if kind == "stream" and backend and "passt" in backend.text:
        kind = "passt"
    carrier = "" if kind != "tap" or not backend else "vhost" if _has_vhost(backend) else "qemu"
    return Card(
        (device.get("mac", "macaddr") or mac_of(number)).lower(),
        network=unread if backend is None else Known(_NETWORKS.get(kind, kind) or "none", LINE),
        model=Known("virtio" if is_virtio else model, LINE) if model else Unknown("QEMU's monitor (`info network`)"),
        carrier=unread if backend is None else Known(carrier, LINE),
        queues=unread if backend is None else Known(queues(backend, device), LINE),
        switches=Known(_switches_of(device) if is_virtio else {}, LINE), offloads=Known(_offloads(device), LINE),
        bandwidth=Known({}, LINE), handle=options,
    )  # fmt: skip


def _switches_of(device: Option) -> Mapping[str, str]:
    return _switches(device, CommandLine("", ())).known


def _has_vhost(backend: Option) -> bool:
    return backend.is_on("vhost") or bool(backend.get("vhostfd", "vhostfds")) or backend.is_on("vhostforce")


def queues(backend: Option, device: Option) -> int:
    """Number of queue pairs that the guest can use: the backend's, if the card has several too."""
    count = int(backend.get("queues") or len([fd for fd in backend.get("fds").split(":") if fd]) or 1)
    return count if device.is_on("mq") else 1


def _offloads(device: Option) -> dict[str, tuple[str, ...]]:
    sides = {side: {name: device.get(f"{side}_{name}") for name in OFFLOADS} for side in ("host", "guest")}
    sides["host"] |= {name: device.get(name) for name in ("csum", "gso", "mrg_rxbuf") if device.get(name)}
    off = {
        side: tuple(n for n, value in names.items() if value in ("off", "false", "no")) for side, names in sides.items()
    }
    return {side: names for side, names in off.items() if names}
