"""A guest's tuning steps in words: what it has, what a step is worth, what to change."""

from collections.abc import Mapping

from vmtoll.model.diagnosis import State, Step, Tuning, Worth
from vmtoll.model.metric import Metric
from vmtoll.model.verdict import TuningStep
from vmtoll.report.words.terms import METRIC_LABELS, load_text, number, plural, signed
from vmtoll.report.words.verdicts import step_text

TUNINGS = {
    Tuning.KVM: "hardware virtualization",
    Tuning.CPU_MODEL: "the host's CPU model",
    Tuning.NETWORK: "a network backend in the host's kernel",
    Tuning.CARD: "a virtio network card",
    Tuning.DISK_BUS: "a virtio disk",
    Tuning.CACHE: "disk cache mode none",
    Tuning.VHOST: "vhost",
    Tuning.MULTIQUEUE: "one network queue for each virtual CPU",
    Tuning.PINNING: "pinned virtual CPUs",
    Tuning.HUGE_PAGES: "huge pages",
    Tuning.HALT_POLLING: "halt polling in the guest",
}

_LACKING = {
    Tuning.KVM: "runs on emulation (domain type {current})",
    Tuning.CPU_MODEL: "generic CPU model {current}",
    Tuning.NETWORK: "user-mode network: QEMU's own TCP stack carries the packets",
    Tuning.CARD: "emulated network card {current}",
    Tuning.DISK_BUS: "emulated disk bus {current}",
    Tuning.CACHE: "disk cache mode {current}",
    Tuning.VHOST: "no vhost: QEMU's process carries the packets",
    Tuning.MULTIQUEUE: "{current} network queue(s), fewer than virtual CPUs",
    Tuning.PINNING: "unpinned: {current} virtual CPUs have a CPU of their own",
    Tuning.HUGE_PAGES: "small pages",
    Tuning.HALT_POLLING: "no halt polling: idle virtual CPUs halt",
}


def lacking_text(step: Step) -> str:
    """`emulated network card e1000 (52:54:00:12:34:56)`."""
    return _LACKING[step.tuning].format(current=step.current) + (f" ({step.device})" if step.device else "")


def unknown_text(step: Step) -> str:
    """Reason why neither the definition nor the host shows a step."""
    device = f" ({step.device})" if step.device else ""
    if step.tuning is Tuning.VHOST:
        return f"vhost{device}: the definition leaves it to libvirt, and the guest is off; the host has vhost"
    poll = (step.host or {}).get("halt_poll_ns")
    host = f"; the host itself polls for up to {poll} ns (kvm.halt_poll_ns)" if poll is not None else ""
    return f"halt polling: the guest boots its own kernel; look for idle=poll in its /proc/cmdline{host}"


def taken_text(step: Step) -> str:
    """`vhost (52:54:00:12:34:56)`."""
    return TUNINGS[step.tuning] + (f" ({step.device})" if step.device else "")


def condition_text(step: Step) -> str:
    """Prerequisites of the change on the host, or facts to know before it; empty where there is nothing."""
    host = step.host or {}
    if step.tuning is Tuning.HUGE_PAGES:
        return _pages_text(host)
    if step.tuning is Tuning.HALT_POLLING:
        return _polling_text(step)
    if host.get("kvm") or host.get("vhost_net"):
        return ""
    return _CONDITIONS.get(step.tuning, "")


# Of hardware virtualization and vhost: where the host has no device for them.
_CONDITIONS = {
    Tuning.KVM: "The host has no /dev/kvm: switch virtualization on in its firmware first.",
    Tuning.CPU_MODEL: "A guest with the host's CPU model can be migrated only to hosts with the same CPU.",
    Tuning.NETWORK: "Replace br0 by a bridge of the host.",
    Tuning.CARD: "The guest needs the virtio driver, and its interface may get another name.",
    Tuning.DISK_BUS: "The guest needs the virtio driver, and its disk gets another name, such as /dev/vda.",
    Tuning.VHOST: "The host has no /dev/vhost-net: run `modprobe vhost_net` there first.",
    Tuning.PINNING: "Replace the CPU numbers where other guests use these.",
}


def _pages_text(host: Mapping[str, int | str]) -> str:
    needed, free, size = (int(host.get(key, 0)) for key in ("needed", "free", "size_kib"))
    missing = max(0, needed - free)
    text = f"The guest needs {plural(needed, 'page')} of {size} KiB; the host has {free} free"
    text += f": raise vm.nr_hugepages by {missing} first." if missing else "."
    transparent = host.get("transparent")
    return text + (f" Transparent huge pages are set to {transparent}." if transparent else "")


def _polling_text(step: Step) -> str:
    price = "An idle guest then keeps its CPUs busy."
    if step.xml:
        return price
    poll = (step.host or {}).get("halt_poll_ns")
    host = "The host does not poll either (kvm.halt_poll_ns is 0). " if poll == 0 else ""
    return f"{host}Add idle=poll to the kernel command line inside the guest; no XML does. {price}"


def worth_text(worth: Worth) -> str:
    """`lighttz, 10 users: requests per second: gains 340 req/s (4.2%) [200, 480]`."""
    scenario_text = f"{worth.scenario.server}, {load_text(worth.scenario.load)}"
    text = f"{scenario_text}: {METRIC_LABELS[worth.metric.name].label}: {step_text(worth.result, worth.metric)}"
    return text + _size_text(worth.result, worth.metric)


def _size_text(step: TuningStep, metric: Metric) -> str:
    """The levels of a step, and its interval; of an invalid one that it must not be used."""
    unit = "req/s" if metric.unit == "1/s" else metric.unit
    if step.start is None or step.end is None:
        return ""
    levels = f"{number(step.start)} → {number(step.end)} {unit}"
    if step.because is not None:
        return f" ({levels} measured; do not rely on it)"
    if step.gain is None or step.gain.low is None or step.gain.high is None:
        return f" ({levels})"
    return f" ({levels}, 95% interval {signed(step.gain.low)} to {signed(step.gain.high)} {unit})"


def profiles_text(worth: Worth) -> str:
    """`kvm-default → kvm-multiqueue`, and what else changes between them."""
    text = f"{worth.result.before.environment} → {worth.result.after.environment}"
    others = [TUNINGS[tuning] for tuning in worth.together]
    return text + (f", together with {', '.join(others)}" if others else "")


def counts_text(steps: tuple[Step, ...]) -> str:
    """`3 steps lacking, 1 unknown, 5 taken`, of all devices together."""

    def count(state: State) -> int:
        return len({step.tuning for step in steps if step.state is state})

    lacking = count(State.LACKING)
    parts = [f"lacks {plural(lacking, 'tuning step')}"]
    parts += [f"{count(State.UNKNOWN)} unknown"] if count(State.UNKNOWN) else []
    taken = {s.tuning for s in steps if s.state is State.TAKEN} - {s.tuning for s in steps if s.state is State.LACKING}
    return ", ".join([*parts, f"has {len(taken)}"])
