"""KVM works on every KVM host: a virtual CPU runs code on it and a kernel boots; /dev/kvm alone proves neither."""

import json
from collections.abc import Iterator

from vmtoll.agent.accelerator import KVM_PATIENCE_S
from vmtoll.agent.protocol import KvmAnswer
from vmtoll.guests.needs import module_text
from vmtoll.model.inventory import Host
from vmtoll.paths import LAB
from vmtoll.preflight.lab import PATIENCE_S, Lab
from vmtoll.preflight.result import CheckResult, Level, ok

ORDER = 80


def check(lab: Lab) -> Iterator[CheckResult]:
    """Run code on a virtual CPU of each KVM host, and boot a kernel there."""
    yield from lab.on_each(lab.answering_hosts("kvm_host"), lambda host: _check_host(lab, host))


def _check_host(lab: Lab, host: Host) -> Iterator[CheckResult]:
    embedded = host.is_local and host.vars.lab == "embedded"
    kernel = f"{json.loads((LAB / 'built.json').read_text())['image']}/vmlinuz" if embedded else ""
    answer: KvmAnswer = lab.ask(host, "kvm_works", KVM_PATIENCE_S + PATIENCE_S, kernel=kernel)
    yield judge(host.name, answer, embedded=embedded)


def judge(machine: str, answer: KvmAnswer, *, embedded: bool) -> CheckResult:
    """Judge whether KVM works, by the agent's answer; the embedded lab can do without KVM."""
    module = module_text(answer)
    if answer["why"]:
        level: Level = "warn" if embedded else "fail"
        lab_advice = "The lab's guests are emulated: compare their figures among themselves only."
        why = f"KVM does not work: {answer['why']}{module}"
        return CheckResult(machine, level, why, lab_advice if embedded else answer["advice"])
    boot_text = f", and boots {answer['booted']}" if answer["booted"] else "; no kernel was booted"
    return ok(machine, f"KVM runs code{boot_text}{module}")
