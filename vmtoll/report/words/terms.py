"""Terms that every text is made of: numbers, loads, arms, metrics."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from vmtoll.analysis.run import Run
from vmtoll.model.change import Change
from vmtoll.model.experiment import Experiment, ProfileVariant
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load, LoadKind, NeighbourLoad
from vmtoll.model.message import DASH, plural, ratio, short, spread
from vmtoll.model.metric import CPU, HOST_CPU, LATENCY_P99, TAIL, THROUGHPUT
from vmtoll.model.runtime import runtime_text
from vmtoll.model.trial import METAL, Accelerator, Arm, MachineKind, Scenario
from vmtoll.model.verdict import Estimate

EMULATION = "Emulation (TCG): not a KVM measurement."


def amount_text(estimate: Estimate | None, unit: str = "", text: Callable[[float], str] = short) -> str:
    """A value with its interval: `401 ms (396 to 406)`; a dash without one. `text`: how to write a number."""
    if estimate is None:
        return DASH
    return spread(estimate.value, estimate.ends, text, f" {unit}".rstrip())


def ratio_text(estimate: Estimate) -> str:
    """A ratio, compared ÷ baseline, with its interval: `1.55× (1.41 to 1.70)`."""
    return spread(estimate.value, estimate.ends, ratio, "×")


# ---- what is measured, and where


@dataclass(frozen=True)
class MetricWords:
    """The words for a metric. The sentences contain `{compared}`, `{baseline}` and `{amount}`."""

    label: str
    note: str
    effect: str  # the sides differ by a ratio
    same: str  # they are equivalent within the amount


def _latency_words(label: str, note: str) -> MetricWords:
    return MetricWords(
        label, note, "p99 is {amount} as long on {compared} as on {baseline}",
        "p99 on {compared} equals that on {baseline} within {amount}",
    )  # fmt: skip


METRIC_LABELS = {
    THROUGHPUT.name: MetricWords(
        "requests per second", "",
        "{compared} serves {amount} the requests per second of {baseline}",
        "{compared} serves as many requests per second as {baseline}, within {amount}",
    ),
    TAIL.name: _latency_words(
        "p99 response time (open loop)",
        "the 99th percentile of each trial, counted from the intended send: waiting caused by a stall is included",
    ),
    LATENCY_P99.name: _latency_words(
        "p99 latency (closed loop)",
        "service time under a fixed number of users: a closed loop hides stalls, so it has no open-loop tail",
    ),
    CPU.name: MetricWords(
        "server CPU per request", "CPU of the server's processes as the machine under test itself accounts it",
        "{compared} uses {amount} the CPU per request of {baseline}",
        "{compared} uses as much CPU per request as {baseline}, within {amount}",
    ),
    HOST_CPU.name: MetricWords(
        "host CPU per request",
        "what the physical machine spent: the server's processes on metal, the control group of a container or "
        "process, QEMU and vhost of a guest; on every side with the softirqs and network threads of the kernel",
        "each request costs {amount} as much host CPU on {compared} as on {baseline}",
        "each request costs as much host CPU on {compared} as on {baseline}, within {amount}",
    ),
}  # fmt: skip


# What every page with a KVM figure says first, by what the KVM host runs on: (the point, the reason).
KVM_HARDWARE = {
    Hardware.EMULATED: (
        "KVM on emulated hardware: the run shows that everything works, not what KVM costs.",
        "Software (TCG) emulates the CPU of the KVM host.",
    ),
    Hardware.NESTED: (
        "Nested KVM: its cost includes what the hypervisor below the KVM host adds.",
        "The numbers hold for nested guests, not for KVM on the hardware itself.",
    ),
    Hardware.PVM: (
        "KVM by kvm_pvm (PVM): guests run without virtualization by the CPU.",
        "The numbers hold for guest kernels that know PVM, not for KVM by kvm_intel or kvm_amd.",
    ),
    Hardware.UNKNOWN: (
        "KVM on unknown hardware: the run does not show what is below the KVM host.",
        "It may be the hardware itself, another hypervisor, or an emulated CPU.",
    ),
}


def lab_text(run: Run) -> str:
    """What stands for metal in the embedded lab; empty for another lab, and for a run that measured none there."""
    if not any(map(run.is_container_as_metal, run.metal)):
        return ""
    names = _quoted(run.metal)
    are = "is a container" if len(run.metal) == 1 else "are one container"
    text = f"{names} {are} on this machine's kernel, not a separate physical machine."
    text += _BELOW_METAL.get(run.hardware(run.metal[0]), "")
    contained = [arm for arm in run.arms if run.kind(arm) in (MachineKind.CONTAINER, MachineKind.PROCESS)]
    of_runtimes = [arm for arm in contained if run.machine(arm.environment).runtime and not arm.is_control]
    if containers := [arm for arm in contained if arm not in of_runtimes and not arm.is_control]:
        text += (
            f" {_quoted(containers)} {'runs' if len(containers) == 1 else 'run'} in podman on the same kernel:"
            f" the difference from {names} is what podman adds to systemd-nspawn, not what a container costs on"
            " bare metal."
        )
    if of_runtimes:
        text += (
            f" {_quoted(of_runtimes)} {'runs' if len(of_runtimes) == 1 else 'run'} on this machine too: a difference is"
            " what a runtime costs here, not what it costs on bare metal."
        )
    return text


def runtimes(run: Run) -> dict[str, str]:
    """Environment → its container runtime in words, for those that have one."""
    texts = {arm.environment: runtime_text(run.machine(arm.environment).runtime) for arm in run.arms}
    return {environment: text for environment, text in texts.items() if text}


def _quoted(arms: Iterable[Arm]) -> str:
    return " and ".join(f"“{arm}”" for arm in arms)


# By what the machine of the embedded lab runs on.
_BELOW_METAL = {
    Hardware.NESTED: " That machine is itself a virtual one.",
    Hardware.EMULATED: " Software (TCG) emulates that machine's CPU.",
}


def module_text(module: str) -> str:
    """The reason why a guest is emulated although its host has /dev/kvm."""
    return f"/dev/kvm of its host belongs to {module}, which is neither kvm_intel nor kvm_amd."


def platform_text(accelerator: Accelerator, hardware: Hardware, form: str = "{}") -> str:
    """The qualifier of a guest's figures, `emulated` or `nested KVM`, put into `form`; empty for metal, native KVM."""
    below_kvm = _KVM_PLATFORMS.get(hardware) if accelerator == Accelerator.KVM else None
    text = "emulated" if accelerator == Accelerator.TCG else below_kvm
    return form.format(text) if text else ""


_KVM_PLATFORMS = {
    Hardware.EMULATED: "KVM on emulated hardware",
    Hardware.NESTED: "nested KVM",
    Hardware.PVM: "KVM by kvm_pvm",
    Hardware.UNKNOWN: "KVM on unknown hardware",
}


def arm_text(arm: Arm) -> str:
    """`kvm-default`, or `metal again (A/A)`."""
    return f"{arm.environment} again (A/A)" if arm.is_control else arm.environment


def head_text(run: Run, arm: Arm) -> str:
    """The name of an environment above a column; metal of the embedded lab as what it is, `metal (a container)`."""
    name = arm_text(arm)
    return name.replace(arm.environment, f"{arm.environment} (a container)") if run.is_container_as_metal(arm) else name


def load_text(load: Load) -> str:
    """`10 users`, `2,000 req/s`, `70% of capacity, 2 guests, neighbour at 50% of capacity`."""
    parts = [_LOADS[load.kind](load.value)]
    return ", ".join(parts + [text for text in [co_location_text(load)] if text])


def co_location_text(load: Load) -> str:
    """Guests and neighbour load on the host: `2 guests, neighbour at 50% of capacity`; empty where the workload does
    not say.
    """
    parts = [plural(load.guests, "guest")] if load.guests else []
    return ", ".join(parts + ([neighbour_text(load.neighbour)] if load.neighbour else []))


def neighbour_text(neighbour: NeighbourLoad) -> str:
    """`neighbour at 300 req/s`."""
    return f"neighbour at {_LOADS[neighbour.kind](neighbour.value)}"


_LOADS: dict[LoadKind, Callable[[float], str]] = {
    LoadKind.CLOSED: lambda value: plural(int(value), "user"),
    LoadKind.RATE: lambda value: f"{value:,g} req/s",
    LoadKind.SHARE: lambda value: f"{100 * value:g}% of capacity",
    LoadKind.SEARCH: lambda value: f"search for the highest rate within {value:g} ms",
}


def labels_of(scenarios: Iterable[Scenario]) -> dict[Scenario, str]:
    """Scenario → the shortest label that identifies it: the server, then load and workload as needed."""
    listed = list(scenarios)
    labels = {scenario: scenario.server for scenario in listed}
    for part in (lambda s: load_text(s.load), lambda s: s.workload):
        if len(set(labels.values())) < len(labels) and len({part(s) for s in listed}) > 1:
            labels = {scenario: f"{label} · {part(scenario)}" for scenario, label in labels.items()}
    return labels


def scenario_labels(run: Run) -> dict[Scenario, str]:
    """The labels of a run's scenarios."""
    return labels_of(run.scenarios)


def change_text(change: Change) -> str:
    """`metal with net.core.somaxconn = 64`; `kvm-default with halt_poll_ns = 0 on its host, after `modprobe x``."""
    on_host = "" if change.of == METAL else " on its host"
    parts = [f"{name} = {value}{on_host}" for name, value in change.values.items()]
    parts += [f"{name} = {value}" for name, value in change.sysctls.items()]
    text = f"{change.of}{' with ' if parts else ''}{', '.join(parts)}"
    if not change.apply:
        return text
    place = " on its host" if change.on == "host" else ""
    boot = " and a boot" if change.boots else ""
    return f"{text}, after `{change.apply}`{place}{boot}"


def profile_text(variant: ProfileVariant) -> str:
    """`kvm-default with kernel linux-image-cloud-amd64`."""
    return f"{variant.of} with {', '.join(f'{key} {_value(value)}' for key, value in variant.keys.items())}"


def factors_text(experiment: Experiment, environment: str, baseline: str) -> str:
    """`b differs from a by design in kernel: linux-image-b instead of linux-image-a`; empty where what differs is
    unknown, or nothing.
    """
    values, of_baseline = _factors(experiment, environment), _factors(experiment, baseline)
    if values is None or of_baseline is None or values["of"] != of_baseline["of"]:
        return ""
    base = values["of"]
    parts = [
        f"{factor}: {values.get(factor, f'as in {base}')} instead of {of_baseline.get(factor, f'that of {base}')}"
        for factor in {**of_baseline, **values}
        if values.get(factor) != of_baseline.get(factor)
    ]
    return f"{environment} differs from {baseline} by design in {'; '.join(parts)}" if parts else ""


def _factors(experiment: Experiment, environment: str) -> Mapping[str, str] | None:
    """Factor → its value in an environment, where it is set, with `of`: the environment that it is made out of; None
    for an operation, and for a change by a command that does not say what it changes.
    """
    if environment in experiment.during:
        return None
    change, machine = experiment.changes.get(environment), experiment.machine_of(environment)
    if change and change.explains is None:
        return None
    variant = experiment.profiles.get(machine)
    values = {key: _value(value) for key, value in variant.keys.items()} if variant else {}
    if change:
        values |= dict.fromkeys(change.differs_in or (), f"that of `{change.apply}`")
        values |= {name: str(value) for name, value in {**change.values, **change.sysctls}.items()}
    return {"of": variant.of if variant else machine, **values}


def _value(value: object) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text or "none"
