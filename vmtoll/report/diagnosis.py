"""A diagnosis as text: each step that the guest lacks, its worth and the run that measured it, and the XML to apply."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import indent

from vmtoll.model.diagnosis import LIMITS, Diagnosis, State, Step, Tuning, TuningRun, Worth
from vmtoll.model.hardware import Hardware
from vmtoll.model.message import number, plural, signed
from vmtoll.model.metric import HOST_CPU, Metric
from vmtoll.model.verdict import TuningStep
from vmtoll.report.words.terms import KVM_HARDWARE, METRIC_LABELS, load_text
from vmtoll.report.words.verdicts import step_text

_MOST_THREADS = 12


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """The lines for one guest: findings, each with its worth and its change; then how to restore the definition."""
    steps = diagnosis.steps
    lacking = [step for step in steps if step.state is State.LACKING]
    yield f"{name_of(diagnosis)} on {diagnosis.where}: {counts_text(steps)}"
    for position, step in enumerate(lacking, start=1):
        yield ""
        yield f"{position}. {lacking_text(step)}"
        if step.tuning not in LIMITS:
            yield from _worth(diagnosis.worth.get(step.tuning, ()))
        yield from _change(step, refusal_shown=bool(diagnosis.refused))
    if diagnosis.refused:
        yield ""
        yield f"vmtoll prints no change, because libvirt refuses the definition as it is: {diagnosis.refused}."
    unknown = [unknown_text(step) for step in steps if step.state is State.UNKNOWN]
    for title, listed in (("Unknown", unknown), ("Taken", taken_texts(steps))):
        if listed:
            yield ""
            yield f"{title}: {'; '.join(listed)}"
    if diagnosis.threads:
        yield ""
        yield from _threads(diagnosis)
    if diagnosis.monitor:
        yield ""
        yield monitor_text(diagnosis)
    if diagnosis.save_command and any(step.apply or step.options for step in lacking):
        yield ""
        yield f"Save the definition first: `{diagnosis.save_command}`"
        yield f"Restore it: `{diagnosis.restore_command}`"
        yield EFFECTS[diagnosis.kind]
    for run in diagnosis.runs:
        yield ""
        yield from _run(run)


def summary_lines(diagnoses: Sequence[Diagnosis]) -> Iterator[str]:
    """A line for each guest, in the given order."""
    width = max((len(name_of(diagnosis)) for diagnosis in diagnoses), default=0)
    for diagnosis in diagnoses:
        lacking = dict.fromkeys(step.tuning for step in diagnosis.steps if step.state is State.LACKING)
        names = ", ".join(tuning.value for tuning in lacking) or "nothing"
        off = "" if diagnosis.running else "(off) "
        if not diagnosis.steps:
            yield f"{name_of(diagnosis):{width}}  {diagnosis.monitor}"
            continue
        unknown = {step.tuning for step in diagnosis.steps if step.state is State.UNKNOWN} - {*lacking}
        names += f"; {len(unknown)} unknown" if unknown else ""
        names += f" ({diagnosis.program}: limits only)" if diagnosis.program else ""
        yield f"{name_of(diagnosis):{width}}  {off}lacks {len(lacking)}: {names}"


def _threads(diagnosis: Diagnosis) -> Iterator[str]:
    """The threads of the process that use a CPU, or wait for one, the most."""
    if diagnosis.program:
        yield (
            f"vmtoll reads only the limits and threads of {diagnosis.program}; it does not know the definition and "
            "prints no changes."
        )
    yield "Threads, in percent of a CPU (running, ready but waiting for a CPU):"
    busiest = sorted(diagnosis.threads, key=lambda t: ((t.cpu_pct or 0) + (t.wait_pct or 0), t.cpu_s), reverse=True)
    for thread in busiest[:_MOST_THREADS]:
        yield f"  {thread.tid:>8}  {thread.name:16} {thread.cpu_pct or 0:6.1f} {thread.wait_pct or 0:6.1f}"
    if busiest[_MOST_THREADS:]:
        yield f"  {plural(len(busiest) - _MOST_THREADS, 'more thread')}"


def _worth(results: tuple[Worth, ...]) -> Iterator[str]:
    """The worth of a step in the primary metrics and in host CPU, and the run that measured it."""
    shown = [worth for worth in results if worth.metric.is_primary or worth.metric.name == HOST_CPU.name]
    if not shown:
        yield "   Worth: unknown, no tuning run here measured it."
        return
    yield f"   Worth, by {shown[0].run} ({profiles_text(shown[0])}):"
    yield from (f"     {worth_text(worth)}" for worth in shown)


def _change(step: Step, *, refusal_shown: bool) -> Iterator[str]:
    """The change of a step and the command that makes it. `refusal_shown`: another line says why there is no change."""
    if step.xml:
        yield "   Change:"
        yield indent(step.xml, "     ")
    if step.options:
        yield f"   Options of QEMU{'' if step.instead else ', in addition'}:"
        yield f"     {step.options}"
    if step.instead:
        yield "   Instead of:"
        yield f"     {step.instead}"
    if step.apply:
        yield "   Apply:"
        yield f"     {step.apply}"
    if step.undo:
        yield "   Undo:"
        yield f"     {step.undo}"
    if text := "" if refusal_shown and step.refused else condition_text(step):
        yield f"   {text}"


def _run(run: TuningRun) -> Iterator[str]:
    origin = "measured here" if run.local else "committed with vmtoll, measured on another machine"
    yield f"{run.name}: {origin}, {run.started_at[:10]}, host CPU {', '.join(run.cpu_models) or 'not recorded'}."
    if run.emulated:
        yield "Its guests were emulated, so its numbers say nothing about KVM."
    for kind in run.kvm_hardware:
        if texts := KVM_HARDWARE.get(Hardware(kind)):
            yield texts[0]


# ---- sentences

# Who carries the packets, where it is not the host's kernel.
_PACKET_CARRIERS = {
    "user (passt)": "user-mode network: passt, a separate process, carries the packets",
    "vhostuser (passt)": "passt, a separate process, carries the packets, by vhost-user",
}
_TAKEN_NETWORK = {
    "vhostuser": "vhost-user: a program of the host, such as Open vSwitch, carries the packets",
    "hostdev": "a function of the host's network card",
}


def lacking_text(step: Step) -> str:
    """`emulated network card e1000 (52:54:00:12:34:56)`."""
    text = step.tuning.lacking.format(current=step.current)
    if step.tuning is Tuning.NETWORK and step.current != "user":
        by_process = f"network of the type {step.current}: QEMU's process carries the packets"
        text = _PACKET_CARRIERS.get(step.current, by_process)
    if faults := (step.host or {}).get("faults"):
        text = f"bad pinning: {faults}"
    return text + (f" ({step.device})" if step.device else "")


def unknown_text(step: Step) -> str:
    """The reason why neither the definition nor the host shows a step."""
    device = f" ({step.device})" if step.device else ""
    if step.tuning is Tuning.VHOST and step.host:
        return f"vhost{device}: the definition leaves it to libvirt, and the guest is off; the host has vhost"
    if step.tuning is not Tuning.HALT_POLLING or step.host is None:
        return f"{step.tuning.text}{device} (to find out: {step.tells})"
    poll = (step.host or {}).get("halt_poll_ns")
    host = f"; the host itself polls for up to {poll} ns (kvm.halt_poll_ns)" if poll is not None else ""
    return f"halt polling: the guest boots its own kernel; look for idle=poll in its /proc/cmdline{host}"


def taken_texts(steps: Sequence[Step]) -> list[str]:
    """The steps that the guest has; they name the device where another device is without the step."""
    taken = [step for step in steps if step.state is State.TAKEN]
    partly_missing = {step.tuning for step in steps if step.state is not State.TAKEN}
    return list(dict.fromkeys(_taken_text(step, by_device=step.tuning in partly_missing) for step in taken))


def _taken_text(step: Step, *, by_device: bool) -> str:
    """`vhost (52:54:00:12:34:56)`."""
    text = step.tuning.text
    if step.tuning is Tuning.NETWORK:
        text = _TAKEN_NETWORK.get(step.current, text)
    if step.tuning is Tuning.CPU_MODEL and step.current not in _HOST_CPU_MODELS:
        text = f"CPU model {step.current}, with the host's instructions that matter here"
    return text + (f" ({step.device})" if step.device and by_device else "")


_HOST_CPU_MODELS = ("host-passthrough", "host-model", "maximum")


def condition_text(step: Step) -> str:
    """What the change needs on the host, or what to know before it; empty where there is nothing."""
    host = step.host or {}
    if step.pending:
        return "The definition has it already: it takes effect when the guest starts again."
    if step.refused:
        return f"vmtoll prints no change, because libvirt refuses it: {step.refused}."
    if step.tuning is Tuning.TIMERS and "HPET" not in step.current:
        return ""
    if condition_of := _CONDITION_TEXTS.get(step.tuning):
        return condition_of(step)
    return "" if host.get("kvm") or host.get("vhost_net") else _CONDITIONS.get(step.tuning, "")


# Those of KVM and VHOST hold where the host has no device for it.
_CONDITIONS = {
    Tuning.KVM: "The host has no /dev/kvm: switch virtualization on in its firmware first.",
    Tuning.CPU_MODEL: "A guest with the host's CPU model can be migrated only to hosts with the same CPU.",
    Tuning.TIMERS: "Without an HPET, QEMU sleeps while the guest does: Linux leaves it running after the boot.",
    Tuning.IOMMU: "Keep it only where the guest hands devices on to its own guests or programs.",
    Tuning.CARD: "The guest needs the virtio driver, and its interface may get another name.",
    Tuning.DISK_BUS: "The guest needs the virtio driver, and its disk gets another name, such as /dev/vda.",
    Tuning.VHOST: "The host has no /dev/vhost-net: run `modprobe vhost_net` there first.",
    Tuning.PINNING: "Replace the CPU numbers where other guests use these.",
}


def _limit_text(step: Step) -> str:
    """A warning that the limit may be intended, and where the definition does not set it."""
    text = "The limit may be intended: ask before you remove it."
    changed = step.changes or step.options or step.apply
    return text if changed else f"{text} The definition does not set it: see `systemctl show` of that unit."


def _network_text(step: Step) -> str:
    text = "Take the bridge of the host that the guest belongs to; its address may change."
    changed = step.changes or step.options or step.apply
    return text if changed else "The host has no bridge: make one first."


def _pages_text(step: Step) -> str:
    host = step.host or {}
    needed, free, size = (int(host.get(key, 0)) for key in ("needed", "free", "size_kib"))
    missing = max(0, needed - free)
    text = f"The guest needs {plural(needed, 'page')} of {size} KiB; the host has {free} free"
    text += f": raise vm.nr_hugepages by {missing} first." if missing else "."
    transparent = host.get("transparent")
    return text + (f" Transparent huge pages are set to {transparent}." if transparent else "")


def _polling_text(step: Step) -> str:
    price = "An idle guest then keeps its CPUs busy."
    if step.xml or step.options:
        return price
    poll = (step.host or {}).get("halt_poll_ns")
    host = "The host does not poll either (kvm.halt_poll_ns is 0). " if poll == 0 else ""
    return f"{host}Add idle=poll to the kernel command line inside the guest; no XML does. {price}"


# When the changes take effect, by what runs the guest.
EFFECTS = {
    "proxmox": "Most changes take effect when the guest starts again (`qm shutdown`, `qm start`). Each command "
    "is for the present configuration: after one that changes the same option, diagnose again.",
    "libvirt": "A change takes effect when the guest starts again. virt-xml is in Debian's package virtinst.",
    "qemu": "Options take effect when QEMU starts with them; each change is for the present command line. taskset "
    "and systemctl take effect at once.",
}


def name_of(diagnosis: Diagnosis) -> str:
    """`101 (web)`, or the name alone."""
    return f"{diagnosis.guest} ({diagnosis.title})" if diagnosis.title else diagnosis.guest


def monitor_text(diagnosis: Diagnosis) -> str:
    """The reason why QEMU's monitor did not answer, and what the diagnosis rests on without it."""
    return f"Without QEMU's monitor ({diagnosis.monitor}), vmtoll read only the command line and the process."


_CONDITION_TEXTS: Mapping[Tuning, Callable[[Step], str]] = {
    **dict.fromkeys(LIMITS, _limit_text), Tuning.NETWORK: _network_text, Tuning.HUGE_PAGES: _pages_text,
    Tuning.HALT_POLLING: _polling_text,
}  # fmt: skip


def worth_text(worth: Worth) -> str:
    """`lighttz, 10 users: requests per second: gains 340 req/s (4.2%) [200, 480]`."""
    scenario_text = f"{worth.scenario.server}, {load_text(worth.scenario.load)}"
    text = f"{scenario_text}: {METRIC_LABELS[worth.metric.name].label}: {step_text(worth.result, worth.metric)}"
    return text + _size_text(worth.result, worth.metric)


def _size_text(step: TuningStep, metric: Metric) -> str:
    """The levels of a step and its interval; for a step that is not decided, a warning instead of the interval."""
    unit = "req/s" if metric.unit == "1/s" else metric.unit
    if step.start is None or step.end is None:
        return ""
    levels = f"{number(step.start)} → {number(step.end)} {unit}"
    if step.because is not None:
        return f" ({levels} measured; do not rely on it)"
    ends = step.gain and step.gain.ends
    return f" ({levels}, 95% interval {signed(ends[0])} to {signed(ends[1])} {unit})" if ends else f" ({levels})"


def profiles_text(worth: Worth) -> str:
    """`kvm-default → kvm-multiqueue`, and what else changes between them."""
    text = f"{worth.result.before.environment} → {worth.result.after.environment}"
    others = [tuning.text for tuning in worth.together]
    return text + (f", together with {', '.join(others)}" if others else "")


def counts_text(steps: tuple[Step, ...]) -> str:
    """`1 limit, lacks 3 tuning steps, 1 unknown, has 5`, over all devices."""
    tunings_by_state = {state: {step.tuning for step in steps if step.state is state} for state in State}
    lacking, unknown = (
        tunings_by_state[State.LACKING],
        tunings_by_state[State.UNKNOWN] - tunings_by_state[State.LACKING],
    )
    parts = [plural(len(lacking & LIMITS), "limit")] if lacking & LIMITS else []
    parts += [f"lacks {plural(len(lacking - LIMITS), 'tuning step')}"]
    parts += [f"{len(unknown)} unknown"] if unknown else []
    return ", ".join([*parts, f"has {len(tunings_by_state[State.TAKEN] - lacking - LIMITS)}"])
