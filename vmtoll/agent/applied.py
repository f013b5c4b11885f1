"""Apply a change to this machine by the user's commands, and revert it: at the end, and after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vmtoll.agent.host_settings import IRQS, SETTINGS, Host, UnsupportedSettingError
from vmtoll.agent.machine import read

# The change in place, with the command that reverts it: it remains when the agent is killed or the machine boots. A
# change of a guest that its KVM host makes has its own note, because several guests may be measured at once.
NOTE = "var/lib/vmtoll/change.json"
GUEST_NOTE = "var/lib/vmtoll/change-of-{guest}.json"
REVERT_LIMIT_S = 600.0
_LONGEST = 300  # characters of a command's last line in an error


class Applied:
    """The changes that are in place: at most one of this machine, and of each guest that it hosts. `root`: the folder
    that contains var. The key of a change is the guest's name, "" for this machine.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.guard = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.ended = self.kept = False
        self.ours: set[str] = set()

    def file(self, guest: str) -> Path:
        """The file with the note of a change."""
        name = "".join(letter if letter.isalnum() or letter in "-_." else f"%{ord(letter):x}" for letter in guest)
        return self.root / (GUEST_NOTE.format(guest=name) if guest else NOTE)

    def note(self, guest: str = "") -> dict[str, Any] | None:
        """The record of the change in place; None without one."""
        file = self.file(guest)
        record: dict[str, Any] | None = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        return record

    def notes(self) -> list[dict[str, Any]]:
        """The records of all changes in place."""
        files = (self.root / NOTE).parent.glob(f"{Path(NOTE).stem}*.json")
        return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(files)]

    def apply(
        self, name: str, apply: str, revert: str, limit_s: float, *, boots: bool = False, guest: str = "",
        settings: Mapping[str, Any] | None = None, sysctls: Mapping[str, str] | None = None,
    ) -> dict[str, bool]:  # fmt: skip
        """Put a change in place, unless it is; return whether anything was done.

        First the settings (of host_settings) and kernel parameters are set and read back, then the command runs. A
        change with another `revert`, or with other settings, is reverted first. `boots`: the change outlasts a boot.
        Raises RuntimeError when a command fails or a value does not stick; the change is then reverted.
        """
        boot = read("/proc/sys/kernel/random/boot_id")
        with self.guard:
            self.ours.add(guest)
            before = self.note(guest)
            if before and before["name"] == name and (boots or before["boot"] == boot):
                return {"ran": False}
            if before and (before["revert"] != revert or before.get("was") or (not boots and before["boot"] != boot)):
                self._revert(guest)
            try:
                values = self._values(settings or {}, sysctls or {})
            except UnsupportedSettingError as error:
                raise RuntimeError(f"change {name}: {error}") from None
            others = self.host.files(IRQS) if (settings or {}).get("smt") else ()  # the kernel moves them
            held = self._held_by_others(guest)
            was = {key: held[key] if key in held else self.host.read(key) for key in (*values, *others)}
            note = {"name": name, "revert": revert, "limit_s": limit_s, "boot": boot, "boots": boots, "guest": guest}
            self._write(guest, {**note, "was": was})
            try:
                self._set(values, "; give a value that it takes, or leave it out")
                if apply:
                    self._run(apply, limit_s)
            except RuntimeError as error:
                with contextlib.suppress(RuntimeError):
                    self._revert(guest)
                raise RuntimeError(f"change {name}: {error}") from None
            return {"ran": True}

    def revert(self, guest: str = "", *, boots: bool = True) -> dict[str, bool]:
        """Revert the change in place, if there is one; return whether there was one, and whether the machine that it is
        about must boot to be without it. `boots`: also a change for which it must. Raises RuntimeError when the command
        fails; the record then remains.
        """
        with self.guard:
            before = self.note(guest)
            if before is None or (before.get("boots") and not boots):
                return {"ran": False, "boots": False}
            try:
                self._revert(guest)
            except RuntimeError as error:
                raise RuntimeError(
                    f"change {before['name']} stays in place: {error}; undo it by hand, then remove {self.file(guest)}"
                ) from None
            return {"ran": True, "boots": bool(before.get("is_reverted") or (before["revert"] and before.get("boots")))}

    def forget(self, guest: str) -> None:
        """Restore what a change of a guest that is removed has set on this machine, and remove its note; the command
        that reverts it has no guest any more. Raises RuntimeError when a value does not stick.
        """
        with self.guard:
            if note := self.note(guest):
                self._write(guest, {**note, "revert": ""})
                self._revert(guest)

    def keep(self) -> None:
        """Keep the changes when the agent ends: the machine is about to boot with them."""
        self.kept = True

    def close(self) -> None:
        """End a command that is running, and revert the changes that this agent has put in place."""
        self.ended = True
        if process := self.process:
            _kill(process)
        if not self.kept:
            with self.guard:
                for guest in self.ours:
                    with contextlib.suppress(RuntimeError, OSError):
                        self._revert(guest, boots=False)

    def _revert(self, guest: str, *, boots: bool = True) -> None:
        """Run the command that reverts a change, and remove its note. Where nobody boots a machine that must boot, the
        note remains without the command.
        """
        before = self.note(guest)
        if before is None:
            return
        if before["revert"]:
            self._run(before["revert"], max(before["limit_s"], REVERT_LIMIT_S), always=True)
        if before["boot"] == read("/proc/sys/kernel/random/boot_id"):  # else the boot has undone them
            held = self._held_by_others(guest)
            self._set({key: value for key, value in before.get("was", {}).items() if key not in held})
        if not boots and before.get("boots") and before["revert"]:
            self._write(guest, {**before, "name": "", "revert": "", "is_reverted": True})
        elif boots or not before.get("is_reverted"):
            self.file(guest).unlink(missing_ok=True)

    def _held_by_others(self, guest: str) -> dict[str, str | None]:
        """What the changes of other guests have set on this machine: key → its value before the first of them. The last
        one that is reverted restores it.
        """
        boot = read("/proc/sys/kernel/random/boot_id")
        others = [note for note in self.notes() if note.get("guest", "") != guest and note["boot"] == boot]
        return {key: value for note in others for key, value in note.get("was", {}).items()}

    @property
    def host(self) -> Host:
        """This machine, whose settings are read and written."""
        return Host(str(self.root))

    def _values(self, settings: Mapping[str, Any], sysctls: Mapping[str, str]) -> dict[str, str]:
        """Key (a file below the root) → value. Raises UnsupportedSettingError."""
        values: dict[str, str] = {}
        for name, setting in SETTINGS.items():  # in the order in which they are set
            if settings.get(name) is not None:
                values.update(setting(self.host, settings[name]))
        for name, value in sysctls.items():
            key = f"proc/sys/{name.replace('.', '/')}"
            if self.host.read(key) is None:
                raise UnsupportedSettingError(f"{name}: this kernel has no such parameter; correct it, or leave it out")
            values[key] = value
        return values

    def _set(self, values: Mapping[str, str | None], way_out: str = "") -> None:
        """Set each key that has another value, and read it back. Raises RuntimeError, whose message ends with
        `way_out`, for one that does not stick.
        """
        for key, value in values.items():
            now = self.host.read(key)
            if value is None or now is None or now.split() == value.split():
                continue
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                self.host.write(key, value)
            now = self.host.read(key)
            if (now or "").split() != value.split() and not key.startswith("proc/irq/"):  # some cannot be moved
                raise RuntimeError(f"/{key} does not take {value}: it is {now}{way_out}")

    def _write(self, guest: str, record: dict[str, Any]) -> None:
        file = self.file(guest)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}.partial")
        with draft.open("w", encoding="utf-8") as handle:
            json.dump(record, handle)
            handle.flush()
            os.fsync(handle.fileno())
        draft.replace(file)

    def _run(self, command: str, limit_s: float, *, always: bool = False) -> None:
        """Run a command by the shell. It may leave processes behind, which the change may consist of. `always`: also
        while the agent ends. Raises RuntimeError when it fails.
        """
        with tempfile.TemporaryFile() as output:
            if self.ended and not always:
                raise RuntimeError("the agent ends")
            self.process = process = subprocess.Popen(
                ["sh", "-c", command], cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
            if self.ended and not always:
                _kill(process)
            try:
                status = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                _kill(process)
                process.wait()
                raise RuntimeError(f"`{command}` took longer than {limit_s:g} s") from None
            finally:
                self.process = None
            output.seek(0)
            lines = output.read().decode("utf-8", "replace").strip().splitlines()
        if status:
            last = f": {' '.join(lines[-1].split())[:_LONGEST]}" if lines else ""
            raise RuntimeError(f"`{command}` failed (exit code {status}){last}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
