#!/usr/bin/python
"""Makes a host's speed steady, and sets it back to what it was. Python 3.9, on the host."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

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
# Two settings that are no files.
UNIT, PROFILE = "irqbalance.service", "tuned-profile"


class LackError(Exception):
    """What this host cannot do, in one sentence with the way out."""


class Host:
    """Everything that can be read and written, by its place: a file below `root`, or one of UNIT and PROFILE."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def places(self, pattern: str) -> list[str]:
        """Files below the root."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))

    def read(self, place: str) -> str | None:
        """What is there now; None when there is no such thing."""
        if place == UNIT:
            return "active" if _succeeds("systemctl", "is-active", "--quiet", UNIT) else "inactive"
        if place == PROFILE:
            if self.read("etc/tuned/profile_mode") == "auto":
                return "auto"  # whichever it thinks best
            said = re.search(r"Current active profile: (\S+)", _output("tuned-adm", "active"))
            return said[1] if said else ""
        try:
            return (self.root / place).read_text().strip()
        except OSError:
            return None

    def write(self, place: str, value: str) -> None:
        """Raises OSError or CalledProcessError."""
        if place == UNIT:
            subprocess.run(["systemctl", "start" if value == "active" else "stop", UNIT], check=True)
        elif place == PROFILE:
            verb = {"auto": ["auto_profile"], "": ["off"]}.get(value, ["profile", value])
            subprocess.run(["tuned-adm", *verb], check=True)
        else:
            (self.root / place).write_text(value)


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


# A setting: what shall be where, by place. Raises LackError.


def irqbalance(host: Host, value: str) -> dict[str, str]:
    return {UNIT: "inactive"}


def tuned_profile(host: Host, value: str) -> dict[str, str]:
    there = re.findall(r"^- (\S+)", _output("tuned-adm", "list", "profiles"), re.M)
    if not there:
        raise LackError("tuned_profile: tuned does not answer; install it with `apt-get install tuned`")
    if value not in there:
        raise LackError(f"tuned_profile: tuned has no profile {value}; it has {', '.join(there)}")
    return {PROFILE: value}


def smt(host: Host, value: str) -> dict[str, str]:
    place = f"{CPU}/smt/control"
    now = host.read(place) or "missing"
    if now not in ("on", "off"):
        raise LackError(f"smt: it cannot be switched here (smt/control is {now}); leave it out")
    return {place: value}


def turbo(host: Host, value: str) -> dict[str, str]:
    for place, off, on in ((f"{CPU}/intel_pstate/no_turbo", "1", "0"), (f"{CPU}/cpufreq/boost", "0", "1")):
        if host.read(place) is not None:
            return {place: off if value == "off" else on}
    raise LackError("turbo: this host does not govern it (neither intel_pstate nor boost is in /sys); leave it out")


def governor(host: Host, value: str) -> dict[str, str]:
    places = host.places(f"{CPU}/cpu[0-9]*/cpufreq/scaling_governor")
    if not places:
        raise LackError("governor: this host does not govern its clock rate (no cpufreq in /sys); leave it out")
    for place in places:
        there = (host.read(f"{Path(place).parent}/scaling_available_governors") or "").split()
        if value not in there:
            raise LackError(f"governor: there is no {value} here; there are: {', '.join(there)}")
    return dict.fromkeys(places, value)


def irq_affinity(host: Host, value: str) -> dict[str, str]:
    present, places = host.read(f"{CPU}/present") or "0", host.places(IRQS)
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", value) or not cpus(value) <= cpus(present):
        raise LackError(f"irq_affinity: {value} is no list of CPUs of this host, which has {present}")
    if not places:
        raise LackError("irq_affinity: there are no interrupts to move here; leave it out")
    # Equal sets are left as the kernel writes them.
    return {place: now if now and cpus(now) == cpus(value) else value for place in places for now in [host.read(place)]}


def hugepages_2m(host: Host, value: int) -> dict[str, str]:
    return _number(
        host,
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        value,
        "hugepages_2m: this host has none of 2 MiB",
    )


def halt_poll_ns(host: Host, value: int) -> dict[str, str]:
    lack = "halt_poll_ns: the module kvm is not loaded; `modprobe kvm_intel` or `kvm_amd`"
    return _number(host, "sys/module/kvm/parameters/halt_poll_ns", value, lack)


def _number(host: Host, place: str, value: int, lack: str) -> dict[str, str]:
    if host.read(place) is None:
        raise LackError(f"{lack}; or leave it out")
    return {place: str(value)}


# In the order in which they are set: what moves things about first, CPUs before what is said of each.
SETTINGS = {
    f.__name__: f for f in (irqbalance, tuned_profile, smt, turbo, governor, irq_affinity, hugepages_2m, halt_poll_ns)
}


class Tuning:
    """One run of the module. `was`: setting → place → value before the first change."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.check = module, module.check_mode
        self.host = Host(module.params["root"])
        self.record = self.host.root / RECORD
        self.before: dict[str, str] = {}
        self.after: dict[str, str] = {}
        self.failed: list[str] = []
        self.boot = self.host.read(BOOT)
        known = json.loads(self.record.read_text()) if self.record.exists() else {}
        self.was = known.get("was", {})
        self.fixed = set(known.get("fixed", []))  # interrupts that cannot be moved
        if known and known["boot"] != self.boot:  # a reboot has undone the rest
            self.was = {name: places for name, places in self.was.items() if name == "tuned_profile"}
            self.fixed = set()

    def tune(self, wanted: dict[str, object]) -> None:
        targets, lacks = {}, []
        for name in (name for name in SETTINGS if wanted.get(name) is not None):
            try:
                targets[name] = SETTINGS[name](self.host, wanted[name])
            except LackError as lack:
                lacks.append(str(lack))
        if lacks:
            said = ". ".join(lacks)
            self.module.fail_json(msg=f"Nothing was changed; this host cannot do all of vmtoll_tuning: {said}.")
        now = {name: {place: self.host.read(place) for place in places} for name, places in targets.items()}
        if "smt" in targets:  # an interrupt of a CPU that goes is served by another one from then on
            now.setdefault("irq_affinity", {place: self.host.read(place) for place in self.host.places(IRQS)})
        self.was = {name: {**now.get(name, {}), **self.was.get(name, {})} for name in [*now, *self.was]}
        if any(now[name][place] != value for name in targets for place, value in targets[name].items()):
            self.save()
        for name in targets:
            for place, value in SETTINGS[name](self.host, wanted[name]).items():  # anew: CPUs may have gone
                self.put(name, place, value)
        if self.fixed:
            self.save()
        if self.fixed.issuperset(targets.get("irq_affinity", ["none asked for"])):
            self.failed.append("irq_affinity: no interrupt of this host can be moved; leave it out")

    def restore(self) -> None:
        last = "irqbalance"  # it would move what is being set back
        for name in sorted(self.was, key=lambda name: (name == last, list(SETTINGS).index(name))):
            for place, value in self.was[name].items():
                self.put(name, place, value)
        if self.record.exists() and not self.failed and not self.check:
            self.record.unlink()

    def put(self, name: str, place: str, value: str) -> None:
        """Set one place that is there, if it is not so already, and see that it took."""
        now = self.host.read(place)
        if now in (None, value) or place in self.fixed:
            return
        if not self.check:
            try:
                self.host.write(place, value)
            except (OSError, subprocess.CalledProcessError) as error:
                if name == "irq_affinity":  # each CPU's own timer, say
                    self.fixed.add(place)
                else:
                    self.failed.append(f"{name}: {place} does not take {value}: {error}")
                return
            got = self.host.read(place)
            if got != value:
                hint = "; right after a reboot, or with guests that use them stopped" if name == "hugepages_2m" else ""
                self.failed.append(f"{name}: {place} is {got} and not {value}{hint}")
        self.before[place], self.after[place] = str(now), value

    def save(self) -> None:
        """Write the record whole, before anything is changed."""
        if self.check:
            return
        self.record.parent.mkdir(parents=True, exist_ok=True)
        partial = self.record.with_suffix(".partial")
        with partial.open("w") as file:
            json.dump({"boot": self.boot, "was": self.was, "fixed": sorted(self.fixed)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self.record)


def main() -> None:
    switch = {"type": "str", "choices": ["on", "off"]}
    options = {
        **{name: {"type": "str"} for name in ("governor", "irq_affinity", "tuned_profile")},
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
    result = {"changed": bool(tuning.before), "diff": diff, "fixed": sorted(tuning.fixed)}
    if tuning.failed:
        module.fail_json(msg=f"Not all of it took: {'. '.join(tuning.failed)}.", **result)
    module.exit_json(**result)


def _lines(values: dict[str, str]) -> str:
    return "".join(f"{place}: {value}\n" for place, value in values.items())


if __name__ == "__main__":
    main()
