"""The tuning steps that a guest has or lacks: rules over a neutral guest and the facts of its host.

A rule reads facts by `known`, which raises where no source has the fact: the step is unknown then, with what would
tell. So no step counts as taken unless each fact that it rests on was read.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vmtoll.guests.diagnosis import pins
from vmtoll.guests.diagnosis.facts import USUAL_WEIGHT, Facts, Group, fact
from vmtoll.hypervisors.guest_config import X86, Card, Disk, GuestConfig, Known, UnknownFactError
from vmtoll.model.diagnosis import State, Step, Tuning

# CPU models that leave the host's newer instructions out: QEMU's own of x86 (qemu64, kvm64, …) and those of 2008.
_GENERIC = re.compile(
    r"(qemu|kvm)(32|64)|486|pentium[23]?|core2duo|coreduo|n270|athlon|phenom|Conroe|Penryn|Nehalem|Opteron_G[123]"
)
# Instructions that a web server's work uses: encryption, checksums, compression, copying, searching; and those that
# help the guest's kernel (pcid, invpcid). By Linux's names.
USEFUL = ("aes", "pclmulqdq", "sha_ni", "avx", "avx2", "avx512f", "vaes", "ssse3", "sse4_1", "sse4_2", "popcnt",
           "bmi2", "adx", "rdrand", "erms", "fsrm", "pcid", "invpcid")  # fmt: skip
_POLLING = re.compile(r"(?:^|\s)idle=poll(?:\s|$)")
_MOST_QUEUES = 256  # MAX_TAP_QUEUES in the kernel's drivers/net/tap.c and tun.c
# Where vhost can carry the packets: a card that is a tap or macvtap device of the host.
_OF_THE_HOST = ("bridge", "network", "direct", "ethernet")
_NO_PROCESS = (*_OF_THE_HOST, "hostdev", "vdpa", "vhostuser")  # vhost-user: by a program for that, such as Open vSwitch
_NO_NETWORK = ("none", "null", "internal")
# Who carries packets in a process, QEMU's or another.
_BY_PROCESS = ("user", "user (passt)", "vhostuser (passt)", "socket", "stream", "dgram", "vde", "l2tpv3", "hubport",
               "udp", "server", "client", "mcast")  # fmt: skip
_WHOSE = {"quota": "each virtual CPU", "global_quota": "the whole guest", "emulator_quota": "QEMU's other threads",
          "iothread_quota": "each I/O thread"}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A step, the device that it is of, and what to set: the CPUs to pin to, the number of queues, …"""

    step: Step
    device: Any = None
    wanted: Any = None


Result = tuple[State, str] | Finding  # state and what the guest has


def findings(guest: GuestConfig, facts: Facts) -> Iterator[Finding]:
    """Every tuning step of the guest with its state, in the order in which to take them."""
    for tuning, devices_of, rule in _RULES:
        try:
            devices = list(devices_of(guest))
        except UnknownFactError as error:
            yield Finding(Step(tuning, State.UNKNOWN, tells=str(error)))
            continue
        for device in devices:
            name = getattr(device, "name", "") if isinstance(device, Disk) else getattr(device, "mac", "")
            if isinstance(device, Card) and device.is_down:
                yield Finding(Step(tuning, State.INAPPLICABLE, name, "its link is down"), device)
                continue
            try:
                result = rule(guest, device, facts)
            except UnknownFactError as error:
                yield Finding(Step(tuning, State.UNKNOWN, name, tells=str(error)), device)
                continue
            if isinstance(result, Finding):
                yield result
            elif result is not None:
                yield Finding(Step(tuning, result[0], name, result[1]), device)


def _found(tuning: Tuning, state: State, current: str = "", *, device: Any = None, host: Mapping[str, int | str] | None,
           wanted: Any = None, tells: str = "") -> Finding:  # fmt: skip
    name = device.mac if isinstance(device, Card) else device.name if isinstance(device, Disk) else ""
    tells = tells if state is State.UNKNOWN else ""
    return Finding(Step(tuning, state, name, current, host=host, tells=tells), device, wanted)


def _if(lacking: object, current: str) -> Result:
    return (State.LACKING if lacking else State.TAKEN), current


# ---- limits


def _cpu_limit(guest: GuestConfig, _: None, facts: Facts) -> Result:
    """A quota, a weight below the usual one, a quota of a control group around the guest."""
    found = [f"{q.cpus:.4g} {'CPUs' if q.cpus > 1 else 'of a CPU'} for {_WHOSE[q.name]}" for q in guest.quotas.known]
    weight, usual = guest.weight.known, USUAL_WEIGHT.get(facts.get("cgroup_version") or 0, 0)
    if weight and not usual and not found:
        raise UnknownFactError("the version of the host's control groups")
    if weight and weight < usual:
        found.append(f"a weight of {weight}, where {usual} is usual")
    whole = any(quota.name == "global_quota" for quota in guest.quotas.known)
    for group in _groups(guest, facts, bool(found)):
        cpus = group["cpus"]
        if cpus and not (whole and _is_its_own(group)) and cpus < guest.vcpus.known:
            found.append(f"{cpus:.4g} CPUs for {group['name']}")
    return _if(found, "; ".join(found))


def _memory_limit(guest: GuestConfig, _: None, facts: Facts) -> Result:
    """A memory limit for QEMU's process, which covers the guest's memory and QEMU's own."""
    limits = guest.memory_limits.known
    found = [f"{size >> 20} MiB ({name})" for name, size in limits.items()]
    for group in _groups(guest, facts, bool(found)):
        if group["memory_bytes"] and not (limits and _is_its_own(group)):
            found.append(f"{group['memory_bytes'] >> 20} MiB for {group['name']}")
    return _if(found, "; ".join(found))


def _groups(guest: GuestConfig, facts: Facts, is_limited: bool) -> Iterable[Group]:
    """The control groups around the guest; one that is off has none."""
    if not guest.running or is_limited:
        return facts.get("groups", ())
    groups: Iterable[Group] = fact(facts, "groups")
    return groups


def _is_its_own(group: Group) -> bool:
    """Return whether libvirt made the group for the guest, and sets there what the definition says."""
    return group["name"].endswith(".scope") or "libvirt" in group["name"]


def _disk_limit(guest: GuestConfig, disk: Disk | None, facts: Facts) -> Result | None:
    """Rates of a disk, and of the host's devices that its files lie on."""
    if disk is None:
        limits = guest.blkio.known
        return (State.LACKING, "; ".join(limits)) if limits else None
    rates = disk.rates.known
    return _if(rates, "; ".join(f"{name} {value}" for name, value in rates.items()))


def _network_limit(guest: GuestConfig, card: Card, facts: Facts) -> Result:
    """The bandwidth of a card, in KiB a second, as libvirt has it."""
    limits = card.bandwidth.known
    return _if(limits, "; ".join(f"{average} KiB/s {way}" for way, average in limits.items()))


# ---- virtual CPUs


def _kvm(guest: GuestConfig, _: None, facts: Facts) -> Result:
    kind, host = guest.domain_type.known, {"kvm": int(facts["kvm_device"])}
    own, architecture = facts.get("architecture"), guest.architecture
    if kind != "kvm" and own and architecture.known not in (own, *(X86 if own == "x86_64" else ())):
        return State.INAPPLICABLE, f"{kind}, {architecture.known} on {own}"
    return _found(Tuning.KVM, State.TAKEN if kind == "kvm" else State.LACKING, kind, host=host)


def _model(guest: GuestConfig, _: None, facts: Facts) -> Result:
    """Lacking if the guest does not see a useful instruction that the host has, or if the model is generic."""
    cpu = guest.cpu.known
    is_generic = cpu.mode == "custom" and bool(_GENERIC.fullmatch(cpu.model))
    try:
        missing = _missing(guest, facts)
    except UnknownFactError:
        if not is_generic:
            raise
        missing = []
    name = cpu.model if cpu.mode == "custom" else cpu.mode
    return _if(missing or is_generic, name + (f", without {' '.join(missing)}" if missing else ""))


def _missing(guest: GuestConfig, facts: Facts) -> list[str]:
    """Useful instructions that the host has and the guest does not see."""
    cpu = guest.cpu.known
    if cpu.mode != "custom" and not cpu.off & {*USEFUL}:
        return []
    if guest.architecture.known not in X86:
        raise UnknownFactError(f"what {cpu.model} leaves out of the host's instructions; vmtoll knows those of x86")
    useful = [flag for flag in USEFUL if flag in fact(facts, "flags")]
    if cpu.mode != "custom":
        return [flag for flag in useful if flag in cpu.off]
    if isinstance(guest.seen_flags, Known):
        return [flag for flag in useful if flag not in guest.seen_flags.known]
    if not isinstance(guest.model_flags, Known) and (certain := [flag for flag in useful if flag in cpu.off]):
        return certain
    sees = (guest.model_flags.known | cpu.on) - cpu.off
    return [flag for flag in useful if flag not in sees]


def _timers(guest: GuestConfig, _: None, facts: Facts) -> Result:
    """kvmclock is KVM's own clock source, on unless a definition says no. So is the HPET: Linux uses it while
    it boots, and QEMU wakes up for it 260 times a second ever after (measured with QEMU 10.0 and Linux 6.12).
    """
    if guest.architecture.known not in X86:
        return State.INAPPLICABLE, ""
    no_clock = guest.kvmclock.known if guest.domain_type.known == "kvm" else ""
    try:
        found = [*filter(None, [no_clock]), *(["HPET"] if guest.hpet.known else [])]
    except UnknownFactError:
        if not no_clock:
            raise
        found = [no_clock]
    return _if(found, ", ".join(found))


def _pinning(guest: GuestConfig, _: None, facts: Facts) -> Finding:
    """Taken when each virtual CPU has its own core, on the node of its memory, and nothing else has them, as far as
    pins on this host can have it so.
    """
    host: dict[str, int | str] = {"cpus": len(facts["cpus"])}
    now, count = guest.pins.known, guest.vcpus.known
    pinned = pins.count_pinned(now, count)
    chosen = pins.chosen(guest, facts)
    if pins.have_each_their_own(now, count):
        fact(facts, "cores"), fact(facts, "nodes")
        faults = pins.faults(guest, now, facts)
        if chosen and faults:
            advised = pins.faults(guest, pins.advised(chosen, facts, as_set=bool(now.together)), facts)
            faults = {kind: text for kind, text in faults.items() if kind not in advised}
        if not faults:
            return _found(Tuning.PINNING, State.TAKEN, f"{pinned}", host=None)
        host["faults"] = "; ".join(faults.values())
    state = State.LACKING if chosen or "faults" in host else State.INAPPLICABLE
    return _found(Tuning.PINNING, state, f"{pinned}", host=host, wanted=chosen)


def _halt_polling(guest: GuestConfig, _: None, facts: Facts) -> Finding:
    """Judge by the kernel command line in the definition; a guest that boots from its disk has its own inside."""
    poll = facts.get("halt_poll_ns")
    host = {} if poll is None else {"halt_poll_ns": poll}
    if guest.domain_type.known != "kvm":
        return _found(Tuning.HALT_POLLING, State.INAPPLICABLE, host=host)
    if _POLLING.search(guest.cmdline):
        return _found(Tuning.HALT_POLLING, State.TAKEN, "idle=poll", host=host)
    state = State.LACKING if guest.kernel.known or poll == 0 else State.UNKNOWN
    return _found(Tuning.HALT_POLLING, state, host=host, tells="idle=poll in the guest's /proc/cmdline")


def _huge_pages(guest: GuestConfig, _: None, facts: Facts) -> Finding:
    pages = facts["hugepages"]
    host: dict[str, int | str] = {"size_kib": pages["size_kib"], "free": pages["free"]}
    if guest.huge_pages.known:
        return _found(Tuning.HUGE_PAGES, State.TAKEN, host=host)
    size = guest.memory_bytes.known if isinstance(guest.memory_bytes, Known) else 0
    host["needed"] = -(-size // (1024 * pages["size_kib"]))
    host["transparent"] = facts.get("transparent_hugepages") or ""
    return _found(Tuning.HUGE_PAGES, State.LACKING, host=host)


# ---- cards


def _network(guest: GuestConfig, card: Card, facts: Facts) -> Result:
    """Packets of the type `user` pass through a TCP stack in a process, QEMU's or passt's; others through a socket."""
    kind = card.network.known
    if kind in _NO_NETWORK:
        return State.INAPPLICABLE, kind
    if kind in _NO_PROCESS:
        return State.TAKEN, kind
    if kind not in _BY_PROCESS:
        raise UnknownFactError(f"who carries the packets of a network of the type {kind}")
    bridges = facts.get("bridges", ["br0"])
    host = {"bridges": len(bridges)}
    return _found(Tuning.NETWORK, State.LACKING, kind, device=card, host=host, wanted=(bridges or [""])[0])


def _card_model(guest: GuestConfig, card: Card, facts: Facts) -> Result:
    if isinstance(card.network, Known) and card.network.known == "hostdev":
        return State.INAPPLICABLE, "hostdev"
    return _if(not card.model.known.startswith("virtio"), card.model.known)


def _vhost(guest: GuestConfig, card: Card, facts: Facts) -> Result | None:
    """Judge by the definition; if that leaves it to libvirt, by the running guest's threads, else by the host."""
    if not card.is_virtio:
        return None
    carrier, kind = card.carrier.known, card.network.known
    if guest.domain_type.known != "kvm" or kind not in _OF_THE_HOST:
        return State.INAPPLICABLE, carrier or kind
    threads = facts.get("vhost_threads")
    if carrier:
        state = State.TAKEN if carrier == "vhost" else State.LACKING
    elif threads is not None:
        state = State.TAKEN if threads else State.LACKING
    else:  # libvirt takes vhost where it can
        state = State.UNKNOWN if facts["vhost_net"] else State.LACKING
    current = carrier or {State.TAKEN: "vhost", State.LACKING: "qemu"}.get(state, "")
    host, tells = {"vhost_net": int(facts["vhost_net"])}, "threads of vhost, once the guest runs"
    return _found(Tuning.VHOST, state, current, device=card, host=host, tells=tells)


def _offloads(guest: GuestConfig, card: Card, facts: Facts) -> Result | None:
    """Checksums and large segments: without them each packet of 1.5 kB goes through the whole path by itself."""
    if not card.is_virtio:
        return None
    off = [f"{side} {' '.join(names)}" for side, names in card.offloads.known.items() if names]
    return _if(off, ", ".join(off))


def _multiqueue(guest: GuestConfig, card: Card, facts: Facts) -> Result | None:
    if not card.is_virtio:
        return None
    needed, kind = min(guest.vcpus.known, _MOST_QUEUES), card.network.known
    if needed == 1 or kind in (*_BY_PROCESS, *_NO_NETWORK):
        return State.INAPPLICABLE, str(card.queues.known)
    queues = card.queues.known
    wanted = (needed, card.carrier.known or ("vhost" if guest.domain_type.known == "kvm" else "qemu"))
    state = State.TAKEN if queues >= needed else State.LACKING
    return _found(Tuning.MULTIQUEUE, state, str(queues), device=card, host=None, wanted=wanted)


# ---- disks, and all devices of virtio


def _bus(guest: GuestConfig, disk: Disk, facts: Facts) -> Result:
    return _if("virtio" not in disk.bus.known, disk.bus.known)


def _cache(guest: GuestConfig, disk: Disk, facts: Facts) -> Result:
    storage = disk.storage.known
    if storage not in ("file", "block", "volume"):
        return State.INAPPLICABLE, storage
    mode = disk.cache.known
    return _if(mode not in ("none", "directsync"), mode or "writeback")


def _iommu(guest: GuestConfig, device: Disk | Card, facts: Facts) -> Result | None:
    """Devices behind a virtual IOMMU: each of their accesses to the guest's memory is looked up, vhost's in QEMU."""
    if not device.is_virtio:
        return None
    behind = device.switches.known.get("iommu") == "on"
    if behind and guest.is_protected.known:
        return State.INAPPLICABLE, ""
    return _if(behind, "iommu='on'" if behind else "")


SLOW = {"ioeventfd": "off", "event_idx": "off", "txmode": "timer"}


def _notifications(guest: GuestConfig, device: Disk | Card, facts: Facts) -> Result | None:
    """How guest and host notify each other of work: by an event of the kernel, and only if the other side waits."""
    if not device.is_virtio:
        return None
    switches = device.switches.known
    found = [f"{name}='{value}'" for name, value in SLOW.items() if switches.get(name) == value]
    return _if(found, " ".join(found))


def _whole(_: GuestConfig) -> Iterable[Any]:
    return (None,)


def _disks(guest: GuestConfig) -> Iterable[Any]:
    return guest.disks.known


def _disks_and_host(guest: GuestConfig) -> Iterable[Any]:
    return (*guest.disks.known, None)


def _cards(guest: GuestConfig) -> Iterable[Any]:
    return guest.cards.known


def _networks(guest: GuestConfig) -> Iterable[Any]:
    """Its cards. Raises UnknownFactError where none has a link, and one of the host's devices may be the card."""
    cards = guest.cards.known
    if guest.host_devices and all(card.is_down for card in cards):
        raise UnknownFactError(f"whether the host's {', '.join(guest.host_devices)} is a network card (`lspci`)")
    return cards


def _devices(guest: GuestConfig) -> Iterable[Any]:
    return (*guest.cards.known, *guest.disks.known)


# In the order of `Tuning`.
_RULES: tuple[tuple[Tuning, Callable[[GuestConfig], Iterable[Any]], Callable[..., Result | None]], ...] = (
    (Tuning.KVM, _whole, _kvm), (Tuning.CPU_LIMIT, _whole, _cpu_limit), (Tuning.MEMORY_LIMIT, _whole, _memory_limit),
    (Tuning.DISK_LIMIT, _disks_and_host, _disk_limit), (Tuning.NETWORK_LIMIT, _cards, _network_limit),
    (Tuning.CPU_MODEL, _whole, _model), (Tuning.TIMERS, _whole, _timers), (Tuning.NETWORK, _networks, _network),
    (Tuning.CARD, _cards, _card_model), (Tuning.DISK_BUS, _disks, _bus), (Tuning.CACHE, _disks, _cache),
    (Tuning.VHOST, _cards, _vhost), (Tuning.IOMMU, _devices, _iommu), (Tuning.NOTIFICATIONS, _devices, _notifications),
    (Tuning.OFFLOADS, _cards, _offloads), (Tuning.MULTIQUEUE, _cards, _multiqueue), (Tuning.PINNING, _whole, _pinning),
    (Tuning.HUGE_PAGES, _whole, _huge_pages), (Tuning.HALT_POLLING, _whole, _halt_polling),
)  # fmt: skip
LIMITS_OF_A_PROCESS = (Tuning.CPU_LIMIT, Tuning.MEMORY_LIMIT)
