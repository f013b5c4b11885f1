"""A virtual machine of one page and one processor, made by KVM's own ioctls; and what each kind of exit costs in it."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

DEVICE = "/dev/kvm"
# <linux/kvm.h>
API_VERSION, CREATE_VM, VCPU_MMAP_SIZE, CREATE_VCPU = 0xAE00, 0xAE01, 0xAE04, 0xAE41
SET_MEMORY, SET_TASK_STATE, SET_EVENTFD = 0x4020AE46, 0xAE47, 0x4040AE79
RUN, SET_REGS, GET_SREGS, SET_SREGS = 0xAE80, 0x4090AE82, 0x8138AE83, 0x4138AE84
SREGS_BYTES = 0x138
EVENTFD_OF_PORT = 2
EXIT_IO, EXIT_HLT = 2, 5
PAGE = 4096
# Three pages that older processors need for real mode.
TASK_STATE = 0xD0000
HALT = b"\xf4"
# Ports and an address outside of its memory; KVM itself answers a write to those with an eventfd.
PORT, EVENTFD_PORT, EVENTFD_ADDRESS = 0x10, 0x11, 0x2000
# Kind of exit → the instructions that cause it, in 16-bit code.
EXITS = {
    "cpuid": b"\x66\x31\xc0\x0f\xa2",  # xor eax, eax; cpuid
    "msr": b"\x66\xb9\x1b\x00\x00\x00\x0f\x32",  # mov ecx, IA32_APIC_BASE; rdmsr
    "port-eventfd": b"\xe6\x11",  # out 0x11, al
    "mmio-eventfd": b"\xa2\x00\x20",  # mov [0x2000], al
}
BY_PROCESS = "port-process"
_ROUND_S, _ROUNDS = 0.02, 9  # an odd number, for a median
_MOST = 1 << 24


class VirtualMachine:
    """Runs 16-bit code from address 0 until something must be done outside. Raises OSError when KVM refuses a step."""

    def __init__(self, device: str = DEVICE) -> None:
        self._files: list[int] = []
        try:
            self.device = self._keep(os.open(device, os.O_RDWR | os.O_CLOEXEC))
            self.version = fcntl.ioctl(self.device, API_VERSION)
            self._machine = self._keep(fcntl.ioctl(self.device, CREATE_VM, 0))
            if os.uname().machine != "x86_64":
                self._keep(fcntl.ioctl(self._machine, CREATE_VCPU, 0))
                return
            import ctypes  # noqa: PLC0415 (a Python that was cut down may lack it, and most agents need it never)

            self._memory = mmap.mmap(-1, PAGE)
            address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
            fcntl.ioctl(self._machine, SET_TASK_STATE, TASK_STATE)
            fcntl.ioctl(self._machine, SET_MEMORY, struct.pack("=IIQQQ", 0, 0, 0, PAGE, address))
            self._processor = self._keep(fcntl.ioctl(self._machine, CREATE_VCPU, 0))
            self._state = mmap.mmap(self._processor, fcntl.ioctl(self.device, VCPU_MMAP_SIZE))
        except BaseException:
            self.close()
            raise

    def _keep(self, file: int) -> int:
        self._files.append(file)
        return file

    def load(self, program: bytes) -> None:
        """Let it begin this program."""
        self._memory.seek(0)
        self._memory.write(program)
        special = bytearray(SREGS_BYTES)
        fcntl.ioctl(self._processor, GET_SREGS, special)
        special[0:8], special[12:14] = bytes(8), bytes(2)  # the code segment begins at 0
        fcntl.ioctl(self._processor, SET_SREGS, special)
        fcntl.ioctl(self._processor, SET_REGS, struct.pack("=16Q", *[0] * 16) + struct.pack("=QQ", 0, 2))

    def run(self) -> int:
        """Let it go on until it stops; return why, by KVM's number (EXIT_…)."""
        fcntl.ioctl(self._processor, RUN, 0)
        reason: int = struct.unpack_from("=I", self._state, 8)[0]
        return reason

    def answer_by_eventfd(self) -> None:
        """Have KVM answer writes to EVENTFD_PORT and EVENTFD_ADDRESS, as it does for the doorbells of virtio."""
        for address, flags in ((EVENTFD_PORT, EVENTFD_OF_PORT), (EVENTFD_ADDRESS, 0)):
            event = self._keep(_eventfd())
            fcntl.ioctl(self._machine, SET_EVENTFD, struct.pack("=QQIiI36x", 0, address, 1, event, flags))

    def close(self) -> None:
        """Give it back to the kernel."""
        for file in reversed(self._files):
            os.close(file)
        self._files.clear()


def _eventfd() -> int:
    import ctypes  # noqa: PLC0415 (as above)

    event = ctypes.CDLL(None, use_errno=True).eventfd(0, 0o2004000)  # EFD_CLOEXEC, EFD_NONBLOCK
    if event < 0:
        raise OSError(ctypes.get_errno(), "eventfd")
    return int(event)


def why_no_code_runs(device: str = DEVICE) -> str:
    """Reason why no virtual processor runs code under KVM; empty if one does. Not tried except on x86-64.

    Raises OSError when KVM refuses a step.
    """
    with contextlib.closing(VirtualMachine(device)) as machine:
        if machine.version != 12:
            return f"its interface is version {machine.version}, not 12"
        if os.uname().machine != "x86_64":
            return ""
        machine.load(b"\xb0V\xe6\x10" + HALT)  # mov al, 'V'; out 0x10, al
        for expected in (EXIT_IO, EXIT_HLT):
            if (reason := machine.run()) != expected:
                return f"a processor stopped with exit reason {reason} where {expected} was due"
    return ""


def prices() -> list[dict[str, Any]]:
    """What an exit of each kind costs on this machine, from the instruction that causes it to the next one; without the
    time of whatever it is for. `port-process`: answered by a process, less what the process's own loop takes.

    Each is a protocol.ExitPrice. Takes about 2 s. Raises RuntimeError where KVM runs no code.
    """
    if os.uname().machine != "x86_64":
        raise RuntimeError("exits are priced on x86-64 alone")
    try:
        with contextlib.closing(VirtualMachine()) as machine:
            machine.answer_by_eventfd()
            listed = [_price(kind, partial(_loop_ns, machine, code)) for kind, code in EXITS.items()]
            listed.append(_price(BY_PROCESS, partial(_process_ns, machine)))
    except OSError as error:
        raise RuntimeError(f"{DEVICE}: {error.strerror}") from error
    return listed


def _price(kind: str, time_ns: Callable[[int], int]) -> dict[str, Any]:
    """Time rounds that take _ROUND_S or more each. `time_ns`: number of exits → their time."""
    count = 16
    while min(time_ns(count) for _ in range(2)) < _ROUND_S * 1e9 and count < _MOST:
        count *= 2
    rounds = sorted(time_ns(count) / count for _ in range(_ROUNDS))
    return {
        "kind": kind, "ns": rounds[_ROUNDS // 2], "low_ns": rounds[0], "high_ns": rounds[-1],
        "exits": count * _ROUNDS,
    }  # fmt: skip


def _loop_ns(machine: VirtualMachine, code: bytes, count: int) -> int:
    """Time in which the machine runs the code `count` times by itself. Raises RuntimeError when it stops before."""
    # mov edi, count; …; dec edi; jnz
    body = code + b"\x66\x4f"
    machine.load(b"\x66\xbf" + struct.pack("<I", count) + body + b"\x75" + struct.pack("b", -len(body) - 2) + HALT)
    begin_ns = time.perf_counter_ns()
    reason = machine.run()
    took_ns = time.perf_counter_ns() - begin_ns
    if reason != EXIT_HLT:
        raise RuntimeError(f"{DEVICE}: a processor stopped with exit reason {reason} where {EXIT_HLT} was due")
    return took_ns


def _process_ns(machine: VirtualMachine, count: int) -> int:
    """Time of `count` writes to a port that this process sees, less that of a loop of calls that do nothing."""
    machine.load(b"\xe6\x10\xeb\xfc")  # out 0x10, al; jmp to it
    begin_ns = time.perf_counter_ns()
    for _ in range(count):
        machine.run()
    middle_ns = time.perf_counter_ns()
    for _ in range(count):
        fcntl.ioctl(machine.device, API_VERSION)
    return max(0, 2 * middle_ns - begin_ns - time.perf_counter_ns())
