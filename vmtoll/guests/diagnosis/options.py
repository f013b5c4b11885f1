"""Write the changes of a diagnosis as options of QEMU's command line, with the options that they replace."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtoll.agent.protocol import Process
from vmtoll.guests.diagnosis.definition import cpu_set, cpus, vcpus
from vmtoll.guests.diagnosis.facts import Facts
from vmtoll.guests.diagnosis.processor import USEFUL
from vmtoll.hypervisors.command_line import CommandLine, Option, parse_option, shell_text
from vmtoll.hypervisors.definition import Definition
from vmtoll.model.diagnosis import Edit, State, Step, Tuning

# Properties that virtio devices do not have.
_NOT_OF_VIRTIO = ("bus", "unit", "scsi-id", "channel", "lun", "device_id", "vendor", "product", "ver", "wwn",
                  "rotation_rate", "removable", "model")  # fmt: skip
_RATE = re.compile(r"(throttling\.)?(bps|iops)([-_].*)?|throttling\..*")
_UNIT = re.compile(r".*\.(service|scope|slice)")
Exchange = tuple[Sequence[Option], Sequence[Option]]  # new options, options that they replace


@dataclass(frozen=True)
class PlainGuest:
    """A guest of plain QEMU. `numbers`: number of each virtual CPU → its thread ID, if known."""

    line: CommandLine
    definition: Definition
    process: Process
    facts: Facts
    numbers: Mapping[int, int]


def with_options(steps: Sequence[Step], guest: PlainGuest) -> tuple[Step, ...]:
    """The steps with QEMU's options or commands instead of edits of a definition."""
    return tuple(_with_options(step, guest) for step in steps)


def _with_options(step: Step, guest: PlainGuest) -> Step:
    plain = replace(step, changes=(), xml="")
    if step.state is not State.LACKING:
        return plain
    if step.tuning is Tuning.CPU_LIMIT:
        return with_quotas(plain, guest.facts)
    if step.tuning is Tuning.PINNING:
        return _with_pins(plain, step.changes, guest)
    exchange = _EXCHANGES[step.tuning](step, guest) if step.tuning in _EXCHANGES else None
    if exchange is None:
        return plain
    new_options, replaced = exchange
    return replace(plain, options=shell_text(new_options), instead=shell_text(replaced))


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


def _with_pins(step: Step, changes: Sequence[Edit], guest: PlainGuest) -> Step:
    """Pin by taskset, because QEMU has no option for it. The pins last as long as the process."""
    chosen = [cpus(c.value)[0] for c in changes if c.value and "vcpupin" in c.xpath and c.xpath.endswith("cpuset")]
    threads = {thread["tid"]: cpu_set(thread["cpus"]) for thread in guest.process["threads"]}
    pairs = [(guest.numbers[number], cpu) for number, cpu in enumerate(chosen) if number in guest.numbers]
    pin = [["taskset", "-pc", str(cpu), str(tid)] for tid, cpu in pairs]
    back = [["taskset", "-pc", threads[tid], str(tid)] for tid, _ in pairs if tid in threads]
    return replace(step, apply="; ".join(map(shlex.join, pin)), undo="; ".join(map(shlex.join, back)))


def _kvm(step: Step, guest: PlainGuest) -> Exchange:
    machine, asked = guest.line.last("machine"), guest.line.all("accel")
    replaced = [*asked, *([machine] if machine and machine.get("accel") else [])]
    kept = [machine.with_values({"accel": None})] if machine and machine.get("accel") else []
    return [parse_option("accel", "kvm"), *kept], replaced


def _model(step: Step, guest: PlainGuest) -> Exchange:
    before = guest.line.last("cpu")
    kept = {key: value for key, value in (before.values if before else {}).items() if _is_kept(key, value)}
    name = "host" if guest.definition.domain.get("type") == "kvm" else "max"
    return [Option("cpu").with_values({"model": name, **kept})], [before] if before else []


def _is_kept(key: str, value: str) -> bool:
    """Return whether a CPU property stays: an interface of KVM or Hyper-V, or an instruction that the user switched off
    and that is not useful here.
    """
    return key.startswith(("kvm", "hv")) or (value == "off" and key not in USEFUL)


def _timers(step: Step, guest: PlainGuest) -> Exchange:
    new_options, replaced = list[Option](), list[Option]()
    cpu = guest.line.last("cpu")
    if cpu and cpu.is_off("kvmclock"):
        new_options.append(cpu.with_values({"kvmclock": None}))
        replaced.append(cpu)
    if "HPET" in step.current:
        machine = guest.line.last("machine")
        new_options.append(machine.with_values({"hpet": "off"}) if machine else parse_option("machine", "hpet=off"))
        replaced += [machine] if machine else []
    return new_options, replaced


def _network(step: Step, guest: PlainGuest) -> Exchange | None:
    bridges, options = guest.facts.get("bridges", []), guest.definition.cards[step.device]
    if not bridges or not options:
        return None
    backend = options[0]
    kept = {key: value for key, value in backend.values.items() if key in ("id", "mac", "model")}
    return [Option(backend.name).with_values({"type": "bridge", "br": bridges[0], **kept})], [backend]


def _card(step: Step, guest: PlainGuest) -> Exchange:
    options = guest.definition.cards[step.device]
    if not options:  # QEMU's default network
        return [parse_option("nic", "user,model=virtio-net-pci")], []
    card = options[-1]
    key = "driver" if card.name == "device" else "model"
    return [card.with_values({key: "virtio-net-pci"})], [card]


def _bus(step: Step, guest: PlainGuest) -> Exchange:
    device = guest.definition.disks[step.device][-1]
    if device.name == "device":
        dropped = dict.fromkeys(_NOT_OF_VIRTIO)
        return [device.with_values({**dropped, "driver": "virtio-blk-pci"})], [device]
    return [_as_drive(device).with_values({"if": "virtio", "bus": None, "unit": None})], [device]


def _as_drive(disk: Option) -> Option:
    """`-hda FILE` as -drive."""
    return disk if disk.name == "drive" else Option("drive").with_values({"file": disk.text, "if": "ide"})


def _cache(step: Step, guest: PlainGuest) -> Exchange:
    drives = [option for option in guest.definition.disks[step.device] if option.name != "device"]
    return [_without_cache(option) for option in drives], drives


def _without_cache(drive: Option) -> Option:
    if drive.name != "blockdev":
        old = dict.fromkeys(("cache.direct", "cache.no-flush", "cache.writeback"))
        return _as_drive(drive).with_values({**old, "cache": "none"})
    below = ["", *(f"{key.removesuffix('driver')}" for key in drive.values if key.endswith(".driver"))]
    return drive.with_values({f"{prefix}cache.{key}": value for prefix in below for key, value in _DIRECT.items()})


_DIRECT = {"direct": "on", "no-flush": "off"}


def _disk_limit(step: Step, guest: PlainGuest) -> Exchange | None:
    options = guest.definition.disks.get(step.device, ())
    limited = [option for option in options if any(_RATE.fullmatch(key) for key in option.values)]
    groups = {option.get("throttle-group") for option in options} - {""}
    limits = [option for option in guest.line.all("object") if option.get("id") in groups]
    new_options = [_without(option, lambda key: bool(_RATE.fullmatch(key))) for option in limited]
    new_options += [_without(option, lambda key: key.startswith(("limits.", "x-"))) for option in limits]
    return (new_options, [*limited, *limits]) if new_options else None


def _without(before: Option, is_dropped: Callable[[str], bool]) -> Option:
    return before.with_values({key: None for key in before.values if is_dropped(key)})


def _vhost(step: Step, guest: PlainGuest) -> Exchange | None:
    backend = guest.definition.cards[step.device][0]
    return ([backend.with_values({"vhost": "on"})], [backend]) if backend.get("type") == "tap" else None


def _switches(*names: str) -> Callable[[Step, PlainGuest], Exchange]:
    """The exchange for a device without these switches."""

    def exchange(step: Step, guest: PlainGuest) -> Exchange:
        devices = {**guest.definition.disks, **guest.definition.cards}[step.device]
        return [devices[-1].with_values(dict.fromkeys(names))], [devices[-1]]

    return exchange


def _offloads(step: Step, guest: PlainGuest) -> Exchange:
    device = guest.definition.cards[step.device][-1]
    off = [key for key in device.values if device.is_off(key) and key.removeprefix("host_").removeprefix("guest_") in
           ("csum", "gso", "tso4", "tso6", "ecn", "ufo", "mrg_rxbuf")]  # fmt: skip
    return [device.with_values(dict.fromkeys(off))], [device]


def _multiqueue(step: Step, guest: PlainGuest) -> Exchange | None:
    backend, *devices = guest.definition.cards[step.device]
    if backend.name != "netdev" or backend.get("type") not in ("tap", "vhost-user") or backend.get("fd", "fds"):
        return None
    queues = min(vcpus(guest.definition.domain), 256)
    vectors = {"vectors": str(2 * queues + 2)}  # of MSI-X: a device of microvm, on no PCI bus, has none
    of_devices = [{"mq": "on", **(vectors if "pci" in device.get("driver") else {})} for device in devices]
    new_options = [
        backend.with_values({"queues": str(queues)}),
        *(device.with_values(values) for device, values in zip(devices, of_devices, strict=True)),
    ]
    return new_options, [backend, *devices]


def _huge_pages(step: Step, guest: PlainGuest) -> Exchange:
    backends = [option for option in guest.line.all("object") if option.get("qom-type").startswith("memory-backend")]
    if not backends:
        return [parse_option("mem-path", "/dev/hugepages"), parse_option("mem-prealloc", "")], []
    huge_pages = {"qom-type": "memory-backend-memfd", "mem-path": None, "hugetlb": "on", "prealloc": "on"}
    return [option.with_values(huge_pages) for option in backends], backends


def _halt_polling(step: Step, guest: PlainGuest) -> Exchange | None:
    if not guest.line.has("kernel"):
        return None
    before = guest.line.last("append")
    text = f"{before.text if before else ''} idle=poll".strip()
    return [parse_option("append", text)], [before] if before else []


_EXCHANGES: Mapping[Tuning, Callable[[Step, PlainGuest], Exchange | None]] = {
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
