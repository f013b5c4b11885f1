"""Write the changes of a diagnosis as commands of Proxmox VE, with the commands that undo them."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtoll.guests.diagnosis import limits
from vmtoll.guests.diagnosis.definition import cpus
from vmtoll.guests.diagnosis.facts import Facts
from vmtoll.guests.diagnosis.options import with_quotas
from vmtoll.hypervisors.definition import as_set
from vmtoll.hypervisors.proxmox_config import RATES, Config, card_of
from vmtoll.model.diagnosis import State, Step, Tuning

_MOST_QUEUES = 64
# Parts of the option `cpu` that are neither model nor features.
_OF_CPU = ("hidden", "hv-vendor-id", "phys-bits", "guest-phys-bits", "reported-model")
_BEST = "virtio-scsi-single"
# Commands that make a change, and those that undo it.
CommandPair = tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]]


@dataclass(frozen=True)
class ProxmoxDefinition:
    """A guest of Proxmox VE, with the facts of its node."""

    config: Config
    facts: Facts

    def set(self, **values: str | None) -> list[str]:
        """The command that sets options; None deletes an option."""
        deleted = ",".join(name for name, value in values.items() if value is None)
        words = [word for name, value in values.items() if value is not None for word in (f"--{name}", value)]
        return ["qm", "set", self.config.vmid, *words, *(["--delete", deleted] if deleted else [])]

    def exchange(self, **values: str | None) -> CommandPair:
        """The command that sets options, and the one that sets their present values."""
        return [self.set(**values)], [self.set(**{name: self.config.values.get(name) for name in values})]


def with_commands(steps: Sequence[Step], config: Config, facts: Facts) -> tuple[Step, ...]:
    """The steps with commands instead of edits of a definition."""
    guest = ProxmoxDefinition(config, facts)
    return tuple(_with_commands(step, guest) for step in steps)


def _with_commands(step: Step, guest: ProxmoxDefinition) -> Step:
    plain = replace(step, changes=(), xml="")
    if step.state is not State.LACKING or step.tuning not in _COMMANDS:
        return plain
    commands = _COMMANDS[step.tuning](step, guest)
    if commands is None:
        return with_quotas(plain, _groups_around(guest.facts)) if step.tuning is Tuning.CPU_LIMIT else plain
    apply, undo = ("; ".join(map(shlex.join, argvs)) for argvs in commands)
    return replace(plain, apply=apply, undo=undo)


def _groups_around(facts: Facts) -> Facts:
    """The facts without the control group of the guest's scope, which its configuration sets."""
    groups = [group for group in facts.get("groups", ()) if not group["name"].endswith(".scope")]
    return {**facts, "groups": groups}


def _kvm(step: Step, guest: ProxmoxDefinition) -> CommandPair:
    return guest.exchange(kvm="1")


def _cpu_limit(step: Step, guest: ProxmoxDefinition) -> CommandPair | None:
    """Delete the limit of CPU time and the weight, where they are below the virtual CPUs and the usual weight."""
    usual_weight = limits.USUAL_WEIGHT.get(guest.facts.get("cgroup_version") or 0, 0)
    at_least = {"cpulimit": guest.config.vcpus, "cpuunits": usual_weight}
    names = [name for name, least in at_least.items() if 0 < float(guest.config.get(name) or 0) < least]
    return guest.exchange(**dict.fromkeys(names)) if names else None


def _model(step: Step, guest: ProxmoxDefinition) -> CommandPair:
    kept = {key: value for key, value in guest.config.parts("cpu", "cputype").items() if key in _OF_CPU}
    return guest.exchange(cpu=_joined({"": "host", **kept}))


def _joined(parts: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" if key else value for key, value in parts.items())


def _timers(step: Step, guest: ProxmoxDefinition) -> CommandPair | None:
    """QEMU merges several -machine; only root may set `args`."""
    if "HPET" not in step.current:
        return None
    return guest.exchange(args=f"{guest.config.get('args')} -machine hpet=off".strip())


def _card(step: Step, guest: ProxmoxDefinition, **parts: str | None) -> CommandPair:
    """Set parts of a card; None removes a part."""
    name = guest.config.cards[step.device]
    merged = {**guest.config.parts(name), **parts}
    return guest.exchange(**{name: _joined({key: value for key, value in merged.items() if value is not None})})


def _network(step: Step, guest: ProxmoxDefinition) -> CommandPair | None:
    bridges = sorted(guest.facts.get("bridges", []), key=lambda name: not name.startswith("vmbr"))
    return _card(step, guest, bridge=bridges[0]) if bridges else None


def _virtio_card(step: Step, guest: ProxmoxDefinition) -> CommandPair:
    name = guest.config.cards[step.device]
    parts = guest.config.parts(name)
    model, mac = card_of(parts)
    kept = {key: value for key, value in parts.items() if key not in (model, "model", "macaddr")}
    address = next((value for value in parts.values() if value.lower() == mac), mac)
    return guest.exchange(**{name: _joined({"virtio": address, **kept})})


def _rate(step: Step, guest: ProxmoxDefinition) -> CommandPair:
    return _card(step, guest, rate=None)


def _queues(step: Step, guest: ProxmoxDefinition) -> CommandPair:
    return _card(step, guest, queues=str(min(guest.config.vcpus, _MOST_QUEUES)))


def _disk(step: Step, guest: ProxmoxDefinition, dropped: Callable[[str], bool]) -> CommandPair:
    """Remove parts of a disk's option."""
    parts = guest.config.parts(step.device)
    return guest.exchange(**{step.device: _joined({key: value for key, value in parts.items() if not dropped(key)})})


def _cache(step: Step, guest: ProxmoxDefinition) -> CommandPair:
    return _disk(step, guest, lambda key: key == "cache")


def _disk_limit(step: Step, guest: ProxmoxDefinition) -> CommandPair:
    return _disk(step, guest, lambda key: key.removesuffix("_length").replace("_max", "") in RATES)


def _bus(step: Step, guest: ProxmoxDefinition) -> CommandPair | None:
    """Set the controller of a SCSI disk; turn a disk of another bus into a SCSI disk."""
    config = guest.config
    controller: dict[str, str | None] = {"scsihw": _BEST} if config.get("scsihw") != _BEST else {}
    if step.device.startswith("scsi"):
        return guest.exchange(**controller)
    new = next(f"scsi{n}" for n in range(31) if f"scsi{n}" not in config.values)
    boot = config.get("boot").replace(step.device, new)
    booted: dict[str, str | None] = {"boot": boot} if boot != config.get("boot") else {}
    value = _joined({key: value for key, value in config.parts(step.device).items() if key != "model"})
    new_values = {**controller, **booted, new: value}
    before = {name: config.values.get(name) for name in (*controller, *booted)}
    old_values = {**before, step.device: config.get(step.device)}
    return (
        [guest.set(**{step.device: None}), guest.set(**new_values)],
        [guest.set(**{new: None}), guest.set(**old_values)],
    )


def _pinning(step: Step, guest: ProxmoxDefinition) -> CommandPair | None:
    cpu_sets = [cpus(c.value) for c in step.changes if c.value and "vcpupin" in c.xpath and c.xpath.endswith("cpuset")]
    return guest.exchange(affinity=as_set({cpu for cpu_set in cpu_sets for cpu in cpu_set})) if cpu_sets else None


def _huge_pages(step: Step, guest: ProxmoxDefinition) -> CommandPair:
    """Proxmox allocates the pages when the guest starts, and requires NUMA for them."""
    numa: dict[str, str | None] = {} if guest.config.get("numa") == "1" else {"numa": "1"}
    return guest.exchange(**numa, hugepages="2")


_COMMANDS: Mapping[Tuning, Callable[[Step, ProxmoxDefinition], CommandPair | None]] = {
    Tuning.KVM: _kvm, Tuning.CPU_LIMIT: _cpu_limit, Tuning.DISK_LIMIT: _disk_limit, Tuning.NETWORK_LIMIT: _rate,
    Tuning.CPU_MODEL: _model, Tuning.TIMERS: _timers, Tuning.NETWORK: _network, Tuning.CARD: _virtio_card,
    Tuning.DISK_BUS: _bus, Tuning.CACHE: _cache, Tuning.MULTIQUEUE: _queues, Tuning.PINNING: _pinning,
    Tuning.HUGE_PAGES: _huge_pages,
}  # fmt: skip


def unchanged(vmid: str) -> tuple[str, str]:
    """The commands that save a guest's configuration in a file, and restore it."""
    file = f"vm-{vmid}-before.conf"
    return f"cp /etc/pve/qemu-server/{vmid}.conf {file}", f"cp {file} /etc/pve/qemu-server/{vmid}.conf"
