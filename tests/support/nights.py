"""Synthetic runs of one experiment, one a night, whose guest becomes slower on one of them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.synthetic_run import Truth, make_run

FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)
NEW_KERNEL = "6.1.0-slower"


def make_nights(results: Path, nights: int, slower_from: int | None = None, factor: float = 0.8) -> list[Path]:
    """Write runs of `synthetic` below `results`; return their folders, the oldest first.

    From night `slower_from` on (from 0), the guest serves `factor` times as much, and has NEW_KERNEL.
    """
    folders = []
    for night in range(nights):
        is_slower = slower_from is not None and night >= slower_from
        made = make_run(
            results / f".night-{night}", Truth(servers={"nginx": 0.9 * (factor if is_slower else 1)}, seed=night)
        )
        started = FIRST + timedelta(days=night)
        folder = results / "synthetic" / f"{started:%Y%m%dT%H%M%SZ}-{night:04x}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        made.rename(folder)
        manifest = json.loads((folder / "run.json").read_text())
        manifest |= {"run_id": folder.name, "started_at": f"{started:%Y-%m-%dT%H:%M:%SZ}"}
        (folder / "run.json").write_text(json.dumps(manifest))
        hosts = json.loads((folder / "hosts.json").read_text())
        if is_slower:
            hosts["kvm-default"]["kernel"] = NEW_KERNEL
        (folder / "hosts.json").write_text(json.dumps(hosts))
        folders.append(folder)
    return folders
