"""KVM works on every KVM host: a virtual CPU runs code on it and a kernel boots; /dev/kvm alone proves neither."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from vmtoll.agent import virtual_machine
from vmtoll.guests import kvm_host
from vmtoll.guests.needs import module_text
from vmtoll.lab import accelerator
from vmtoll.model.inventory import Host
from vmtoll.paths import LAB
from vmtoll.preflight.lab import PATIENCE_S, Lab
from vmtoll.preflight.result import CheckResult, Level, ok

ORDER = 80


class KvmAnswer(TypedDict):
    """Output of probes/kvm.py. `why`, `advice`: why KVM does not work, and what to do; both empty if it works.
    `booted`: the kernel that it tried to boot, empty without one. `kvm_modules`: kvm_…; `kvm_flags`: vmx or svm.
    """

    why: str
    advice: str
    booted: str
    kvm_modules: list[str]
    kvm_flags: list[str]


def check(lab: Lab) -> Iterator[CheckResult]:
    """Run probes/kvm.py, which boots a kernel with vmtoll/lab/accelerator.py."""
    yield from lab.on_each(lab.answering_hosts("kvm_host"), lambda host: _check_host(lab, host))


def _check_host(lab: Lab, host: Host) -> Iterator[CheckResult]:
    embedded = host.is_local and host.vars.lab == "embedded"
    words = [f"{json.loads((LAB / 'built.json').read_text())['image']}/vmlinuz"] if embedded else []
    probe = (Path(__file__).parents[1] / "probes" / "kvm.py").read_text("utf-8")
    answer = lab.script(host, probe, *words, limit_s=accelerator.KVM_PATIENCE_S + PATIENCE_S, files=probe_files())
    yield judge(host.name, answer, embedded=embedded)


def probe_files() -> dict[str, str]:
    """The modules that the probe imports: file → source."""
    modules = (accelerator, kvm_host, virtual_machine)
    return {f"{module.__name__.rpartition('.')[2]}.py": inspect.getsource(module) for module in modules}


def judge(machine: str, answer: KvmAnswer, *, embedded: bool) -> CheckResult:
    """Judge whether KVM works, by the probe's answer; the embedded lab can do without KVM."""
    module = module_text(answer)
    if answer["why"]:
        level: Level = "warn" if embedded else "fail"
        lab_advice = "The lab's guests are emulated: compare their figures among themselves only."
        why = f"KVM does not work: {answer['why']}{module}"
        return CheckResult(machine, level, why, lab_advice if embedded else answer["advice"])
    boot_text = f", and boots {answer['booted']}" if answer["booted"] else "; no kernel was booted"
    return ok(machine, f"KVM runs code{boot_text}{module}")
