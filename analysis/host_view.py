"""What the KVM host saw of each guest: exits, CPU by kind of thread, interrupts, steal; medians over trials."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.latency import trial_name
from analysis.load import Run
from analysis.plot import figures

# Key → column of trials.csv.
COLUMNS = {
    "exits": "host_exits_per_request",
    "vcpu_us": "host_vcpu_cpu_us_per_request",
    "qemu_us": "host_qemu_cpu_us_per_request",
    "vhost_us": "host_vhost_cpu_us_per_request",
    "host_irqs": "host_irqs_per_request",
    "guest_irqs": "guest_irqs_per_request",
    "steal_pct": "steal_pct",
}
MOST_REASONS = 3


def host_view(run: Run, scenario: tuple[str, ...], guests: list[str]) -> list[dict[str, Any]]:
    """One entry per guest that has trials: `environment`, the keys of COLUMNS (per request, or null), and `reasons`.

    `reasons`: the most frequent kinds of exit, KVM's name → per request; empty where KVM told none, and in a bundle.
    """
    found = []
    for guest in guests:
        trials = figures(run, scenario, guest)
        if not trials.empty:
            row = {key: _median(trials[column]) for key, column in COLUMNS.items()}
            found.append({"environment": guest, **row, "reasons": _reasons(run.path, trials)})
    return found


def _median(values: pd.Series) -> float | None:
    known = values.dropna().astype(float)
    return None if known.empty else float(known.median())


def _reasons(folder: Path, trials: pd.DataFrame) -> dict[str, float]:
    seen: dict[str, list[float]] = defaultdict(list)
    told = [_kvm(folder / "telemetry" / f"{name}.json") for name in map(_name, trials.itertuples())]
    told = [one for one in told if one]
    for one in told:
        for name, times in one.items():
            if name.endswith("_exits"):
                seen[name.removesuffix("_exits")].append(times)
    # A kind that a trial does not name did not happen there.
    medians = {name: statistics.median(times + [0.0] * (len(told) - len(times))) for name, times in seen.items()}
    return dict(sorted(medians.items(), key=lambda item: -item[1])[:MOST_REASONS])


def _name(trial: Any) -> str:
    return trial_name(trial.block, trial.order, trial.attempt)


def _kvm(file: Path) -> dict[str, float]:
    """KVM's counters during the trial's own tool, per request."""
    try:
        own = json.loads(file.read_text(encoding="utf-8"))["tool"]
    except FileNotFoundError:
        return {}
    requests = own["requests"] if own else 0
    return {name: times / requests for name, times in (own["kvm"] or {}).items()} if requests else {}
