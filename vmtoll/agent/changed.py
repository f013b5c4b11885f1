"""What vmtoll changed on this machine and has not undone, from the records that it keeps here."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

from vmtoll.agent.applied import Applied
from vmtoll.agent.domains import PAUSED, is_paused, read_record, resume_guest
from vmtoll.agent.exits import left, remove_left
from vmtoll.agent.machine import read
from vmtoll.agent.protocol import MachineChanges, ProvisioningChanges

PROVISIONED, TUNED = "var/lib/vmtoll/provisioning.json", "var/lib/vmtoll/host-tuning.json"
GUESTS = "var/lib/libvirt/images/vmtoll"  # of the role kvm_guest
AFTER_BOOT = ("tuned_profile",)  # the only setting that survives a reboot


def changes_left(root: Path, held_by: str | None) -> MachineChanges:
    """Return what is changed. `root`: the folder with var and run; `held_by`: the run that holds the machine."""
    return {
        "provisioned": _provisioned(root / PROVISIONED),
        "tuned": _tuned(root / TUNED),
        "guests": sorted(path.stem for path in (root / GUESTS).glob("*.xml")),
        "paused": sorted(path.name for path in (root / PAUSED).glob("*")),
        "servers": _servers(),
        "change": ", ".join(map(_change, Applied(root).notes())) or None,
        "traces": [path.name for path in left()],
        "held_by": held_by,
    }


def clean_up(root: Path) -> list[str]:
    """Clean up after a killed run: resume the guests that it paused, stop its servers, revert the changes that it
    applied, remove its traces. Returns what was done.
    """
    actions = []
    for path in sorted((root / PAUSED).glob("*")):
        with contextlib.suppress(RuntimeError):  # the guest may be gone by now
            if is_paused(guest := read_record(path)):
                resume_guest(guest)
                actions.append(f"guest {path.name} resumed")
        path.unlink()
    for unit in _servers():
        subprocess.run(["systemctl", "stop", unit], capture_output=True, timeout=60, check=True)
        actions.append(f"{unit} stopped")
    applied = Applied(root)
    for note in applied.notes():
        boots = applied.revert(note.get("guest", ""))["boots"]
        actions.append(f"change {_change(note)} reverted" + "; boot the machine" * boots)
    actions += [f"trace {name} removed" for name in remove_left()]
    return actions


def active_units(units: list[str]) -> list[str]:
    """Return the active units among these names and patterns."""
    listing = _systemctl("list-units", "--state=active", *units) if units else ""
    return sorted(line.split()[0] for line in listing.splitlines() if line.split())


def _provisioned(path: Path) -> ProvisioningChanges | None:
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    packages = sorted(name for name, kind in record["packages"].items() if kind in ("absent", "config-files"))
    return {
        "since": record["since"],
        "packages": packages,
        "files": sorted(record["files"]),
        "sysctls": sorted(record["sysctls"]),
        "units": sorted(record["units"]),
    }


def _tuned(path: Path) -> list[str]:
    if not path.exists():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    same_boot = record["boot"] == read("/proc/sys/kernel/random/boot_id")
    return sorted(name for name in record["was"] if same_boot or name in AFTER_BOOT)


def _change(note: dict[str, Any]) -> str:
    """The name of a change, with the guest that it is about; of one that only a boot ends, what is left."""
    about = f" of guest {note['guest']}" if note.get("guest") else ""
    return f"{note['name'] or 'awaiting a boot'}{about}"


def _servers() -> list[str]:
    return active_units(["vmtoll-*.service"])


def _systemctl(*words: str) -> str:
    argv = ["systemctl", "--plain", "--no-legend", "--no-pager", *words]
    with contextlib.suppress(FileNotFoundError):  # a system without systemd has no units
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout
    return ""
