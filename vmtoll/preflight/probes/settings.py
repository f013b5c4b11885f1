"""Print the settings that let this machine's speed vary."""

from __future__ import annotations

import json
from pathlib import Path

CPU = Path("/sys/devices/system/cpu")


def read(path: Path) -> str:
    """A file's text; empty where there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


print(
    json.dumps(
        {
            "governors": sorted({read(file) for file in CPU.glob("cpu[0-9]*/cpufreq/scaling_governor")}),
            "turbo": read(CPU / "intel_pstate" / "no_turbo") == "0" or read(CPU / "cpufreq" / "boost") == "1",
            "smt": read(CPU / "smt" / "control"),
            "irqbalance": any(read(file) == "irqbalance" for file in Path("/proc").glob("[0-9]*/comm")),
        }
    )
)
