"""The KVM host's figures of each guest: exits, CPU by kind of thread, interrupts, steal; medians over trials."""

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from vmtoll.analysis.amounts import median_of
from vmtoll.analysis.run import Run
from vmtoll.model.finding import Role, Validity
from vmtoll.model.trial import Arm, Scenario, TrialRecord
from vmtoll.model.verdict import HostView

# Field of HostView → field of Resources.
_FIELDS = {
    "exits": "host_exits_per_request",
    "vcpu_us": "host_vcpu_cpu_us_per_request",
    "vcpu_wait_us": "host_vcpu_wait_us_per_request",
    "qemu_us": "host_qemu_cpu_us_per_request",
    "vhost_us": "host_vhost_cpu_us_per_request",
    "host_irqs": "host_irqs_per_request",
    "guest_irqs": "guest_irqs_per_request",
    "steal_pct": "steal_pct",
}
MOST_KINDS = 3


def host_view(run: Run, scenario: Scenario, guests: Sequence[Arm]) -> list[HostView]:
    """One entry per guest that has valid or suspect trials.

    `exit_kinds`: the most frequent ones; empty if KVM counted none, and in a bundle.
    """
    views = []
    for guest in guests:
        trials = [trial for trial in run.trials_of(scenario, guest) if trial.validity is not Validity.INVALID]
        if trials:
            medians = {key: _median(trials, field) for key, field in _FIELDS.items()}
            views.append(HostView(arm=guest, **medians, exit_kinds=_exit_kinds(run.path, trials)))
    return views


def _median(trials: Sequence[TrialRecord], field: str) -> float | None:
    return median_of(getattr(trial.resources, field) for trial in trials)


def _exit_kinds(folder: Path, trials: Sequence[TrialRecord]) -> dict[str, float]:
    exits_by_kind: dict[str, list[float]] = defaultdict(list)
    trial_counters = [
        counters for trial in trials if (counters := _kvm_counters(folder / "telemetry" / f"{trial.name}.json"))
    ]
    for counters in trial_counters:
        for name, times in counters.items():
            if name.endswith("_exits"):
                exits_by_kind[name.removesuffix("_exits")].append(times)
    # A kind that a trial does not name did not occur in it.
    medians = {
        name: statistics.median(times + [0.0] * (len(trial_counters) - len(times)))
        for name, times in exits_by_kind.items()
    }
    return dict(sorted(medians.items(), key=lambda item: -item[1])[:MOST_KINDS])


def _kvm_counters(file: Path) -> dict[str, float]:
    """KVM's counters during the primary measurement, per request."""
    try:
        primary = json.loads(file.read_text(encoding="utf-8"))[Role.PRIMARY]
    except FileNotFoundError:
        return {}
    requests = primary["requests"] if primary else 0
    return {name: times / requests for name, times in (primary["kvm"] or {}).items()} if requests else {}
