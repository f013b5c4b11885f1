"""Write the changes of a diagnosis as options of QEMU's command line, with the options that they replace."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vmtoll.agent.protocol import Process
from vmtoll.guests.diagnosis.facts import Facts
from vmtoll.guests.diagnosis.rules import USEFUL, Finding
from vmtoll.hypervisors.command_line import CommandLine, Option, parse_command_line, parse_option, shell_text
from vmtoll.hypervisors.guest_config import GuestConfig, Known, cpu_set, flag_name
from vmtoll.hypervisors.qemu_config import OFFLOADS
from vmtoll.model.diagnosis import State, Step, Tuning

# Properties that a virtio device has as well as an emulated one: of both kinds, of disks, of cards.
_OF_DEVICES = ("id", "bootindex", "addr", "multifunction", "romfile", "rombar")
_OF_DISKS = ("drive", "serial", "write-cache", "share-rw", "rerror", "werror", "logical_block_size",
             "physical_block_size", "min_io_size", "opt_io_size", "discard_granularity", "iothread")  # fmt: skip
_OF_CARDS = ("netdev", "mac", "bus")
_OF_FILES = ("mem-path", "align", "pmem", "discard-data", "readonly", "rom", "offset")  # of memory-backend-file alone
_GOOD = {"ioeventfd": "on", "event_idx": "on", "tx": "bh", "iommu_platform": "off", "ats": "off"}
_INDEXES = {"hda": "0", "hdb": "1", "hdc": "2", "hdd": "3"}
_RATE = re.compile(r"(throttling\.)?(bps|iops)([-_].*)?|throttling\..*")
_UNIT = re.compile(r".*\.(service|scope|slice)")
Exchange = tuple[Sequence[Option], Sequence[Option]]  # new options, options that they replace


@dataclass(frozen=True)
class OptionsWriter:
    """Takes steps by options of a guest of plain QEMU. `numbers`: number of each virtual CPU → its thread ID."""

    line: CommandLine
    guest: GuestConfig
    facts: Facts
    process: Process | None = None
    numbers: Mapping[int, int] = field(default_factory=dict)

    def __call__(self, finding: Finding) -> Step:
        """The step with QEMU's options or commands that take it."""
        step = finding.step
        if step.state is not State.LACKING:
            return step
        if step.tuning is Tuning.CPU_LIMIT:
            return with_quotas(step, self.facts)
        if step.tuning is Tuning.PINNING:
            return self._with_pins(step, finding.wanted or ())
        exchange = _EXCHANGES[step.tuning](finding, self) if step.tuning in _EXCHANGES else None
        if exchange is None:
            return step
        return replace(step, options=shell_text(exchange[0]), instead=shell_text(exchange[1]))

    def _with_pins(self, step: Step, chosen: Sequence[int]) -> Step:
        """Pin by taskset, because QEMU has no option for it. The pins last as long as the process."""
        threads = {t["tid"]: cpu_set(t["cpus"]) for t in (self.process["threads"] if self.process else ())}
        pairs = [(self.numbers[number], cpu) for number, cpu in enumerate(chosen) if number in self.numbers]
        pin = [["taskset", "-pc", str(cpu), str(tid)] for tid, cpu in pairs]
        back = [["taskset", "-pc", threads[tid], str(tid)] for tid, _ in pairs if tid in threads]
        return replace(step, apply="; ".join(map(shlex.join, pin)), undo="; ".join(map(shlex.join, back)))


def with_quotas(step: Step, facts: Facts) -> Step:
    """The step with the commands that remove the quotas of the guest's units, and those that set them again."""
    limited_groups = [group for group in facts.get("groups", ()) if group["cpus"] and _UNIT.fullmatch(group["name"])]
    lift_commands = [["systemctl", "set-property", group["name"], "CPUQuota="] for group in limited_groups]
    restore_commands = [
        ["systemctl", "set-property", g["name"], f"CPUQuota={100 * (g['cpus'] or 0):g}%"] for g in limited_groups
    ]
    return replace(
        step, apply="; ".join(map(shlex.join, lift_commands)), undo="; ".join(map(shlex.join, restore_commands))
    )


def _kvm(finding: Finding, guest: OptionsWriter) -> Exchange:
    asked, machines = guest.line.all("accel"), [m for m in guest.line.all("machine") if m.get("accel")]
    kept = [option for machine in machines if (option := machine.with_values({"accel": None})).values]
    return [parse_option("accel", "kvm"), *kept], [*asked, *machines]


def _model(finding: Finding, guest: OptionsWriter) -> Exchange:
    before = guest.line.last("cpu")
    kept = {key: value for key, value in (before.values if before else {}).items() if _is_kept(key, value)}
    kind = guest.guest.domain_type  # `max` is right for KVM as well
    name = "host" if isinstance(kind, Known) and kind.known == "kvm" else "max"
    return [Option("cpu").with_values({"model": name, **kept})], [before] if before else []


def _is_kept(key: str, value: str) -> bool:
    """Return whether a CPU property stays: an interface of KVM or Hyper-V, or an instruction that the user switched off
    and that is not useful here.
    """
    return key.startswith(("kvm", "hv")) or (value in ("off", "no", "false") and flag_name(key) not in USEFUL)


def _timers(finding: Finding, guest: OptionsWriter) -> Exchange:
    new_options, replaced = list[Option](), list[Option]()
    cpu = guest.line.last("cpu")
    if cpu and "kvmclock" in finding.step.current:
        off = {key: None for key in ("kvmclock", "kvm-clock", "kvm") if cpu.is_off(key)}
        new_options.append(cpu.with_values(off))
        replaced.append(cpu)
    if "HPET" in finding.step.current:
        machine = guest.line.last("machine")
        new_options.append(machine.with_values({"hpet": "off"}) if machine else parse_option("machine", "hpet=off"))
        replaced += [machine] if machine else []
    return new_options, replaced


def _network(finding: Finding, guest: OptionsWriter) -> Exchange | None:
    bridges, options = guest.facts.get("bridges", []), finding.device.handle
    if not bridges or not options:
        return None
    backend = options[0]
    kept = {key: value for key, value in backend.values.items() if key in ("id", "mac", "model")}
    return [Option(backend.name).with_values({"type": "bridge", "br": bridges[0], **kept})], [backend]


def _card(finding: Finding, guest: OptionsWriter) -> Exchange | None:
    options = finding.device.handle
    if not options:  # QEMU's default network, or a card that was plugged in
        is_default = not guest.line.has("netdev", "nic", "net", "nodefaults")
        return ([parse_option("nic", "user,model=virtio-net-pci")], []) if is_default else None
    card = options[-1]
    if card.name != "device":
        return [card.with_values({"model": "virtio-net-pci"})], [card]
    kept = _OF_CARDS if "usb" not in card.get("driver") and "isa" not in card.get("driver") else _OF_CARDS[:-1]
    return [_with_driver(card, "virtio-net-pci", kept, guest.line)], [card]


def _set_for_all(line: CommandLine, driver: str) -> Mapping[str, str]:
    """The properties that -global sets for each device of a driver."""
    return parse_command_line(["", *line.globals_of(driver), "-device", driver]).all("device")[0].values


def _is_offload(key: str) -> bool:
    return key.removeprefix("host_").removeprefix("guest_") in OFFLOADS


def _with_driver(device: Option, driver: str, kept: Sequence[str], line: CommandLine) -> Option:
    """The device with another driver, and those properties that it has, too; none of the bad ones that -global sets."""
    dropped = {key: None for key in device.values if key not in (*_OF_DEVICES, *kept)}
    set_for_all = _set_for_all(line, driver)
    good = {key: value for key, value in _GOOD.items() if set_for_all.get(key, value) != value}
    good |= {key: "on" for key, value in set_for_all.items() if value == "off" and _is_offload(key)}
    return device.with_values({**dropped, "driver": driver, **good})


def _bus(finding: Finding, guest: OptionsWriter) -> Exchange | None:
    if not finding.device.handle:
        return None
    device = finding.device.handle[-1]
    if device.name == "device":
        return [_with_driver(device, "virtio-blk-pci", _OF_DISKS, guest.line)], [device]
    return [_as_drive(device).with_values({"if": "virtio", "bus": None, "unit": None})], [device]


def _as_drive(disk: Option) -> Option:
    """`-hda FILE` as -drive."""
    if disk.name == "drive":
        return disk
    place = {"if": "ide", "index": _INDEXES[disk.name]} if disk.name in _INDEXES else {"if": disk.name}
    return Option("drive").with_values({"file": disk.text, **place})


def _cache(finding: Finding, guest: OptionsWriter) -> Exchange | None:
    drives = [option for option in finding.device.handle if option.name != "device"]
    return ([*map(_without_cache, drives)], drives) if drives else None


def _without_cache(drive: Option) -> Option:
    if drive.name != "blockdev":
        old = dict.fromkeys(("cache.direct", "cache.no-flush", "cache.writeback"))
        return _as_drive(drive).with_values({**old, "cache": "none"})
    below = ["", *(f"{key.removesuffix('driver')}" for key in drive.values if key.endswith(".driver"))]
    return drive.with_values({f"{prefix}cache.{key}": value for prefix in below for key, value in _DIRECT.items()})


_DIRECT = {"direct": "on", "no-flush": "off"}


def _disk_limit(finding: Finding, guest: OptionsWriter) -> Exchange | None:
    options = finding.device.handle if finding.device else ()
    limited = [option for option in options if any(_RATE.fullmatch(key) for key in option.values)]
    groups = {option.get("throttle-group") for option in options} - {""}
    limits = [option for option in guest.line.all("object") if option.get("id") in groups]
    new_options = [_without(option, lambda key: bool(_RATE.fullmatch(key))) for option in limited]
    new_options += [_without(option, lambda key: key.startswith(("limits.", "x-"))) for option in limits]
    return (new_options, [*limited, *limits]) if new_options else None


def _without(before: Option, is_dropped: Callable[[str], bool]) -> Option:
    return before.with_values({key: None for key in before.values if is_dropped(key)})


def _vhost(finding: Finding, guest: OptionsWriter) -> Exchange | None:
    backend = next(iter(finding.device.handle), None)
    return ([backend.with_values({"vhost": "on"})], [backend]) if backend and backend.get("type") == "tap" else None


def _switches(*switches: str) -> Callable[[Finding, OptionsWriter], Exchange | None]:
    """The exchange for a device without these switches; one that another option sets gets its good value."""

    def exchange(finding: Finding, guest: OptionsWriter) -> Exchange | None:
        device = next(reversed(finding.device.handle), None)
        if device is None or device.name not in ("device", "drive", "nic", "net"):
            return None
        names = {name.replace("-", "_"): name for name in device.values}
        return [_without_bad(device, guest, {names[key]: _GOOD[key] for key in switches if key in names})], [device]

    return exchange


def _offloads(finding: Finding, guest: OptionsWriter) -> Exchange | None:
    device = next(reversed(finding.device.handle), None)
    if device is None:
        return None
    off = {key: "on" for key in device.values if device.is_off(key) and _is_offload(key)}
    return [_without_bad(device, guest, off)], [device]


def _without_bad(device: Option, guest: OptionsWriter, good: Mapping[str, str]) -> Option:
    """The device without these properties; one that -set or -global sets gets its good value."""
    own, set_for_all = parse_option(device.name, device.text).values, _set_for_all(guest.line, device.get("driver"))
    return device.with_values({k: None if k in own and k not in set_for_all else v for k, v in good.items()})


def _multiqueue(finding: Finding, guest: OptionsWriter) -> Exchange | None:
    backend, *devices = finding.device.handle or (Option(""),)
    if backend.name != "netdev" or backend.get("type") not in ("tap", "vhost-user") or backend.get("fd", "fds"):
        return None
    queues = finding.wanted[0]
    vectors = {"vectors": str(2 * queues + 2)}  # of MSI-X: a device of microvm, on no PCI bus, has none
    of_devices = [{"mq": "on", **(vectors if "pci" in device.get("driver") else {})} for device in devices]
    new_options = [
        backend.with_values({"queues": str(queues)}),
        *(device.with_values(values) for device, values in zip(devices, of_devices, strict=True)),
    ]
    return new_options, [backend, *devices]


def _huge_pages(finding: Finding, guest: OptionsWriter) -> Exchange | None:
    backends = [option for option in guest.line.all("object") if option.get("qom-type").startswith("memory-backend")]
    if not backends:
        return [parse_option("mem-path", "/dev/hugepages"), parse_option("mem-prealloc", "")], guest.line.all(
            "mem-path"
        )
    if any(option.text.count("host-nodes=") > 1 for option in backends):
        return None  # a repeated key, which vmtoll does not write
    huge_pages = {"qom-type": "memory-backend-memfd", "hugetlb": "on", "prealloc": "on"} | dict.fromkeys(_OF_FILES)
    return [option.with_values(huge_pages) for option in backends], backends


def _halt_polling(finding: Finding, guest: OptionsWriter) -> Exchange | None:
    if not guest.line.has("kernel"):
        return None
    before = guest.line.last("append")
    text = f"{before.text if before else ''} idle=poll".strip()
    return [parse_option("append", text)], [before] if before else []


_EXCHANGES: Mapping[Tuning, Callable[[Finding, OptionsWriter], Exchange | None]] = {
    Tuning.KVM: _kvm, Tuning.CPU_MODEL: _model, Tuning.TIMERS: _timers, Tuning.NETWORK: _network, Tuning.CARD: _card,
    Tuning.DISK_BUS: _bus, Tuning.CACHE: _cache, Tuning.DISK_LIMIT: _disk_limit, Tuning.VHOST: _vhost,
    Tuning.IOMMU: _switches("iommu_platform", "ats"), Tuning.NOTIFICATIONS: _switches("ioeventfd", "event_idx", "tx"),
    Tuning.OFFLOADS: _offloads, Tuning.MULTIQUEUE: _multiqueue, Tuning.HUGE_PAGES: _huge_pages,
    Tuning.HALT_POLLING: _halt_polling,
}  # fmt: skip


def unchanged(pid: int, guest: str) -> tuple[str, str]:
    """The commands that save a guest's command line in a file, and start the guest from that file."""
    file = shlex.quote(f"{guest}-before.cmdline")
    return f"cp /proc/{pid}/cmdline {file}", f"xargs -0 -a {file} env"
