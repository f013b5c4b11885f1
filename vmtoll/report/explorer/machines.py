"""The machines of a run as the explorer shows them: facets of an arm's platform, and facts to compare."""

from collections import Counter
from typing import Any

from vmtoll.analysis.run import Run
from vmtoll.model.facts import FACTS, HostFacts, kvm_hosts
from vmtoll.model.trial import Accelerator, Arm

UNKNOWN = "unknown"
PLATFORM = ("cpu", "kernel", "qemu", "mitigations", "tuned")
# Without kernel command lines and libvirt definitions, which may name machines; a bundle's disclosure scrubs them.
_COMPARED = [fact.name for fact in FACTS if fact.name != "cmdline"] + ["qemu_version", "libvirt_version", "kvm_modules"]
_TUNED = "vmtoll tune:"  # in the item `not_default` of a disclosure


def platform(run: Run, arm: Arm) -> dict[str, str]:
    """CPU, kernel, QEMU, mitigations and tuning of the machine that carries an arm: for a guest, its KVM host."""
    name, facts = _carrying_machine(run, arm)
    is_guest = run.accelerator(arm) is not Accelerator.NONE
    return {
        "cpu": facts.cpu_model or UNKNOWN,
        "kernel": facts.kernel or UNKNOWN,
        "qemu": (facts.qemu_version or UNKNOWN) if is_guest else "none",
        "mitigations": _mitigations(facts),
        "tuned": _tuned(run, name),
    }


def _carrying_machine(run: Run, arm: Arm) -> tuple[str, HostFacts]:
    """The machine that carries an arm: the only KVM host of a guest, else the arm's own machine."""
    hosts = list(kvm_hosts(run.hosts).items())
    if run.accelerator(arm) is not Accelerator.NONE and len(hosts) == 1:
        return hosts[0]
    machine = run.machine(arm.environment)
    return next((name for name, facts in run.hosts.items() if facts is machine), ""), machine


def _mitigations(facts: HostFacts) -> str:
    if not facts.mitigations:
        return UNKNOWN
    if "mitigations=off" in (facts.cmdline or "").split():
        return "off"
    return "some missing" if any(state.startswith("Vulnerable") for state in facts.mitigations.values()) else "on"


def _tuned(run: Run, machine: str) -> str:
    disclosure = run.manifest.disclosure
    if disclosure is None or machine not in disclosure.machines:
        return UNKNOWN
    changed = disclosure.machines[machine].get("not_default")
    return "by vmtoll tune" if changed and _TUNED in changed.text else "no"


def environment_of(run: Run) -> dict[str, dict[str, str]]:
    """Machine, named by its part in the run → fact → text, for all facts that two runs may differ in."""
    machines: dict[str, dict[str, str]] = {}
    part_counts: Counter[str] = Counter()
    for facts in run.hosts.values():
        part = facts.environment or facts.role.replace("_", " ")
        part_counts[part] += 1
        machines[part if part_counts[part] == 1 else f"{part} {part_counts[part]}"] = dict(_flat(facts))
    return machines


def _flat(facts: HostFacts) -> list[tuple[str, str]]:
    flat: list[tuple[str, str]] = []
    recorded = facts.recorded
    for name in _COMPARED:
        value = recorded.get(name)
        if isinstance(value, dict):
            flat += [(f"{name}: {key}", _text(item)) for key, item in value.items()]
        elif value not in (None, "", []):
            flat.append((name, _text(value)))
    return flat


def _text(value: Any) -> str:
    """A server's facts as its version and digest; any other value as text."""
    if isinstance(value, dict):
        return ", ".join(str(value[key])[:24] for key in ("version", "binary_sha256") if value.get(key))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
