"""Read one run directory and refuse what does not keep the contract, naming the file and the column."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

SCHEMA = 1
BASELINE = "metal"
AA_ARM = "metal-b"
VERDICTS = ("valid", "suspect", "invalid")

CELL = ["block", "environment", "server", "workload", "tool", "offered_load"]
SCENARIO = ["server", "workload", "tool", "offered_load"]

TEXT_COLUMNS = [
    "run_id", "environment", "accelerator", "server", "workload", "tool", "offered_load", "started_at",
    "twin", "verdict", "reasons",
]  # fmt: skip
INTEGER_COLUMNS = [
    "block", "order", "attempt", "users", "requests", "transactions", "successful", "failed",
    "twin_requests", "twin_failed", "memory_pss_kib", "processes", "bodies_checked", "bodies_wrong",
]  # fmt: skip
FLOAT_COLUMNS = [
    "duration_s", "availability_pct", "transferred_mb", "throughput_rps", "throughput_mb_per_s",
    "response_time_mean_ms", "concurrency", "longest_ms", "shortest_ms",
    "twin_duration_s", "twin_throughput_rps",
    "service_time_mean_us", "service_time_p50_us", "service_time_p90_us", "service_time_p99_us",
    "service_time_p999_us",
    "server_cpu_user_s", "server_cpu_system_s", "server_cpu_us_per_request",
    "twin_server_cpu_us_per_request",
    "host_cpu_s", "host_cpu_us_per_request", "twin_host_cpu_us_per_request",
    "client_cpu_s", "client_cpu_share", "twin_client_cpu_share", "steal_pct", "link_used_pct", "fixed_cost_s",
]  # fmt: skip
REQUIRED_KEYS = ["schema", "run_id", "experiment", "status", "accelerators", "emulated", "differences"]
NEVER_EMPTY = ["block", "order", "attempt", "environment", "server", "verdict"]


class LoadError(ValueError):
    """A run directory that cannot be analysed; the message names the file and the column or key."""


@dataclass(frozen=True)
class Run:
    """One run: `attempts` has every row of trials.csv, `trials` the last attempt of each cell.

    Both carry one column more than the file: `codes`, the gate codes of `reasons` as a tuple.
    """

    path: Path
    meta: dict[str, Any]
    hosts: dict[str, dict[str, Any]]
    attempts: pd.DataFrame

    @cached_property
    def trials(self) -> pd.DataFrame:
        """Shape: (cells, columns); only the last attempt of a cell counts."""
        ordered = self.attempts.sort_values([*CELL, "attempt"], kind="stable")
        return ordered.drop_duplicates(CELL, keep="last").sort_values(["block", "order"], ignore_index=True)

    @cached_property
    def environments(self) -> list[str]:
        """The baseline first, then the A/A arm, then the guests by name."""
        found = set(self.trials["environment"])
        return [e for e in (BASELINE, AA_ARM) if e in found] + self.guests

    @cached_property
    def guests(self) -> list[str]:
        """Every environment that is compared with the baseline."""
        return sorted(set(self.trials["environment"]) - {BASELINE, AA_ARM})

    @cached_property
    def scenarios(self) -> list[tuple[str, ...]]:
        """(server, workload, tool, offered_load), sorted."""
        return sorted(set(self.trials[SCENARIO].itertuples(index=False, name=None)))

    def accelerator(self, environment: str) -> str:
        """`none`, `kvm`, `tcg` or `unknown`."""
        known: dict[str, str] = self.meta["accelerators"]
        if environment == AA_ARM:
            environment = AA_ARM if AA_ARM in known else BASELINE
        return str(known.get(environment, "unknown"))

    @property
    def emulated(self) -> bool:
        """True when any environment ran under software emulation, whichever file says so."""
        return bool(self.meta["emulated"]) or bool((self.attempts["accelerator"] == "tcg").any())


def scenario_labels(run: Run) -> dict[tuple[str, ...], str]:
    """Scenario → the shortest label that tells it apart: the server, and whatever else varies in the run."""
    varies = [i for i in range(1, len(SCENARIO)) if len({s[i] for s in run.scenarios}) > 1]
    return {s: " · ".join([s[0], *(s[i] for i in varies)]) for s in run.scenarios}


def load_run(run_dir: Path | str) -> Run:
    """Read `run.json`, `hosts.json` and `trials.csv` of a run directory; raises LoadError."""
    path = Path(run_dir)
    meta = _read_json(path / "run.json")
    missing = [key for key in REQUIRED_KEYS if key not in meta]
    if missing:
        raise LoadError(f"{path / 'run.json'}: missing key(s): {', '.join(missing)}")
    if meta["schema"] != SCHEMA:
        raise LoadError(f"{path / 'run.json'}: schema is {meta['schema']!r}, this program reads {SCHEMA}")
    return Run(path, meta, _read_json(path / "hosts.json"), _read_trials(path / "trials.csv"))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LoadError(f"{path}: no such file; is this a run directory?") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise LoadError(f"{path}: expected an object, got {type(value).__name__}")
    return value


def _read_trials(path: Path) -> pd.DataFrame:
    try:
        raw = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except FileNotFoundError:
        raise LoadError(f"{path}: no such file; is this a run directory?") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: {error}") from None
    wanted = TEXT_COLUMNS + INTEGER_COLUMNS + FLOAT_COLUMNS
    missing = [column for column in wanted if column not in raw.columns]
    if missing:
        raise LoadError(f"{path}: missing column(s): {', '.join(missing)}")
    trials = raw.copy()
    for column in INTEGER_COLUMNS:
        trials[column] = _numbers(path, raw, column, whole=True)
    for column in FLOAT_COLUMNS:
        trials[column] = _numbers(path, raw, column, whole=False)
    _check(path, raw, trials)
    trials["codes"] = [
        tuple(part.split(":", 1)[0].strip() for part in text.split(" | ") if part) for text in raw["reasons"]
    ]
    return trials


def _numbers(path: Path, raw: pd.DataFrame, column: str, *, whole: bool) -> pd.Series:
    """Empty cells become missing values; anything else must be a finite number. Python's float reads each
    to the nearest double; pandas' own parser is off by one bit at times.
    """
    values: list[float] = []
    for row, text in enumerate(raw[column]):
        try:
            value = float(text) if text.strip() else math.nan
        except ValueError:
            value = math.inf
        if math.isinf(value) or (text.strip() and math.isnan(value)) or (whole and value % 1 > 0):
            kind = "a whole number" if whole else "a number"
            raise LoadError(f"{path}: line {row + 2}, column {column}: {text!r} is not {kind}")
        values.append(value)
    return pd.Series(values, index=raw.index, dtype=float).astype("Int64" if whole else float)


def _check(path: Path, raw: pd.DataFrame, trials: pd.DataFrame) -> None:
    for column in NEVER_EMPTY:
        empty = raw[column].str.strip() == ""
        if empty.any():
            raise LoadError(f"{path}: line {int(empty.idxmax()) + 2}, column {column}: empty")
    unknown = ~trials["verdict"].isin(VERDICTS)
    if unknown.any():
        row = int(unknown.idxmax())
        raise LoadError(
            f"{path}: line {row + 2}, column verdict: {trials['verdict'][row]!r} is none of " + ", ".join(VERDICTS)
        )
    doubled = trials.duplicated([*CELL, "attempt"])
    if doubled.any():
        row = int(doubled.idxmax())
        raise LoadError(f"{path}: line {row + 2}, column attempt: the same attempt of a trial stands twice")
