"""Recordings that show the hardware below machines: files of /proc and /sys, CPUID, `systemd-detect-virt --vm`.

`tcg-…`: Debian 12 under `qemu-system-x86_64 -accel tcg` 7.2 with `-cpu max`, `max,-hypervisor`, `EPYC` and
`EPYC,tcg-cpuid=off`, after `modprobe kvm_amd`. `firecracker-kvm_pvm`: a virtual machine of a cloud.
"""

from pathlib import Path

from vmtoll.agent.hardware import hypervisor
from vmtoll.agent.kvm_host import kvm_flags, kvm_modules
from vmtoll.model.facts import HostFacts

FOLDER = Path(__file__).parent / "recorded_hosts"
MACHINES = sorted(folder.name for folder in FOLDER.iterdir())


def facts(machine: str) -> HostFacts:
    """The facts of a recorded machine by which the agent recognizes the hardware."""
    root = FOLDER / machine
    models = [line for line in (root / "proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return HostFacts.model_validate(
        {
            "virtualization": (root / "virtualization").read_text().strip(),
            "cpu_model": models[0].partition(":")[2].strip(),
            "hypervisor": hypervisor((root / "cpuid").read_text(), str(root)),
            "kvm_modules": kvm_modules(str(root)),
            "kvm_flags": kvm_flags(str(root)),
        }
    )
