"""KVM works on every KVM host: not only the device is there, a processor runs code on it, and a kernel boots."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vmtoll import accelerator
from vmtoll.paths import LAB
from vmtoll.preflight.finding import Finding, Level, ok
from vmtoll.preflight.lab import Lab
from workloads.runner.inventory import Host

ORDER = 80


def check(lab: Lab) -> Iterator[Finding]:
    """probes/kvm.py, then what vmtoll/accelerator.py does, with a kernel of that machine."""
    yield from lab.on_each(lab.answering("kvm_host"), lambda host: _look(lab, host))


def _look(lab: Lab, host: Host) -> Iterator[Finding]:
    embedded = host.is_local and host.get("vmtoll_lab") == "embedded"
    words = [f"{json.loads((LAB / 'built.json').read_text())['image']}/vmlinuz"] if embedded else []
    probe = (Path(__file__).parents[1] / "probes" / "kvm.py").read_text("utf-8")
    seen = lab.script(host, probe, *words, limit_s=40, files={"accelerator.py": inspect.getsource(accelerator)})
    yield judge(host.name, seen, embedded=embedded)


def judge(machine: str, seen: dict[str, Any], *, embedded: bool) -> Finding:
    """Whether KVM works, by what the probe saw; the embedded lab does without it, and says so everywhere."""
    if seen["why"]:
        level: Level = "warn" if embedded else "fail"
        advice = "The lab's guests are emulated: figures of them are shape only." if embedded else seen["advice"]
        return Finding(machine, level, f"KVM does not work: {seen['why']}", advice)
    return ok(
        machine, f"KVM runs code{', and boots ' + seen['booted'] if seen['booted'] else '; no kernel was booted'}"
    )
