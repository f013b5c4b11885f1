"""What a machine's processors and their memory have drawn, by RAPL: the kernel's powercap counters."""

from __future__ import annotations

from pathlib import Path

from workloads.runner.agent.machine import read

POWERCAP = "/sys/class/powercap"


def energy_uj(folder: str = POWERCAP) -> dict[str, list[int]]:
    """Zone → [its counter, where that begins again from zero], in µJ: every processor, and memory counted apart.

    A zone of the whole platform, or of a part of a processor, would count the same energy twice. Empty where there is
    no such counter, as in a guest, or where this user may not read it: the kernel lets only root.
    """
    found = {}
    for zone in sorted(Path(folder).glob("intel-rapl:*")):  # the name of the interface on AMD's processors as well
        name = read(f"{zone}/name")
        now, end = read(f"{zone}/energy_uj"), read(f"{zone}/max_energy_range_uj")
        if (name.startswith("package") or name == "dram") and now.isdigit() and end.isdigit() and int(end) > 0:
            found[zone.name] = [int(now), int(end)]
    return found
