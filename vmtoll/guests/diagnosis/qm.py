"""Write the changes of a diagnosis as commands of Proxmox VE, with the commands that undo them."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtoll.guests.diagnosis.facts import USUAL_WEIGHT, Facts
from vmtoll.guests.diagnosis.options import OptionsWriter, with_quotas
from vmtoll.guests.diagnosis.rules import USEFUL, Finding
from vmtoll.hypervisors.command_line import Option
from vmtoll.hypervisors.guest_config import GuestConfig, flag_name
from vmtoll.hypervisors.proxmox_config import CPU, RATES, Config, card_of
from vmtoll.model.diagnosis import State, Step, Tuning

_MOST_QUEUES = 64
# Parts of the option `cpu` that are neither model nor features.
_OF_CPU = ("hidden", "hv-vendor-id", "phys-bits", "guest-phys-bits", "reported-model")
_BEST = "virtio-scsi-single"
# Commands that make a change, and those that undo it.
CommandPair = tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]]


@dataclass(frozen=True)
class QmWriter:
    """Takes steps by `qm`, on a guest of Proxmox VE with this configuration."""

    config: Config
    guest: GuestConfig
    facts: Facts

    def __call__(self, finding: Finding) -> Step:
        """The step with the commands that take it and take it back."""
        step = finding.step
        is_added = finding.device is not None and finding.device.handle is None  # by the option `args`
        if step.state is not State.LACKING or step.tuning not in _COMMANDS or is_added:
            return step
        commands = _COMMANDS[step.tuning](finding, self)
        if commands is None:
            return with_quotas(step, _groups_around(self.facts)) if step.tuning is Tuning.CPU_LIMIT else step
        apply, undo = ("; ".join(map(shlex.join, argvs)) for argvs in commands)
        return replace(step, apply=apply, undo=undo)

    def set(self, **values: str | None) -> list[str]:
        """The command that sets options; None deletes an option."""
        deleted = ",".join(name for name, value in values.items() if value is None)
        words = [word for name, value in values.items() if value is not None for word in (f"--{name}", value)]
        return ["qm", "set", self.config.vmid, *words, *(["--delete", deleted] if deleted else [])]

    def exchange(self, **values: str | None) -> CommandPair:
        """The command that sets options, and the one that sets their present values."""
        return [self.set(**values)], [self.set(**{name: self.config.values.get(name) for name in values})]

    def by_args(self, finding: Finding) -> CommandPair | None:
        """The commands that exchange options of QEMU in the option `args`, which win over the others."""
        line = self.config.args
        written = OptionsWriter(line, self.guest, self.facts)(finding)
        if not written.options or not written.instead:
            return None
        old, new = shlex.split(written.instead), shlex.split(written.options)
        words = shlex.split(self.config.get("args"))
        dashed = [re.sub("^--", "-", word) for word in words]
        at = next((n for n in range(len(words)) if dashed[n : n + len(old)] == old), None)
        if at is None:
            return None
        return self.exchange(args=shlex.join([*words[:at], *new, *words[at + len(old) :]]))


def _groups_around(facts: Facts) -> Facts:
    """The facts without the control group of the guest's scope, which its configuration sets."""
    groups = [group for group in facts.get("groups", ()) if not group["name"].endswith(".scope")]
    return {**facts, "groups": groups}


def _kvm(finding: Finding, guest: QmWriter) -> CommandPair | None:
    return guest.by_args(finding) if guest.config.get("kvm") != "0" else guest.exchange(kvm="1")


def _cpu_limit(finding: Finding, guest: QmWriter) -> CommandPair | None:
    """Delete the limit of CPU time and the weight, where they are below the virtual CPUs and the usual weight."""
    usual_weight = USUAL_WEIGHT.get(guest.facts.get("cgroup_version") or 0, 0)
    at_least = {"cpulimit": guest.config.vcpus, "cpuunits": usual_weight}
    names = [name for name, least in at_least.items() if 0 < float(guest.config.get(name) or 0) < least]
    return guest.exchange(**dict.fromkeys(names)) if names else None


def _model(finding: Finding, guest: QmWriter) -> CommandPair | None:
    """Set the host's CPU. Flags stay, but for those that leave out a useful instruction."""
    if guest.config.args.has("cpu"):
        return guest.by_args(finding)
    parts = guest.config.parts("cpu", "cputype")
    flags = [f for f in parts.pop("flags", "").split(";") if f and not (f[0] == "-" and flag_name(f[1:]) in USEFUL)]
    kept = {key: value for key, value in parts.items() if key in _OF_CPU}
    return guest.exchange(cpu=_joined({"": "host", **({"flags": ";".join(flags)} if flags else {}), **kept}))


def _joined(parts: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" if key else value for key, value in parts.items())


def _timers(finding: Finding, guest: QmWriter) -> CommandPair | None:
    """QEMU merges several -machine; only root may set `args`."""
    values: dict[str, str | None] = {}
    words = shlex.split(guest.config.get("args")) if not guest.config.args.unread else []
    if "kvmclock" in finding.step.current and guest.config.args.has("cpu"):
        last = guest.config.args.last("cpu") or Option("cpu")
        shown = last.with_values({key: None for key in ("kvm", "kvmclock", "kvm-clock") if last.is_off(key)})
        words = [shown.text if word == last.text else word for word in words]
    elif "kvmclock" in finding.step.current:
        parts = guest.config.parts("cpu", "cputype")
        shows = {"hidden": "0"} if parts.get("cputype", "").startswith("custom-") else {}
        kept = {key: value for key, value in parts.items() if key not in ("cputype", "hidden")}
        values["cpu"] = _joined({"": parts.get("cputype", CPU), **kept, **shows})
    if "HPET" in finding.step.current:
        words = [re.sub(r"\bhpet=\w+", "hpet=off", word) for word in words]
        words += [] if any("hpet=off" in word for word in words) else ["-machine", "hpet=off"]
    if words != shlex.split(guest.config.get("args")):
        values["args"] = shlex.join(words)
    return guest.exchange(**values) if values else None


def _card(finding: Finding, guest: QmWriter, **parts: str | None) -> CommandPair:
    """Set parts of a card; None removes a part."""
    name = finding.device.handle
    merged = {**guest.config.parts(name), **parts}
    return guest.exchange(**{name: _joined({key: value for key, value in merged.items() if value is not None})})


def _network(finding: Finding, guest: QmWriter) -> CommandPair | None:
    bridges = sorted(guest.facts.get("bridges", []), key=lambda name: not name.startswith("vmbr"))
    return _card(finding, guest, bridge=bridges[0]) if bridges else None


def _virtio_card(finding: Finding, guest: QmWriter) -> CommandPair:
    name = finding.device.handle
    parts = guest.config.parts(name)
    model, mac = card_of(parts)
    kept = {key: value for key, value in parts.items() if key not in (model, "model", "macaddr", "")}
    address = next((value for value in parts.values() if value.lower() == mac), mac)
    return guest.exchange(**{name: ",".join(filter(None, [f"virtio={address}".rstrip("="), _joined(kept)]))})


def _rate(finding: Finding, guest: QmWriter) -> CommandPair:
    return _card(finding, guest, rate=None)


def _queues(finding: Finding, guest: QmWriter) -> CommandPair:
    return _card(finding, guest, queues=str(min(guest.config.vcpus, _MOST_QUEUES)))


def _disk(finding: Finding, guest: QmWriter, dropped: Callable[[str], bool]) -> CommandPair:
    """Remove parts of a disk's option."""
    name = finding.device.handle
    parts = guest.config.parts(name)
    return guest.exchange(**{name: _joined({key: value for key, value in parts.items() if not dropped(key)})})


def _cache(finding: Finding, guest: QmWriter) -> CommandPair:
    return _disk(finding, guest, lambda key: key == "cache")


def _disk_limit(finding: Finding, guest: QmWriter) -> CommandPair:
    return _disk(finding, guest, lambda key: key.removesuffix("_length").replace("_max", "") in RATES)


def _bus(finding: Finding, guest: QmWriter) -> CommandPair | None:
    """Set the controller of a SCSI disk; turn a disk of another bus into a SCSI disk, each with its own controller."""
    config, old = guest.config, finding.device.handle
    controller: dict[str, str | None] = {"scsihw": _BEST} if config.get("scsihw") != _BEST else {}
    if old.startswith("scsi"):
        return guest.exchange(**controller)
    free = (f"scsi{n}" for n in range(31) if f"scsi{n}" not in config.values)
    moving = [name for name in config.disks if not name.startswith(("scsi", "virtio"))]
    new = dict(zip(moving, free, strict=False)).get(old)
    if new is None:
        return None
    booted: dict[str, str | None] = {}
    boot = re.sub(rf"(?<=[=;]){old}(?=;|$)", new, config.get("boot"))
    booted |= {"boot": boot} if boot != config.get("boot") else {}
    booted |= {"bootdisk": new} if config.get("bootdisk") == old else {}
    value = _joined({key: value for key, value in config.parts(old).items() if key != "model"})
    new_values = {**controller, **booted, new: value}
    before = {name: config.values.get(name) for name in (*controller, *booted)}
    old_values = {**before, old: config.get(old)}
    return [guest.set(**{old: None}), guest.set(**new_values)], [guest.set(**{new: None}), guest.set(**old_values)]


def _pinning(finding: Finding, guest: QmWriter) -> CommandPair | None:
    return guest.exchange(affinity=",".join(map(str, sorted(finding.wanted)))) if finding.wanted else None


def _huge_pages(finding: Finding, guest: QmWriter) -> CommandPair:
    """Proxmox allocates the pages when the guest starts, and requires NUMA for them."""
    numa: dict[str, str | None] = {} if guest.config.get("numa") == "1" else {"numa": "1"}
    return guest.exchange(**numa, hugepages="2")


_COMMANDS: Mapping[Tuning, Callable[[Finding, QmWriter], CommandPair | None]] = {
    Tuning.KVM: _kvm, Tuning.CPU_LIMIT: _cpu_limit, Tuning.DISK_LIMIT: _disk_limit, Tuning.NETWORK_LIMIT: _rate,
    Tuning.CPU_MODEL: _model, Tuning.TIMERS: _timers, Tuning.NETWORK: _network, Tuning.CARD: _virtio_card,
    Tuning.DISK_BUS: _bus, Tuning.CACHE: _cache, Tuning.MULTIQUEUE: _queues, Tuning.PINNING: _pinning,
    Tuning.HUGE_PAGES: _huge_pages,
}  # fmt: skip


def unchanged(vmid: str) -> tuple[str, str]:
    """The commands that save a guest's configuration in a file, and restore it."""
    file = f"vm-{vmid}-before.conf"
    return f"cp /etc/pve/qemu-server/{vmid}.conf {file}", f"cp {file} /etc/pve/qemu-server/{vmid}.conf"
