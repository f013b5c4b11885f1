"""The tables of report and ODS: numbers per scenario and arm, findings, availability, facts of every machine."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from vmtoll.analysis import availability as shares
from vmtoll.analysis.histograms import merged_percentiles
from vmtoll.analysis.limiters import limiter
from vmtoll.analysis.run import Run
from vmtoll.analysis.schema import names
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.columns import COLUMNS, flat_scenario
from vmtoll.model.facts import LABELS
from vmtoll.model.finding import FINDINGS, Code, FindingKind, Role, Validity
from vmtoll.model.percentiles import FEWEST
from vmtoll.model.runtime import runtime_text
from vmtoll.model.table import Cell, columns_of
from vmtoll.model.trial import CROSSCHECK, Arm, Scenario, TrialRecord
from vmtoll.model.verdict import Share
from vmtoll.model.verdict_columns import claim_rows, effect_rows, verdict_rows
from vmtoll.report.plot import usable_trials
from vmtoll.report.words import DASH, scenario_labels

# Columns of the times that the server itself reports.
SERVER_TIMES = tuple(f"server_{kind}_{name}_us" for kind in ("time", "loop_lag") for name in ("p50", "p99", "p999"))
# Waits for a CPU: of the server's threads on their machine, of a guest's threads by kind on the KVM host.
WAITS = (
    "server_wait_us_per_request",
    *(f"host_{kind}_wait_us_per_request" for kind in ("vcpu", "vhost", "iothread", "qemu")),
)
WAIT_CPU = ("server_cpu_us_per_request", "host_vcpu_cpu_us_per_request")  # time that they ran
_IDENTITY = {"tool", "accelerator", "hardware", *(each.name for part in (Scenario, Arm) for each in columns_of(part))}
# Columns of trials.csv whose medians are in the table of numbers.
NUMBERS = [name for name in names("summaries") if name in COLUMNS and name not in _IDENTITY]
P50_COLUMNS = ["response_time_p50_us", "service_time_p50_us", f"{CROSSCHECK}service_time_p50_us"]


def numbers(run: Run) -> pd.DataFrame:
    """One row per scenario and arm: trials by validity, and medians over trials that are not invalid.

    Where histograms exist, also percentiles of all requests merged (`merged_p…_us`).
    """
    rows = [
        flat_scenario(scenario)
        | {"label": label, "arm": arm, "environment": arm.environment, "replicate": arm.replicate}
        | {"tool": run.tool(scenario), "accelerator": run.accelerator(arm).value, "hardware": run.hardware(arm).value}
        | _figures(run, scenario, arm, trials)
        for scenario, label in scenario_labels(run).items()
        for arm in run.arms
        if (trials := run.trials_of(scenario, arm))
    ]
    return pd.DataFrame(rows)


def _figures(run: Run, scenario: Scenario, arm: Arm, trials: list[TrialRecord]) -> dict[str, Cell]:
    used = usable_trials(run, scenario, arm)
    row: dict[str, Cell] = {"trials": len(trials)}
    row |= {validity.value: sum(trial.validity is validity for trial in trials) for validity in Validity}
    row |= {column: _median(used[column]) for column in NUMBERS}
    alike = [record.primary.machine_cpu_us_per_request for record in used["record"] if record.primary]
    row["machine_cpu_us_per_request"] = _median(pd.Series(alike, dtype=float))
    row["limiter"] = limiter_of_side.value if (limiter_of_side := limiter(run, used["record"])) else None
    logged = used[used[P50_COLUMNS].notna().any(axis=1)]
    merged = merged_percentiles(run.path, logged) or (None,) * 4
    for name, value in zip(FEWEST, merged, strict=True):
        row[f"merged_{name}_us"] = value if _requests(logged).sum() >= FEWEST[name] else None
    planned, failed = (used[f"{CROSSCHECK}{name}"].sum() for name in ("requests", "failed"))
    row[f"{CROSSCHECK}failure_rate"] = float(failed / planned) if planned else None
    return row


def _requests(trials: pd.DataFrame) -> pd.Series:
    """The number of responses in each trial; if unknown, one that is enough for every percentile."""
    responses = trials["transactions"].fillna(trials["requests"])
    return responses.fillna(max(FEWEST.values())).astype(float)


def _median(values: pd.Series) -> float | None:
    floats = values.to_numpy(dtype=float, na_value=np.nan)
    known = floats[~np.isnan(floats)]
    return float(np.median(known)) if len(known) else None


def summaries(run: Run) -> Iterator[dict[str, Cell]]:
    """One row per scenario and arm."""
    for row in numbers(run).to_dict("records"):
        yield {str(key): value for key, value in row.items()}


# Table of a run's results → its rows.
RESULTS: Mapping[str, Callable[[Run, RunAnalysis], Iterator[dict[str, Cell]]]] = {
    "summaries": lambda run, _: summaries(run),
    "verdicts": lambda _, analysis: verdict_rows(analysis),
    "effects": lambda _, analysis: effect_rows(analysis),
    "claims": lambda _, analysis: claim_rows(analysis),
}


def finding_counts(run: Run, analysis: RunAnalysis) -> list[tuple[Code, FindingKind, dict[Arm, int]]]:
    """(code, its kind, the trials of each arm with it) for each code that any trial has, the most frequent first."""
    return [
        (code, FINDINGS[code], {a: sum(code in t.codes for t in run.trials if t.arm == a) for a in run.arms})
        for code in analysis.findings
    ]


@dataclass(frozen=True)
class AvailabilityRow:
    """The share of one tool's requests that a scenario on an arm answered with success."""

    label: str
    arm: Arm
    tool: str
    share: Share

    @property
    def failed(self) -> int:
        return self.share.requests - self.share.successful


def availability(run: Run) -> list[AvailabilityRow]:
    """One row per scenario, arm and tool that has counts, over all trials, also invalid ones."""
    return [
        AvailabilityRow(label, arm, tool, share)
        for scenario, label in scenario_labels(run).items()
        for arm in run.arms
        for role, tool in ((Role.PRIMARY, run.tool(scenario)), (Role.CROSSCHECK, run.crosscheck(scenario)))
        if tool and (share := shares.availability(run.trials_of(scenario, arm), role))
    ]


# Facts in the table of machines, in this order.
HOST_FACTS = (
    "role", "environment", "virtualization", "hardware", "hypervisor", "kvm_modules", "container", "runtime",
    "release", "kernel", "cpu_model", "cpus_allowed", "memory_kib", "clock_source", "cpu_latency_us", "governor", "smt",
    "numa_nodes", "microcode", "mitigations", "nic", "workers", "qemu_version", "libvirt_version", "cmdline",
)  # fmt: skip

ROLES = {"sut": "machine under test", "kvm_host": "KVM host"}


def host_facts(run: Run) -> list[tuple[str, list[str]]]:
    """(fact, one text per machine); facts that no machine states are left out."""
    machines = [facts.recorded for facts in run.hosts.values()]
    rows = [(LABELS[key], [_fact(key, recorded) for recorded in machines]) for key in HOST_FACTS]
    return [(label, [_fact_text(v) for v in values]) for label, values in rows if not all(map(_is_empty, values))]


def _fact(key: str, recorded: Mapping[str, Any]) -> Any:
    value = recorded.get(key)
    if key == "runtime":
        return runtime_text(value or {})
    return ROLES.get(str(value), value) if key == "role" else value


def _is_empty(value: Any) -> bool:
    return value in (None, "", {}, [])


def _fact_text(value: Any) -> str:
    if _is_empty(value):
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_fact_text(item)}" for key, item in value.items())
    return ", ".join(_fact_text(item) for item in value) if isinstance(value, list) else str(value)
