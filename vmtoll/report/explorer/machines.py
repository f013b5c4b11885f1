"""The machines of a run as the explorer shows them: facets of an arm's platform, and facts to compare."""

from collections import Counter
from typing import Any

from vmtoll.analysis.run import Run
from vmtoll.model.facts import FACTS, Facts
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
        "cpu": str(facts.get("cpu_model") or UNKNOWN),
        "kernel": str(facts.get("kernel") or UNKNOWN),
        "qemu": str(facts.get("qemu_version") or UNKNOWN) if is_guest else "none",
        "mitigations": _mitigations(facts),
        "tuned": _tuned(run, name),
    }


def _carrying_machine(run: Run, arm: Arm) -> tuple[str, Facts]:
    """The machine that carries an arm: the only KVM host of a guest, else the arm's own machine."""
    hosts = [(name, facts) for name, facts in run.hosts.items() if facts.get("role") == "kvm_host"]
    if run.accelerator(arm) is not Accelerator.NONE and len(hosts) == 1:
        return hosts[0]
    machines = [(name, facts) for name, facts in run.hosts.items() if facts.get("environment") == arm.environment]
    return machines[0] if machines else ("", {})


def _mitigations(facts: Facts) -> str:
    states = facts.get("mitigations")
    if not isinstance(states, dict) or not states:
        return UNKNOWN
    if "mitigations=off" in str(facts.get("cmdline")).split():
        return "off"
    return "some missing" if any(str(state).startswith("Vulnerable") for state in states.values()) else "on"


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
        part = str(facts.get("environment") or str(facts.get("role", "machine")).replace("_", " "))
        part_counts[part] += 1
        machines[part if part_counts[part] == 1 else f"{part} {part_counts[part]}"] = dict(_flat(facts))
    return machines


def _flat(facts: Facts) -> list[tuple[str, str]]:
    flat: list[tuple[str, str]] = []
    for name in _COMPARED:
        value: Any = facts.get(name)
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
