#!/usr/bin/python
"""Record what a machine was before it is provisioned, and restore it. Python 3.9, on the machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: machine_journal
short_description: Record what a machine was before it is provisioned, and restore it
description:
  - C(state=recorded) writes to var/lib/vmtoll/provisioning.json how packages, files, units and kernel parameters are,
    and keeps a copy of each file that is there. What is recorded once is never overwritten, so it tells of the time
    before the first provisioning. Recording is not a change.
  - C(state=restored) restores all that is recorded and removes the record.
options:
  state:
    description: Record how the named things are, or restore all that is recorded.
    type: str
    choices: [recorded, restored]
    default: recorded
  root:
    description: The folder that holds etc, proc, usr and var.
    type: path
    default: /
  packages:
    description: Debian packages that will be installed.
    type: list
    elements: str
    default: []
  files:
    description: Files and links that will be written, unit masks among them.
    type: list
    elements: str
    default: []
  trees:
    description: Folders that will be made; restoring removes them with all they have, unless they are there already.
    type: list
    elements: str
    default: []
  folders:
    description: Folders that packages make and may leave; restoring removes those that are empty.
    type: list
    elements: str
    default: []
  units:
    description: Units that will be masked; restoring starts those that are active.
    type: list
    elements: str
    default: []
  sysctls:
    description: Kernel parameters that will be set.
    type: list
    elements: str
    default: []
"""

RECORD = "var/lib/vmtoll/provisioning.json"
SAVED = "var/lib/vmtoll/provisioning"  # copies of files that existed
UNITS = "/etc/systemd/system/"
APT = ("env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "apt-get", "-q")


def output(*argv: str) -> str:
    """Run a program; return what it printed. Raises CalledProcessError with the same."""
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout


def succeeds(*argv: str) -> bool:
    try:
        return subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def packages() -> dict[str, str]:
    """Package → its state: "manual", "automatic", or "config-files" if only its configuration is left."""
    automatic = set(output("apt-mark", "showauto").split())
    states = {}
    for line in output("dpkg-query", "-W", "-f", "${db:Status-Abbrev}\t${Package}\n").splitlines():
        status, name = line.split("\t")
        if status.startswith("ii"):
            states[name] = "automatic" if name in automatic else "manual"
        elif status.startswith("rc"):
            states.setdefault(name, "config-files")
    return states


def simulated(*words: str) -> set[str]:
    """The packages that apt-get would remove."""
    return set(re.findall(r"^(?:Purg|Remv) ([^\s:]+)", output(*APT, "--simulate", *words), re.M))


def unnecessary() -> set[str]:
    """Automatically installed packages that nothing else depends on. Recommends and Suggests do not count."""
    weak = ("Recommends", "Suggests")
    options = [part for kind in weak for part in ("-o", f"APT::AutoRemove::{kind}Important=false")]
    return simulated(*options, "--purge", "autoremove")


class Journal:
    """The record of one machine. `record`: the content of its JSON file."""

    def __init__(self, root: str, *, check: bool) -> None:
        self.root, self.check = Path(root), check
        self.path = self.root / RECORD
        self.saved = self.root / SAVED
        self.done: list[str] = []
        self.failed: list[str] = []
        empty = {"packages": {}, "files": {}, "trees": [], "folders": [], "units": [], "sysctls": {}}
        self.record = json.loads(self.path.read_text()) if self.path.exists() else empty

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def add(self, planned: dict[str, list[str]]) -> None:
        """Record the present state of what provisioning will change, except what is recorded already."""
        record, before = self.record, json.dumps(self.record)
        if planned["packages"]:
            now = packages()
            record.setdefault("installed", sorted(name for name, kind in now.items() if kind != "config-files"))
            for name in planned["packages"]:
                record["packages"].setdefault(name, now.get(name, "absent"))
        for path in planned["files"]:
            if path not in record["files"]:
                record["files"][path] = self._save_copy(path)
                self._note_folders(Path(path).parents)
        for path in planned["trees"]:
            if path not in record["trees"] and not self.at(path).exists():
                record["trees"].append(path)
                self._note_folders(Path(path).parents)
        for path in planned["folders"]:
            self._note_folders([Path(path), *Path(path).parents])
        record["units"] += [u for u in planned["units"] if u not in record["units"] and self._runs_unmasked(u)]
        for name in planned["sysctls"]:
            parameter = self._parameter(name)
            if name not in record["sysctls"] and parameter.exists():
                record["sysctls"][name] = parameter.read_text().strip()
        if json.dumps(record) != before:
            record.setdefault("since", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
            self._save()

    def restore(self) -> None:
        """Restore all that is recorded. If anything fails, keep the record."""
        self._stop_servers()
        self._restore_packages()
        for path, saved in self.record["files"].items():
            self._restore_file(path, saved)
        self._remove_folders()
        self._start_units()
        for name, value in self.record["sysctls"].items():
            parameter = self._parameter(name)
            if parameter.exists() and parameter.read_text().strip() != value:
                self._apply(f"set {name} to {value!r}", lambda to=parameter, value=value: to.write_text(value + "\n"))
        if not self.failed and not self.check:
            shutil.rmtree(self.saved, ignore_errors=True)
            if self.path.exists():
                self.path.unlink()
                if not any(self.path.parent.iterdir()):
                    self.path.parent.rmdir()

    def _stop_servers(self) -> None:
        for path, saved in self.record["files"].items():
            unit = self.at(path)
            if path.startswith(UNITS) and saved is None and unit.is_file() and not unit.is_symlink():
                self._apply("", lambda name=unit.name: output("systemctl", "stop", name))

    def _remove_folders(self) -> None:
        for path in self.record["trees"]:
            if guests := sorted(file.stem for file in self.at(path).glob("*.qcow2")):
                self.failed.append(
                    f"{path}: the guests {', '.join(guests)} have their disks there, and this inventory does not name "
                    "them; use the one that does"
                )
            elif self.at(path).exists():
                self._apply(f"remove {path}", lambda path=path: shutil.rmtree(self.at(path)))
        for path in sorted(self.record["folders"], key=len, reverse=True):
            if self.at(path).is_dir() and not any(self.at(path).iterdir()):
                self._apply(f"remove {path}", lambda path=path: self.at(path).rmdir())

    def _start_units(self) -> None:
        """Start the units that ran before they were masked."""
        if not self._is_booted():
            return
        self._apply("", lambda: output("systemctl", "daemon-reload"))
        for unit in self.record["units"]:
            if not succeeds("systemctl", "is-active", "--quiet", unit):
                self._apply(f"start {unit}", lambda unit=unit: output("systemctl", "start", unit))

    def _is_booted(self) -> bool:
        return (self.root / "run/systemd/system").is_dir()

    def _parameter(self, name: str) -> Path:
        return self.root / "proc/sys" / name.replace(".", "/")

    def _runs_unmasked(self, unit: str) -> bool:
        return self._is_booted() and succeeds("systemctl", "is-active", "--quiet", unit)

    def _save_copy(self, path: str) -> str | None:
        """Copy a file or link; return the copy's name, or None if there is nothing to copy."""
        if not os.path.lexists(self.at(path)):
            return None
        name = str(len(self.record["files"]))
        if not self.check:
            self.saved.mkdir(parents=True, exist_ok=True, mode=0o700)
            output("cp", "--archive", "--remove-destination", str(self.at(path)), str(self.saved / name))
        return name

    def _note_folders(self, folders: Iterable[Path]) -> None:
        """Record the folders that do not exist yet: restoring removes them if they are empty."""
        for folder in folders:
            if not self.at(str(folder)).exists() and str(folder) not in self.record["folders"]:
                self.record["folders"].append(str(folder))

    def _restore_file(self, path: str, saved: str | None) -> None:
        now = self.at(path)
        if saved is None:
            if os.path.lexists(now):
                self._apply(f"remove {path}", now.unlink)
        elif not self._is_as_saved(now, self.saved / saved):
            copy = ("cp", "--archive", "--remove-destination", str(self.saved / saved), str(now))
            self._apply(f"write {path} as it was", lambda: output(*copy))

    @staticmethod
    def _is_as_saved(now: Path, saved: Path) -> bool:
        if now.is_symlink() or saved.is_symlink():
            return now.is_symlink() and saved.is_symlink() and now.readlink() == saved.readlink()
        if not now.exists():
            return False
        stat, saved_stat = now.stat(), saved.stat()
        alike = (stat.st_mode, stat.st_uid, stat.st_gid) == (saved_stat.st_mode, saved_stat.st_uid, saved_stat.st_gid)
        return alike and now.read_bytes() == saved.read_bytes()

    def _restore_packages(self) -> None:
        """Remove what provisioning installed, except dependencies of packages that the user installed since then."""
        states_before = self.record["packages"]
        now = packages() if states_before else {}
        installed_by_vmtoll = [
            name for name in sorted(states_before) if states_before[name] in ("absent", "config-files") and name in now
        ]
        installed_by_vmtoll = [
            name for name in installed_by_vmtoll if now[name] != "config-files" or states_before[name] == "absent"
        ]
        if "libvirt-daemon-system" in installed_by_vmtoll and (domains := self._domains()):
            self.failed.append(
                f"packages: libvirt has the domains {', '.join(domains)}, which are not of this inventory; "
                "remove them first"
            )
            return
        if self.check:
            self.done += [f"remove package {name}" for name in installed_by_vmtoll]
            return
        try:
            if installed_by_vmtoll:
                output("apt-mark", "auto", *installed_by_vmtoll)
                unneeded = self._unneeded()
                if others := simulated("purge", *unneeded) - unneeded:
                    self.failed.append(f"packages: {', '.join(sorted(others))} would go too; remove them first")
                    return
                configured = {name for name in unneeded if states_before.get(name) == "config-files"}
                for verb, names in (("purge", unneeded - configured), ("remove", configured)):
                    output(*APT, "--yes", verb, *sorted(names))
                self.done += [f"remove package {name}" for name in sorted(unneeded)]
            if automatic := [
                name for name, kind in sorted(states_before.items()) if kind == "automatic" and name in now
            ]:
                output("apt-mark", "auto", *automatic)
        except subprocess.CalledProcessError as error:
            self.failed.append(f"packages: {' '.join(map(str, error.cmd))}: {_last(error.stdout)}")

    def _unneeded(self) -> set[str]:
        """Packages that came with ours and that nothing else needs. What a package recommends stays, with its
        dependencies, if the user installed that package after the record was made.
        """
        before = set(self.record["installed"])
        unneeded = unnecessary() - before
        since = {name for name, kind in packages().items() if kind != "config-files"} - before - unneeded
        recommended = output("dpkg-query", "-W", "-f", "${Recommends},", *sorted(since)) if since else ""
        kept = sorted(unneeded & set(re.findall(r"[a-z0-9][a-z0-9.+-]+", recommended)))
        if not kept:
            return unneeded
        output("apt-mark", "manual", *kept)
        try:
            return unnecessary() - before
        finally:
            output("apt-mark", "auto", *kept)

    @staticmethod
    def _domains() -> list[str]:
        try:
            listed = output("virsh", "--connect", "qemu:///system", "list", "--all", "--name")
            return [name for name in listed.splitlines() if name]
        except (OSError, subprocess.CalledProcessError):
            return []

    def _apply(self, step: str, change: object) -> None:
        """Make one change, and note it or its error."""
        try:
            if not self.check:
                change()
            self.done += [step] if step else []
        except (OSError, subprocess.CalledProcessError) as error:
            detail = _last(error.stdout) if isinstance(error, subprocess.CalledProcessError) else str(error)
            self.failed.append(f"{step}: {detail}")

    def _save(self) -> None:
        """Write the record as a whole, before anything changes."""
        if self.check:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        with partial.open("w") as file:
            json.dump(self.record, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self.path)


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def main() -> None:
    names = {"type": "list", "elements": "str", "default": []}
    spec = {
        "state": {"type": "str", "choices": ["recorded", "restored"], "default": "recorded"},
        "root": {"type": "path", "default": "/"},
        **dict.fromkeys(("packages", "files", "trees", "folders", "units", "sysctls"), names),
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    journal = Journal(module.params["root"], check=module.check_mode)
    if module.params["state"] == "recorded":
        journal.add(module.params)
    else:
        journal.restore()
    result = {"changed": bool(journal.done), "diff": {"before": "", "after": "".join(f"{d}\n" for d in journal.done)}}
    if journal.failed:
        module.fail_json(msg=f"Not all of it was restored: {'. '.join(journal.failed)}.", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
