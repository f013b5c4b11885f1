#!/usr/bin/python
"""Make a host's speed steady, and restore it. Python 3.9, on the host.

The agent has the settings, Host and SETTINGS, for changes that are arms of an experiment (vmtoll/agent/host_settings.py
is a link to this file); what needs Ansible is the module alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    from ansible.module_utils.basic import AnsibleModule
except ImportError:  # the agent's Python has no packages
    AnsibleModule = None

DOCUMENTATION = r"""
module: host_tuning
short_description: Make a host's speed steady, and set it back to what it was
description:
  - What was is recorded before the first change, in var/lib/vmtoll/host-tuning.json, and never overwritten by a later
    one; C(state=restored) writes it back and removes the record.
  - The module names what the host cannot do before it changes anything.
  - All but the tuned profile goes with a reboot; so does what the record says of it.
options:
  state:
    description: Set what C(settings) say, or set back what was.
    type: str
    choices: [tuned, restored]
    default: tuned
  root:
    description: The folder that holds sys, proc and var.
    type: path
    default: /
  settings:
    description: What to set (docs/real-hosts.md); what is not named stays as it is.
    type: dict
    default: {}
"""

RECORD = "var/lib/vmtoll/host-tuning.json"
BOOT = "proc/sys/kernel/random/boot_id"
CPU = "sys/devices/system/cpu"
IRQS = "proc/irq/[0-9]*/smp_affinity_list"
THP, KSM = "sys/kernel/mm/transparent_hugepage/enabled", "sys/kernel/mm/ksm/run"
# Two keys that are not files.
UNIT, PROFILE = "irqbalance.service", "tuned-profile"


class UnsupportedSettingError(Exception):
    """A setting that this host cannot do, in one sentence with the way out."""


class Host:
    """Host whose values are read and written by key: a file below `root`, or one of UNIT and PROFILE."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def files(self, pattern: str) -> list[str]:
        """Files below the root."""
        return sorted(str(file.relative_to(self.root)) for file in self.root.glob(pattern))

    def read(self, key: str) -> str | None:
        """Return the current value of a key; None when there is no such file."""
        if key == UNIT:
            return "active" if _succeeds("systemctl", "is-active", "--quiet", UNIT) else "inactive"
        if key == PROFILE:
            if self.read("etc/tuned/profile_mode") == "auto":
                return "auto"  # tuned chooses the profile
            match = re.search(r"Current active profile: (\S+)", _output("tuned-adm", "active"))
            return match[1] if match else ""
        try:
            value = (self.root / key).read_text().strip()
        except OSError:
            return None
        chosen = re.search(r"\[(\w+)\]", value) if key == THP else None
        return chosen[1] if chosen else value

    def write(self, key: str, value: str) -> None:
        """Write a value. Raises OSError or CalledProcessError."""
        if key == UNIT:
            subprocess.run(["systemctl", "start" if value == "active" else "stop", UNIT], check=True)
        elif key == PROFILE:
            verb = {"auto": ["auto_profile"], "": ["off"]}.get(value, ["profile", value])
            subprocess.run(["tuned-adm", *verb], check=True)
        else:
            (self.root / key).write_text(value)


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    except OSError:
        return ""
    return done.stdout


def _succeeds(*argv: str) -> bool:
    try:
        return subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def cpus(text: str) -> set[int]:
    """The CPUs of a list such as 0-1,4."""
    ranges = [part.split("-") for part in text.split(",")]
    return {cpu for part in ranges for cpu in range(int(part[0]), int(part[-1]) + 1)}


# One function for each setting: the value of each key. Raises UnsupportedSettingError.


def irqbalance(host: Host, value: str) -> dict[str, str]:
    return {UNIT: "inactive"}


def tuned_profile(host: Host, value: str) -> dict[str, str]:
    profiles = re.findall(r"^- (\S+)", _output("tuned-adm", "list", "profiles"), re.M)
    if not profiles:
        raise UnsupportedSettingError(
            "tuned_profile: tuned lists no profile; install tuned (`apt-get install tuned`), or see "
            "`systemctl status tuned`"
        )
    if value not in profiles:
        raise UnsupportedSettingError(f"tuned_profile: tuned has no profile {value}; it has {', '.join(profiles)}")
    return {PROFILE: value}


def smt(host: Host, value: str) -> dict[str, str]:
    key = f"{CPU}/smt/control"
    now = host.read(key) or "missing"
    if now not in ("on", "off"):
        raise UnsupportedSettingError(f"smt: it cannot be switched here (smt/control is {now}); leave it out")
    return {key: value}


def turbo(host: Host, value: str) -> dict[str, str]:
    for key, off, on in ((f"{CPU}/intel_pstate/no_turbo", "1", "0"), (f"{CPU}/cpufreq/boost", "0", "1")):
        if host.read(key) is not None:
            return {key: off if value == "off" else on}
    raise UnsupportedSettingError(
        "turbo: this host does not govern it (neither intel_pstate nor boost is in /sys); leave it out"
    )


def governor(host: Host, value: str) -> dict[str, str]:
    keys = host.files(f"{CPU}/cpu[0-9]*/cpufreq/scaling_governor")
    if not keys:
        raise UnsupportedSettingError(
            "governor: this host does not govern its clock rate (no cpufreq in /sys); leave it out"
        )
    for key in keys:
        available = (host.read(f"{Path(key).parent}/scaling_available_governors") or "").split()
        if value not in available:
            raise UnsupportedSettingError(f"governor: there is no {value} here; there are: {', '.join(available)}")
    return dict.fromkeys(keys, value)


def irq_affinity(host: Host, value: str) -> dict[str, str]:
    present, keys = host.read(f"{CPU}/present") or "0", host.files(IRQS)
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", value) or not cpus(value) <= cpus(present):
        raise UnsupportedSettingError(f"irq_affinity: {value} is not a list of CPUs of this host, which has {present}")
    if not keys:
        raise UnsupportedSettingError("irq_affinity: there are no interrupts to move here; leave it out")
    # Equal sets stay as the kernel writes them.
    return {key: now if now and cpus(now) == cpus(value) else value for key in keys for now in [host.read(key)]}


def hugepages_2m(host: Host, value: int) -> dict[str, str]:
    return _existing(
        host,
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        value,
        "hugepages_2m: this host has none of 2 MiB",
    )


def halt_poll_ns(host: Host, value: int) -> dict[str, str]:
    reason = "halt_poll_ns: the module kvm is not loaded; `modprobe kvm_intel` or `kvm_amd`"
    return _existing(host, "sys/module/kvm/parameters/halt_poll_ns", value, reason)


def transparent_hugepage(host: Host, value: str) -> dict[str, str]:
    return _existing(host, THP, value, "transparent_hugepage: this host's kernel has none")


def ksm(host: Host, value: str) -> dict[str, str]:
    return _existing(host, KSM, "1" if value == "on" else "0", "ksm: this host's kernel does not merge pages")


def _existing(host: Host, key: str, value: object, reason: str) -> dict[str, str]:
    if host.read(key) is None:
        raise UnsupportedSettingError(f"{reason}; or leave it out")
    return {key: str(value)}


# In the order in which they are set: first those that change other settings, then CPUs before the settings of each.
SETTINGS: dict[str, Callable[[Host, Any], dict[str, str]]] = {
    f.__name__: f
    for f in (
        irqbalance,
        tuned_profile,
        smt,
        turbo,
        governor,
        irq_affinity,
        hugepages_2m,
        halt_poll_ns,
        transparent_hugepage,
        ksm,
    )
}


class Tuning:
    """One run of the module. `original`: setting → key → value before the first change."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.check = module, module.check_mode
        self.host = Host(module.params["root"])
        self.record = self.host.root / RECORD
        self.before: dict[str, str] = {}
        self.after: dict[str, str] = {}
        self.failed: list[str] = []
        self.boot = self.host.read(BOOT)
        recorded = json.loads(self.record.read_text()) if self.record.exists() else {}
        self.original = recorded.get("was", {})
        self.immovable_irqs = set(recorded.get("fixed", []))  # interrupts that cannot be moved
        if recorded and recorded["boot"] != self.boot:  # a reboot has undone the rest
            self.original = {name: values for name, values in self.original.items() if name == "tuned_profile"}
            self.immovable_irqs = set()

    def tune(self, settings: dict[str, object]) -> None:
        targets, unsupported = {}, []
        for name in (name for name in SETTINGS if settings.get(name) is not None):
            try:
                targets[name] = SETTINGS[name](self.host, settings[name])
            except UnsupportedSettingError as error:
                unsupported.append(str(error))
        if unsupported:
            reasons = ". ".join(unsupported)
            self.module.fail_json(msg=f"Nothing was changed; this host cannot do all of vmtoll_tuning: {reasons}.")
        now = {name: {key: self.host.read(key) for key in values} for name, values in targets.items()}
        if "smt" in targets:  # the kernel moves the interrupts of a CPU that goes offline
            now.setdefault("irq_affinity", {key: self.host.read(key) for key in self.host.files(IRQS)})
        self.original = {name: {**now.get(name, {}), **self.original.get(name, {})} for name in [*now, *self.original]}
        if any(now[name][key] != value for name in targets for key, value in targets[name].items()):
            self.save()
        for name in targets:
            for key, value in SETTINGS[name](self.host, settings[name]).items():  # again: CPUs may be offline now
                self.set_value(name, key, value)
        if self.immovable_irqs:
            self.save()
        if self.immovable_irqs.issuperset(targets.get("irq_affinity", ["none asked for"])):
            self.failed.append("irq_affinity: no interrupt of this host can be moved; leave it out")

    def restore(self) -> None:
        last = "irqbalance"  # it would move the interrupts that are being restored
        for name in sorted(self.original, key=lambda name: (name == last, list(SETTINGS).index(name))):
            for key, value in self.original[name].items():
                self.set_value(name, key, value)
        if self.record.exists() and not self.failed and not self.check:
            self.record.unlink()

    def set_value(self, name: str, key: str, value: str) -> None:
        """Set the value of one existing key, unless it has that value already, and check that the value took."""
        now = self.host.read(key)
        if now in (None, value) or key in self.immovable_irqs:
            return
        if not self.check:
            try:
                self.host.write(key, value)
            except (OSError, subprocess.CalledProcessError) as error:
                if name == "irq_affinity":  # for example, the timer of each CPU
                    self.immovable_irqs.add(key)
                else:
                    self.failed.append(f"{name}: {key} does not take {value}: {error}")
                return
            value_now = self.host.read(key)
            if value_now != value:
                hint = "; right after a reboot, or with guests that use them stopped" if name == "hugepages_2m" else ""
                self.failed.append(f"{name}: {key} is {value_now} and not {value}{hint}")
        self.before[key], self.after[key] = str(now), value

    def save(self) -> None:
        """Write the record as a whole."""
        if self.check:
            return
        self.record.parent.mkdir(parents=True, exist_ok=True)
        partial = self.record.with_suffix(".partial")
        with partial.open("w") as file:
            json.dump({"boot": self.boot, "was": self.original, "fixed": sorted(self.immovable_irqs)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self.record)


def main() -> None:
    switch = {"type": "str", "choices": ["on", "off"]}
    options = {
        **{name: {"type": "str"} for name in ("governor", "irq_affinity", "tuned_profile")},
        "transparent_hugepage": {"type": "str", "choices": ["always", "madvise", "never"]},
        "ksm": switch,
        **{name: {"type": "int"} for name in ("hugepages_2m", "halt_poll_ns")},
        "turbo": switch,
        "smt": switch,
        "irqbalance": {"type": "str", "choices": ["stopped"]},
    }
    spec = {
        "state": {"type": "str", "choices": ["tuned", "restored"], "default": "tuned"},
        "root": {"type": "path", "default": "/"},
        "settings": {"type": "dict", "options": options, "default": {}},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    tuning = Tuning(module)
    if module.params["state"] == "tuned":
        tuning.tune(module.params["settings"])
    else:
        tuning.restore()
    diff = {"before": _lines(tuning.before), "after": _lines(tuning.after)}
    result = {"changed": bool(tuning.before), "diff": diff, "fixed": sorted(tuning.immovable_irqs)}
    if tuning.failed:
        module.fail_json(msg=f"Not all of it took: {'. '.join(tuning.failed)}.", **result)
    module.exit_json(**result)


def _lines(values: dict[str, str]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in values.items())


if __name__ == "__main__":
    main()
