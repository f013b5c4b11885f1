"""Signs of the platform that this machine runs on. vmtoll.model.hardware decides which kind it is.

Sources: CPUID leaves 1 and 0x40000000; /proc/cpuinfo; /sys/class/dmi/id; /sys/module.
"""

from __future__ import annotations

import os
import sys

from vmtoll.agent.kvm_host import cpu_flags
from vmtoll.agent.machine import output_of, read
from vmtoll.agent.protocol import Hypervisor

# Any user may execute CPUID; /dev/cpu/0/cpuid needs root and a module. It runs in its own process, which may crash.
_CPUID = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
# push rbx; mov eax, edi; mov r8, rsi; xor ecx, ecx; cpuid; mov [r8], eax; mov [r8+4], ebx; mov [r8+8], ecx;
# mov [r8+12], edx; pop rbx; ret
code.write(bytes.fromhex("53 89f8 4989f0 31c9 0fa2 418900 41895804 41894808 4189500c 5b c3"))
call = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
for leaf in (1, 0x40000000):
    registers = ctypes.create_string_buffer(16)
    call(leaf, registers)
    print(hex(leaf), registers.raw.hex())
"""


def cpuid() -> str:
    """This machine's CPUID, one line per leaf: `0x1 ` and EAX, EBX, ECX, EDX in hexadecimal; empty if unreadable."""
    return output_of(sys.executable, "-c", _CPUID) if os.uname().machine == "x86_64" else ""


def hypervisor(leaves: str, root: str = "") -> Hypervisor:
    """Signs of a hypervisor in these leaves of CPUID and in the files below `root`."""
    registers = {int(leaf, 16): bytes.fromhex(text) for leaf, text in map(str.split, leaves.splitlines())}
    flags, signature = cpu_flags(root), registers.get(0x40000000, b"")[4:].rstrip(b"\0").decode("ascii", "replace")
    return {
        # Intel's manual, volume 2, CPUID: ECX bit 31 of leaf 1 is always 0; hypervisors set it.
        "cpuid_bit": bool(registers[1][11] & 0x80) if 1 in registers else None,
        # Without a hypervisor the leaf does not exist: Intel's processors answer with the bytes of another leaf.
        "cpuid_signature": signature if signature.isprintable() else "",
        "cpuinfo_flag": "hypervisor" in flags if flags else None,
        "dmi_sys_vendor": read(f"{root}/sys/class/dmi/id/sys_vendor"),
        "dmi_product_name": read(f"{root}/sys/class/dmi/id/product_name"),
    }


def crypto_flags(root: str = "") -> list[str]:
    """CPU flags that make TLS fast: AES, the arithmetic of GCM and ChaCha20, elliptic curves."""
    return sorted({*cpu_flags(root)} & {"aes", "pclmulqdq", "vaes", "vpclmulqdq", "avx2", "bmi2", "adx"})
