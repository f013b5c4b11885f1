"""Find the processes of guests that libvirt does not run, and ask QEMU's monitor."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

from vmtoll.agent.machine import all_pids, qemu_pid, read
from vmtoll.agent.protocol import GuestAddress, Process, Thread

_LIMIT_S = 20.0


def pid_of(guest: GuestAddress) -> str | None:
    """PID of a guest's process; None if it does not run."""
    if guest["kind"] == "libvirt":
        return qemu_pid(guest["name"])
    return next((pid for pid in all_pids() if _listens_on(pid, guest["socket"])), None)


def _listens_on(pid: str, path: str) -> bool:
    """Return whether a QEMU process listens on this socket by its command line, whose paths may be relative."""
    words = read(f"/proc/{pid}/cmdline").split("\0")
    if not is_qemu(words[0]):
        return False
    paths = {part for word in words for part in re.split('[,=:"]', word) if "/" in part or part.endswith(path[-8:])}
    folder = _folder(pid)
    return any(os.path.join(folder, part) == path for part in paths)  # noqa: PTH118 (a Path would drop `..`)


def _folder(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115
    except OSError:
        return "/"


def is_qemu(program: str) -> bool:
    """Return whether a program is a QEMU system emulator, by its name."""
    return bool(re.fullmatch(r"(.*/)?(qemu-system-\w+|qemu-kvm|kvm)", program))


def process(pid: str) -> Process:
    """Read a guest's process and its threads from /proc."""
    return {
        "pid": int(pid),
        "online": cpu_list(read("/sys/devices/system/cpu/online")),
        "argv": read(f"/proc/{pid}/cmdline").rstrip("\0").split("\0"),
        "kvm": has_kvm(pid),
        "threads": [thread(path) for path in sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda p: int(p.name))],
    }


def cpu_list(text: str) -> list[int]:
    """The CPUs of a kernel's list such as `0-3,8`, one by one."""
    ranges = [part.split("-") for part in text.strip().split(",") if part]
    return [cpu for part in ranges for cpu in range(int(part[0]), int(part[-1]) + 1)]


def has_kvm(pid: str) -> bool | None:
    """Return whether a process has a virtual machine of KVM; None if this user may not read its open files."""
    try:
        names = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]  # noqa: PTH115
    except OSError:
        return None
    return any("kvm-vm" in name for name in names)


def thread(task: Path) -> Thread:
    """Read a thread of a process."""
    times_ns = [int(word) for word in read(f"{task}/schedstat").split()[:2]] or [0, 0]
    try:
        cpus = sorted(os.sched_getaffinity(int(task.name)))
    except OSError:  # it has ended
        cpus = []
    cpu_s, wait_s = (ns / 1e9 for ns in times_ns)
    return {"tid": int(task.name), "name": read(f"{task}/comm"), "cpu_s": cpu_s, "wait_s": wait_s, "cpus": cpus}


def execute(path: str, command: str) -> object:
    """Result of a command without arguments that QEMU's monitor takes on this socket. Raises RuntimeError.

    The runner itself asks QEMU. The agent does it only when the runner is gone, to resume a guest that it left paused.
    """
    try:
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(_LIMIT_S)
            monitor.connect(path)
            lines = monitor.makefile("rw", encoding="utf-8")
            for name in ("qmp_capabilities", command):
                lines.write(json.dumps({"execute": name}) + "\n")
                lines.flush()
                answer = json.loads(lines.readline())
                while "return" not in answer and "error" not in answer:  # the greeting, events
                    answer = json.loads(lines.readline())
    except (OSError, ValueError) as error:
        raise RuntimeError(f"QMP at {path}: {error}") from error
    if "error" in answer:
        raise RuntimeError(f"QMP at {path}: {command}: {answer['error'].get('desc')}")
    return answer["return"]
