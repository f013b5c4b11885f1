"""Pause and resume guests on this machine, and read their consoles. It is no error if a guest is paused or runs
already.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path

from vmtoll.agent.console import panic
from vmtoll.agent.machine import TICKS, read, stat_fields
from vmtoll.agent.monitors import execute
from vmtoll.agent.protocol import GuestAddress
from vmtoll.agent.virsh import called, run, virsh

# A file for each paused guest, with its address: it remains when the agent is killed.
PAUSED = "run/vmtoll-paused"
# The file of a guest's console, in libvirt's definition and in QEMU's words.
_CONSOLE = re.compile(
    r"<(?:serial|console) type='file'[^>]*>\s*<source path='([^']+)'"
    r"|-serial\0file:([^\0]+)"
    r"|-chardev\0file,(?:[^\0]*,)?path=([^\0,]+)"
)


class Domains:
    """Guests that this agent has paused. `root`: the folder that contains run."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.record = root / PAUSED
        self.paused: dict[str, GuestAddress] = {}
        self.consoles: dict[str, Path | None] = {}

    def pause(self, guest: GuestAddress) -> None:
        """Stop a guest's CPUs. Raises RuntimeError when its host does not."""
        self.add_record(guest)
        try:
            pause_guest(guest)
        except RuntimeError:
            self.remove_record(guest)
            raise

    def resume(self, guest: GuestAddress) -> None:
        """Resume a guest. Raises RuntimeError when its host does not."""
        resume_guest(guest)
        self.remove_record(guest)

    def add_record(self, guest: GuestAddress) -> None:
        """Record that a guest is about to be paused: this agent resumes it when it ends."""
        self.record.mkdir(parents=True, exist_ok=True)
        (self.record / guest["name"]).write_text(json.dumps(guest), encoding="utf-8")
        self.paused[guest["name"]] = guest

    def remove_record(self, guest: GuestAddress) -> None:
        """Remove the record of a guest that runs again."""
        self.paused.pop(guest["name"], None)
        with contextlib.suppress(FileNotFoundError):
            (self.record / guest["name"]).unlink()

    def resume_left(self, guest: GuestAddress) -> None:
        """Resume a guest if it is paused. Raises RuntimeError when its host does not."""
        if is_paused(guest):
            self.resume(guest)

    def panic(self, guest: GuestAddress, pid: str) -> str:
        """The panic of a guest's kernel and its console's last lines; empty if it has not panicked, or if its console
        is not a file.
        """
        if guest["name"] not in self.consoles:
            self.consoles[guest["name"]] = console_of(guest, pid)
        console = self.consoles[guest["name"]]
        if console is None or not (ticks := stat_fields(pid)[19:20]):
            return ""
        age_s = float(read("/proc/uptime").split()[0]) - int(ticks[0]) / TICKS
        return panic(console, time.time() - age_s)

    def close(self) -> None:
        for guest in list(self.paused.values()):
            with contextlib.suppress(RuntimeError):
                self.resume(guest)


def read_record(file: Path) -> GuestAddress:
    """Return the guest of a record; earlier versions wrote only libvirt's URI."""
    text = file.read_text(encoding="utf-8")
    guest: GuestAddress = json.loads(text) if text.startswith("{") else libvirt_address(file.name, text)
    return guest


def libvirt_address(domain: str, uri: str) -> GuestAddress:
    """The address of a libvirt domain."""
    return {"kind": "libvirt", "name": domain, "uri": uri}


def console_of(guest: GuestAddress, pid: str) -> Path | None:
    """The file that a guest's serial console is written to; None without one. Raises RuntimeError."""
    words = (
        virsh(guest["uri"], "dumpxml", *called(guest["name"]))
        if guest["kind"] == "libvirt"
        else read(f"/proc/{pid}/cmdline")
    )
    found = _CONSOLE.search(words)
    return Path(next(filter(None, found.groups()))) if found else None


def is_paused(guest: GuestAddress) -> bool:
    """Return whether a guest's CPUs are stopped. Raises RuntimeError."""
    if guest["kind"] == "qemu":
        state = execute(guest["socket"], "query-status")
        return isinstance(state, dict) and state["status"] == "paused"
    if guest["kind"] == "proxmox":  # its status alone calls a paused guest running
        return "qmpstatus: paused" in run(["qm", "status", guest["vmid"], "--verbose"]).splitlines()
    return virsh(guest["uri"], "domstate", *called(guest["name"])).strip() == "paused"


def pause_guest(guest: GuestAddress) -> None:
    """Stop a guest's CPUs. Raises RuntimeError."""
    if guest["kind"] == "qemu":
        execute(guest["socket"], "stop")
    elif guest["kind"] == "proxmox":
        run(["qm", "suspend", guest["vmid"]])
    else:
        virsh(guest["uri"], "suspend", *called(guest["name"]))


def resume_guest(guest: GuestAddress) -> None:
    """Resume a guest's CPUs. Raises RuntimeError."""
    if guest["kind"] == "qemu":
        execute(guest["socket"], "cont")
    elif guest["kind"] == "proxmox":
        run(["qm", "resume", guest["vmid"]])
    else:
        # Another process may have resumed it since it was seen paused.
        virsh(guest["uri"], "resume", *called(guest["name"]), harmless_error="already running")
