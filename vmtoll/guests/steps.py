"""The tuning steps between two guest profiles: those that the second's domain has and the first's lacks."""

from functools import cache

from vmtoll.guests import profiles
from vmtoll.guests.diagnosis import diagnose
from vmtoll.guests.diagnosis.facts import Facts
from vmtoll.guests.domain import Files, render
from vmtoll.guests.inventory import Guest
from vmtoll.model.diagnosis import State, Tuning

_FILES = Files(
    kernel_file="/vmlinuz",
    initrd_file="/initrd.img",
    disk="/disk.qcow2",
    console_log="/console.log",
    credentials={},
    secrets={},
)
_HOST: Facts = {
    "kvm_device": True, "vhost_net": True, "cpus": list(range(8)), "hugepages": {"size_kib": 2048, "free": 4096},
    "halt_poll_ns": 200_000, "architecture": "x86_64", "cores": {}, "nodes": {},
}  # fmt: skip
# Switches of virtio devices that are right unless a definition changes them. They come with the device, so a profile
# without one counts as having them.
_SWITCHES = frozenset({Tuning.IOMMU, Tuning.NOTIFICATIONS, Tuning.OFFLOADS})


def gained(before: str, after: str) -> frozenset[Tuning]:
    """The tuning steps from one profile to another, with four virtual CPUs; none if vmtoll no longer has both."""
    if not {before, after} <= _names():
        return frozenset()
    return _taken(after) - _taken(before)


@cache
def _names() -> frozenset[str]:
    return frozenset(profiles.names())


@cache
def _taken(profile: str) -> frozenset[Tuning]:
    guest = Guest(name="guest", profile=profile, cpus="2-5", emulator_cpus="6,7", uplink="eth0", vf="0000:00:00.0")
    steps = diagnose(render(profiles.load(profile), guest, _FILES), _HOST)
    others = {step.tuning for step in steps if step.state is not State.TAKEN}
    return frozenset({step.tuning for step in steps} - others) | (_SWITCHES - others)
