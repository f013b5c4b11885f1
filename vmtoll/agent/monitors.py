"""Find the processes of guests, and ask QEMU's monitor."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from pathlib import Path

from vmtoll.agent.kvm_host import cpu_list
from vmtoll.agent.machine import all_pids, output_of, read
from vmtoll.agent.protocol import FoundGuest, GuestAddress, Process, Thread

_LIMIT_S = 20.0
# Programs of virtual machine monitors other than QEMU. Others are recognized by their virtual machine of KVM.
MONITORS = frozenset({"cloud-hypervisor", "firecracker", "crosvm", "lkvm", "dragonball", "stratovirt"})
KVM = Path("/dev/kvm")
# Folders of Proxmox VE, below the root: configurations by VMID; PID files and sockets of running guests.
CONFIGS, RUNNING = "etc/pve/qemu-server", "var/run/qemu-server"


def pid_of(guest: GuestAddress, root: Path = Path("/")) -> str | None:
    """PID of a guest's process; None if it does not run. `root`: the folder that contains etc and var."""
    if guest["kind"] == "libvirt":
        return qemu_pid(guest["name"])
    if guest["kind"] == "proxmox":
        return _proxmox_pid(guest["vmid"], root)
    if guest["kind"] == "process":
        return _unit_pid(guest["unit"]) if guest["unit"] else _pid_if_alive(read(guest["pid_file"]))
    return next((pid for pid in all_pids() if _listens_on(pid, guest["socket"])), None)


def qemu_pid(domain: str) -> str | None:
    """PID of the QEMU process that runs a libvirt domain; None if there is none."""
    return next((pid for pid in all_pids() if "qemu" in (words := _words(pid))[0] and name_of(words) == domain), None)


def _words(pid: str) -> list[str]:
    return read(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")


def _unit_pid(unit: str) -> str | None:
    """PID of a systemd unit's main process; None if the unit is not active."""
    return _pid_if_alive(output_of("systemctl", "show", "--property", "MainPID", "--value", unit))


def _pid_if_alive(pid: str) -> str | None:
    return pid if pid.isdigit() and read(f"/proc/{pid}/cmdline") else None


def _proxmox_pid(vmid: str, root: Path) -> str | None:
    """PID that Proxmox recorded, unless another process has that PID by now."""
    pid = read(str(root / RUNNING / f"{vmid}.pid"))
    words = read(f"/proc/{pid}/cmdline").split("\0") if pid.isdigit() else [""]
    is_named = any(f"/qemu-server/{vmid}." in word for word in words)
    return pid if is_qemu(words[0]) and is_named else None


def _listens_on(pid: str, path: str) -> bool:
    """Return whether a QEMU process listens on this socket by its command line, whose paths may be relative."""
    words = read(f"/proc/{pid}/cmdline").split("\0")
    if not is_qemu(words[0]):
        return False
    parts = {part for word in words for part in re.split('[,=:"]', word)}
    paths = [part for part in parts if part.rpartition("/")[2] == path.rpartition("/")[2]]
    folder = _folder(pid)
    return any(os.path.normpath(os.path.join(folder, part)) == os.path.normpath(path) for part in paths)  # noqa: PTH118


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
        "time_s": time.monotonic(),
        "online": cpu_list(read("/sys/devices/system/cpu/online")),
        "argv": read(f"/proc/{pid}/cmdline").rstrip("\0").split("\0"),
        "kvm": has_kvm(pid),
        "threads": [thread(path) for path in sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda p: int(p.name))],
    }


def guests(root: Path = Path("/")) -> list[FoundGuest]:
    """Return every guest of this machine; of Proxmox VE also those that are off, of libvirt's only the processes."""
    listed = [_proxmox_guest(file, root) for file in sorted((root / CONFIGS).glob("*.conf"))]
    known_pids = {str(guest["process"]["pid"]) for guest in listed if guest["process"]}
    for pid in sorted(set(all_pids()) - known_pids, key=int):
        words = _words(pid)
        if is_qemu(words[0]):
            kind = "libvirt" if is_libvirts(words) else "qemu"
            listed.append(_process_guest(kind, name_of(words) or pid, pid, words))
        elif is_monitor(words[0], pid):
            name = _value_of(words, "--id") or unit_of(pid).removesuffix(".service") or pid
            listed.append(_process_guest("process", name, pid, words))
    return listed


def is_monitor(program: str, pid: str) -> bool:
    """Return whether a process other than QEMU runs a guest, by its name or its virtual machine of KVM."""
    return program.rpartition("/")[2] in MONITORS or bool(program and KVM.exists() and has_kvm(pid))


def _proxmox_guest(file: Path, root: Path) -> FoundGuest:
    pid = _proxmox_pid(file.stem, root)
    config, unit = read(str(file)), unit_of(pid) if pid else ""
    return {"kind": "proxmox", "name": file.stem, "program": "kvm", "unit": unit, "config": config,
            "process": process(pid) if pid else None, "session": ""}  # fmt: skip


def _process_guest(kind: str, name: str, pid: str, words: list[str]) -> FoundGuest:
    program = words[0].rpartition("/")[2]
    return {"kind": kind, "name": name, "program": program, "unit": unit_of(pid), "config": "",
            "process": process(pid), "session": session_of(pid) if kind == "libvirt" else ""}  # fmt: skip


def session_of(pid: str) -> str:
    """Where the libvirt of a guest runs, by its process: in a container, or as a user's; empty for the machine's."""
    import pwd  # noqa: PLC0415 (few agents need it)

    try:
        if os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid"):  # noqa: PTH115
            return "in a container"
        user = pwd.getpwuid(os.stat(f"/proc/{pid}").st_uid).pw_name  # noqa: PTH116
    except (OSError, KeyError):
        return ""
    return "" if user in ("root", "qemu", "libvirt-qemu") else f"in qemu:///session of {user}"


def is_libvirts(words: list[str]) -> bool:
    """Return whether libvirt started this QEMU, which it gives a monitor of this name."""
    return any("id=charmonitor" in word or '"charmonitor"' in word for word in words)


def _value_of(words: list[str], option: str) -> str:
    """The value of an option, with one dash or two: its next word or after `=`; empty without the option."""
    single, option = [word[1:] if word.startswith("--") else word for word in words], option.replace("--", "-", 1)
    joined = next((word.partition("=")[2] for word in single if word.startswith(f"{option}=")), "")
    return words[single.index(option) + 1] if option in single[:-1] else joined


def name_of(words: list[str]) -> str:
    """The name of a guest by QEMU's option -name, empty without one."""
    parts = _value_of(words, "-name").replace(",,", "\0").split(",")  # QEMU doubles a comma of the name itself
    named = [part[6:] for part in parts if part.startswith("guest=")] or [part for part in parts[:1] if "=" not in part]
    return "".join(named[:1]).replace("\0", ",")


def unit_of(pid: str) -> str:
    """The systemd unit of a process, empty where it has none."""
    path = read(f"/proc/{pid}/cgroup").rpartition(":")[2].split("/")
    return next((part for part in reversed(path) if part.endswith((".service", ".scope"))), "")


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
